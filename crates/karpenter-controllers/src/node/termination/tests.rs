use serde_json::{Value, json};

use super::act::taint_patch;
use super::*;
use crate::evictions::drain::{Drain, decide_drain};

fn time(text: &str) -> Timestamp {
    format!("2026-01-01T{text}Z").parse().expect("a time")
}

fn pod(name: &str, patch: Value) -> Arc<Pod> {
    let mut value = json!({
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"containers": [], "terminationGracePeriodSeconds": 30},
        "status": {"phase": "Running"},
    });
    for (part, fields) in patch.as_object().into_iter().flatten() {
        for (key, field) in fields.as_object().into_iter().flatten() {
            value[part][key] = field.clone();
        }
    }
    Arc::new(serde_json::from_value(value).expect("a pod"))
}

fn daemon(name: &str, spec: Value) -> Arc<Pod> {
    let owner = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d"}]);
    pod(name, json!({"metadata": {"ownerReferences": owner}, "spec": spec}))
}

fn critical() -> Value {
    json!({"priorityClassName": "system-node-critical"})
}

fn names(pods: &[Arc<Pod>]) -> Vec<&str> {
    pods.iter().map(|pod| &*pod.name).collect()
}

#[test]
fn groups_are_evicted_in_order() {
    let now = time("12:00:00");
    let mut on_node = vec![
        daemon("critical-daemon", critical()),
        pod("critical", json!({"spec": {"priorityClassName": "system-cluster-critical"}})),
        daemon("daemon", json!({})),
        pod("web", json!({})),
        pod("high", json!({"spec": {"priorityClassName": "high-priority"}})),
    ];
    let expected: [&[&str]; 5] = [&["web", "high"], &["daemon"], &["critical"], &["critical-daemon"], &[]];
    for group in expected {
        let drain = decide_drain(&on_node, None, now);
        assert_eq!(names(&drain.evict), group);
        assert_eq!((drain.waiting, drain.delete.len()), (on_node.len(), 0));
        on_node.retain(|pod| !group.contains(&&*pod.name));
    }
}

#[test]
fn next_group_waits_for_terminating_pods() {
    let terminating = pod("ending", json!({"metadata": {"deletionTimestamp": "2026-01-01T12:00:10Z"}}));
    let on_node = [terminating, daemon("daemon", json!({}))];
    let drain = decide_drain(&on_node, None, time("12:00:05"));
    assert_eq!((names(&drain.evict), drain.waiting), (vec![], 2));
    // The grace period of the pod ended more than a minute ago, so its kubelet does not respond, and the drain does not
    // wait for the pod.
    let drain = decide_drain(&on_node, None, time("12:01:11"));
    assert_eq!((names(&drain.evict), drain.waiting), (vec!["daemon"], 1));
}

#[test]
fn pods_that_are_not_drained_are_not_waited_for() {
    let tolerates = json!({"tolerations": [{"key": "karpenter.sh/disrupted", "operator": "Exists"}]});
    let mirror = json!([{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "n"}]);
    let on_node = [
        pod("stays", json!({"spec": tolerates})),
        pod("static", json!({"metadata": {"ownerReferences": mirror}})),
        pod("done", json!({"status": {"phase": "Succeeded"}})),
    ];
    assert_eq!(decide_drain(&on_node, None, time("12:00:00")), Drain::default());
}

#[test]
fn pods_of_all_groups_are_deleted_before_the_deadline() {
    let keep = json!({"annotations": {"karpenter.sh/do-not-disrupt": "true"}});
    let on_node = [
        pod("web", json!({"metadata": keep, "spec": {"terminationGracePeriodSeconds": 600}})),
        daemon(
            "critical-daemon",
            json!({"priorityClassName": "system-node-critical",
            "terminationGracePeriodSeconds": 120}),
        ),
        pod("quick", json!({"spec": {"terminationGracePeriodSeconds": 5}})),
    ];
    let drain = decide_drain(&on_node, Some(time("12:00:00")), time("11:58:30"));
    assert_eq!(names(&drain.delete), ["web", "critical-daemon"]);
    assert_eq!((names(&drain.evict), drain.waiting), (vec!["quick"], 3));
}

fn facts(claim: Option<Value>, attachments: &[(&str, bool)], by: Option<&str>) -> Facts {
    Facts {
        node: Arc::new(Node::default()),
        claim: claim.map(|claim| Arc::new(serde_json::from_value(claim).expect("a claim"))),
        pods: Vec::new(),
        attachments: attachments
            .iter()
            .map(|(name, is_ignored)| Attachment { name: (*name).to_owned(), is_ignored: *is_ignored })
            .collect(),
        terminate_by: by.map(time),
    }
}

#[test]
fn empty_node_waits_for_minimum_drain_time_then_for_its_volumes() {
    let drained = |status: &str| {
        Some(json!({"status": {"conditions": [{"type": "Drained", "status": status,
            "reason": "r", "message": "", "lastTransitionTime": "2026-01-01T12:00:00Z"}]}}))
    };
    let end = Step::TerminateInstance { volumes_detached: true };
    let cases = [
        (facts(Some(json!({})), &[], None), "12:00:00", Step::AwaitMinDrainTime),
        (facts(drained("Unknown"), &[], None), "12:00:04", Step::AwaitMinDrainTime),
        (facts(drained("Unknown"), &[], None), "12:00:05", end.clone()),
        (facts(drained("True"), &[], None), "12:00:01", end.clone()),
        // Without a claim, the start of the drain cannot be recorded, so there is no minimum drain time.
        (facts(None, &[], None), "12:00:00", end.clone()),
        (facts(None, &[("a", true)], None), "12:00:00", end.clone()),
        (facts(None, &[("a", true), ("b", false)], None), "12:00:00", Step::AwaitVolumes(vec!["b".into()])),
        (facts(None, &[("b", false)], Some("12:00:00")), "12:00:00", Step::AwaitVolumes(vec!["b".into()])),
        (
            facts(None, &[("b", false)], Some("12:00:00")),
            "12:00:01",
            Step::TerminateInstance { volumes_detached: false },
        ),
    ];
    for (facts, now, step) in cases {
        assert_eq!(decide(&facts, time(now)), step, "{facts:?}");
    }
}

#[test]
fn node_is_tainted_once() {
    let mut node: Node = serde_json::from_value(json!({
        "metadata": {"name": "n1"},
        "spec": {"taints": [{"key": "team", "effect": "NoSchedule"},
            {"key": "karpenter.sh/disrupted", "effect": "NoExecute"}]},
    }))
    .expect("a node");
    let patch = taint_patch(&node).expect("something to do");
    assert_eq!(
        patch,
        json!({"metadata": {"labels": {"node.kubernetes.io/exclude-from-external-load-balancers": "karpenter"}},
            "spec": {"taints": [{"key": "team", "effect": "NoSchedule"},
                {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]}})
    );
    node.spec = serde_json::from_value(patch["spec"].clone()).expect("a spec");
    node.metadata.labels = serde_json::from_value(patch["metadata"]["labels"].clone()).expect("labels");
    assert_eq!(taint_patch(&node), None);
}

#[test]
fn v1alpha5_node_is_cordoned_too() {
    let mut node: Node = serde_json::from_value(json!({
        "metadata": {"name": "n1", "labels": {"karpenter.sh/provisioner-name": "old",
            "node.kubernetes.io/exclude-from-external-load-balancers": "karpenter"}},
        "spec": {"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]},
    }))
    .expect("a node");
    let patch = taint_patch(&node).expect("something to do");
    assert_eq!(patch["spec"], json!({"unschedulable": true}));
    node.spec.get_or_insert_default().unschedulable = Some(true);
    assert_eq!(taint_patch(&node), None);
}
