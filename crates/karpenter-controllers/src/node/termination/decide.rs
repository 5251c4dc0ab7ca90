//! What a deleted node needs next: its pods out, its volumes off, its machine ended.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use karpenter_api::types::{Condition, ConditionStatus, NodeClaim};
use karpenter_cluster::clock::since;
use karpenter_state::pod::Pod;

use crate::node::eviction::needs_deletion;
use crate::pods;

/// A node drains at least this long: endpoints and load balancers need a moment to look elsewhere.
pub const MIN_DRAIN_TIME: Duration = Duration::from_secs(5);

pub(super) const DRAINED: &str = "Drained";

/// A volume that the node has not let go of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    pub name: String,
    /// A pod that stays uses it, so it will not go either.
    pub is_kept: bool,
}

/// Everything known about a node on its way out.
#[derive(Debug, Clone)]
pub struct Facts {
    pub node: Arc<Node>,
    pub claim: Option<Arc<NodeClaim>>,
    /// All pods that are bound to it.
    pub pods: Vec<Arc<Pod>>,
    pub attachments: Vec<Attachment>,
    /// When the node goes, whatever is left on it.
    pub terminate_by: Option<Timestamp>,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Pods have to leave.
    Drain(Drain),
    /// They have left, but not long enough ago.
    Linger,
    /// These attachments have to go.
    AwaitVolumes(Vec<String>),
    /// Nothing is left that would be waited for.
    EndMachine { volumes_detached: bool },
}

/// Which pods have to leave now, and how many are still there.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Drain {
    /// Their node's time does not reach for a polite end.
    pub delete: Vec<Arc<Pod>>,
    /// The first group that is not empty; the next one waits until it is.
    pub evict: Vec<Arc<Pod>>,
    pub waiting: usize,
}

pub fn decide(facts: &Facts, now: Timestamp) -> Step {
    let drain = decide_drain(&facts.pods, facts.terminate_by, now);
    if drain.waiting > 0 {
        return Step::Drain(drain);
    }
    if let Some(claim) = facts.claim.as_deref() {
        let drained = condition(claim, DRAINED);
        let started = drained
            .filter(|drained| drained.status == ConditionStatus::Unknown)
            .and_then(|drained| drained.last_transition_time.as_ref());
        match (drained, started) {
            (None, _) => return Step::Linger,
            (Some(_), Some(started)) if since(now, started.0) < MIN_DRAIN_TIME => return Step::Linger,
            (Some(_), _) => {}
        }
    }
    let attached: Vec<String> = facts
        .attachments
        .iter()
        .filter(|attachment| !attachment.is_kept)
        .map(|attachment| attachment.name.clone())
        .collect();
    let is_time_up = facts.terminate_by.is_some_and(|by| now > by);
    match (attached.is_empty(), is_time_up) {
        (true, _) => Step::EndMachine { volumes_detached: true },
        (false, true) => Step::EndMachine { volumes_detached: false },
        (false, false) => Step::AwaitVolumes(attached),
    }
}

/// Orders the way out: workloads before daemons, and what the cluster needs to work last of all.
pub fn decide_drain(on_node: &[Arc<Pod>], terminate_by: Option<Timestamp>, now: Timestamp) -> Drain {
    let waiting: Vec<&Arc<Pod>> = on_node.iter().filter(|pod| pods::is_waiting_eviction(pod, now)).collect();
    let must_end = |pod: &Pod| terminate_by.is_some_and(|by| needs_deletion(pod, by, now));
    let (delete, polite): (Vec<&Arc<Pod>>, Vec<&Arc<Pod>>) =
        waiting.iter().copied().partition(|pod| must_end(pod));
    let first_group = polite.iter().map(|pod| group(pod)).min();
    let evict = polite
        .iter()
        .filter(|pod| Some(group(pod)) == first_group && pods::is_active(pod))
        .map(|pod| Arc::clone(pod))
        .collect();
    Drain { delete: delete.into_iter().cloned().collect(), evict, waiting: waiting.len() }
}

/// The place in the order: critical pods after others, daemons after workloads.
fn group(pod: &Pod) -> (bool, bool) {
    let class = pod.spec.priority_class_name.as_deref();
    let is_critical = matches!(class, Some("system-cluster-critical" | "system-node-critical"));
    (is_critical, pods::is_owned_by_daemon_set(pod))
}

pub(super) fn condition<'a>(claim: &'a NodeClaim, name: &str) -> Option<&'a Condition> {
    claim.status.as_ref()?.conditions.iter().find(|condition| condition.type_ == name)
}
