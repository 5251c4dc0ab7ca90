use serde_json::{Value, json};

use super::*;

fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().expect("a time")
}

fn pod(patch: Value) -> Pod {
    let mut object = json!({
        "metadata": {"name": "p", "namespace": "default", "uid": "u", "labels": {"app": "web"}},
        "spec": {"containers": []},
        "status": {"phase": "Pending",
            "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]},
    });
    merge(&mut object, &patch);
    serde_json::from_value(object).expect("a pod")
}

fn merge(target: &mut Value, patch: &Value) {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => {
            for (key, value) in patch {
                merge(target.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (target, patch) => *target = patch.clone(),
    }
}

fn owner(api_version: &str, kind: &str) -> Value {
    let owner = json!({"apiVersion": api_version, "kind": kind, "name": "o", "uid": "o"});
    json!({"metadata": {"ownerReferences": [owner]}})
}

fn deleted_at(time: &str) -> Value {
    json!({"metadata": {"deletionTimestamp": time}})
}

fn condition(status: &str, reason: &str) -> Value {
    json!({"status": {"conditions": [{"type": "PodScheduled", "status": status, "reason": reason}]}})
}

#[test]
fn only_unschedulable_pods_are_provisionable() {
    let cases = [
        (json!({}), true),
        // The status of the condition does not matter.
        (condition("True", "Unschedulable"), true),
        (condition("False", "SchedulingGated"), false),
        (json!({"status": {"conditions": null}}), false),
        (json!({"spec": {"nodeName": "n"}}), false),
        (json!({"spec": {"nodeName": ""}}), true),
        (json!({"status": {"nominatedNodeName": "n"}}), true),
        (owner("apps/v1", "DaemonSet"), false),
        (owner("example.com/v1", "DaemonSet"), true),
        (owner("v1", "Node"), false),
        (owner("apps/v1", "ReplicaSet"), true),
        (deleted_at("2026-01-01T11:59:59Z"), false),
        (json!({"status": {"phase": "Failed"}}), false),
    ];
    for (patch, expected) in cases {
        assert_eq!(is_provisionable(&pod(patch.clone())), expected, "{patch}");
    }
}

#[test]
fn reschedulable_pods_are_detected() {
    let mut ending_set = owner("apps/v1", "StatefulSet");
    merge(&mut ending_set, &deleted_at("2026-01-01T11:59:59Z"));
    let cases = [
        (json!({"spec": {"nodeName": "n"}}), true),
        (json!({"status": {"phase": "Succeeded"}}), false),
        (deleted_at("2026-01-01T11:59:59Z"), false),
        (ending_set, true),
        (owner("apps/v1", "DaemonSet"), false),
        (owner("v1", "Node"), false),
    ];
    for (patch, expected) in cases {
        assert_eq!(is_reschedulable(&pod(patch.clone())), expected, "{patch}");
    }
}

#[test]
fn do_not_disrupt_is_true_or_a_positive_duration_since_the_start() {
    let at = |text: &str| text.parse::<Timestamp>().expect("a time");
    let cases = [
        (None, None, DoNotDisrupt::Absent),
        (Some("true"), None, DoNotDisrupt::Always),
        (Some("1h"), None, DoNotDisrupt::Always),
        (Some("1h"), Some("2026-01-01T11:30:00Z"), DoNotDisrupt::Until(at("2026-01-01T12:30:00Z"))),
        (Some("30m"), Some("2026-01-01T11:30:00Z"), DoNotDisrupt::Elapsed),
        (Some("false"), None, DoNotDisrupt::Invalid),
        (Some("0s"), None, DoNotDisrupt::Invalid),
        (Some("-1h"), None, DoNotDisrupt::Invalid),
        (Some("soon"), None, DoNotDisrupt::Invalid),
    ];
    for (value, started, expected) in cases {
        let mut patch = json!({});
        if let Some(value) = value {
            patch["metadata"] = json!({"annotations": {labels::ANNOTATION_DO_NOT_DISRUPT: value}});
        }
        patch["status"] = json!({"startTime": started});
        assert_eq!(do_not_disrupt(&pod(patch.clone()), now()), expected, "{patch}");
    }
}

#[test]
fn pod_that_tolerates_disrupted_taint_is_not_drained() {
    let key = labels::TAINT_DISRUPTED;
    let cases = [
        (json!({"operator": "Exists"}), true),
        (json!({"key": key, "operator": "Exists", "effect": "NoSchedule"}), true),
        (json!({"key": key}), true),
        (json!({"key": key, "operator": "Equal", "value": ""}), true),
        (json!({"key": key, "value": "x"}), false),
        (json!({"key": key, "operator": "Exists", "effect": "NoExecute"}), false),
        (json!({"key": "other", "operator": "Exists"}), false),
    ];
    for (toleration, expected) in cases {
        let pod = pod(json!({"spec": {"tolerations": [toleration]}}));
        assert_eq!(tolerates_disruption(&pod), expected, "{toleration}");
        assert_eq!(is_evictable(&pod, now()), !expected, "{toleration}");
        assert_eq!(is_drainable(&pod, now()), !expected, "{toleration}");
    }
}

#[test]
fn stuck_terminating_pod_is_ignored_after_a_minute() {
    for (time, expected) in [("2026-01-01T11:59:00Z", true), ("2026-01-01T11:58:59Z", false)] {
        let pod = pod(deleted_at(time));
        assert_eq!(is_drainable(&pod, now()), expected, "{time}");
        assert_eq!(is_waiting_eviction(&pod, now()), expected, "{time}");
        assert!(!is_evictable(&pod, now()));
    }
    let ended = pod(json!({"status": {"phase": "Succeeded"}}));
    assert!(is_drainable(&ended, now()) && !is_waiting_eviction(&ended, now()));
}

#[test]
fn fully_blocking_budget_prevents_rescheduling() {
    let budget = |spec: Value| -> PodDisruptionBudget {
        let mut object = json!({"metadata": {"name": "b", "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"app": "web"}}}});
        merge(&mut object["spec"], &spec);
        serde_json::from_value(object).expect("a budget")
    };
    let other = json!({"maxUnavailable": 0, "selector": {"matchLabels": {"app": "db"}}});
    let cases = [
        (vec![], true),
        (vec![json!({"maxUnavailable": 1})], true),
        (vec![json!({"maxUnavailable": 0})], false),
        (vec![json!({"maxUnavailable": "0%"})], false),
        (vec![json!({"minAvailable": "100%"})], false),
        (vec![json!({"minAvailable": 100})], true),
        (vec![json!({"maxUnavailable": 1}), json!({"maxUnavailable": 1})], false),
        (vec![other], true),
    ];
    let pod = pod(json!({"spec": {"nodeName": "n"}}));
    for (specs, expected) in cases {
        let budgets: Vec<_> = specs.iter().cloned().map(budget).collect();
        assert_eq!(is_currently_reschedulable(&pod, &budgets, now()), expected, "{specs:?}");
    }
}

#[test]
fn blocking_budget_does_not_affect_unevictable_pods() {
    let budget: PodDisruptionBudget = serde_json::from_value(json!({
        "metadata": {"name": "b", "namespace": "default"},
        "spec": {"maxUnavailable": 0, "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": {"app": "web"}}},
    }))
    .expect("a budget");
    let unready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    let tolerating = json!({"spec": {"tolerations": [{"operator": "Exists"}]}});
    let mut kept_and_ending = owner("apps/v1", "StatefulSet");
    merge(&mut kept_and_ending, &deleted_at("2026-01-01T11:59:59Z"));
    merge(
        &mut kept_and_ending,
        &json!({"metadata": {"annotations": {labels::ANNOTATION_DO_NOT_DISRUPT: "true"}}}),
    );
    for (patch, expected) in
        [(json!({}), false), (unready, true), (tolerating, true), (kept_and_ending, true)]
    {
        assert_eq!(is_currently_reschedulable(&pod(patch.clone()), [&budget], now()), expected, "{patch}");
    }
}

#[test]
fn active_pod_is_protected_by_do_not_evict() {
    let held = |value: &str| json!({"metadata": {"annotations": {"karpenter.sh/do-not-evict": value}}});
    assert!(is_do_not_evict(&pod(held("true"))));
    assert!(!is_do_not_evict(&pod(held("false"))) && !is_do_not_evict(&pod(json!({}))));
    let mut ended = held("true");
    ended["status"] = json!({"phase": "Succeeded"});
    assert!(!is_do_not_evict(&pod(ended)));
    // The do-not-disrupt annotation does not keep a drain from evicting the pod.
    assert!(is_evictable(&pod(held("true")), now()));
}

#[test]
fn daemon_set_pods_tolerate_cordoned_node() {
    for (toleration, expected) in [
        (
            json!({"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}),
            true,
        ),
        (json!({"operator": "Exists"}), true),
        (
            json!({"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoExecute"}),
            false,
        ),
        (json!({"key": "other", "operator": "Exists"}), false),
    ] {
        let pod = pod(json!({"spec": {"tolerations": [toleration]}}));
        assert_eq!(tolerates_unschedulable(&pod), expected, "{toleration}");
    }
}
