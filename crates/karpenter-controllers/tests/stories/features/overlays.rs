//! NodeOverlays: what is bought, and what they hear.

use karpenter_api::types::{NodeClaim, NodeOverlay};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::features::world::{World, condition, create, told, typed, with_gates};

const DEAR: &str = "m-64x-amd64-linux";

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

/// Whether a node of the type was planned. What is launched among the types of a claim is the provider's choice.
fn was_planned(world: &World, name: &str) -> bool {
    let decisions = world.context().journal.entries_after(0);
    decisions.iter().flat_map(|entry| &entry.why).any(|line| line.contains(name))
}

#[tokio::test(start_paused = true)]
async fn a_type_that_an_overlay_makes_free_is_bought() {
    for (gates, is_bought) in [("NodeOverlay=true", true), ("NodeOverlay=false", false)] {
        let world = World::start(with_gates(gates)).await;
        overlay(&world, "gift", json!({"requirements": of_type(DEAR), "price": "0"})).await;
        world.pass(2).await;
        world.pod("p", json!({"cpu": "1"})).await;
        world.pass(10).await;
        let claims = world.claims().await;
        assert_eq!(claims.len(), 1, "{gates}");
        assert_eq!(was_planned(&world, DEAR), is_bought, "{gates}");
        let mark = annotation(&claims[0], "karpenter.sh/price-overlay-applied");
        assert_eq!(mark, is_bought.then_some("true"), "{gates}");
        assert_eq!(annotation(&claims[0], "karpenter.sh/capacity-overlay-applied"), None);
        let heard = if is_bought { told("True", "ValidationSucceeded") } else { None };
        assert_eq!(validation(&world, "gift").await, heard, "{gates}");
    }
}

#[tokio::test(start_paused = true)]
async fn conflicts_are_told_and_end_with_their_cause() {
    let world = World::start(with_gates("NodeOverlay=true")).await;
    overlay(&world, "a", json!({"requirements": of_type(DEAR), "price": "0", "weight": 5})).await;
    overlay(&world, "b", json!({"requirements": of_type(DEAR), "price": "100000", "weight": 5})).await;
    overlay(&world, "c", json!({"requirements": of_type(DEAR), "price": "7", "weight": 1})).await;
    world.pass(5).await;
    assert_eq!(validation(&world, "a").await, told("False", "Conflict"));
    assert_eq!(validation(&world, "b").await, told("True", "ValidationSucceeded"));
    assert_eq!(validation(&world, "c").await, told("True", "ValidationSucceeded"));
    world.all::<NodeOverlay>().delete("b", &DeleteParams::default()).await.expect("deleted");
    world.pass(5).await;
    assert_eq!(validation(&world, "a").await, told("True", "ValidationSucceeded"));
    world.pod("p", json!({"cpu": "1"})).await;
    world.pass(10).await;
    assert!(was_planned(&world, DEAR));
}

#[tokio::test(start_paused = true)]
async fn resources_that_only_an_overlay_knows_are_planned_with() {
    let world = World::start(with_gates("NodeOverlay=true")).await;
    world.pod("p", json!({"cpu": "1", "example.com/dongle": "1"})).await;
    world.pass(30).await;
    assert_eq!(world.claims().await.len(), 0);
    let capacity = json!({"example.com/dongle": "2"});
    overlay(&world, "dongles", json!({"requirements": of_type(DEAR), "capacity": capacity})).await;
    world.pass(15).await;
    let claims = world.claims().await;
    assert_eq!(claims.len(), 1);
    assert_eq!(annotation(&claims[0], "karpenter.sh/capacity-overlay-applied"), Some("true"));
    assert_eq!(annotation(&claims[0], "karpenter.sh/price-overlay-applied"), None);
}

#[tokio::test(start_paused = true)]
async fn a_price_that_an_overlay_raises_makes_nodes_worth_replacing() {
    let world = World::start(with_gates("NodeOverlay=true")).await;
    let disruption = json!({"spec": {"disruption": {"consolidationPolicy": "WhenEmptyOrUnderutilized",
        "consolidateAfter": "10s", "budgets": [{"nodes": "100%"}]}}});
    let pools = world.all::<karpenter_api::types::NodePool>();
    pools.patch("default", &PatchParams::default(), &Patch::Merge(disruption)).await.expect("patched");
    world.deployment("web", 1).await;
    world.pass(120).await;
    let claims = world.claims().await;
    let before = claims[0].metadata.name.clone();
    let labels = claims[0].metadata.labels.clone().unwrap_or_default();
    let launched = labels["node.kubernetes.io/instance-type"].clone();
    overlay(&world, "tax", json!({"requirements": of_type(&launched), "priceAdjustment": "+1000%"})).await;
    // Less than the five minutes after which a quiet cluster is looked at in any case.
    world.pass(120).await;
    let now: Vec<_> = world.claims().await.into_iter().map(|claim| claim.metadata.name).collect();
    assert!(now.len() == 1 && now[0] != before, "{now:?}");
}
