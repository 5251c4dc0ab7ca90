use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use karpenter_api::types::NodeClaim;
use serde_json::{Value, json};

use super::door::{Door, door, hold, is_about_to_open};

type Taints<'a> = &'a [(&'a str, &'a str)];

fn node(ready: &str, taints: Taints<'_>) -> Node {
    let taints: Vec<Value> =
        taints.iter().map(|(key, effect)| json!({"key": key, "effect": effect})).collect();
    serde_json::from_value(json!({
        "metadata": {"name": "n"},
        "spec": {"taints": taints},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }))
    .expect("a node")
}

fn claim() -> NodeClaim {
    let startup = json!([{"key": "example.com/wait", "effect": "NoSchedule"}]);
    serde_json::from_value(json!({"spec": {"startupTaints": startup}})).expect("a claim")
}

const UNREGISTERED: (&str, &str) = ("karpenter.sh/unregistered", "NoExecute");
const NOT_READY: (&str, &str) = ("node.kubernetes.io/not-ready", "NoSchedule");

#[test]
fn pods_are_told_when_nothing_else_keeps_them_away() {
    let cases: [(&str, Taints<'_>, Door, bool); 13] = [
        ("True", &[], Door::Open, true),
        ("True", &[UNREGISTERED], Door::Ours, true),
        ("False", &[UNREGISTERED], Door::Unready, false),
        ("Unknown", &[], Door::Unready, false),
        // Follows the condition.
        ("True", &[NOT_READY], Door::Unready, true),
        ("True", &[NOT_READY, UNREGISTERED], Door::Unready, true),
        // Tolerated by every pod.
        ("True", &[("node.kubernetes.io/not-ready", "NoExecute"), UNREGISTERED], Door::Ours, true),
        ("True", &[UNREGISTERED, ("example.com/wait", "NoSchedule")], Door::Shut, false),
        ("True", &[("node.cloudprovider.kubernetes.io/uninitialized", "NoSchedule")], Door::Shut, false),
        ("True", &[("readiness.k8s.io/network", "NoSchedule")], Door::Shut, false),
        ("True", &[("node.kubernetes.io/unschedulable", "NoSchedule")], Door::Shut, false),
        ("True", &[("karpenter.sh/disrupted", "NoSchedule")], Door::Shut, false),
        // The pool's own: its pods tolerate it.
        ("True", &[("example.com/team", "NoSchedule")], Door::Open, true),
    ];
    for (ready, taints, expected, told) in cases {
        let node = node(ready, taints);
        assert_eq!(door(&node, Some(&claim())), expected, "ready {ready}, {taints:?}");
        assert_eq!(is_about_to_open(&node, Some(&claim())), told, "ready {ready}, {taints:?}");
    }
}

#[test]
fn our_taint_waits_for_others_only_where_they_go_by_themselves_and_not_for_long() {
    let left = |ready, taints: Taints<'_>, seen| {
        hold(&node(ready, taints), &claim(), Duration::from_secs(seen)).map(|left| left.as_secs())
    };
    assert_eq!(left("False", &[UNREGISTERED, NOT_READY], 0), Some(10));
    assert_eq!(left("False", &[UNREGISTERED], 9), Some(1));
    assert_eq!(left("False", &[UNREGISTERED], 10), None);
    assert_eq!(left("True", &[UNREGISTERED, NOT_READY], 10), Some(20));
    assert_eq!(left("True", &[UNREGISTERED, NOT_READY], 30), None);
    assert_eq!(left("True", &[UNREGISTERED], 0), None);
    // Nobody knows when this one goes.
    assert_eq!(left("False", &[UNREGISTERED, ("example.com/wait", "NoSchedule")], 0), None);
}
