//! Tests of disruption budgets: how many nodes are disrupted at once, and when.

use karpenter_api::types::NodePool;
use serde_json::{Value, json};

use crate::disruption::support::anti_affinity;
use crate::disruption::world::{World, has_disrupted_taint};

async fn world_with_empty_nodes(disruption: Value, nodes: usize) -> World {
    let world = World::start().await;
    world.pool(disruption, json!({})).await;
    world.deploy("web", nodes, 900, anti_affinity()).await;
    world.until_running("web", nodes).await;
    world.until_settled(nodes).await;
    world.delete_deployment("web").await;
    world.until_running("web", 0).await;
    world
}

#[tokio::test(start_paused = true)]
async fn budget_of_zero_blocks_disruption_until_it_is_raised() {
    let world =
        world_with_empty_nodes(json!({"consolidateAfter": "0s", "budgets": [{"nodes": "0"}]}), 2).await;
    world.sleep(600).await;
    assert_eq!(world.claim_names().await.len(), 2);
    let events = world.events("DisruptionBlocked").await;
    let words = "No allowed disruptions for disruption reason Empty due to blocking budget";
    assert!(events.contains(&("general".into(), words.into())), "{events:?}");
    let allowed = "karpenter_nodepools_allowed_disruptions{nodepool=\"general\",reason=\"empty\"}";
    assert_eq!(world.metric(allowed), Some(0.0));
    world.merge::<NodePool>("general", json!({"spec": {"disruption": {"budgets": [{"nodes": "1"}]}}})).await;
    world.until_settled(0).await;
    assert_eq!(world.decisions().len(), 2, "one at a time: {:?}", world.decisions());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn budget_of_half_disrupts_half_of_the_empty_nodes_at_once() {
    let world =
        world_with_empty_nodes(json!({"consolidateAfter": "0s", "budgets": [{"nodes": "50%"}]}), 4).await;
    let mut tainted_max = 0;
    while !world.claims().await.is_empty() {
        let nodes = world.nodes().await;
        tainted_max = tainted_max.max(nodes.iter().filter(|node| has_disrupted_taint(node)).count());
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        assert!(world.seconds() < 1800, "{:?}", world.decisions());
    }
    assert_eq!(tainted_max, 2, "{:?}", world.decisions());
    world.stop().await;
}

/// The budget allows one disruption. While the first command runs, the others wait out their validation delay of 15 s,
/// so that they start as soon as the budget allows.
#[tokio::test(start_paused = true)]
async fn commands_awaiting_budget_start_as_soon_as_it_allows() {
    let one_by_one = json!({"consolidateAfter": "0s", "budgets": [{"nodes": "1"}]});
    let world = world_with_empty_nodes(one_by_one.clone(), 6).await;
    let began = world.seconds();
    world.until_settled(0).await;
    let took = world.seconds() - began;
    assert_eq!(world.decisions().len(), 6, "one at a time: {:?}", world.decisions());
    assert!(took < 60, "six validation delays of 15 s would be 90 s; took {took} s");
    world.stop().await;

    // Each node has pods that fit on the other nodes.
    let world = World::start().await;
    world.pool(one_by_one, json!({})).await;
    world.deploy("wide", 6, 900, anti_affinity()).await;
    world.until_running("wide", 6).await;
    world.until_settled(6).await;
    world.deploy("narrow", 6, 20, json!({})).await;
    world.until_running("narrow", 6).await;
    world.merge::<NodePool>("general", json!({"spec": {"disruption": {"budgets": [{"nodes": "0"}]}}})).await;
    world.delete_deployment("wide").await;
    world.until_running("wide", 0).await;
    world.sleep(60).await;
    let began = world.seconds();
    world.merge::<NodePool>("general", json!({"spec": {"disruption": {"budgets": [{"nodes": "1"}]}}})).await;
    let mut tainted_max = 0;
    while world.claims().await.len() > 1 {
        let nodes = world.nodes().await;
        tainted_max = tainted_max.max(nodes.iter().filter(|node| has_disrupted_taint(node)).count());
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        assert!(world.seconds() < began + 600, "{:?}", world.decisions());
    }
    let took = world.seconds() - began;
    assert_eq!(tainted_max, 1, "{:?}", world.decisions());
    assert!(took < 75, "took {took} s: {:?}", world.decisions());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn budget_schedule_blocks_disruption_while_it_is_active() {
    // The simulated clock starts at noon.
    let budgets = json!([{"nodes": "0", "schedule": "0 12 * * *", "duration": "30m"}]);
    let world = world_with_empty_nodes(json!({"consolidateAfter": "0s", "budgets": budgets}), 2).await;
    world.sleep(29 * 60 - world.seconds()).await;
    assert_eq!(world.claim_names().await.len(), 2);
    world.until_settled(0).await;
    assert!((30 * 60..32 * 60).contains(&world.seconds()), "{}", world.seconds());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn budget_for_another_reason_is_ignored() {
    let budgets = json!([{"nodes": "0", "reasons": ["Drifted"]}, {"nodes": "100%", "reasons": ["Empty"]}]);
    let world = world_with_empty_nodes(json!({"consolidateAfter": "0s", "budgets": budgets}), 2).await;
    world.until_settled(0).await;
    assert!(world.seconds() < 120, "{}", world.seconds());
    world.stop().await;
}
