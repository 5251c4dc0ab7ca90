//! Tests of commands that fail because their replacement is never initialized: which candidates are held off for a
//! while, and which are not.

use karpenter_api::types::NodePool;
use serde_json::{Value, json};

use crate::disruption::support::anti_affinity;
use crate::disruption::world::{World, has_disrupted_taint, is_initialized, is_of, label, node_of};

/// Deploys a pod in the NodePool. The pod needs its own node.
async fn deploy_in(world: &World, pool: &str) {
    let mut patch = anti_affinity();
    patch["spec"]["nodeSelector"] = json!({"karpenter.sh/nodepool": pool});
    world.deploy(pool, 1, 900, patch).await;
}

/// Adds a startup taint to the NodePool's template that is never removed, so that new nodes are never initialized.
async fn block_initialization(world: &World, pool: &str) {
    let taint = json!({"key": "example.com/stuck", "effect": "PreferNoSchedule"});
    let patch = json!({"spec": {"template": {"spec": {"startupTaints": [taint]}}}});
    world.merge::<NodePool>(pool, patch).await;
}

/// Two NodePools with one node each; new nodes of the first one are never initialized.
async fn world(disruption: Value) -> World {
    let world = World::start_with(|options| options.feature_gates.node_repair = true).await;
    for pool in ["general", "other"] {
        world.pool_named(pool, json!({"disruption": disruption})).await;
        deploy_in(&world, pool).await;
        world.until_running(pool, 1).await;
    }
    world.until_settled(2).await;
    block_initialization(&world, "general").await;
    world
}

async fn node_in(world: &World, pool: &str) -> String {
    let pods = world.pods().await;
    node_of(pods.iter().find(|pod| is_of(pod, pool)).expect("a pod"))
}

async fn is_open(world: &World, node: &str) -> bool {
    world.node(node).await.is_some_and(|node| !has_disrupted_taint(&node))
}

/// Waits until the command for the only node of the NodePool was rolled back and its replacement remains.
async fn until_failed(world: &World, pool: &str) {
    let node = node_in(world, pool).await;
    let is_open = async || is_open(world, &node).await;
    world.until("the node is tainted", &is_open, |open| !open).await;
    world.until("the taint is removed", &is_open, |open| *open).await;
    let claims = world.claims().await;
    let stuck =
        claims.iter().find(|claim| !is_initialized(claim)).map(|claim| label(claim, "karpenter.sh/nodepool"));
    assert_eq!(stuck, Some(pool));
}

/// Waits until the pod of the NodePool runs on another node. Returns the seconds that took.
async fn until_moved(world: &World, pool: &str, node: &str) -> i64 {
    let began = world.seconds();
    let moved = async || {
        let pods = world.until_running(pool, 1).await;
        node_of(&pods[0])
    };
    world.until("the pod runs on another node", moved, |now| now != node).await;
    world.seconds() - began
}

#[tokio::test(start_paused = true)]
async fn failed_drift_does_not_block_drift_of_another_nodepool() {
    let world = world(json!({"consolidateAfter": "Never", "budgets": [{"nodes": "1"}]})).await;
    until_failed(&world, "general").await;
    let node = node_in(&world, "other").await;
    let labels = json!({"spec": {"template": {"metadata": {"labels": {"generation": "second"}}}}});
    world.merge::<NodePool>("other", labels).await;
    let took = until_moved(&world, "other", &node).await;
    assert!(took < 300, "{took} s: {:#?}", world.decisions());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn failed_repair_does_not_block_repair_of_another_node() {
    let budgets = json!([{"nodes": "0", "reasons": ["Drifted"]}, {"nodes": "1"}]);
    let world = world(json!({"consolidateAfter": "Never", "budgets": budgets})).await;
    let first = node_in(&world, "general").await;
    world.cloud.inject_condition(&first, "KWOKUnhealthy", "True", "Test").await.expect("injected");
    until_failed(&world, "general").await;
    let node = node_in(&world, "other").await;
    world.cloud.inject_condition(&node, "KWOKUnhealthy", "True", "Test").await.expect("injected");
    let took = until_moved(&world, "other", &node).await;
    assert!(took < 300, "{took} s: {:#?}", world.decisions());
    // The first candidate is held off.
    assert!(is_open(&world, &first).await);
    world.stop().await;
}
