//! Measures the duration of assembling a cluster: 1,000 and 5,000 nodes with ten pods each, of a hundred workloads.
//!
//!   cargo run --release -p karpenter-state --example disruption_speed

use std::sync::Arc;
use std::time::Instant;

use karpenter_api::types::{NodeClaim, NodePool};
use karpenter_state::{ClusterInput, DisruptionInput, PoolInput, assemble_cluster, assemble_disruption};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

const WORKLOADS: usize = 100;
const PODS_PER_NODE: usize = 10;
const RUNS: usize = 5;

fn object<T: DeserializeOwned>(value: Value) -> Arc<T> {
    match serde_json::from_value(value) {
        Ok(object) => Arc::new(object),
        Err(error) => {
            eprintln!("a generated object is wrong: {error}");
            std::process::exit(1);
        }
    }
}

fn cluster(nodes: usize) -> (ClusterInput, DisruptionInput) {
    let types = Arc::new(karpenter_catalog::kwok::generic());
    let names: Vec<&str> = types.iter().map(|one| &*one.name).collect();
    let pool: Arc<NodePool> = object(json!({
        "metadata": {"name": "default"},
        "spec": {"disruption": {"consolidateAfter": "30s", "budgets": [{"nodes": "10%"}]}, "template": {"spec": {
            "requirements": [], "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}}}},
    }));
    let mut live = ClusterInput {
        pools: vec![PoolInput { pool, instance_types: types.clone() }],
        well_known: karpenter_catalog::kwok::well_known_labels(&types).into_iter().collect(),
        ..ClusterInput::default()
    };
    for at in 0..nodes {
        let (claim, node, id) = (format!("claim-{at:05}"), format!("node-{at:05}"), format!("kwok://{at}"));
        let labels = json!({
            "karpenter.sh/nodepool": "default", "karpenter.sh/registered": "true",
            "karpenter.sh/initialized": "true", "karpenter.sh/capacity-type": "on-demand",
            "kubernetes.io/hostname": node, "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux",
            "node.kubernetes.io/instance-type": names[at % names.len()], "topology.kubernetes.io/zone": "test-zone-a",
        });
        let amounts = json!({"cpu": "16", "memory": "64Gi", "ephemeral-storage": "20Gi", "pods": "110"});
        let conditions: Vec<Value> = ["Launched", "Registered", "Initialized", "Ready", "Consolidatable"]
            .iter()
            .map(|name| json!({"type": name, "status": "True", "reason": name, "message": "", "lastTransitionTime": "2026-01-01T08:00:00Z"}))
            .collect();
        let node_claim: Arc<NodeClaim> = object(json!({
            "metadata": {"name": claim, "uid": claim, "labels": labels, "creationTimestamp": "2026-01-01T08:00:00Z"},
            "spec": {"requirements": [], "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}},
            "status": {"nodeName": node, "providerID": id, "capacity": amounts, "allocatable": amounts, "conditions": conditions},
        }));
        live.node_claims.push(node_claim);
        live.nodes.push(object(json!({
            "metadata": {"name": node, "uid": node, "labels": labels},
            "spec": {"providerID": id},
            "status": {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]},
        })));
        for number in 0..PODS_PER_NODE {
            let workload = (at * 7 + number * 13) % WORKLOADS;
            let app = format!("app-{workload}");
            live.bound.push(object(json!({
                "metadata": {"name": format!("{app}-{at}-{number}"), "namespace": "default", "uid": format!("{at}-{number}"),
                    "labels": {"app": app, "pod-template-hash": "5d8f", "tier": "backend"},
                    "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": app, "uid": app, "controller": true}]},
                "spec": {"nodeName": node, "containers": [{"name": "main", "image": "example",
                    "resources": {"requests": {"cpu": format!("{}m", 100 + workload), "memory": "256Mi"}}}],
                    "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}],
                    "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone",
                        "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {"matchLabels": {"app": app}}}]},
                "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
            })));
        }
    }
    let pod_budgets = (0..WORKLOADS).map(|workload| {
        object(json!({
            "metadata": {"name": format!("budget-{workload}"), "namespace": "default"},
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": format!("app-{workload}")}}},
            "status": {"disruptionsAllowed": 1, "currentHealthy": 1, "desiredHealthy": 0, "expectedPods": 1},
        }))
    });
    let now = jiff::Timestamp::from_second(1_767_268_800).unwrap_or_default();
    (live, DisruptionInput { now, pod_budgets: pod_budgets.collect(), ..DisruptionInput::default() })
}

fn main() {
    for nodes in [1_000, 5_000] {
        let (live, input) = cluster(nodes);
        for _ in 0..RUNS {
            let started = Instant::now();
            let round = assemble_cluster(&live);
            let problem = started.elapsed();
            let started = Instant::now();
            let cluster = assemble_disruption(&live, &input);
            let all = started.elapsed();
            println!(
                "{nodes} nodes, {} pods: problem {:.1} ms, fleet {:.1} ms ({} nodes, {} machines)",
                live.bound.len(),
                problem.as_secs_f64() * 1000.0,
                all.as_secs_f64() * 1000.0,
                round.problem.nodes.len(),
                cluster.cluster.state_nodes.len(),
            );
        }
    }
}
