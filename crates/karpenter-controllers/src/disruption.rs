//! Nodes that need not be there are found and asked to go, as fast as their pool's budgets allow.
//!
//! One loop looks at everything: observe, then one pure decision ([`decide`]), then the writes. A method finds
//! candidates; a command carries them through a waiting time, in which the cluster may change its mind, to the deletion
//! of their claims. The drain itself is the node's business ([`crate::node`]). Commands live in memory: after a restart
//! a node that was marked and not yet deleted is opened again.
//!
//! Upstream: pkg/controllers/disruption.

mod act;
pub mod budgets;
pub mod candidate;
pub mod command;
pub mod cost;
pub mod emptiness;
pub mod snapshot;
#[cfg(test)]
mod tests;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use karpenter_cluster::harness::{After, Queue, Reconcile};
use karpenter_cluster::mirror::ObjectKey;

use crate::context::Context;

pub use command::{Command, Decision, Method, Stage, decide};
pub use snapshot::Snapshot;

/// Between two looks when there is nothing to do.
pub const IDLE_POLL: Duration = Duration::from_secs(10);
/// Between two looks while something is not known yet or has to be tried again.
pub const RETRY_POLL: Duration = Duration::from_secs(1);

/// The loop. There is one.
pub struct Disruption {
    context: Context,
    commands: Mutex<Vec<Command>>,
}

impl Disruption {
    pub fn new(context: Context) -> Self {
        Self { context, commands: Mutex::default() }
    }

    pub fn watch(&self, queue: &Queue) {
        queue.add(ObjectKey::new("", "disruption"));
    }

    fn commands(&self) -> MutexGuard<'_, Vec<Command>> {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reconcile for Disruption {
    async fn reconcile(&self, _: &ObjectKey) -> kube::Result<After> {
        let Some(snapshot) = snapshot::observe(&self.context).await else {
            return Ok(After::Again(RETRY_POLL));
        };
        let now = self.context.clock.now();
        let commands = self.commands().clone();
        let decision = decide(&snapshot, &commands, now);
        let wait = self.act(&snapshot, decision, now).await;
        Ok(After::Again(wait))
    }
}
