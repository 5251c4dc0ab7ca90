//! Decides the condition `Consolidatable`: whether `consolidateAfter` has passed since the last pod event of the node,
//! or since its initialization if there was none.
//!
//! Upstream: pkg/controllers/nodeclaim/disruption/consolidation.go.

use std::time::Duration;

use jiff::Timestamp;
use karpenter_api::types::{NodeClaim, NodePool};
use karpenter_runtime::clock::since;
use karpenter_state::claim::{INITIALIZED, condition, is_true};

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Consolidatable {
    No,
    After(Duration),
    Yes,
}

pub(super) fn decide(claim: &NodeClaim, pool: &NodePool, now: Timestamp) -> Consolidatable {
    let wait = pool.spec.disruption.as_ref().and_then(|disruption| disruption.consolidate_after.as_ref());
    // The default of `consolidateAfter` is 0s.
    let Some(wait_nanos) = wait.map_or(Some(0), |wait| wait.nanos()) else { return Consolidatable::No };
    if !is_true(claim, INITIALIZED) {
        return Consolidatable::No;
    }
    let initialized = condition(claim, INITIALIZED).and_then(|found| found.last_transition_time.as_ref());
    let last_event = claim.status.as_ref().and_then(|status| status.last_pod_event_time.as_ref());
    let last_event = last_event.or(initialized).map_or(now, |time| time.0);
    let wait = Duration::from_nanos(u64::try_from(wait_nanos).unwrap_or(0));
    match wait.checked_sub(since(now, last_event)).filter(|left| !left.is_zero()) {
        Some(left) => Consolidatable::After(left),
        None => Consolidatable::Yes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn consolidate_after_counts_from_last_pod_event_or_initialization() {
        let now: Timestamp = "2026-01-01T00:10:00Z".parse().expect("a time");
        let seconds = |seconds| Consolidatable::After(Duration::from_secs(seconds));
        let table = [
            ("Never", "True", json!(null), Consolidatable::No),
            ("0s", "Unknown", json!(null), Consolidatable::No),
            ("0s", "True", json!("2026-01-01T00:10:00Z"), Consolidatable::Yes),
            ("10m", "True", json!(null), Consolidatable::Yes),
            ("10m1s", "True", json!(null), seconds(1)),
            ("30s", "True", json!("2026-01-01T00:09:50Z"), seconds(20)),
            ("30s", "True", json!("2026-01-01T00:09:30Z"), Consolidatable::Yes),
        ];
        for (consolidate_after, initialized, last_pod_event, expected) in table {
            let claim: NodeClaim = serde_json::from_value(json!({"spec": {"nodeClassRef": {}}, "status": {
                "lastPodEventTime": last_pod_event,
                "conditions": [{"type": "Initialized", "status": initialized,
                    "lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "", "message": ""}]}}))
            .expect("a claim");
            let pool: NodePool = serde_json::from_value(json!({"spec": {
                "template": {"spec": {"nodeClassRef": {}}},
                "disruption": {"consolidateAfter": consolidate_after}}}))
            .expect("a pool");
            assert_eq!(decide(&claim, &pool, now), expected, "{consolidate_after} {last_pod_event}");
        }
    }
}
