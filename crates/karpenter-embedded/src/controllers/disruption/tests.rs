use serde_json::{Value, json};

use super::*;
use crate::controllers::fixtures::{from, merge, now, pod};

fn budget(spec: Value, patch: Value) -> PodDisruptionBudget {
    let mut object =
        json!({"metadata": {"name": "b", "namespace": "default", "generation": 4}, "spec": spec});
    merge(&mut object, &patch);
    from(object)
}

fn owned(name: &str, patch: Value) -> Arc<Pod> {
    let mut with = json!({"metadata": {"ownerReferences": [
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "rs", "controller": true}]}});
    merge(&mut with, &patch);
    pod(name, with)
}

fn of_ten(_: &OwnerReference) -> Option<(String, i32)> {
    Some(("rs".into(), 10))
}

/// The numbers of expected, desired and healthy pods, and of allowed disruptions.
fn numbers(budget: &PodDisruptionBudget, pods: &[Arc<Pod>]) -> (i32, i32, i32, i32) {
    let pods: Vec<&Pod> = pods.iter().map(|pod| &**pod).collect();
    let (status, _) = status(budget, &pods, of_ten, now());
    (status.expected_pods, status.desired_healthy, status.current_healthy, status.disruptions_allowed)
}

fn some(count: usize) -> Vec<Arc<Pod>> {
    (0..count).map(|number| owned(&format!("p{number}"), json!({}))).collect()
}

#[test]
fn min_available_and_max_unavailable_as_number_or_percentage() {
    assert_eq!(numbers(&budget(json!({"minAvailable": 2}), json!({})), &some(3)), (3, 2, 3, 1));
    assert_eq!(numbers(&budget(json!({"minAvailable": "75%"}), json!({})), &some(10)), (10, 8, 10, 2));
    assert_eq!(numbers(&budget(json!({"maxUnavailable": "25%"}), json!({})), &some(10)), (10, 7, 10, 3));
    assert_eq!(numbers(&budget(json!({"maxUnavailable": 1}), json!({})), &some(9)), (10, 9, 9, 0));
    assert_eq!(numbers(&budget(json!({"minAvailable": 0}), json!({})), &[]), (0, 0, 0, 0));
}

#[test]
fn only_ready_pods_without_pending_eviction_are_healthy() {
    let pods = [
        owned("a", json!({})),
        owned("b", json!({"status": {"conditions": []}})),
        owned("c", json!({"metadata": {"deletionTimestamp": "2026-01-01T12:00:00Z"}})),
        owned("d", json!({})),
    ];
    let evicted = json!({"status": {"disruptedPods": {"d": "2026-01-01T11:59:00Z"}, "currentHealthy": 0,
        "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0}});
    let budget = budget(json!({"minAvailable": 1}), evicted);
    assert_eq!(numbers(&budget, &pods), (4, 1, 1, 0));
    let pods: Vec<&Pod> = pods.iter().map(|pod| &**pod).collect();
    let (during, again) = status(&budget, &pods, of_ten, now());
    assert_eq!(during.disrupted_pods.map(|pods| pods.len()), Some(1));
    assert_eq!(again, Some(Duration::from_millis(60_001)));
    let later = now() + SignedDuration::from_secs(61);
    let (after, _) = status(&budget, &pods, of_ten, later);
    assert_eq!((after.disrupted_pods, after.current_healthy), (None, 2));
}

#[test]
fn condition_has_status_and_reason() {
    let condition = |spec: Value, pods: usize| {
        let pods = some(pods);
        let pods: Vec<&Pod> = pods.iter().map(|pod| &**pod).collect();
        let (status, _) = status(&budget(spec, json!({})), &pods, |_| None, now());
        let condition = status.conditions.into_iter().flatten().next().expect("a condition");
        (condition.status, condition.reason, condition.message)
    };
    let say =
        |is: &str, reason: &str, message: &str| (is.to_string(), reason.to_string(), message.to_string());
    assert_eq!(condition(json!({"minAvailable": 1}), 2), say("True", "SufficientPods", ""));
    assert_eq!(condition(json!({"minAvailable": 2}), 2), say("False", "InsufficientPods", ""));
    let lost = say("False", "SyncFailed", "found no controllers for pod \"p0\"");
    assert_eq!(condition(json!({"maxUnavailable": 1}), 2), lost);
}
