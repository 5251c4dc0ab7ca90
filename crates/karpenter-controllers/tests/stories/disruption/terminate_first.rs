//! Tests of static NodePools at their node limit. With the feature gates, the old node is terminated before its
//! replacement is launched; without the gates, it is not disrupted.

use std::time::Duration;

use karpenter_controllers::operator::Options;
use serde_json::json;

use crate::disruption::support::drift;
use crate::disruption::world::{World, is_initialized};

const WORDS: &str = "static NodePool is at its node limit and cannot stage a replacement";

/// A static NodePool of one node whose limit is one.
async fn pool_at_limit(gates: impl FnOnce(&mut Options)) -> World {
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

async fn make_unhealthy(world: &World) {
    let name = world.nodes().await[0].metadata.name.clone().expect("a name");
    world.cloud.inject_condition(&name, "KWOKUnhealthy", "True", "Test").await.expect("injected");
}

/// Asserts that the old node no longer exists when another one is launched.
async fn is_terminated_first(world: &World, reason: &str) {
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

/// Asserts that the node is not disrupted, and that an event states the reason.
async fn assert_not_disrupted(world: &World) {
    let before = world.claim_names().await;
    world.sleep(900).await;
    assert_eq!(world.claim_names().await, before);
    assert_eq!(world.decisions(), Vec::<String>::new());
    let events = world.events("DisruptionBlocked").await;
    assert!(events.iter().any(|(_, text)| text == WORDS), "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn drifted_node_at_limit_is_terminated_first_with_the_gate() {
    let world = pool_at_limit(|options| options.feature_gates.terminate_first_drift = true).await;
    drift(&world).await;
    is_terminated_first(&world, "drifted").await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn drifted_node_at_limit_stays_without_the_gate() {
    // Only the feature gate of the other disruption method is enabled, which has no effect.
    let world = pool_at_limit(|options| options.feature_gates.terminate_first_repair = true).await;
    drift(&world).await;
    assert_not_disrupted(&world).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn unhealthy_node_at_limit_is_terminated_first_with_the_gate() {
    let world = pool_at_limit(|options| options.feature_gates.terminate_first_repair = true).await;
    // All nodes are unhealthy, but the limit of 20 % of one node is rounded up to one node, so the repair is allowed.
    make_unhealthy(&world).await;
    is_terminated_first(&world, "unhealthy").await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn unhealthy_node_at_limit_stays_without_the_gate() {
    let world = pool_at_limit(|options| options.feature_gates.terminate_first_drift = true).await;
    make_unhealthy(&world).await;
    assert_not_disrupted(&world).await;
    world.stop().await;
}
