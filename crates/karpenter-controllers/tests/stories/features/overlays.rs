//! Tests of NodeOverlays: how they change the instance types of plans, and their conditions.

use karpenter_api::types::{NodeClaim, NodeOverlay};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::features::world::{World, condition, create, status_and_reason, typed, with_gates};

const EXPENSIVE: &str = "m-64x-amd64-linux";

async fn overlay(world: &World, name: &str, spec: Value) {
    let overlay = json!({"metadata": {"name": name}, "spec": spec});
    create(&world.all::<NodeOverlay>(), typed("karpenter.sh/v1alpha1", "NodeOverlay", overlay)).await;
}

fn of_type(name: &str) -> Value {
    json!([{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": [name]}])
}

async fn validation(world: &World, name: &str) -> Option<(String, String)> {
    let overlay = world.all::<NodeOverlay>().get(name).await.expect("the overlay");
    condition(&overlay.status.unwrap_or_default().conditions, "ValidationSucceeded")
}

fn annotation<'a>(claim: &'a NodeClaim, key: &str) -> Option<&'a str> {
    claim.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// Whether a plan contained a node of this instance type. The plan is read, because the provider may launch another
/// instance type of the NodeClaim.
fn was_planned(world: &World, name: &str) -> bool {
    let decisions = world.context().journal.entries_after(0);
    decisions.iter().flat_map(|entry| &entry.why).any(|line| line.contains(name))
}

#[tokio::test(start_paused = true)]
async fn instance_type_with_price_of_zero_by_overlay_is_planned() {
    for (gates, is_planned) in [("NodeOverlay=true", true), ("NodeOverlay=false", false)] {
        let world = World::start(with_gates(gates)).await;
        overlay(&world, "free", json!({"requirements": of_type(EXPENSIVE), "price": "0"})).await;
        world.sleep(2).await;
        world.pod("p", json!({"cpu": "1"})).await;
        world.sleep(10).await;
        let claims = world.claims().await;
        assert_eq!(claims.len(), 1, "{gates}");
        assert_eq!(was_planned(&world, EXPENSIVE), is_planned, "{gates}");
        let mark = annotation(&claims[0], "karpenter.sh/price-overlay-applied");
        assert_eq!(mark, is_planned.then_some("true"), "{gates}");
        assert_eq!(annotation(&claims[0], "karpenter.sh/capacity-overlay-applied"), None);
        let expected = if is_planned { status_and_reason("True", "ValidationSucceeded") } else { None };
        assert_eq!(validation(&world, "free").await, expected, "{gates}");
    }
}

#[tokio::test(start_paused = true)]
async fn conflicting_overlays_are_reported_until_resolved() {
    let world = World::start(with_gates("NodeOverlay=true")).await;
    overlay(&world, "a", json!({"requirements": of_type(EXPENSIVE), "price": "0", "weight": 5})).await;
    overlay(&world, "b", json!({"requirements": of_type(EXPENSIVE), "price": "100000", "weight": 5})).await;
    overlay(&world, "c", json!({"requirements": of_type(EXPENSIVE), "price": "7", "weight": 1})).await;
    world.sleep(5).await;
    assert_eq!(validation(&world, "a").await, status_and_reason("False", "Conflict"));
    assert_eq!(validation(&world, "b").await, status_and_reason("True", "ValidationSucceeded"));
    assert_eq!(validation(&world, "c").await, status_and_reason("True", "ValidationSucceeded"));
    world.all::<NodeOverlay>().delete("b", &DeleteParams::default()).await.expect("deleted");
    world.sleep(5).await;
    assert_eq!(validation(&world, "a").await, status_and_reason("True", "ValidationSucceeded"));
    world.pod("p", json!({"cpu": "1"})).await;
    world.sleep(10).await;
    assert!(was_planned(&world, EXPENSIVE));
}

#[tokio::test(start_paused = true)]
async fn resources_added_by_an_overlay_are_planned() {
    let world = World::start(with_gates("NodeOverlay=true")).await;
    world.pod("p", json!({"cpu": "1", "example.com/dongle": "1"})).await;
    world.sleep(30).await;
    assert_eq!(world.claims().await.len(), 0);
    let capacity = json!({"example.com/dongle": "2"});
    overlay(&world, "dongles", json!({"requirements": of_type(EXPENSIVE), "capacity": capacity})).await;
    world.sleep(15).await;
    let claims = world.claims().await;
    assert_eq!(claims.len(), 1);
    assert_eq!(annotation(&claims[0], "karpenter.sh/capacity-overlay-applied"), Some("true"));
    assert_eq!(annotation(&claims[0], "karpenter.sh/price-overlay-applied"), None);
}

#[tokio::test(start_paused = true)]
async fn raised_price_by_overlay_triggers_replacement() {
    let world = World::start(with_gates("NodeOverlay=true")).await;
    let disruption = json!({"spec": {"disruption": {"consolidationPolicy": "WhenEmptyOrUnderutilized",
        "consolidateAfter": "10s", "budgets": [{"nodes": "100%"}]}}});
    let pools = world.all::<karpenter_api::types::NodePool>();
    pools.patch("default", &PatchParams::default(), &Patch::Merge(disruption)).await.expect("patched");
    world.deployment("web", 1).await;
    world.sleep(120).await;
    let claims = world.claims().await;
    let before = claims[0].metadata.name.clone();
    let labels = claims[0].metadata.labels.clone().unwrap_or_default();
    let launched = labels["node.kubernetes.io/instance-type"].clone();
    overlay(&world, "tax", json!({"requirements": of_type(&launched), "priceAdjustment": "+1000%"})).await;
    // An idle cluster is evaluated every five minutes at the latest. Two minutes are less, so the overlay must have
    // caused the evaluation.
    world.sleep(120).await;
    let now: Vec<_> = world.claims().await.into_iter().map(|claim| claim.metadata.name).collect();
    assert!(now.len() == 1 && now[0] != before, "{now:?}");
}
