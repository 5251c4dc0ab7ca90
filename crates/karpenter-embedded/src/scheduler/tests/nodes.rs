//! Tests of the filters of one node and one pod: cordon, taints, node affinity, ports, resources.

use serde_json::{Value, json};

use super::*;
use crate::scheduler::{Plugin, PodRequests};

#[test]
fn pod_is_unschedulable_without_nodes() {
    let decision = decide(&mut Snapshot::new(), pod("p", json!({})));
    let Decision::Unschedulable { failure, gives_up_nomination } = decision else { panic!("{decision:?}") };
    assert_eq!(failure.message, "no nodes available to schedule pods");
    assert!(failure.plugins.is_empty() && gives_up_nomination);
}

#[test]
fn each_node_filter_has_its_message() {
    let taint = |effect: &str| json!({"spec": {"taints": [{"key": "team", "value": "a", "effect": effect}]}});
    let affinity = |operator: &str, values: Value| {
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [
                {"key": "size", "operator": operator, "values": values}]}]}}}})
    };
    let sized = json!({"metadata": {"labels": {"size": "5"}}});
    let unschedulable = "node(s) were unschedulable";
    let tainted = "node(s) had untolerated taint(s)";
    let elsewhere = "node(s) didn't match Pod's node affinity/selector";
    let cases: Vec<(Value, Value, Option<&str>)> = vec![
        (json!({}), json!({}), None),
        (json!({"spec": {"unschedulable": true}}), json!({}), Some(unschedulable)),
        (
            json!({"spec": {"unschedulable": true}}),
            json!({"tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]}),
            None,
        ),
        (taint("NoSchedule"), json!({}), Some(tainted)),
        (taint("NoExecute"), json!({}), Some(tainted)),
        (taint("PreferNoSchedule"), json!({}), None),
        (taint("NoSchedule"), json!({"tolerations": [{"key": "team", "value": "a"}]}), None),
        (taint("NoSchedule"), json!({"tolerations": [{"key": "team", "value": "b"}]}), Some(tainted)),
        (taint("NoSchedule"), json!({"tolerations": [{"operator": "Exists"}]}), None),
        (
            taint("NoSchedule"),
            json!({"tolerations": [{"operator": "Exists", "effect": "NoExecute"}]}),
            Some(tainted),
        ),
        (sized.clone(), json!({"nodeSelector": {"size": "5"}}), None),
        (sized.clone(), json!({"nodeSelector": {"size": "6"}}), Some(elsewhere)),
        (sized.clone(), affinity("In", json!(["4", "5"])), None),
        (sized.clone(), affinity("NotIn", json!(["5"])), Some(elsewhere)),
        (sized.clone(), affinity("Exists", json!([])), None),
        (sized.clone(), affinity("DoesNotExist", json!([])), Some(elsewhere)),
        (sized.clone(), affinity("Gt", json!(["4"])), None),
        (sized.clone(), affinity("Gt", json!(["5"])), Some(elsewhere)),
        (sized.clone(), affinity("Lt", json!(["6"])), None),
        (sized.clone(), affinity("Lt", json!(["six"])), Some(elsewhere)),
        (json!({}), affinity("NotIn", json!(["5"])), None),
        (json!({}), json!({"nodeName": "other"}), Some("node(s) didn't match the requested node name")),
    ];
    for (over, spec, refusal) in cases {
        let case = format!("{over} {spec}");
        let decision = decide(&mut cluster([node("a", over)], []), pod("p", spec));
        match (decision, refusal) {
            (Decision::Bind { .. }, None) => {}
            (Decision::Unschedulable { failure, .. }, Some(reason)) => {
                let expected = format!(
                    "0/1 nodes are available: 1 {reason}. no new claims to deallocate, \
                     preemption: 0/1 nodes are available: \
                     1 Preemption is not helpful for scheduling."
                );
                assert_eq!(failure.message, expected, "{case}");
            }
            (decision, _) => panic!("{case}: {decision:?}"),
        }
    }
}

#[test]
fn reasons_are_counted_and_sorted() {
    let nodes = (0..12).map(|index| match index {
        0..2 => node(&format!("n{index:02}"), json!({"spec": {"unschedulable": true}})),
        2..11 => {
            node(&format!("n{index:02}"), json!({"status": {"allocatable": {"cpu": "1", "memory": "1Mi"}}}))
        }
        _ => node("n11", json!({"status": {"allocatable": {"pods": "0"}}})),
    });
    let spec = requests(json!({"cpu": "2", "memory": "1Gi"}));
    assert_eq!(
        message(&mut cluster(nodes, []), pod("p", spec)),
        "0/12 nodes are available: 1 Too many pods, 2 node(s) were unschedulable, 9 Insufficient cpu, 9 Insufficient \
         memory. no new claims to deallocate, \
         preemption: 0/12 nodes are available: 1 No preemption victims found for incoming pod, 11 \
         Preemption \
         is not helpful for scheduling."
    );
}

#[test]
fn affinity_to_node_names_filters_only_those_nodes() {
    let named = |terms: Value| {
        json!({"affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}})
    };
    let field = |name: &str| json!({"key": "metadata.name", "operator": "In", "values": [name]});
    let mut snapshot = cluster([node("a", json!({})), node("b", json!({})), node("c", json!({}))], []);
    assert_bound(&mut snapshot, pod("p", named(json!([{"matchFields": [field("b")]}]))), "b");
    let mut refused = cluster(
        [node("a", json!({})), node("b", json!({"spec": {"unschedulable": true}})), node("c", json!({}))],
        [],
    );
    assert_refused(
        &mut refused,
        pod("p", named(json!([{"matchFields": [field("b")]}]))),
        "0/3 nodes are available: 1 node(s) were unschedulable, 2 node(s) didn't satisfy plugin(s) [NodeAffinity].",
    );
    assert_refused(
        &mut snapshot,
        pod("p", named(json!([{"matchFields": [field("a"), field("b")]}]))),
        "0/3 nodes are available: pod affinity terms conflict.",
    );
    // Terms are alternatives: one without a node name allows all nodes.
    let open = json!([{"matchFields": [field("c")]},
        {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "Exists"}]}]);
    assert_bound(&mut snapshot, pod("p", named(open)), "a");
}

#[test]
fn host_ports_conflict_by_port_protocol_and_address() {
    let with_port =
        |name: &str, port: Value| pod(name, json!({"containers": [{"name": "main", "ports": [port]}]}));
    let cases = [
        (json!({"hostPort": 80}), json!({"hostPort": 80}), true),
        (json!({"hostPort": 80}), json!({"hostPort": 81}), false),
        (json!({"hostPort": 80}), json!({"hostPort": 80, "protocol": "UDP"}), false),
        (json!({"hostPort": 80, "hostIP": "10.0.0.1"}), json!({"hostPort": 80}), true),
        (json!({"hostPort": 80, "hostIP": "10.0.0.1"}), json!({"hostPort": 80, "hostIP": "0.0.0.0"}), true),
        (json!({"hostPort": 80, "hostIP": "10.0.0.1"}), json!({"hostPort": 80, "hostIP": "10.0.0.2"}), false),
        (json!({"containerPort": 80}), json!({"hostPort": 80}), false),
    ];
    for (mut used, mut wanted, conflict) in cases {
        for port in [&mut used, &mut wanted] {
            merge(port, json!({"containerPort": 80}));
        }
        let mut snapshot = cluster([node("a", json!({}))], [on("a", with_port("old", used.clone()))]);
        let decision = decide(&mut snapshot, with_port("new", wanted.clone()));
        match decision {
            Decision::Bind { .. } => assert!(!conflict, "{used} {wanted}"),
            Decision::Unschedulable { failure, .. } => {
                assert!(conflict, "{used} {wanted}");
                assert!(failure.plugins.contains(&Plugin::NodePorts));
                let words =
                    "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports.";
                assert!(failure.message.starts_with(words), "{}", failure.message);
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn requests_follow_init_containers_sidecars_and_overhead() {
    let container = |cpu: &str| json!({"name": cpu, "resources": {"requests": {"cpu": cpu}}});
    let sidecar =
        |cpu: &str| json!({"name": cpu, "restartPolicy": "Always", "resources": {"requests": {"cpu": cpu}}});
    let cases: Vec<(Value, i64)> = vec![
        (json!({"containers": [container("1"), container("500m")]}), 1500),
        // Fractions of millicores are added before they are rounded.
        (json!({"containers": [container("500u"), container("500u")]}), 1),
        (json!({"containers": [container("1")], "initContainers": [container("3")]}), 3000),
        (json!({"containers": [container("1")], "initContainers": [sidecar("1"), container("3")]}), 4000),
        (json!({"containers": [container("4")], "initContainers": [container("3"), sidecar("1")]}), 5000),
        (json!({"containers": [container("1")], "overhead": {"cpu": "250m"}}), 1250),
        (json!({"containers": [container("1")], "resources": {"requests": {"cpu": "3"}}}), 3000),
        (json!({"containers": [container("1")], "resources": {"requests": {"memory": "1Gi"}}}), 1000),
    ];
    for (spec, expected) in cases {
        let requests = PodRequests::of(&read(pod("p", spec.clone())));
        assert_eq!(requests.total.cpu_milli, expected, "{spec}");
    }
}

#[test]
fn pod_in_resize_counts_with_the_larger_request() {
    let mut resized = pod("p", requests(json!({"cpu": "1"})));
    merge(
        &mut resized,
        json!({"status": {"containerStatuses": [{
            "name": "main", "image": "", "imageID": "", "ready": true, "restartCount": 0,
            "resources": {"requests": {"cpu": "3"}}, "allocatedResources": {"cpu": "2"}}]}}),
    );
    assert_eq!(PodRequests::of(&read(resized)).total.cpu_milli, 3000);
}

#[test]
fn each_insufficient_resource_is_reported() {
    let gpu = json!({"status": {"allocatable": {"example.com/gpu": "1", "hugepages-2Mi": "4Mi"}}});
    let used =
        || [on("a", pod("old", requests(json!({"cpu": "3", "memory": "1Gi", "example.com/gpu": "1"}))))];
    let cases: Vec<(Value, Option<&str>)> = vec![
        (json!({"cpu": "1"}), None),
        (json!({"cpu": "1001m"}), Some("1 Insufficient cpu")),
        (json!({"memory": "7Gi"}), None),
        (json!({"memory": "7169Mi"}), Some("1 Insufficient memory")),
        (json!({"example.com/gpu": "1"}), Some("1 Insufficient example.com/gpu")),
        (json!({"example.com/gpu": "0"}), None),
        (json!({"hugepages-2Mi": "4Mi"}), None),
        (json!({"ephemeral-storage": "1"}), Some("1 Insufficient ephemeral-storage")),
        (json!({"cpu": "2", "memory": "8Gi"}), Some("1 Insufficient cpu, 1 Insufficient memory")),
    ];
    for (wanted, refusal) in cases {
        let mut snapshot = cluster([node("a", gpu.clone())], used());
        let decision = decide(&mut snapshot, pod("new", requests(wanted.clone())));
        match (decision, refusal) {
            (Decision::Bind { .. }, None) => {}
            (Decision::Unschedulable { failure, .. }, Some(reason)) => {
                let expected =
                    format!("0/1 nodes are available: {reason}. no new claims to deallocate, preemption: ");
                assert!(failure.message.starts_with(&expected), "{wanted}: {}", failure.message);
            }
            (decision, _) => panic!("{wanted}: {decision:?}"),
        }
    }
}

#[test]
fn finished_pods_use_no_resources() {
    let mut done = on("a", pod("done", requests(json!({"cpu": "4"}))));
    merge(&mut done, json!({"status": {"phase": "Succeeded"}}));
    assert_bound(&mut cluster([node("a", json!({}))], [done]), pod("p", requests(json!({"cpu": "4"}))), "a");
}

#[test]
fn cached_results_follow_node_changes() {
    let mut snapshot = cluster([node("a", json!({}))], []);
    assert_bound(&mut snapshot, pod("p", json!({})), "a");
    snapshot.apply_node(&read(node("a", json!({"spec": {"unschedulable": true}}))));
    assert_refused(
        &mut snapshot,
        pod("p", json!({})),
        "0/1 nodes are available: 1 node(s) were unschedulable.",
    );
    snapshot.remove_node("a");
    snapshot.apply_node(&read(node("b", json!({}))));
    assert_bound(&mut snapshot, pod("p", json!({})), "b");
}
