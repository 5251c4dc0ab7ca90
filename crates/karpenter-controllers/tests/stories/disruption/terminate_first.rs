//! Where nothing can be launched before the old node has gone: with the gates it goes first, without them it stays.

use std::time::Duration;

use karpenter_controllers::operator::Options;
use serde_json::json;

use crate::disruption::support::drift;
use crate::disruption::world::{World, is_initialized};

const WORDS: &str = "static NodePool is at its node limit and cannot stage a replacement";

/// A pool of one node that may not have two.
async fn at_its_limit(gates: impl FnOnce(&mut Options)) -> World {
    let world = World::start_with(|options| {
        options.feature_gates.static_capacity = true;
        options.feature_gates.node_repair = true;
        gates(options);
    })
    .await;
    let spec =
        json!({"replicas": 1, "limits": {"nodes": "1"}, "disruption": {"budgets": [{"nodes": "100%"}]}});
    world.pool_of(spec).await;
    world.until_settled(1).await;
    world
}

async fn sicken(world: &World) {
    let name = world.nodes().await[0].metadata.name.clone().expect("a name");
    world.cloud.sicken(&name, "KWOKUnhealthy", "True", "Test").await.expect("sick");
}

/// The old one goes and only then another comes.
async fn goes_first(world: &World, reason: &str) {
    let before = world.claim_names().await;
    for _ in 0..9000 {
        let claims = world.claims().await;
        assert!(claims.len() <= 1, "never two: {claims:#?}");
        let names = world.claim_names().await;
        if !names.is_empty() && names.is_disjoint(&before) && claims.iter().all(is_initialized) {
            let series = format!(
                "karpenter_voluntary_disruption_terminate_first_decisions_total{{nodepool=\"general\",\
                reason=\"{reason}\",terminate_first_reason=\"static-at-limit\"}}"
            );
            assert_eq!(world.metric(&series), Some(1.0));
            let decisions = world.decisions();
            assert_eq!(decisions.len(), 1, "{decisions:?}");
            assert!(decisions[0].starts_with("terminate-first 1 nodes: "), "{decisions:?}");
            return;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    panic!("never replaced: {:#?}", world.decisions());
}

/// Nothing happens, and it is told why.
async fn stays(world: &World) {
    let before = world.claim_names().await;
    world.sleep(900).await;
    assert_eq!(world.claim_names().await, before);
    assert_eq!(world.decisions(), Vec::<String>::new());
    let told = world.events("DisruptionBlocked").await;
    assert!(told.iter().any(|(_, text)| text == WORDS), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_drifted_node_at_the_limit_goes_first_with_the_gate() {
    let world = at_its_limit(|options| options.feature_gates.terminate_first_drift = true).await;
    drift(&world).await;
    goes_first(&world, "drifted").await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_drifted_node_at_the_limit_stays_without_the_gate() {
    // The gate of the other method does not help.
    let world = at_its_limit(|options| options.feature_gates.terminate_first_repair = true).await;
    drift(&world).await;
    stays(&world).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_sick_node_at_the_limit_goes_first_with_the_gate() {
    let world = at_its_limit(|options| options.feature_gates.terminate_first_repair = true).await;
    // One of one is more than a fifth, but a fifth rounded up is one.
    sicken(&world).await;
    goes_first(&world, "unhealthy").await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_sick_node_at_the_limit_stays_without_the_gate() {
    let world = at_its_limit(|options| options.feature_gates.terminate_first_drift = true).await;
    sicken(&world).await;
    stays(&world).await;
    world.stop().await;
}
