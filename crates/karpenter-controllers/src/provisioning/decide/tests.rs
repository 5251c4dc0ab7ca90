use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use karpenter_api::types::NodePool;
use karpenter_model::problem::Options;
use karpenter_scheduling::validated::DefaultPlanner;
use karpenter_state::pod::Pod;
use karpenter_state::{ClusterInput, PoolInput};
use serde_json::{Value, json};

use super::{Decided, FailureKind, decide};

fn pool(name: &str, requirements: Value) -> PoolInput {
    let class = json!({"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"});
    let pool: NodePool = serde_json::from_value(json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name, "uid": name},
        "spec": {"template": {"spec": {"nodeClassRef": class, "requirements": requirements}}},
    }))
    .expect("a pool");
    PoolInput { pool: Arc::new(pool), instance_types: Arc::new(karpenter_catalog::kwok::generic()) }
}

fn pod(name: &str, spec: Value) -> Arc<Pod> {
    let mut spec = spec;
    spec["containers"] = json!([{"name": "c", "resources": {"requests": {"cpu": "1"}}}]);
    let metadata = json!({"name": name, "namespace": "default", "uid": name});
    Arc::new(serde_json::from_value(json!({"metadata": metadata, "spec": spec})).expect("a pod"))
}

fn plan(pools: Vec<PoolInput>, pending: Vec<Arc<Pod>>, nodes: Vec<Arc<Node>>) -> Decided {
    let input = ClusterInput { pools, pending, nodes, ..ClusterInput::default() };
    let decided = decide(&input, Options::default(), &[], &DefaultPlanner);
    assert_eq!(decided.faults.found, []);
    decided
}

fn names(pods: &[Arc<Pod>]) -> Vec<&str> {
    pods.iter().map(|pod| &*pod.name).collect()
}

#[test]
fn existing_capacity_is_used_before_nodes_are_launched() {
    let allocatable = json!({"cpu": "1500m", "memory": "8Gi", "pods": "10"});
    let node: Node = serde_json::from_value(json!({
        "metadata": {"name": "n", "labels": {"kubernetes.io/os": "linux"}},
        "status": {"allocatable": allocatable, "capacity": allocatable},
    }))
    .expect("a node");
    let pods = vec![pod("a", json!({})), pod("b", json!({}))];
    let decided = plan(vec![pool("general", json!([]))], pods, vec![Arc::new(node)]);
    assert_eq!((decided.placements.len(), decided.launches.len()), (1, 1));
    assert_eq!(names(&decided.placements[0].pods), ["a"]);
    assert!(decided.placements[0].is_initialized);
    let launch = &decided.launches[0];
    assert_eq!(names(&launch.pods), ["b"]);
    assert!(decided.price_before_per_hour < decided.price_after_per_hour);
    let requests = launch.claim.spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    assert_eq!(requests.expect("requests")["cpu"].to_string(), "1");
}

#[test]
fn unschedulable_pods_are_classified_by_cause() {
    let opted_out = json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
        {"nodeSelectorTerms": [{"matchExpressions": [
            {"key": "karpenter.sh/nodepool", "operator": "DoesNotExist"}]}]}}}});
    let lost_volume = json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "lost"}}]});
    let nowhere = json!({"nodeSelector": {"topology.kubernetes.io/zone": "moon"}});
    let pods = vec![pod("opted-out", opted_out), pod("volume", lost_volume), pod("zone", nowhere)];
    let decided = plan(vec![pool("general", json!([]))], pods, Vec::new());
    assert_eq!(decided.launches.len(), 0);
    let mut seen: Vec<_> = decided
        .failures
        .iter()
        .map(|failure| (names(&failure.pods).join(","), failure.kind, failure.is_reported))
        .collect();
    seen.sort_by(|one, other| one.0.cmp(&other.0));
    assert_eq!(
        seen,
        [
            ("opted-out".to_owned(), FailureKind::Ignored, false),
            ("volume".to_owned(), FailureKind::Ignored, true),
            ("zone".to_owned(), FailureKind::Unschedulable, true),
        ]
    );
}

#[test]
fn nodepools_without_instance_types_are_reported() {
    let requirement = |key: &str, values: Value, minimum: Option<u32>| {
        let mut requirement = json!({"key": key, "operator": "In", "values": values});
        if let Some(minimum) = minimum {
            requirement["minValues"] = json!(minimum);
        }
        json!([requirement])
    };
    let pools = vec![
        pool("fine", json!([])),
        pool("none", requirement("kubernetes.io/arch", json!(["riscv"]), None)),
        pool("few", requirement("kubernetes.io/arch", json!(["amd64", "riscv"]), Some(2))),
        pool("enough", requirement("kubernetes.io/arch", json!(["amd64", "arm64"]), Some(2))),
    ];
    let decided = plan(pools, vec![pod("a", json!({}))], Vec::new());
    let named: Vec<_> = decided
        .pools_without_types
        .iter()
        .map(|(pool, lacks_values)| (pool.metadata.name.as_deref().unwrap_or_default(), *lacks_values))
        .collect();
    assert_eq!(named, [("none", false), ("few", true)]);
}

#[test]
fn pool_that_is_not_ready_is_a_reason_of_unschedulable_pods() {
    let mut not_ready = (*pool("gpu", json!([])).pool).clone();
    not_ready.status = serde_json::from_value(json!({"conditions": [
        {"type": "Ready", "status": "False", "reason": "NodeClassNotReady", "message": "KWOKNodeClass gpu not found"}]}))
    .expect("a status");
    let nowhere = json!({"nodeSelector": {"topology.kubernetes.io/zone": "moon"}});
    let input = ClusterInput {
        pools: vec![pool("general", json!([]))],
        not_ready_pools: vec![Arc::new(not_ready)],
        pending: vec![pod("zone", nowhere), pod("other", json!({}))],
        ..ClusterInput::default()
    };
    let decided = decide(&input, Options::default(), &[], &DefaultPlanner);
    let [failure] = decided.failures.as_slice() else { panic!("{:#?}", decided.failures) };
    assert_eq!(names(&failure.pods), ["zone"]);
    assert!(failure.why.starts_with("nodepool general: "), "{}", failure.why);
    assert!(
        failure.why.ends_with("; nodepool gpu: not ready: KWOKNodeClass gpu not found"),
        "{}",
        failure.why
    );
    let fix = failure.fix.as_deref().expect("a fix");
    assert!(fix.contains("topology.kubernetes.io/zone"), "{fix}");
}

#[test]
fn fix_is_that_of_the_closest_node_pool() {
    let mut full = (*pool("full", json!([])).pool).clone();
    full.spec.limits = serde_json::from_value(json!({"cpu": "0"})).expect("limits");
    let full = PoolInput { pool: Arc::new(full), ..pool("full", json!([])) };
    let other = pool("other", json!([{"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]}]));
    let spec = json!({"nodeSelector": {"kubernetes.io/arch": "amd64"}});
    let decided = plan(vec![other, full], vec![pod("a", spec)], Vec::new());
    let fix = decided.failures[0].fix.as_deref();
    assert_eq!(fix, Some("raise spec.limits.cpu of NodePool full above 0"));
}
