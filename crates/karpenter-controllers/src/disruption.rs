//! Nodes that need not be there, or are not what they should be, are found and taken away, as fast as their pools'
//! budgets allow.
//!
//! Two loops share the commands. The one looks at the whole cluster and decides with pure functions what should go and
//! what takes its place (`karpenter_disruption`). The other leads the commands that have begun to their end
//! ([`active`]). Neither waits inside a pass: a delay is a stage with a deadline. The drain itself is the node's business
//! ([`crate::node`]). Commands live in memory; what is written on the claims of replacements lets a restarted process
//! take a command up again, and what cannot be taken up is rolled back. How much was moved and when is written down where
//! a pool bounds it ([`remembered`]).
//!
//! Upstream: pkg/controllers/disruption.

mod advance;
mod command_queue;
pub mod command_state;
mod evaluate;
mod execute;
mod faults;
pub(crate) mod observe;
mod persist_moves;
mod pod_churn;
mod report;
mod resolved_command;
mod resume;
mod trigger;
mod validate;
pub mod verdicts;
mod watchdog;

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use karpenter_api::types::NodeClaim;
use karpenter_cluster::reconcile::{Queue, Reconcile, Requeue};
use karpenter_cluster::store::{Change, ObjectKey};
use karpenter_disruption::settings::{Mode, Settings as Rules};
use karpenter_model::problem;

use self::command_queue::CommandQueue;
use self::pod_churn::PodChurn;
use self::trigger::EvaluationTrigger;
use self::watchdog::EvaluationWatchdog;
use crate::context::Context;

pub use self::command_state::VALIDATION_DELAY;
pub use self::faults::Inspect;
pub use self::resume::ANNOTATION_REPLACES;
pub(crate) use self::resume::created_for;

/// Between two looks when there is nothing to do.
pub const IDLE_POLL: Duration = Duration::from_secs(10);
/// Between two looks while something is under way, not known yet, or has to be tried again.
pub const RETRY_POLL: Duration = Duration::from_secs(1);
/// A cluster in which nothing changes is looked at again after this long.
pub const REEVALUATE_AFTER_MAX: Duration = Duration::from_secs(5 * 60);

/// The condition that says why a claim goes.
pub const DISRUPTION_REASON: &str = "DisruptionReason";

/// The loops. There is one of these per process, worked on by two tasks.
pub struct Disruption {
    context: Context,
    rules: Rules,
    validation_delay: Duration,
    command_queue: Arc<Mutex<CommandQueue>>,
    trigger: EvaluationTrigger,
    pod_churn: PodChurn,
    watchdog: EvaluationWatchdog,
    commands: OnceLock<Queue>,
    /// Held while moved pods are written down.
    move_count_lock: tokio::sync::Mutex<()>,
    suspects: Mutex<faults::Suspects>,
    inspect: Option<Inspect>,
}

impl Disruption {
    pub fn new(context: Context) -> Self {
        let rules = rules(&context);
        Self {
            context,
            rules,
            validation_delay: VALIDATION_DELAY,
            command_queue: Arc::default(),
            trigger: EvaluationTrigger::default(),
            pod_churn: PodChurn::default(),
            watchdog: EvaluationWatchdog::default(),
            commands: OnceLock::new(),
            move_count_lock: tokio::sync::Mutex::new(()),
            suspects: Mutex::default(),
            inspect: None,
        }
    }

    /// Calls `inspect` with every cluster that is about to be evaluated.
    pub fn inspected_by(mut self, inspect: Inspect) -> Self {
        self.inspect = Some(inspect);
        self
    }

    /// With another rest between a proposal and the second look at it.
    pub fn with_validation_delay(mut self, delay: Duration) -> Self {
        self.validation_delay = delay;
        self
    }

    /// Both loops work on one queue.
    pub fn watch(&self, queue: &Queue) {
        self.watch_apart(queue, queue);
    }

    /// Each loop works on a queue of its own.
    pub fn watch_apart(&self, evaluations: &Queue, commands: &Queue) {
        let _ = self.commands.set(commands.clone());
        self.trigger.watch(&self.context.stores);
        self.pod_churn.watch(&self.context.stores, self.context.clock);
        let trigger = self.trigger.clone();
        self.context.overlays.on_change(move || trigger.record_change());
        let trigger = self.trigger.clone();
        self.context.state.on_buffer_hosts_changed(move || trigger.record_change());
        commands.add(commands_key());
        evaluations.add(evaluation_key());
        // A replacement that is lost, or ready, is worth a look at once: nobody else should act on it first.
        let to = commands.clone();
        self.context.stores.node_claims.observe(move |change: &Change<NodeClaim>| {
            let is_replacement = resume::is_replacement(change.object());
            let is_lost = change.is_deleted() || change.object().metadata.deletion_timestamp.is_some();
            if is_replacement && (is_lost || becomes_ready(change)) {
                to.add(commands_key());
            }
        });
        // Budgets may be open again: for what waits for that, and for more once all that were going are gone.
        let (to, stores) = (evaluations.clone(), self.context.stores.clone());
        let (command_queue, clock) = (self.command_queue.clone(), self.context.clock);
        self.context.stores.node_claims.observe(move |change: &Change<NodeClaim>| {
            let is_going = |claim: &Arc<NodeClaim>| claim.metadata.deletion_timestamp.is_some();
            if change.is_deleted() {
                let is_awaited = lock(&command_queue).budget_may_be_free(clock.now());
                if is_awaited || !stores.node_claims.list().iter().any(is_going) {
                    to.add(evaluation_key());
                }
            }
        });
    }

    /// A command has begun, and somebody has to see to it.
    fn wake_command_loop(&self) {
        if let Some(queue) = self.commands.get() {
            queue.add(commands_key());
        }
    }

    fn command_queue(&self) -> MutexGuard<'_, CommandQueue> {
        lock(&self.command_queue)
    }

    fn suspects(&self) -> MutexGuard<'_, faults::Suspects> {
        self.suspects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn lock(command_queue: &Mutex<CommandQueue>) -> MutexGuard<'_, CommandQueue> {
    command_queue.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Reconcile for Disruption {
    async fn reconcile(&self, key: &ObjectKey) -> kube::Result<Requeue> {
        let wait = if *key == commands_key() { self.advance().await } else { self.evaluate().await };
        Ok(Requeue::After(wait))
    }
}

fn commands_key() -> ObjectKey {
    ObjectKey::new("", "commands")
}

fn evaluation_key() -> ObjectKey {
    ObjectKey::new("", "evaluation")
}

fn becomes_ready(change: &Change<NodeClaim>) -> bool {
    let is_ready = |claim: &NodeClaim| crate::nodeclaim::is_true(claim, crate::nodeclaim::INITIALIZED);
    match change {
        Change::Applied { old, new } => is_ready(new) && !old.as_deref().is_some_and(is_ready),
        Change::Deleted { .. } => false,
    }
}

/// What the administrator set, as the rules want it.
fn rules(context: &Context) -> Rules {
    let planner = &context.settings.planner;
    Rules {
        mode: match planner.mode {
            problem::Mode::Cost => Mode::Cost,
            problem::Mode::Compat => Mode::Compat,
        },
        spot_to_spot: context.gates.spot_to_spot_consolidation,
        terminate_first_drift: context.gates.terminate_first_drift,
        terminate_first_repair: context.gates.terminate_first_repair,
        effort: planner.effort,
        saving_ratio: context.settings.saving_ratio,
    }
}
