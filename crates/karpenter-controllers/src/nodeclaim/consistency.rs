//! Detects nodes that have less than 90 % of the capacity that their instance type should have. The controller only
//! reports them, with an event, a log line and the condition `ConsistentStateFound`.
//!
//! Upstream: pkg/controllers/nodeclaim/consistency.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use karpenter_api::types::NodeClaim;
use karpenter_model::quantity::Quantity;
use karpenter_runtime::object::{ObjectKey, is_conflict, is_deleting, uid_of};
use karpenter_runtime::queue::Queue;
use karpenter_runtime::worker::{Reconcile, Requeue};
use karpenter_state::claim::{CONSISTENT_STATE_FOUND, INITIALIZED, change_conditions, is_true};

use crate::events::ObjectEvent;
use crate::inputs::{Reads, Writes};
use crate::recent::RecentSet;
use crate::writes;

const PERIOD: Duration = Duration::from_secs(10 * 60);
const SHARE_MIN: f64 = 0.90;

/// A message for each requested resource of which the node has too little.
fn issues(claim: &NodeClaim, node: &Node) -> Vec<String> {
    let requests = claim.spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    let expected = claim.status.as_ref().and_then(|status| status.capacity.as_ref());
    let capacity = node.status.as_ref().and_then(|status| status.capacity.as_ref());
    let mut issues = Vec::new();
    for (name, requested) in requests.into_iter().flatten() {
        let Some(expected) = expected.and_then(|expected| expected.get(name)) else { continue };
        if requested.is_zero() || expected.is_zero() {
            continue;
        }
        let found: Quantity =
            capacity.and_then(|amounts| amounts.get(name)?.0.parse().ok()).unwrap_or_default();
        let share = found.to_f64_lossy() / expected.to_f64_lossy();
        if share < SHARE_MIN {
            issues.push(format!(
                "expected {expected} of resource {name}, but found {found} ({:.1}% of expected)",
                share * 100.0
            ));
        }
    }
    issues
}

pub struct ConsistencyController {
    pub reads: Reads,
    pub writes: Writes,
    /// When each claim was last checked, by uid.
    checked: RecentSet,
}

impl ConsistencyController {
    pub fn new(reads: Reads, writes: Writes) -> Self {
        Self { reads, writes, checked: RecentSet::within(PERIOD) }
    }

    pub fn watch(&self, queue: &Queue) {
        self.reads.stores.enqueue_claims(queue);
    }

    /// The time until the next check of the claim; `None` if the check is due; the call then records it as done, and
    /// the next one is due after [`PERIOD`].
    fn wait(&self, claim: &NodeClaim, now: Timestamp) -> Option<Duration> {
        let last = self.checked.ago(uid_of(claim), now);
        if last.is_none() {
            self.checked.record(uid_of(claim), now);
        }
        last.map(|ago| PERIOD - ago)
    }
}

impl Reconcile for ConsistencyController {
    async fn reconcile(&self, key: &ObjectKey) -> kube::Result<Requeue> {
        let Some(claim) = self.reads.managed_claim(key) else { return Ok(Requeue::No) };
        if is_deleting(&*claim) || !is_true(&claim, INITIALIZED) {
            return Ok(Requeue::No);
        }
        // A claim with several nodes is not checked here; the lifecycle controller reports it.
        let [node] = &self.reads.stores.nodes_of(&claim)[..] else { return Ok(Requeue::After(PERIOD)) };
        let now = self.reads.clock.now();
        if let Some(wait) = self.wait(&claim, now) {
            return Ok(Requeue::After(wait));
        }
        let issues = issues(&claim, node);
        for issue in &issues {
            tracing::info!(issue, "failed consistency check");
            let event = ObjectEvent::warning(&*claim, "FailedConsistencyCheck", issue.clone());
            self.writes.recorder.publish(event.dedupe_by(issue)).await;
        }
        let mut wanted = (*claim).clone();
        change_conditions(&mut wanted, now, |set| {
            if !issues.is_empty() {
                set.set_false(CONSISTENT_STATE_FOUND, "ConsistencyCheckFailed", "Consistency Check Failed");
            } else if !set.is_true(CONSISTENT_STATE_FOUND) {
                set.set_true(CONSISTENT_STATE_FOUND);
            }
        });
        let Reads { stores, .. } = &self.reads;
        let Writes { client, .. } = &self.writes;
        let written =
            writes::status_unchanged(client, &stores.node_claims, &*claim, &claim.status, &wanted.status);
        match written.await {
            Err(error) if is_conflict(&error) => {
                self.checked.remove(uid_of(&*claim));
                Err(error)
            }
            outcome => outcome.map(|_| Requeue::After(PERIOD)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn capacity_below_90_percent_is_reported() {
        let claim: NodeClaim = serde_json::from_value(json!({
            "spec": {"nodeClassRef": {}, "resources": {"requests": {
                "cpu": "1", "memory": "1Gi", "pods": "0", "example.com/device": "1"}}},
            "status": {"capacity": {"cpu": "4", "memory": "10Gi", "pods": "110", "ephemeral-storage": "20Gi"}},
        }))
        .expect("a claim");
        let node = |capacity: serde_json::Value| -> Node {
            serde_json::from_value(json!({"metadata": {}, "status": {"capacity": capacity}})).expect("a node")
        };
        let nothing: [&str; 0] = [];
        assert_eq!(issues(&claim, &node(json!({"cpu": "3600m", "memory": "10Gi"}))), nothing);
        assert_eq!(
            issues(&claim, &node(json!({"cpu": "3599m", "memory": "5Gi"}))),
            [
                "expected 4 of resource cpu, but found 3599m (90.0% of expected)",
                "expected 10Gi of resource memory, but found 5Gi (50.0% of expected)",
            ]
        );
        assert_eq!(
            issues(&claim, &node(json!({"memory": "10Gi"}))),
            ["expected 4 of resource cpu, but found 0 (0.0% of expected)"]
        );
    }
}
