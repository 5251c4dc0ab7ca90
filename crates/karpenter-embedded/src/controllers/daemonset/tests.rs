use serde_json::{Value, json};

use super::plan::{Eligibility, Plan, eligibility, new_pod, plan, status, target_node};
use super::*;
use crate::controllers::fixtures::{from, merge, now};

fn set(patch: Value) -> DaemonSet {
    let mut object = json!({
        "metadata": {"name": "agent", "namespace": "default", "uid": "d", "generation": 2},
        "spec": {"selector": {"matchLabels": {"app": "agent"}}, "updateStrategy": {"type": "RollingUpdate",
            "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}},
            "template": {"metadata": {"labels": {"app": "agent"}}, "spec": {"containers": [{"name": "c"}]}}},
    });
    merge(&mut object, &patch);
    from(object)
}

fn node(name: &str, patch: Value) -> Arc<Node> {
    let mut object = json!({"metadata": {"name": name, "labels": {"pool": "a"}}});
    merge(&mut object, &patch);
    Arc::new(from(object))
}

fn taint(key: &str, effect: &str) -> Value {
    json!({"spec": {"taints": [{"key": key, "effect": effect}]}})
}

/// A ready pod of a revision on a node.
fn pod(name: &str, node: &str, hash: &str) -> Arc<Pod> {
    crate::controllers::fixtures::pod(
        name,
        json!({"metadata": {"labels": {REVISION_HASH: hash}}, "spec": {"nodeName": node}}),
    )
}

fn pods(pods: &[Arc<Pod>]) -> Pods {
    by_node(pods)
}

#[test]
fn eligible_nodes_match_selector_affinity_and_taints() {
    let yes = Eligibility { should_run: true, should_continue: true };
    let no = Eligibility { should_run: false, should_continue: false };
    let stay = Eligibility { should_run: false, should_continue: true };
    let plain = set(json!({}));
    assert_eq!(eligibility(&plain, &node("n", json!({}))), yes);
    assert_eq!(eligibility(&plain, &node("n", taint("node.kubernetes.io/unschedulable", "NoSchedule"))), yes);
    assert_eq!(eligibility(&plain, &node("n", taint("node.kubernetes.io/not-ready", "NoExecute"))), yes);
    assert_eq!(eligibility(&plain, &node("n", taint("dedicated", "NoSchedule"))), stay);
    assert_eq!(eligibility(&plain, &node("n", taint("dedicated", "NoExecute"))), no);
    assert_eq!(
        eligibility(&plain, &node("n", taint("node.kubernetes.io/network-unavailable", "NoSchedule"))),
        stay
    );
    let picky = set(json!({"spec": {"template": {"spec": {"nodeSelector": {"pool": "b"}}}}}));
    assert_eq!(eligibility(&picky, &node("n", json!({}))), no);
}

#[test]
fn pod_is_pinned_to_node_and_keeps_preferred_affinity() {
    let set = set(json!({"spec": {"template": {"spec": {"affinity": {"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["a"]}]}]}}}}}}}));
    let pod = new_pod(&set, "n7", "h");
    assert_eq!(target_node(&pod).as_deref(), Some("n7"));
    let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref()?.node_affinity.as_ref());
    let required =
        affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    let terms = &required.expect("pinned").node_selector_terms;
    assert_eq!(terms.len(), 1);
    assert!(terms[0].match_expressions.is_none());
    assert_eq!(karpenter_runtime::object::label(&pod, REVISION_HASH), Some("h"));
}

#[test]
fn each_eligible_node_gets_one_pod() {
    let nodes = [node("a", json!({})), node("b", json!({})), node("c", taint("x", "NoExecute"))];
    let have = [pod("a1", "a", "h"), pod("a2", "a", "h"), pod("c1", "c", "h")];
    let plan = plan(&set(json!({})), &nodes, &pods(&have), "h", now());
    assert_eq!(plan, Plan { create: vec!["b".into()], delete: vec!["a2".into(), "c1".into()] });
}

#[test]
fn finished_pods_are_replaced() {
    let failed = crate::controllers::fixtures::pod(
        "a1",
        json!({"spec": {"nodeName": "a"}, "status": {"phase": "Failed"}}),
    );
    let plan = plan(&set(json!({})), &[node("a", json!({}))], &pods(&[failed]), "h", now());
    assert_eq!(plan.delete, ["a1"]);
}

#[test]
fn rolling_update_replaces_one_ready_pod_at_a_time_and_all_unready_pods() {
    let nodes = [node("a", json!({})), node("b", json!({})), node("c", json!({}))];
    let have = [pod("a1", "a", "old"), pod("b1", "b", "old"), pod("c1", "c", "old")];
    assert_eq!(plan(&set(json!({})), &nodes, &pods(&have), "h", now()).delete, ["a1"]);
    let broken = crate::controllers::fixtures::pod(
        "b1",
        json!({"metadata": {"labels": {REVISION_HASH: "old"}},
        "spec": {"nodeName": "b"}, "status": {"conditions": []}}),
    );
    let have = [pod("a1", "a", "old"), broken, pod("c1", "c", "h")];
    assert_eq!(plan(&set(json!({})), &nodes, &pods(&have), "h", now()).delete, ["b1"]);
    let manual = set(json!({"spec": {"updateStrategy": {"type": "OnDelete"}}}));
    let have = [pod("a1", "a", "old"), pod("b1", "b", "old"), pod("c1", "c", "old")];
    assert_eq!(plan(&manual, &nodes, &pods(&have), "h", now()), Plan::default());
}

#[test]
fn max_surge_creates_the_new_pod_first() {
    let surge =
        set(json!({"spec": {"updateStrategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}}}));
    let nodes = [node("a", json!({})), node("b", json!({}))];
    let have = [pod("a1", "a", "old"), pod("b1", "b", "old")];
    let first = plan(&surge, &nodes, &pods(&have), "h", now());
    assert_eq!((first.create, first.delete), (vec!["a".to_string()], Vec::new()));
    let have = [pod("a1", "a", "old"), pod("a2", "a", "h"), pod("b1", "b", "old")];
    assert_eq!(plan(&surge, &nodes, &pods(&have), "h", now()).delete, ["a1"]);
}

#[test]
fn status_counts_nodes() {
    let nodes = [node("a", json!({})), node("b", json!({})), node("c", taint("x", "NoSchedule"))];
    let have = [pod("a1", "a", "h"), pod("c1", "c", "h")];
    let status = status(&set(json!({})), &nodes, &pods(&have), "h", now());
    assert_eq!((status.desired_number_scheduled, status.current_number_scheduled), (2, 1));
    assert_eq!((status.number_misscheduled, status.number_ready), (1, 1));
    assert_eq!((status.number_available, status.number_unavailable), (Some(1), Some(1)));
    assert_eq!(status.updated_number_scheduled, Some(1));
}
