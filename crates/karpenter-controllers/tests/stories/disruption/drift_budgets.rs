//! Tests of budgets for drifted nodes.

use serde_json::{Value, json};

use crate::disruption::support::{Peaks, anti_affinity, drift, set_disruption, until_all_replaced};
use crate::disruption::world::{World, has_disrupted_taint};

async fn world_of(nodes: usize, budgets: Value) -> World {
    let world = World::start().await;
    world.pool(json!({"consolidateAfter": "Never", "budgets": budgets}), json!({})).await;
    world.deploy("web", nodes, 900, anti_affinity()).await;
    world.until_running("web", nodes).await;
    world.until_settled(nodes).await;
    world
}

#[tokio::test(start_paused = true)]
async fn budget_of_half_deletes_half_of_the_drifted_empty_nodes_without_replacement() {
    let world = world_of(3, json!([{"nodes": "50%"}])).await;
    world.delete_deployment("web").await;
    world.until_running("web", 0).await;
    drift(&world).await;
    let peaks = until_all_replaced(&world, 0, "web", 0).await;
    assert_eq!(peaks, Peaks { tainted: 2, claims: 3 }, "{:#?}", world.decisions());
    assert!(world.decisions().iter().all(|what| what.starts_with("delete ")), "{:#?}", world.decisions());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn drifted_nodes_whose_pods_fit_elsewhere_are_deleted_within_budget() {
    let world = World::start().await;
    let budgets = json!([{"nodes": "50%"}]);
    world.pool(json!({"consolidateAfter": "Never", "budgets": budgets}), json!({})).await;
    // Each node runs one pod with anti-affinity, and has capacity for one more pod.
    world.deploy("hold", 3, 6500, anti_affinity()).await;
    world.until_running("hold", 3).await;
    world.deploy("web", 3, 900, json!({})).await;
    world.until_running("web", 3).await;
    world.until_settled(3).await;
    world.delete_deployment("hold").await;
    world.until_running("hold", 0).await;
    drift(&world).await;
    // Two nodes are deleted without a replacement. The pods of the third one are cheapest on three small nodes, which
    // replace it.
    let peaks = until_all_replaced(&world, 3, "web", 3).await;
    assert!(peaks.tainted <= 2 && peaks.claims <= 4, "{peaks:?} {:#?}", world.decisions());
    assert!(world.decisions().iter().any(|what| what.starts_with("delete ")), "{:#?}", world.decisions());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn budget_of_three_replaces_three_of_five_drifted_nodes_at_once() {
    let world = world_of(5, json!([{"nodes": "3"}])).await;
    drift(&world).await;
    let began = world.seconds();
    let peaks = until_all_replaced(&world, 5, "web", 5).await;
    assert!(world.seconds() - began < 600, "{} s", world.seconds() - began);
    assert!(peaks.tainted == 3 && peaks.claims <= 8, "{peaks:?} {:#?}", world.decisions());
    world.sleep(300).await;
    assert_eq!(world.claims().await.len(), 5);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn budget_of_zero_blocks_drift() {
    let world = world_of(2, json!([{"nodes": "0"}])).await;
    let before = world.claim_names().await;
    drift(&world).await;
    world.sleep(600).await;
    assert_eq!(world.claim_names().await, before);
    assert!(world.nodes().await.iter().all(|node| !has_disrupted_taint(node)));
    let events = world.events("DisruptionBlocked").await;
    let words = "No allowed disruptions for disruption reason Drifted due to blocking budget";
    assert!(events.contains(&("general".into(), words.into())), "{events:?}");
    set_disruption(&world, json!({"budgets": [{"nodes": "1"}]})).await;
    until_all_replaced(&world, 2, "web", 2).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn budget_schedule_blocks_drift_while_it_is_active() {
    // The simulated clock starts at noon.
    let tainted = json!([{"nodes": "0", "schedule": "0 12 * * *", "duration": "30m"}]);
    let world = world_of(2, tainted).await;
    let before = world.claim_names().await;
    drift(&world).await;
    world.sleep_until_second(29 * 60 + 50).await;
    assert_eq!(world.claim_names().await, before);
    until_all_replaced(&world, 2, "web", 2).await;
    assert!((30 * 60..35 * 60).contains(&world.seconds()), "{}", world.seconds());
    world.stop().await;
}
