use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use karpenter_api::types::NodeClaim;
use serde_json::{Value, json};

use super::node_access::{NodeAccess, hold, is_nomination_due, node_access};

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
fn pods_are_nominated_when_only_our_taint_is_left() {
    let cases: [(&str, Taints<'_>, NodeAccess, bool); 13] = [
        ("True", &[], NodeAccess::Open, true),
        ("True", &[UNREGISTERED], NodeAccess::OnlyOurTaint, true),
        ("False", &[UNREGISTERED], NodeAccess::NotReady, false),
        ("Unknown", &[], NodeAccess::NotReady, false),
        // The node lifecycle controller removes the not-ready taint right after the condition changes.
        ("True", &[NOT_READY], NodeAccess::NotReady, true),
        ("True", &[NOT_READY, UNREGISTERED], NodeAccess::NotReady, true),
        // Every pod tolerates this taint, because an admission plugin adds the toleration.
        (
            "True",
            &[("node.kubernetes.io/not-ready", "NoExecute"), UNREGISTERED],
            NodeAccess::OnlyOurTaint,
            true,
        ),
        ("True", &[UNREGISTERED, ("example.com/wait", "NoSchedule")], NodeAccess::Blocked, false),
        (
            "True",
            &[("node.cloudprovider.kubernetes.io/uninitialized", "NoSchedule")],
            NodeAccess::Blocked,
            false,
        ),
        ("True", &[("readiness.k8s.io/network", "NoSchedule")], NodeAccess::Blocked, false),
        ("True", &[("node.kubernetes.io/unschedulable", "NoSchedule")], NodeAccess::Blocked, false),
        ("True", &[("karpenter.sh/disrupted", "NoSchedule")], NodeAccess::Blocked, false),
        // This taint of the NodePool is no obstacle, because planned pods tolerate it.
        ("True", &[("example.com/team", "NoSchedule")], NodeAccess::Open, true),
    ];
    for (ready, taints, expected, is_due) in cases {
        let node = node(ready, taints);
        assert_eq!(node_access(&node, Some(&claim())), expected, "ready {ready}, {taints:?}");
        assert_eq!(is_nomination_due(&node, Some(&claim())), is_due, "ready {ready}, {taints:?}");
    }
}

#[test]
fn our_taint_is_held_only_for_readiness_and_only_for_a_limited_time() {
    let left = |ready, taints: Taints<'_>, seen| {
        hold(&node(ready, taints), &claim(), Duration::from_secs(seen)).map(|left| left.as_secs())
    };
    assert_eq!(left("False", &[UNREGISTERED, NOT_READY], 0), Some(10));
    assert_eq!(left("False", &[UNREGISTERED], 9), Some(1));
    assert_eq!(left("False", &[UNREGISTERED], 10), None);
    assert_eq!(left("True", &[UNREGISTERED, NOT_READY], 10), Some(20));
    assert_eq!(left("True", &[UNREGISTERED, NOT_READY], 30), None);
    assert_eq!(left("True", &[UNREGISTERED], 0), None);
    // Another controller removes this taint at an unknown time, so the unregistered taint is not kept until then.
    assert_eq!(left("False", &[UNREGISTERED, ("example.com/wait", "NoSchedule")], 0), None);
}
