use super::*;

use jiff::SignedDuration;
use serde_json::json;

fn at(second: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(second)
}

/// A pod created at second 0, with this phase and these conditions, on this node.
fn pod(phase: &str, conditions: &[(&str, &str, i64)], node: Option<&str>) -> Pod {
    let conditions: Vec<_> = conditions
        .iter()
        .map(|(kind, status, second)| {
            json!({"type": kind, "status": status, "lastTransitionTime": at(*second).to_string()})
        })
        .collect();
    serde_json::from_value(json!({
        "metadata": {"name": "web-1", "namespace": "shop", "uid": "u", "creationTimestamp": at(0).to_string(),
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "o"}]},
        "spec": {"nodeName": node, "containers": []},
        "status": {"phase": phase, "conditions": conditions},
    }))
    .expect("a pod")
}

#[test]
fn pending_durations_by_state_of_pod() {
    let scheduled = ("PodScheduled", "True", 3);
    let fresh = Times { was_seen_pending: true, acknowledged_at: Some(at(1)), ..Times::default() };
    let planned = Times { decided_at: Some(at(2)), planned_at: Some(at(2)), ..fresh };
    let refused = Times { planned_at: None, ..planned };
    // The expected durations, each for one metric: not started, not bound, not started since the pod was planned, not
    // bound since the pod was planned, and no decision of the planner yet.
    type Expected = Option<[Option<f64>; 5]>;
    let cases: [(&str, Pod, Times, Expected); 9] = [
        (
            "not seen by the provisioner",
            pod("Pending", &[], None),
            Times::default(),
            Some([Some(10.0), Some(10.0), None, None, None]),
        ),
        ("seen", pod("Pending", &[], None), fresh, Some([Some(10.0), Some(10.0), None, None, Some(9.0)])),
        (
            "planned",
            pod("Pending", &[("PodScheduled", "False", 1)], None),
            planned,
            Some([Some(10.0), Some(10.0), Some(8.0), Some(8.0), None]),
        ),
        (
            "unschedulable",
            pod("Pending", &[], None),
            refused,
            Some([Some(10.0), Some(10.0), None, None, None]),
        ),
        (
            "bound, not started",
            pod("Pending", &[scheduled], Some("n")),
            planned,
            Some([Some(10.0), None, Some(8.0), None, None]),
        ),
        (
            "runs, not ready",
            pod("Running", &[scheduled, ("Ready", "False", 5)], Some("n")),
            planned,
            Some([Some(10.0), None, Some(8.0), None, None]),
        ),
        (
            "runs, not ready, seen only now",
            pod("Running", &[scheduled, ("Ready", "False", 5)], Some("n")),
            Times::default(),
            None,
        ),
        ("ready", pod("Running", &[scheduled, ("Ready", "True", 5)], Some("n")), planned, None),
        ("finished", pod("Succeeded", &[scheduled], Some("n")), planned, None),
    ];
    for (case, pod, known, expected) in cases {
        let found = pending_durations(&pod, known, at(10)).map(|found| {
            [
                found.unstarted,
                found.unbound,
                found.provisioning_unstarted,
                found.provisioning_unbound,
                found.undecided,
            ]
        });
        assert_eq!(found, expected, "{case}");
    }
}

#[test]
fn pod_state_has_labels_of_node() {
    let node: Node = serde_json::from_value(json!({"metadata": {"name": "n", "labels": {
        "karpenter.sh/nodepool": "general", "topology.kubernetes.io/zone": "a", "kubernetes.io/arch": "arm64",
        "karpenter.sh/capacity-type": "spot", "node.kubernetes.io/instance-type": "big"}}}))
    .expect("a node");
    let owner = "/apis/apps/v1/namespaces/shop/replicasets/web";
    let ready = pod("Running", &[("Ready", "True", 5)], Some("n"));
    assert_eq!(
        state_of(&ready, Some(&node)),
        [
            "web-1", "shop", owner, "n", "true", "general", "a", "arm64", "spot", "big", "Running", "true",
            "true"
        ]
    );
    let pending = pod("Pending", &[], None);
    assert_eq!(
        state_of(&pending, None),
        ["web-1", "shop", owner, "", "false", "", "", "", "", "", "Pending", "false", "false"]
    );
}

fn applied(old: Option<Pod>, new: Pod) -> Change<Pod> {
    Change::Applied { old: old.map(Arc::new), new: Arc::new(new) }
}

#[test]
fn durations_are_observed_and_times_of_ready_pods_dropped() {
    let declare = Declare::default();
    let metrics = PodMetrics::new(&declare);
    let pending = pod("Pending", &[], None);
    metrics.count(&applied(None, pending.clone()), at(0));
    metrics.acknowledge([&pending], at(1));
    metrics.decide([&pending], false, at(2));
    metrics.decide([&pending], true, at(4));
    metrics.decide([&pending], true, at(5));
    assert_eq!(metrics.decision.get_sample_count(), 1, "the first plan counts");
    assert_eq!(metrics.decision.get_sample_sum(), 1.0);
    let bound = pod("Pending", &[("PodScheduled", "True", 6)], Some("n"));
    metrics.count(&applied(Some(pending), bound.clone()), at(6));
    assert_eq!(metrics.bound.with_label_values(&["false"]).get_sample_sum(), 6.0);
    assert_eq!(metrics.provisioning_bound.with_label_values(&["false"]).get_sample_sum(), 2.0);
    let running = pod("Running", &[("Ready", "True", 7)], Some("n"));
    metrics.count(&applied(Some(bound), running.clone()), at(9));
    assert_eq!(metrics.provisioning_startup.get_sample_sum(), 3.0);
    let mut text = String::new();
    metrics.write_summaries(&mut text, at(9));
    assert!(text.contains("karpenter_pods_startup_duration_seconds_sum 7\n"), "{text}");
    assert!(metrics.times().is_empty(), "times of a ready pod are dropped");

    metrics.count(&applied(Some(running.clone()), running), at(20));
    assert_eq!(metrics.provisioning_startup.get_sample_count(), 1, "once only");
    let another = pod("Pending", &[], None);
    metrics.count(&applied(None, another.clone()), at(30));
    metrics.count(&Change::Deleted { old: Arc::new(another) }, at(31));
    assert!(metrics.times().is_empty(), "times of a deleted pod are dropped");
}

#[test]
fn seen_pod_without_plan_is_undecided() {
    let metrics = PodMetrics::new(&Declare::default());
    let pending = Arc::new(pod("Pending", &[], None));
    metrics.acknowledge([&*pending], at(4));
    let page = || {
        let mut text = String::new();
        metrics.write(&mut text, std::slice::from_ref(&pending), &[], at(10));
        text.lines().filter(|line| !line.starts_with('#')).skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    let own = r#"name="web-1",namespace="shop""#;
    let unstarted = format!("karpenter_pods_unstarted_time_seconds{{{own}}} 10");
    let unbound = format!(r#"karpenter_pods_unbound_time_seconds{{dynamic_resources="false",{own}}} 10"#);
    let undecided = format!("karpenter_pods_provisioning_scheduling_undecided_time_seconds{{{own}}} 6");
    assert_eq!(page(), [unstarted.clone(), unbound.clone(), undecided]);
    metrics.decide([&*pending], true, at(7));
    let planned_at = format!("karpenter_pods_provisioning_unstarted_time_seconds{{{own}}} 3");
    let unbound_placed =
        format!(r#"karpenter_pods_provisioning_unbound_time_seconds{{dynamic_resources="false",{own}}} 3"#);
    assert_eq!(page(), [unstarted, unbound, planned_at, unbound_placed]);
}
