use k8s_openapi::api::coordination::v1::Lease;
use serde_json::Value;

use super::decide::{Eviction, Liveness, eviction, liveness, taints};
use super::*;
use crate::controllers::fixtures::{from, merge, now, pod};

fn node(patch: Value) -> Node {
    let mut object = json!({"metadata": {"name": "n1", "creationTimestamp": "2026-01-01T11:00:00Z"}});
    merge(&mut object, &patch);
    from(object)
}

fn ready(status: &str, heartbeat: &str) -> Value {
    json!({"status": {"conditions": [{"type": "Ready", "status": status, "lastHeartbeatTime": heartbeat,
        "lastTransitionTime": "2026-01-01T11:00:00Z"}]}})
}

fn lease(renewed: &str) -> Lease {
    from(json!({"metadata": {"name": "n1"}, "spec": {"renewTime": renewed}}))
}

fn keys(node: &Node) -> Option<Vec<String>> {
    let taints = taints(node, now())?;
    Some(taints.iter().map(|taint| format!("{}:{}", taint.key, taint.effect)).collect())
}

#[test]
fn lease_or_status_heartbeat_keeps_node_ready() {
    let options = Options::default();
    let old = node(ready("True", "2026-01-01T11:50:00Z"));
    let fresh = liveness(&old, Some(&lease("2026-01-01T11:59:30.000000Z")), &options, now());
    assert_eq!(fresh, Liveness { conditions: None, again: Some(Duration::from_millis(20_001)) });
    let silent = liveness(&old, Some(&lease("2026-01-01T11:59:09.000000Z")), &options, now());
    let conditions = silent.conditions.expect("conditions");
    assert_eq!(conditions[0]["status"], "Unknown");
    assert_eq!(conditions[0]["reason"], "NodeStatusUnknown");
    assert_eq!(conditions[1]["reason"], "NodeStatusNeverUpdated");
    assert_eq!(conditions.len(), 4);
}

#[test]
fn new_node_has_startup_grace_period() {
    let options = Options::default();
    let new = node(json!({"metadata": {"creationTimestamp": "2026-01-01T11:59:10Z"}}));
    assert_eq!(liveness(&new, None, &options, now()).again, Some(Duration::from_millis(10_001)));
    let late = node(json!({"metadata": {"creationTimestamp": "2026-01-01T11:58:10Z"}}));
    assert!(liveness(&late, None, &options, now()).conditions.is_some());
}

#[test]
fn taints_follow_ready_condition() {
    let beat = "2026-01-01T11:59:59Z";
    let both = |key: &str| vec![format!("{key}:NoSchedule"), format!("{key}:NoExecute")];
    assert_eq!(keys(&node(ready("True", beat))), None);
    assert_eq!(keys(&node(ready("False", beat))), Some(both("node.kubernetes.io/not-ready")));
    assert_eq!(keys(&node(ready("Unknown", beat))), Some(both("node.kubernetes.io/unreachable")));
    let mut recovered = ready("True", beat);
    merge(
        &mut recovered,
        &json!({"spec": {"taints": [
        {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"},
        {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"},
        {"key": "mine", "effect": "NoSchedule"}]}}),
    );
    assert_eq!(keys(&node(recovered)), Some(vec!["mine:NoSchedule".to_string()]));
}

#[test]
fn node_without_ready_condition_keeps_its_initial_taint() {
    let new = json!({"spec": {"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]}});
    assert_eq!(keys(&node(new)), None);
}

#[test]
fn pressure_conditions_and_cordon_become_taints() {
    let mut pressed = ready("True", "2026-01-01T11:59:59Z");
    merge(&mut pressed, &json!({"spec": {"unschedulable": true}}));
    let mut node = node(pressed);
    node.status
        .as_mut()
        .and_then(|status| status.conditions.as_mut())
        .expect("conditions")
        .push(from(json!({"type": "DiskPressure", "status": "True"})));
    let expected =
        ["node.kubernetes.io/disk-pressure:NoSchedule", "node.kubernetes.io/unschedulable:NoSchedule"];
    assert_eq!(keys(&node), Some(expected.map(String::from).to_vec()));
}

#[test]
fn pods_are_evicted_after_toleration_seconds() {
    let taints: Vec<k8s_openapi::api::core::v1::Taint> = from(json!([
        {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "timeAdded": "2026-01-01T11:59:00Z"}]));
    let decide = |tolerations: Value| {
        eviction(&pod("p", json!({"spec": {"tolerations": tolerations}})), &taints, |_| now(), now())
    };
    assert_eq!(decide(json!([])), Eviction::In(Duration::ZERO));
    let tolerated = |seconds: Value| {
        json!([{"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute",
            "tolerationSeconds": seconds}])
    };
    assert_eq!(decide(tolerated(json!(300))), Eviction::In(Duration::from_secs(240)));
    assert_eq!(decide(tolerated(json!(30))), Eviction::In(Duration::ZERO));
    assert_eq!(decide(tolerated(Value::Null)), Eviction::Never);
}
