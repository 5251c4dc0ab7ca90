use std::time::Duration;

use serde_json::json;

use super::*;
use crate::controllers::fixtures::{from, now, pod};

fn set(replicas: i32) -> ReplicaSet {
    from(json!({
        "metadata": {"name": "web", "namespace": "default", "uid": "set", "generation": 3},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}}},
    }))
}

/// Names of the pods in deletion order.
fn order(pods: &[Arc<Pod>]) -> Vec<String> {
    let neighbours = active_per_node(pods);
    let mut sorted = pods.to_vec();
    sorted.sort_by(|one, two| deletion_order(one, two, &neighbours, now()));
    sorted.iter().filter_map(|pod| pod.metadata.name.clone()).collect()
}

#[test]
fn missing_pods_are_created_up_to_burst_limit() {
    assert_eq!(decide(&set(2), &[], Vec::new, now()), Step::Create(2));
    assert_eq!(decide(&set(2000), &[], Vec::new, now()), Step::Create(500));
    assert_eq!(decide(&set(1), &[pod("a", json!({}))], Vec::new, now()), Step::Nothing);
}

#[test]
fn unassigned_then_pending_then_unready_pods_are_deleted_first() {
    let pods = [
        pod("ready", json!({})),
        pod("unready", json!({"status": {"conditions": []}})),
        pod("pending", json!({"status": {"phase": "Pending", "conditions": []}})),
        pod("unassigned", json!({"spec": {"nodeName": null}})),
    ];
    assert_eq!(order(&pods), ["unassigned", "pending", "unready", "ready"]);
}

#[test]
fn deletion_cost_precedes_colocation_and_age() {
    let cost = |cost: &str| json!({"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": cost}}});
    let pods = [pod("dear", cost("10")), pod("plain", json!({})), pod("cheap", cost("-10"))];
    assert_eq!(order(&pods), ["cheap", "plain", "dear"]);
    let pods = [pod("wrong", cost("+5")), pod("cheap", cost("-1"))];
    assert_eq!(order(&pods), ["cheap", "wrong"]);
}

#[test]
fn colocated_pods_are_deleted_first() {
    let pods =
        [pod("lonely", json!({"spec": {"nodeName": "n2"}})), pod("one", json!({})), pod("two", json!({}))];
    assert_eq!(order(&pods), ["one", "two", "lonely"]);
}

#[test]
fn ages_of_the_same_magnitude_are_equal() {
    let ready = |at: &str| json!({"status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": at}]}});
    // First the pods are 1 s and 1800 s old. Then they are 1790 s and 1800 s old, which counts as the same age, so the
    // uid decides.
    let pods = [pod("a-old", ready("2026-01-01T11:30:00Z")), pod("b-new", ready("2026-01-01T11:59:59Z"))];
    assert_eq!(order(&pods), ["b-new", "a-old"]);
    let pods = [pod("a-old", ready("2026-01-01T11:30:00Z")), pod("b-new", ready("2026-01-01T11:30:10Z"))];
    assert_eq!(order(&pods), ["a-old", "b-new"]);
}

#[test]
fn status_counts_pods_and_keeps_failure_until_success() {
    let labelled = pod("a", json!({"metadata": {"labels": {"app": "web"}}}));
    let unready = pod("b", json!({"status": {"conditions": []}}));
    let failed = status(&set(3), &[&labelled, &unready], 1, Some(("FailedCreate", "no".into())), now());
    assert_eq!((failed.replicas, failed.ready_replicas, failed.available_replicas), (2, Some(1), Some(1)));
    assert_eq!((failed.fully_labeled_replicas, failed.terminating_replicas), (Some(1), Some(1)));
    assert_eq!(failed.observed_generation, Some(3));
    let reasons: Vec<_> =
        failed.conditions.iter().flatten().map(|condition| condition.reason.clone()).collect();
    assert_eq!(reasons, [Some("FailedCreate".to_string())]);
    let mut set = set(3);
    set.status = Some(failed);
    assert_eq!(status(&set, &[&labelled], 0, None, now()).conditions, None);
}

#[test]
fn min_ready_seconds_delays_availability() {
    let mut set = set(1);
    set.spec.as_mut().expect("spec").min_ready_seconds = Some(3600);
    let ready = pod("a", json!({}));
    let status = status(&set, &[&ready], 0, None, now());
    assert_eq!((status.ready_replicas, status.available_replicas), (Some(1), None));
    assert_eq!(pods::next_available_in([&*ready], 3600, now()), Some(Duration::from_secs(1800)));
}
