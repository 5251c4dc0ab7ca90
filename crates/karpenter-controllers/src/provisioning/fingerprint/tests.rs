use serde_json::{Value, json};

use super::*;

fn node(patch: &Value) -> Node {
    let mut node = json!({
        "metadata": {"name": "n", "uid": "u", "labels": {"a": "b"}, "resourceVersion": "1"},
        "spec": {"providerID": "p"},
        "status": {"allocatable": {"cpu": "4"}, "capacity": {"cpu": "4"}, "conditions": [
            {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}]},
    });
    merge(&mut node, patch);
    serde_json::from_value(node).expect("a node")
}

fn pod(patch: &Value) -> Pod {
    let resources = json!({"requests": {"cpu": "1"}});
    let mut pod = json!({
        "metadata": {"name": "p", "uid": "u", "labels": {"a": "b"}, "resourceVersion": "1", "generation": 1},
        "spec": {"containers": [{"name": "c", "resources": resources}]},
        "status": {"phase": "Pending"},
    });
    merge(&mut pod, patch);
    serde_json::from_value(pod).expect("a pod")
}

fn merge(into: &mut Value, patch: &Value) {
    match (into, patch) {
        (Value::Object(into), Value::Object(patch)) => {
            for (key, value) in patch {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, patch) => *into = patch.clone(),
    }
}

#[test]
fn node_heartbeats_do_not_change_the_digest() {
    let same = [
        json!({"metadata": {"resourceVersion": "2"}}),
        json!({"status": {"conditions": [
            {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:05:00Z"}]}}),
        json!({"metadata": {"annotations": {"seen": "now"}}}),
    ];
    for patch in same {
        assert_eq!(node_digest(&node(&patch)), node_digest(&node(&json!({}))), "{patch}");
    }
    let different = [
        json!({"metadata": {"labels": {"a": "c"}}}),
        json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
        json!({"spec": {"unschedulable": true}}),
        json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}}),
        json!({"status": {"allocatable": {"cpu": "3"}}}),
    ];
    for patch in different {
        assert_ne!(node_digest(&node(&patch)), node_digest(&node(&json!({}))), "{patch}");
    }
}

#[test]
fn pod_probe_results_do_not_change_the_digest() {
    let same = [
        json!({"metadata": {"resourceVersion": "2"}}),
        json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
    ];
    for patch in same {
        assert_eq!(pod_digest(&pod(&patch)), pod_digest(&pod(&json!({}))), "{patch}");
    }
    let different = [
        json!({"metadata": {"uid": "v"}}),
        json!({"metadata": {"labels": {"x": "y"}}}),
        json!({"metadata": {"generation": 2}}),
        json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
        json!({"spec": {"nodeName": "n"}}),
        json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}}),
        json!({"status": {"phase": "Succeeded"}}),
        json!({"status": {"nominatedNodeName": "n"}}),
    ];
    for patch in different {
        assert_ne!(pod_digest(&pod(&patch)), pod_digest(&pod(&json!({}))), "{patch}");
    }
}

#[test]
fn only_passes_without_effect_are_remembered() {
    let fingerprint = |pods| Fingerprint { pods, nodes: 0, revisions: vec![1], pool_types: Vec::new() };
    let mut last_idle_pass = LastIdlePass::default();
    assert_eq!(last_idle_pass.repeats(&fingerprint(1)), None);
    let events = vec![ObjectEvent::normal_of_pod(&pod(&json!({})), "Reason", "message")];
    last_idle_pass.remember(fingerprint(1), Some(events.clone()));
    assert_eq!(last_idle_pass.repeats(&fingerprint(1)), Some(events));
    assert_eq!(last_idle_pass.repeats(&fingerprint(2)), None);
    last_idle_pass.remember(fingerprint(1), None);
    assert_eq!(last_idle_pass.repeats(&fingerprint(1)), None);
}

#[test]
fn same_list_of_instance_types_is_equal() {
    let types = Arc::new(Vec::new());
    let pool_types =
        |types: &Arc<Vec<InstanceType>>| PoolTypes { pool: "a".to_owned(), types: types.clone() };
    assert_eq!(pool_types(&types), pool_types(&types));
    assert_ne!(pool_types(&types), pool_types(&Arc::new(Vec::new())));
}
