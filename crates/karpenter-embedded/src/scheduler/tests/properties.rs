//! For random clusters: no pod is bound beyond capacity or against a filter, equal clusters give equal results, and
//! caches do not change results.

use std::collections::BTreeMap;

use karpenter_runtime::object::ObjectKey;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

#[derive(Debug, Clone)]
struct PodShape {
    cpu_milli: u32,
    app: u8,
    priority: i32,
    rule: u8,
}

fn shapes() -> impl Strategy<Value = (Vec<u32>, Vec<PodShape>)> {
    let pod = (0u32..3000, 0u8..3, 0i32..3, 0u8..7).prop_map(|(cpu_milli, app, priority, rule)| PodShape {
        cpu_milli,
        app,
        priority,
        rule,
    });
    (prop::collection::vec(1000u32..6000, 1..7), prop::collection::vec(pod, 1..30))
}

fn build_node(index: usize, cpu_milli: u32) -> Value {
    let mut node = in_zone(&format!("n{index}"), &format!("z{}", index % 3));
    merge(&mut node, json!({"status": {"allocatable": {"cpu": format!("{cpu_milli}m"), "pods": "8"}}}));
    node
}

fn build_pod(index: usize, shape: &PodShape) -> Value {
    let app = format!("app{}", shape.app);
    let selector = json!({"matchLabels": {"app": app}});
    let (zone, host) = ("topology.kubernetes.io/zone", "kubernetes.io/hostname");
    let mut spec = requests(json!({"cpu": format!("{}m", shape.cpu_milli)}));
    let rule = match shape.rule {
        0 => json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": zone,
            "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}]}),
        1 => json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": host, "labelSelector": selector}]}}}),
        2 => json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": zone, "labelSelector": selector}]}}}),
        3 => json!({"nodeSelector": {zone: "z1"}}),
        4 => json!({"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 5, "podAffinityTerm": {"topologyKey": zone, "labelSelector": selector}}]}}}),
        _ => json!({}),
    };
    merge(&mut spec, rule);
    merge(&mut spec, json!({"priority": shape.priority}));
    labelled(&format!("p{index:02}"), json!({"app": app}), spec)
}

/// Schedules all pods in order and deletes victims immediately. With `afresh` the caches are rebuilt for each pod.
fn run(nodes: &[u32], pods: &[PodShape], afresh: bool) -> Vec<String> {
    let nodes: Vec<Value> = nodes.iter().enumerate().map(|(index, cpu)| build_node(index, *cpu)).collect();
    let mut placed: BTreeMap<String, Value> = BTreeMap::new();
    let mut snapshot = cluster(nodes.clone(), []);
    let mut log = Vec::new();
    for (index, shape) in pods.iter().enumerate() {
        let pod = build_pod(index, shape);
        if afresh {
            snapshot = cluster(nodes.clone(), placed.values().cloned());
        }
        let decision = decide(&mut snapshot, pod.clone());
        log.push(format!("{decision:?}"));
        match decision {
            Decision::Bind { node, .. } => {
                let bound = on(&node, pod);
                snapshot.apply_pod(&read(bound.clone()));
                placed.insert(format!("p{index:02}"), bound);
                let (requested, count) = snapshot.requested_on(&node).expect("the node exists");
                let offered =
                    nodes.iter().find(|it| it["metadata"]["name"] == *node).expect("the node exists");
                let offered = offered["status"]["allocatable"]["cpu"].as_str().expect("cpu");
                let offered: i64 = offered.trim_end_matches('m').parse().expect("thousandths");
                assert!(requested.cpu_milli <= offered && count <= 8, "{node} is over capacity");
                if shape.rule == 3 {
                    assert!(node.trim_start_matches('n').parse::<usize>().expect("index") % 3 == 1);
                }
            }
            Decision::Nominate { node, victims, .. } => {
                for victim in victims {
                    let gone = placed.remove(&victim.name).expect("a victim is bound");
                    assert_eq!(gone["spec"]["nodeName"], *node);
                    let priority = gone["spec"]["priority"].as_i64().expect("priority");
                    assert!(priority < i64::from(shape.priority), "victims have lower priority");
                    snapshot.remove_pod(&ObjectKey::new("default", victim.name.as_str()));
                }
                // After preemption the pod must fit on the nominated node.
                let mut promised = pod.clone();
                merge(&mut promised, json!({"status": {"nominatedNodeName": &*node}}));
                let again = decide(&mut snapshot, promised);
                assert!(
                    matches!(&again, Decision::Bind { node: chosen, .. } if *chosen == node),
                    "{again:?} instead of {node}"
                );
            }
            Decision::Unschedulable { .. } | Decision::Failed { .. } => {}
        }
    }
    log
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn decisions_are_valid_and_deterministic((nodes, pods) in shapes()) {
        let first = run(&nodes, &pods, false);
        prop_assert_eq!(&first, &run(&nodes, &pods, false));
        prop_assert_eq!(&first, &run(&nodes, &pods, true));
    }
}
