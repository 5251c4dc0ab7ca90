//! Tests that the number of nodes stays bounded while another controller taints every new node, so that no pod can run.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::api::core::v1::Node;
use karpenter_api::types::NodePool;
use karpenter_runtime::store::{Change, Store, keep_all};
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use crate::disruption::world::World;

/// Upper limit for the number of nodes at the same time, from upstream's test.
const NODES_MAX: usize = 35;

fn is_of_pool(node: &Node) -> bool {
    let labels = node.metadata.labels.as_ref();
    labels.is_some_and(|labels| labels.contains_key("karpenter.sh/nodepool"))
}

/// Taints every node of a NodePool.
async fn taint_all(nodes: Store<Node>, api: Api<Node>) {
    let mut changes = nodes.subscribe();
    while let Some(change) = changes.recv().await {
        let Change::Applied { new: node, .. } = change else { continue };
        let taints = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
        if !is_of_pool(&node) || taints.iter().any(|taint| taint.key == "test") {
            continue;
        }
        let mut taints: Vec<Value> = taints.iter().map(|taint| json!(taint)).collect();
        taints.push(json!({"key": "test", "value": "true", "effect": "NoExecute"}));
        let version = node.metadata.resource_version.clone();
        let patch = json!({"metadata": {"resourceVersion": version}, "spec": {"taints": taints}});
        let name = node.metadata.name.clone().unwrap_or_default();
        // After a conflict, the watch delivers the newer version of the node, and the patch is sent again.
        let _ = api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await;
    }
}

/// Lets the other controller taint nodes for five minutes. Returns the maximum number of nodes that existed at the same
/// time, and the number of all nodes.
async fn run_away(capacity_type: &str, disruption: Value) -> (usize, usize) {
    let world = World::start().await;
    let pool = world.pool(disruption, json!({})).await;
    let mut requirements = serde_json::to_value(&pool.spec.template.spec.requirements).expect("JSON");
    requirements[0]["values"] = json!([capacity_type]);
    world
        .merge::<NodePool>("general", json!({"spec": {"template": {"spec": {"requirements": requirements}}}}))
        .await;
    let (nodes, feeding) = Store::<Node>::watch(&world.client, keep_all, &[]);
    let tainting = tokio::spawn(taint_all(nodes.clone(), world.all()));
    let (most, all) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (seen, seen_most, seen_all) = (nodes.clone(), most.clone(), all.clone());
    nodes.observe(move |change: &Change<Node>| {
        seen_most.fetch_max(seen.list().iter().filter(|node| is_of_pool(node)).count(), Ordering::Relaxed);
        if matches!(change, Change::Applied { old: None, .. }) {
            seen_all.fetch_add(1, Ordering::Relaxed);
        }
    });
    let patch = json!({"spec": {"terminationGracePeriodSeconds": 0}});
    world.deploy("my-app", 1, 100, patch).await;
    world.sleep(300).await;
    tainting.abort();
    feeding.abort();
    world.stop().await;
    (most.load(Ordering::Relaxed), all.load(Ordering::Relaxed))
}

#[tokio::test(start_paused = true)]
async fn node_count_stays_bounded_with_immediate_consolidation() {
    let disruption = json!({"consolidateAfter": "0s", "consolidationPolicy": "WhenEmptyOrUnderutilized"});
    let (most, all) = run_away("spot", disruption).await;
    assert!(most < NODES_MAX && all > 1, "{most} at once, {all} in all");
}

#[tokio::test(start_paused = true)]
async fn node_count_stays_bounded_with_when_empty_policy() {
    let disruption = json!({"consolidateAfter": "30s", "consolidationPolicy": "WhenEmpty"});
    let (most, all) = run_away("on-demand", disruption).await;
    assert!(most < NODES_MAX && all > 1, "{most} at once, {all} in all");
}
