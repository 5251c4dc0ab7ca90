use super::*;

use jiff::SignedDuration;
use serde_json::json;

fn at(second: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(second)
}

/// Created at second 0, in this phase, with these conditions and on this node.
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
fn pods_wait_for_what_they_have_not_got() {
    let scheduled = ("PodScheduled", "True", 3);
    let fresh = Times { is_watched: true, acknowledged: Some(at(1)), ..Times::default() };
    let placed = Times { decided: Some(at(2)), placed: Some(at(2)), ..fresh };
    let refused = Times { placed: None, ..placed };
    // unstarted, unbound, unstarted and unbound with a place, undecided.
    type Expected = Option<[Option<f64>; 5]>;
    let cases: [(&str, Pod, Times, Expected); 9] = [
        (
            "nobody has looked at it",
            pod("Pending", &[], None),
            Times::default(),
            Some([Some(10.0), Some(10.0), None, None, None]),
        ),
        ("seen", pod("Pending", &[], None), fresh, Some([Some(10.0), Some(10.0), None, None, Some(9.0)])),
        (
            "planned",
            pod("Pending", &[("PodScheduled", "False", 1)], None),
            placed,
            Some([Some(10.0), Some(10.0), Some(8.0), Some(8.0), None]),
        ),
        ("no place", pod("Pending", &[], None), refused, Some([Some(10.0), Some(10.0), None, None, None])),
        (
            "bound, not started",
            pod("Pending", &[scheduled], Some("n")),
            placed,
            Some([Some(10.0), None, Some(8.0), None, None]),
        ),
        (
            "runs, not ready",
            pod("Running", &[scheduled, ("Ready", "False", 5)], Some("n")),
            placed,
            Some([Some(10.0), None, Some(8.0), None, None]),
        ),
        (
            "runs, not ready, seen only now",
            pod("Running", &[scheduled, ("Ready", "False", 5)], Some("n")),
            Times::default(),
            None,
        ),
        ("ready", pod("Running", &[scheduled, ("Ready", "True", 5)], Some("n")), placed, None),
        ("ended", pod("Succeeded", &[scheduled], Some("n")), placed, None),
    ];
    for (case, pod, known, expected) in cases {
        let found = waiting(&pod, known, at(10)).map(|found| {
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
fn the_state_of_a_pod_names_its_node() {
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
    let waits = pod("Pending", &[], None);
    assert_eq!(
        state_of(&waits, None),
        ["web-1", "shop", owner, "", "false", "", "", "", "", "", "Pending", "false", "false"]
    );
}

fn applied(old: Option<Pod>, new: Pod) -> Change<Pod> {
    Change::Applied { old: old.map(Arc::new), new: Arc::new(new) }
}

#[test]
fn the_way_of_a_pod_is_timed_and_then_forgotten() {
    let declare = Declare::default();
    let metrics = PodMetrics::new(&declare);
    let waits = pod("Pending", &[], None);
    metrics.count(&applied(None, waits.clone()), at(0));
    metrics.acknowledge([&waits], at(1));
    metrics.decide([&waits], false, at(2));
    metrics.decide([&waits], true, at(4));
    metrics.decide([&waits], true, at(5));
    assert_eq!(metrics.decision.get_sample_count(), 1, "the first plan counts");
    assert_eq!(metrics.decision.get_sample_sum(), 1.0);
    let bound = pod("Pending", &[("PodScheduled", "True", 6)], Some("n"));
    metrics.count(&applied(Some(waits), bound.clone()), at(6));
    assert_eq!(metrics.bound.with_label_values(&["false"]).get_sample_sum(), 6.0);
    assert_eq!(metrics.provisioning_bound.with_label_values(&["false"]).get_sample_sum(), 2.0);
    let running = pod("Running", &[("Ready", "True", 7)], Some("n"));
    metrics.count(&applied(Some(bound), running.clone()), at(9));
    assert_eq!(metrics.provisioning_startup.get_sample_sum(), 3.0);
    let mut text = String::new();
    metrics.write_summaries(&mut text, at(9));
    assert!(text.contains("karpenter_pods_startup_duration_seconds_sum 7\n"), "{text}");
    assert!(metrics.times().is_empty(), "nothing is kept of a pod that runs");

    metrics.count(&applied(Some(running.clone()), running), at(20));
    assert_eq!(metrics.provisioning_startup.get_sample_count(), 1, "once only");
    let another = pod("Pending", &[], None);
    metrics.count(&applied(None, another.clone()), at(30));
    metrics.count(&Change::Deleted { old: Arc::new(another) }, at(31));
    assert!(metrics.times().is_empty(), "nor of one that is gone");
}

#[test]
fn a_pod_that_was_seen_and_not_planned_is_told_as_such() {
    let metrics = PodMetrics::new(&Declare::default());
    let waits = Arc::new(pod("Pending", &[], None));
    metrics.acknowledge([&*waits], at(4));
    let told = || {
        let mut text = String::new();
        metrics.write(&mut text, std::slice::from_ref(&waits), &[], at(10));
        text.lines().filter(|line| !line.starts_with('#')).skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    let own = r#"name="web-1",namespace="shop""#;
    let unstarted = format!("karpenter_pods_unstarted_time_seconds{{{own}}} 10");
    let unbound = format!(r#"karpenter_pods_unbound_time_seconds{{dynamic_resources="false",{own}}} 10"#);
    let undecided = format!("karpenter_pods_provisioning_scheduling_undecided_time_seconds{{{own}}} 6");
    assert_eq!(told(), [unstarted.clone(), unbound.clone(), undecided]);
    metrics.decide([&*waits], true, at(7));
    let placed = format!("karpenter_pods_provisioning_unstarted_time_seconds{{{own}}} 3");
    let unbound_placed =
        format!(r#"karpenter_pods_provisioning_unbound_time_seconds{{dynamic_resources="false",{own}}} 3"#);
    assert_eq!(told(), [unstarted, unbound, placed, unbound_placed]);
}
