//! Tests of expired nodes: they are deleted regardless of budgets, after the provisioner has launched nodes for their
//! pods.

use std::collections::BTreeSet;

use karpenter_api::types::NodePool;
use serde_json::{Value, json};

use crate::disruption::world::World;

/// Lets the first node expire and be replaced by one node. Then sets `expireAfter` to `Never`, so that no other node
/// expires.
async fn expire(pods: usize, budget: Option<Value>) {
    let world = World::start().await;
    // Drift is blocked, because the nodes drift when `expireAfter` is changed after the first expiration.
    let disruption = json!({"consolidateAfter": "Never", "budgets": [{"nodes": "0"}]});
    world.pool(disruption, json!({"spec": {"expireAfter": "10m"}})).await;
    world.deploy("web", pods, 600, json!({})).await;
    if let Some(budget) = budget {
        world.pod_budget("web", budget).await;
    }
    world.until_running("web", pods).await;
    world.until_settled(1).await;
    let before = world.claim_names().await;
    let began = world.seconds();
    let mut names: BTreeSet<String> = before.clone();
    world
        .until(
            "another claim",
            async || world.claim_names().await,
            |now: &BTreeSet<String>| !now.is_empty() && now.is_disjoint(&before),
        )
        .await;
    assert!((540..=720).contains(&(world.seconds() - began)), "{}", world.seconds() - began);
    let never = json!({"spec": {"template": {"spec": {"expireAfter": "Never"}}}});
    world.merge::<NodePool>("general", never).await;
    world.until_settled(1).await;
    world.until_running("web", pods).await;
    names.extend(world.claim_names().await);
    world.sleep(300).await;
    names.extend(world.claim_names().await);
    assert_eq!(names.len(), 2, "exactly one replacement: {names:?}");
    assert_eq!(world.decisions(), Vec::<String>::new(), "expiration needs no command");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn expired_node_is_replaced_by_exactly_one() {
    expire(1, None).await;
}

#[tokio::test(start_paused = true)]
async fn five_pods_evicted_one_by_one_share_one_new_node() {
    expire(5, Some(json!({"maxUnavailable": 1}))).await;
}
