//! How many drifted nodes go at once, and when.

use serde_json::{Value, json};

use crate::disruption::support::{Most, allow, apart, drift, follow};
use crate::disruption::world::{World, is_closed};

async fn world_of(nodes: usize, budgets: Value) -> World {
    let world = World::start().await;
    world.pool(json!({"consolidateAfter": "Never", "budgets": budgets}), json!({})).await;
    world.deploy("web", nodes, 900, apart()).await;
    world.until_running("web", nodes).await;
    world.until_settled(nodes).await;
    world
}

#[tokio::test(start_paused = true)]
async fn half_of_the_empty_nodes_that_drifted_go_at_once_and_nothing_takes_their_place() {
    let world = world_of(3, json!([{"nodes": "50%"}])).await;
    world.delete_deployment("web").await;
    world.until_running("web", 0).await;
    drift(&world).await;
    let most = follow(&world, 0, "web", 0).await;
    assert_eq!(most, Most { closed: 2, claims: 3 }, "{:#?}", world.decisions());
    assert!(world.decisions().iter().all(|what| what.starts_with("delete ")), "{:#?}", world.decisions());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn drifted_nodes_whose_pods_fit_elsewhere_go_within_the_budget() {
    let world = World::start().await;
    let budgets = json!([{"nodes": "50%"}]);
    world.pool(json!({"consolidateAfter": "Never", "budgets": budgets}), json!({})).await;
    // What holds the nodes open leaves room for one more pod on each.
    world.deploy("hold", 3, 6500, apart()).await;
    world.until_running("hold", 3).await;
    world.deploy("web", 3, 900, json!({})).await;
    world.until_running("web", 3).await;
    world.until_settled(3).await;
    world.delete_deployment("hold").await;
    world.until_running("hold", 0).await;
    drift(&world).await;
    // Two go for nothing; what they leave to the third is cheapest on three small nodes.
    let most = follow(&world, 3, "web", 3).await;
    assert!(most.closed <= 2 && most.claims <= 4, "{most:?} {:#?}", world.decisions());
    assert!(world.decisions().iter().any(|what| what.starts_with("delete ")), "{:#?}", world.decisions());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn three_of_five_drifted_nodes_are_replaced_at_once_and_five_are_left() {
    let world = world_of(5, json!([{"nodes": "3"}])).await;
    drift(&world).await;
    let began = world.seconds();
    let most = follow(&world, 5, "web", 5).await;
    assert!(world.seconds() - began < 600, "{} s", world.seconds() - began);
    assert!(most.closed == 3 && most.claims <= 8, "{most:?} {:#?}", world.decisions());
    world.sleep(300).await;
    assert_eq!(world.claims().await.len(), 5);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_budget_of_zero_keeps_drifted_nodes() {
    let world = world_of(2, json!([{"nodes": "0"}])).await;
    let before = world.claim_names().await;
    drift(&world).await;
    world.sleep(600).await;
    assert_eq!(world.claim_names().await, before);
    assert!(world.nodes().await.iter().all(|node| !is_closed(node)));
    let told = world.events("DisruptionBlocked").await;
    let words = "No allowed disruptions for disruption reason Drifted due to blocking budget";
    assert!(told.contains(&("general".into(), words.into())), "{told:?}");
    allow(&world, json!({"budgets": [{"nodes": "1"}]})).await;
    follow(&world, 2, "web", 2).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_schedule_keeps_drifted_nodes_while_it_lasts() {
    // The world begins at noon.
    let closed = json!([{"nodes": "0", "schedule": "0 12 * * *", "duration": "30m"}]);
    let world = world_of(2, closed).await;
    let before = world.claim_names().await;
    drift(&world).await;
    world.sleep_until_second(29 * 60 + 50).await;
    assert_eq!(world.claim_names().await, before);
    follow(&world, 2, "web", 2).await;
    assert!((30 * 60..35 * 60).contains(&world.seconds()), "{}", world.seconds());
    world.stop().await;
}
