//! Tests of drifted nodes of static NodePools: they are replaced from the template, within budget and node limit.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use karpenter_api::types::{NodeClaim, NodePool};
use serde_json::json;

use crate::disruption::support::{PeakCount, drift};
use crate::disruption::world::{World, has_disrupted_taint, is_initialized, label};

/// Makes all nodes drift. Returns the maximum numbers of NodeClaims and of tainted nodes that existed at the same time.
async fn drifted(replicas: usize, limit: usize, budget: usize) -> (usize, usize) {
    let world = World::start_with(|options| options.feature_gates.static_capacity = true).await;
    let spec = json!({"replicas": replicas, "limits": {"nodes": limit.to_string()},
        "disruption": {"budgets": [{"nodes": budget.to_string()}]}});
    world.pool_of(spec).await;
    world.until_settled(replicas).await;
    let before = world.claim_names().await;
    drift(&world).await;
    let began = world.seconds();
    let (mut claims_max, mut tainted_max) = (0, 0);
    loop {
        let claims = world.claims().await;
        let nodes = world.nodes().await;
        claims_max = claims_max.max(claims.len());
        tainted_max = tainted_max.max(nodes.iter().filter(|node| has_disrupted_taint(node)).count());
        let is_new = claims.iter().all(|one| label(one, "generation") == "second" && is_initialized(one));
        if is_new && claims.len() == replicas && nodes.len() == replicas {
            break;
        }
        assert!(world.seconds() - began < 300, "longer than five minutes: {:#?}", world.decisions());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert!(world.claim_names().await.is_disjoint(&before));
    world.sleep(600).await;
    assert_eq!(world.claims().await.len(), replicas);
    assert!(world.nodes().await.iter().all(|node| !has_disrupted_taint(node)));
    world.stop().await;
    (claims_max, tainted_max)
}

#[tokio::test(start_paused = true)]
async fn drifted_nodes_of_static_nodepool_are_replaced_within_its_limit() {
    assert_eq!(drifted(4, 5, 3).await, (5, 1), "one at a time, because the limit allows one more node");
}

#[tokio::test(start_paused = true)]
async fn limit_allows_two_of_ten_replacements_at_a_time() {
    assert_eq!(drifted(10, 12, 4).await, (12, 2));
}

#[tokio::test(start_paused = true)]
async fn budget_allows_two_of_ten_replacements_at_a_time() {
    let (claims, tainted) = drifted(10, 15, 2).await;
    assert!(claims <= 15 && tainted == 2, "{claims} claims, {tainted} tainted");
}

/// Terminating NodeClaims count towards the limit until they no longer exist.
#[tokio::test(start_paused = true)]
async fn node_limit_holds_throughout_scaling_and_drift() {
    let world = World::start_with(|options| options.feature_gates.static_capacity = true).await;
    let spec =
        json!({"replicas": 3, "limits": {"nodes": "5"}, "disruption": {"budgets": [{"nodes": "100%"}]}});
    world.pool_of(spec).await;
    let claims = PeakCount::<NodeClaim>::begin(&world, |_| true).await;
    let nodes = PeakCount::<Node>::begin(&world, |_| true).await;
    let scale = async |replicas: u32| {
        world.merge::<NodePool>("general", json!({"spec": {"replicas": replicas}})).await;
    };
    world.until_settled(3).await;
    scale(10).await;
    world.until_settled(5).await;
    let before = world.claim_names().await;
    drift(&world).await;
    world.sleep(300).await;
    assert_eq!(world.claim_names().await, before, "the limit leaves no slot for a replacement");
    // Scales in and out while some nodes are terminating and others are being replaced.
    for (replicas, seconds) in [(2, 3), (4, 4), (1, 2), (10, 15), (3, 8), (5, 30), (4, 0)] {
        scale(replicas).await;
        world.sleep(seconds).await;
    }
    let all_new = async || {
        let claims = world.claims().await;
        let is_new = |claim: &NodeClaim| label(claim, "generation") == "second" && is_initialized(claim);
        claims.len() == 4 && claims.iter().all(is_new)
    };
    world.until("four of the second generation", all_new, |all_new| *all_new).await;
    world.until_settled(4).await;
    world.sleep(600).await;
    assert!(all_new().await);
    assert_eq!((claims.most(), nodes.most()), (5, 5), "the limit is used and never exceeded");
    world.stop().await;
}
