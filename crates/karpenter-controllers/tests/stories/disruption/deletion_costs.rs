//! Tests of the feature gate `PodDeletionCostManagement`: a Deployment that scales in first removes pods from the nodes
//! that would be disrupted first.

use std::collections::BTreeMap;

use serde_json::json;

use crate::disruption::support::anti_affinity;
use crate::disruption::world::{World, is_of, node_of};

const ANNOTATION: &str = "controller.kubernetes.io/pod-deletion-cost";

/// A cluster with two nodes that each run two pods of one Deployment.
async fn two_and_two(is_on: bool) -> World {
    let world = World::start_with(|options| options.feature_gates.pod_deletion_cost_management = is_on).await;
    world.pool(json!({"consolidateAfter": "30s", "budgets": [{"nodes": "1"}]}), json!({})).await;
    world.deploy("hold", 2, 5000, anti_affinity()).await;
    world.until_running("hold", 2).await;
    world.deploy("web", 4, 1400, json!({})).await;
    world.until_running("web", 4).await;
    world.until_settled(2).await;
    world
}

async fn costs(world: &World) -> Vec<(String, Option<i32>)> {
    let pods = world.pods().await;
    let web = pods.iter().filter(|pod| is_of(pod, "web"));
    let mut costs: Vec<(String, Option<i32>)> = web
        .map(|pod| {
            let annotations = pod.metadata.annotations.as_ref();
            let cost = annotations.and_then(|all| all.get(ANNOTATION)).and_then(|text| text.parse().ok());
            (node_of(pod), cost)
        })
        .collect();
    costs.sort();
    costs
}

#[tokio::test(start_paused = true)]
async fn pods_of_the_first_candidate_get_the_lowest_cost_and_are_scaled_in_first() {
    let world = two_and_two(true).await;
    // The budget allows one disruption, so only the pods of one node get a deletion cost.
    let ranked = async || {
        let mut by_node: BTreeMap<String, Vec<Option<i32>>> = BTreeMap::new();
        for (node, cost) in costs(&world).await {
            by_node.entry(node).or_default().push(cost);
        }
        by_node
    };
    let by_node = world
        .until("ranks", ranked, |by_node| {
            by_node.values().flatten().filter(|cost| cost.is_some()).count() == 2
        })
        .await;
    let first: Vec<&String> = by_node
        .iter()
        .filter(|(_, costs)| costs.iter().all(|cost| *cost == Some(-1)))
        .map(|one| one.0)
        .collect();
    assert_eq!(first.len(), 1, "{by_node:?}");
    world.scale("web", 2).await;
    world.until_running("web", 2).await;
    let left = costs(&world).await;
    assert!(left.iter().all(|(node, _)| node != first[0]), "all pods of {first:?} are gone: {left:?}");
    let written = "karpenter_pod_deletion_cost_pod_annotation_writes_total{result=\"updated\"}";
    assert!(world.metric(written).is_some_and(|count| count >= 2.0));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn no_deletion_cost_is_written_without_the_gate() {
    let world = two_and_two(false).await;
    world.sleep(600).await;
    assert!(costs(&world).await.iter().all(|(_, cost)| cost.is_none()));
    world.stop().await;
}
