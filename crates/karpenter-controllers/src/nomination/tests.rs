use k8s_openapi::api::core::v1::Node;
use karpenter_api::types::NodeClaim;
use serde_json::{Value, json};

use super::is_about_to_open;

type Taints<'a> = &'a [(&'a str, &'a str)];

fn opens(ready: &str, taints: Taints<'_>) -> bool {
    let taints: Vec<Value> =
        taints.iter().map(|(key, effect)| json!({"key": key, "effect": effect})).collect();
    let node: Node = serde_json::from_value(json!({
        "metadata": {"name": "n"},
        "spec": {"taints": taints},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }))
    .expect("a node");
    let startup = json!([{"key": "example.com/wait", "effect": "NoSchedule"}]);
    let claim: NodeClaim =
        serde_json::from_value(json!({"spec": {"startupTaints": startup}})).expect("a claim");
    is_about_to_open(&node, &claim)
}

#[test]
fn pods_are_told_when_nothing_else_keeps_them_away() {
    let unregistered = ("karpenter.sh/unregistered", "NoExecute");
    let cases: [(&str, Taints<'_>, bool); 10] = [
        ("True", &[], true),
        ("True", &[unregistered], true),
        ("False", &[unregistered], false),
        ("Unknown", &[], false),
        // Follows the condition.
        ("True", &[("node.kubernetes.io/not-ready", "NoSchedule")], true),
        ("True", &[("node.kubernetes.io/not-ready", "NoExecute"), unregistered], true),
        ("True", &[unregistered, ("example.com/wait", "NoSchedule")], false),
        ("True", &[("node.cloudprovider.kubernetes.io/uninitialized", "NoSchedule")], false),
        ("True", &[("readiness.k8s.io/network", "NoSchedule")], false),
        // The pool's own: its pods tolerate it.
        ("True", &[("example.com/team", "NoSchedule")], true),
    ];
    for (ready, taints, expected) in cases {
        assert_eq!(opens(ready, taints), expected, "ready {ready}, {taints:?}");
    }
}
