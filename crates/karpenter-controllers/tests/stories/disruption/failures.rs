//! Commands that fail because what they launched never comes up: who has to wait for that, and who does not.

use karpenter_api::types::NodePool;
use serde_json::{Value, json};

use crate::disruption::support::apart;
use crate::disruption::world::{World, is_closed, is_initialized, is_of, label, node_of};

/// A pod on a node of its own of the pool.
async fn deploy_in(world: &World, pool: &str) {
    let mut patch = apart();
    patch["spec"]["nodeSelector"] = json!({"karpenter.sh/nodepool": pool});
    world.deploy(pool, 1, 900, patch).await;
}

/// Nodes of these pools from now on bear a taint that nobody takes off.
async fn stick(world: &World, pool: &str) {
    let taint = json!({"key": "example.com/stuck", "effect": "PreferNoSchedule"});
    let patch = json!({"spec": {"template": {"spec": {"startupTaints": [taint]}}}});
    world.merge::<NodePool>(pool, patch).await;
}

/// Two pools with a node each, of which the first one's new nodes never come up.
async fn world(disruption: Value) -> World {
    let world = World::start_with(|options| options.feature_gates.node_repair = true).await;
    for pool in ["general", "other"] {
        world.pool_named(pool, json!({"disruption": disruption})).await;
        deploy_in(&world, pool).await;
        world.until_running(pool, 1).await;
    }
    world.until_settled(2).await;
    stick(&world, "general").await;
    world
}

async fn node_in(world: &World, pool: &str) -> String {
    let pods = world.pods().await;
    node_of(pods.iter().find(|pod| is_of(pod, pool)).expect("a pod"))
}

async fn is_open(world: &World, node: &str) -> bool {
    world.node(node).await.is_some_and(|node| !is_closed(&node))
}

/// Waits until the pool's only node was closed and opened again, with its replacement left behind.
async fn until_failed(world: &World, pool: &str) {
    let node = node_in(world, pool).await;
    let is_open = async || is_open(world, &node).await;
    world.until("it is closed", &is_open, |open| !open).await;
    world.until("it is open again", &is_open, |open| *open).await;
    let claims = world.claims().await;
    let stuck =
        claims.iter().find(|claim| !is_initialized(claim)).map(|claim| label(claim, "karpenter.sh/nodepool"));
    assert_eq!(stuck, Some(pool));
}

/// Waits until the pod of the pool runs on another node; says how long that took.
async fn until_moved(world: &World, pool: &str, node: &str) -> i64 {
    let began = world.seconds();
    let moved = async || {
        let pods = world.until_running(pool, 1).await;
        node_of(&pods[0])
    };
    world.until("it runs elsewhere", moved, |now| now != node).await;
    world.seconds() - began
}

#[tokio::test(start_paused = true)]
async fn a_failed_drift_keeps_no_other_pool_from_drifting() {
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
async fn a_failed_repair_keeps_no_other_node_sick() {
    let budgets = json!([{"nodes": "0", "reasons": ["Drifted"]}, {"nodes": "1"}]);
    let world = world(json!({"consolidateAfter": "Never", "budgets": budgets})).await;
    let first = node_in(&world, "general").await;
    world.cloud.sicken(&first, "KWOKUnhealthy", "True", "Test").await.expect("sick");
    until_failed(&world, "general").await;
    let node = node_in(&world, "other").await;
    world.cloud.sicken(&node, "KWOKUnhealthy", "True", "Test").await.expect("sick");
    let took = until_moved(&world, "other", &node).await;
    assert!(took < 300, "{took} s: {:#?}", world.decisions());
    // The first one rests.
    assert!(is_open(&world, &first).await);
    world.stop().await;
}
