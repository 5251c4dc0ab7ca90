//! Writes `status.lastPodEventTime` of a NodeClaim when a pod is bound to its node, terminates or is deleted.
//! `consolidateAfter` counts from this time.
//!
//! Pods of DaemonSets are ignored. For a pod that was already bound when the controller started, the event time is that
//! of its binding; the event is ignored if it is less than [`QUIET`] after the recorded one.
//!
//! Upstream: pkg/controllers/nodeclaim/podevents.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use karpenter_api::types::NodeClaim;
use karpenter_runtime::clock::since;
use karpenter_runtime::object::{ObjectKey, is_not_found, name_of, uid_of};
use karpenter_runtime::queue::Queue;
use karpenter_runtime::store::Change;
use karpenter_runtime::worker::{Reconcile, Requeue};
use karpenter_state::pod::Pod;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use crate::inputs::{Reads, Writes};
use crate::pods::{is_terminal, is_terminating, node_name};
use crate::stores::BY_PROVIDER_ID;

/// The minimum interval between two writes. It is shorter than the 15 seconds after which a command is validated, so
/// that the validation sees every event.
const QUIET: Duration = Duration::from_secs(10);

/// When a pod event of a node occurred: now, or when the pod was bound, if it was bound before the controller started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Now,
    BoundAt(Timestamp),
}

fn is_of_daemon_set(pod: &Pod) -> bool {
    pod.owners().iter().any(|owner| owner.kind == "DaemonSet")
}

fn bound_at(pod: &Pod) -> Option<Timestamp> {
    pod.status.scheduled.filter(|scheduled| scheduled.is_true)?.since
}

/// The pod event of a changed pod; `None` if the change is no pod event.
fn event(change: &Change<Pod>) -> Option<Event> {
    let pod = change.object();
    node_name(pod)?;
    if is_of_daemon_set(pod) {
        return None;
    }
    match change {
        Change::Deleted { .. } => Some(Event::Now),
        Change::Applied { old: None, new } => Some(bound_at(new).map_or(Event::Now, Event::BoundAt)),
        Change::Applied { old: Some(old), new } => {
            let is_new = node_name(old).is_none()
                || (!is_terminal(old) && is_terminal(new))
                || (!is_terminating(old) && is_terminating(new));
            is_new.then_some(Event::Now)
        }
    }
}

/// Whether the event is written to the claim, whose last recorded event was at `last`.
fn decide(last: Option<Timestamp>, event: Event, now: Timestamp) -> bool {
    match (last, event) {
        (None, _) => true,
        // The pod was bound less than [`QUIET`] after the last recorded event, so the process that ran at that time did
        // not write this event either.
        (Some(last), Event::BoundAt(at)) if since(at, last) < QUIET => false,
        (Some(last), _) => since(now, last) >= QUIET,
    }
}

pub struct PodEventsController {
    pub reads: Reads,
    pub writes: Writes,
    /// The latest pod event of each node that no reconcile has handled yet.
    pending: Arc<Mutex<BTreeMap<String, Event>>>,
}

impl PodEventsController {
    pub fn new(reads: Reads, writes: Writes) -> Self {
        Self { reads, writes, pending: Arc::default() }
    }

    pub fn watch(&self, queue: &Queue) {
        let (to, pending) = (queue.clone(), self.pending.clone());
        self.reads.stores.pods.observe(move |change: &Change<Pod>| {
            let Some((event, node)) = event(change).zip(node_name(change.object())) else { return };
            let mut pending = pending.lock().unwrap_or_else(PoisonError::into_inner);
            let kept = pending.entry(node.to_owned()).or_insert(event);
            *kept = match (*kept, event) {
                (Event::BoundAt(one), Event::BoundAt(two)) => Event::BoundAt(one.max(two)),
                _ => Event::Now,
            };
            to.add(ObjectKey::new("", node));
        });
    }

    fn claim_of(&self, node: &str) -> Option<Arc<NodeClaim>> {
        let stores = &self.reads.stores;
        let node = stores.nodes.get("", node)?;
        let id = node.spec.as_ref()?.provider_id.as_deref()?;
        let [claim] = &stores.node_claims.by(BY_PROVIDER_ID, id)[..] else { return None };
        self.reads.is_managed(&claim.spec.node_class_ref).then(|| claim.clone())
    }
}

impl Reconcile for PodEventsController {
    async fn reconcile(&self, key: &ObjectKey) -> kube::Result<Requeue> {
        let event = self.pending.lock().unwrap_or_else(PoisonError::into_inner).remove(&key.name);
        let Some((event, claim)) = event.zip(self.claim_of(&key.name)) else { return Ok(Requeue::No) };
        let last = claim.status.as_ref().and_then(|status| status.last_pod_event_time.as_ref());
        if !decide(last.map(|time| time.0), event, self.reads.clock.now()) {
            return Ok(Requeue::No);
        }
        let patch = json!({"metadata": {"uid": uid_of(&*claim)},
            "status": {"lastPodEventTime": self.reads.clock.time()}});
        let api = Api::<NodeClaim>::all(self.writes.client.clone());
        match api.patch_status(name_of(&*claim), &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(answer) => self.reads.stores.node_claims.apply(answer),
            Err(error) if is_not_found(&error) => {}
            Err(error) => {
                let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
                pending.entry(key.name.clone()).or_insert(event);
                return Err(error);
            }
        }
        Ok(Requeue::No)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(node: &str, phase: &str, patch: Value) -> Arc<Pod> {
        let mut object = json!({"metadata": {"name": "pod"}, "spec": {"containers": []},
            "status": {"phase": phase, "conditions": [
                {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
        if !node.is_empty() {
            object["spec"]["nodeName"] = json!(node);
        }
        for (key, value) in patch.as_object().into_iter().flatten() {
            object["metadata"][key] = value.clone();
        }
        Arc::new(serde_json::from_value(object).expect("a pod"))
    }

    #[test]
    fn binding_termination_and_deletion_are_pod_events() {
        let waiting = pod("", "Pending", json!({}));
        let bound = pod("node", "Pending", json!({}));
        let running = pod("node", "Running", json!({}));
        let ended = pod("node", "Succeeded", json!({}));
        let terminating = pod("node", "Running", json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}));
        let daemon = pod(
            "node",
            "Running",
            json!({"ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u"}]}),
        );
        let changed = |old: &Arc<Pod>, new: &Arc<Pod>| {
            event(&Change::Applied { old: Some(old.clone()), new: new.clone() })
        };
        assert_eq!(changed(&waiting, &bound), Some(Event::Now));
        assert_eq!(changed(&bound, &running), None);
        assert_eq!(changed(&running, &ended), Some(Event::Now));
        assert_eq!(changed(&running, &terminating), Some(Event::Now));
        assert_eq!(event(&Change::Deleted { old: terminating }), Some(Event::Now));
        assert_eq!(event(&Change::Deleted { old: waiting.clone() }), None);
        assert_eq!(event(&Change::Applied { old: None, new: waiting }), None);
        assert_eq!(event(&Change::Deleted { old: daemon }), None);
        let found = event(&Change::Applied { old: None, new: running });
        assert!(matches!(found, Some(Event::BoundAt(_))), "{found:?}");
    }

    #[test]
    fn events_are_written_at_most_every_ten_seconds() {
        let at = |seconds: i64| Timestamp::from_second(1_000_000 + seconds).expect("a time");
        assert!(decide(None, Event::Now, at(0)));
        assert!(decide(None, Event::BoundAt(at(0)), at(500)));
        assert!(!decide(Some(at(0)), Event::Now, at(9)));
        assert!(decide(Some(at(0)), Event::Now, at(10)));
        assert!(!decide(Some(at(5)), Event::BoundAt(at(5)), at(500)));
    }

    #[test]
    fn restart_writes_no_event_for_binding_within_ten_seconds_of_the_last_one() {
        let at = |seconds: i64| Timestamp::from_second(1_000_000 + seconds).expect("a time");
        assert!(!decide(Some(at(5)), Event::BoundAt(at(6)), at(500)));
        assert!(!decide(Some(at(5)), Event::BoundAt(at(14)), at(500)));
        assert!(decide(Some(at(5)), Event::BoundAt(at(15)), at(500)));
    }
}
