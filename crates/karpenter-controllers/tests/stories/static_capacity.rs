//! Tests of static NodePools on an embedded cluster with a simulated clock.

use std::collections::BTreeSet;

use karpenter_api::types::{NodeClaim, NodePool};
use karpenter_kwok::OfferingPattern;
use kube::ResourceExt;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::repair::world::{World, condition_of, gates};

const STATIC: &str = "StaticCapacity=true";

/// Starts a test environment with a static NodePool.
async fn start(spec: Value) -> World {
    let world = World::start(gates(STATIC)).await;
    world.pool("fixed", spec).await;
    world
}

async fn until_ready(world: &World, count: usize) -> BTreeSet<String> {
    let ready = async || -> BTreeSet<String> {
        let claims = world.claims().await.into_values();
        let ready = claims.filter(|claim| claim.metadata.deletion_timestamp.is_none());
        ready
            .filter(|claim| condition_of(claim, "Initialized").0 == "True")
            .map(|claim| claim.name_any())
            .collect()
    };
    world.until("all replicas are ready", ready, |ready: &BTreeSet<String>| ready.len() == count).await
}

async fn scale(world: &World, replicas: u32) {
    world.merge::<NodePool>("fixed", json!({"spec": {"replicas": replicas}})).await;
}

#[tokio::test(start_paused = true)]
async fn static_nodepool_keeps_its_replicas_without_pods() {
    let world = start(json!({"replicas": 3})).await;
    let first = until_ready(&world, 3).await;
    world.after(1800).await;
    assert_eq!(until_ready(&world, 3).await, first);
    let claim = world.claim(first.first().expect("one")).await.expect("a claim");
    let keys: Vec<&str> = claim.spec.requirements.iter().map(|one| one.key.as_str()).collect();
    assert!(!keys.contains(&"node.kubernetes.io/instance-type"), "the provider chooses: {keys:?}");
    // When a NodeClaim is deleted, the controller creates another one.
    let gone = first.first().cloned().unwrap_or_default();
    world.all::<NodeClaim>().delete(&gone, &DeleteParams::default()).await.expect("deleted");
    world.until("the NodeClaim is removed", async || world.claim(&gone).await, Option::is_none).await;
    let second = until_ready(&world, 3).await;
    assert_eq!(first.intersection(&second).count(), 2);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn node_limit_is_respected_until_raised() {
    let world = start(json!({"replicas": 5, "limits": {"nodes": "2"}})).await;
    let first = until_ready(&world, 2).await;
    world.after(600).await;
    assert_eq!(world.claims().await.len(), 2);
    world.merge::<NodePool>("fixed", json!({"spec": {"limits": {"nodes": "4"}}})).await;
    let second = until_ready(&world, 4).await;
    assert!(second.is_superset(&first));
    world.after(600).await;
    assert_eq!(world.claims().await.len(), 4);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn scale_in_deletes_empty_nodes_first_without_budgets() {
    let world = start(json!({"replicas": 4, "disruption": {"budgets": [{"nodes": "0"}]}})).await;
    let all = until_ready(&world, 4).await;
    world.spread("web", 2, json!({})).await;
    let mut used = BTreeSet::new();
    for claim in &all {
        let node = world.node_of(claim).await;
        if world.pod_on(&node).await.is_some() {
            used.insert(claim.clone());
        }
    }
    assert_eq!(used.len(), 2);
    scale(&world, 2).await;
    assert_eq!(until_ready(&world, 2).await, used);
    world
        .until("the other NodeClaims are removed", async || world.claims().await.len(), |count| *count == 2)
        .await;
    scale(&world, 0).await;
    world.until("all are removed", async || world.claims().await.len(), |count| *count == 0).await;
    scale(&world, 1).await;
    until_ready(&world, 1).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn do_not_disrupt_nodes_are_deleted_last() {
    let world = start(json!({"replicas": 3})).await;
    let all = until_ready(&world, 3).await;
    world
        .spread("kept", 1, json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}}))
        .await;
    let mut kept = BTreeSet::new();
    for claim in &all {
        let node = world.node_of(claim).await;
        if world.pod_on(&node).await.is_some() {
            kept.insert(claim.clone());
        }
    }
    scale(&world, 1).await;
    assert_eq!(until_ready(&world, 1).await, kept);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn pending_pods_use_static_nodes_without_adding_any() {
    let world = start(json!({"replicas": 1})).await;
    until_ready(&world, 1).await;
    world.spread("web", 1, json!({})).await;
    let object = json!({"metadata": {"name": "large"}, "spec": {"containers": [{"name": "c", "image": "i",
        "resources": {"requests": {"cpu": "100"}}}]}});
    let pod = serde_json::from_value(object).expect("a pod");
    let api = world.api::<k8s_openapi::api::core::v1::Pod>();
    api.create(&kube::api::PostParams::default(), &pod).await.expect("created");
    world.after(120).await;
    assert_eq!(world.claims().await.len(), 1);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn pods_that_do_not_fit_use_a_dynamic_nodepool() {
    let world = start(json!({"replicas": 1})).await;
    let fixed = until_ready(&world, 1).await;
    world.pool("general", json!({})).await;
    world.spread("web", 1, json!({})).await;
    world.after(60).await;
    assert_eq!(until_ready(&world, 1).await, fixed, "the first pod fits");
    // The node has four CPUs. The first pod uses some of them, and some are reserved for the system.
    let large = json!([{"name": "c", "image": "i", "resources": {"requests": {"cpu": "3"}}}]);
    world.spread("large", 1, json!({"spec": {"containers": large}})).await;
    world.until_running(2).await;
    let pods = world.pods().await;
    let large = pods.iter().find(|pod| pod.labels().get("app").is_some_and(|app| app == "large"));
    let node = large.and_then(|pod| pod.spec.as_ref()?.node_name.clone()).expect("it runs");
    let node = world.node(&node).await.expect("a node");
    assert_eq!(node.labels().get("karpenter.sh/nodepool").map(String::as_str), Some("general"));
    world.after(600).await;
    let claims = world.claims().await;
    let pools: BTreeSet<&str> = claims
        .values()
        .filter_map(|claim| claim.labels().get("karpenter.sh/nodepool"))
        .map(String::as_str)
        .collect();
    assert_eq!((claims.len(), pools), (2, BTreeSet::from(["fixed", "general"])));
    world.stop().await;
}

/// The NodePool is deleted with background and with foreground propagation.
#[tokio::test(start_paused = true)]
async fn deleted_static_nodepool_gets_no_new_nodes() {
    for params in [DeleteParams::background(), DeleteParams::foreground()] {
        let world = start(json!({"replicas": 3})).await;
        until_ready(&world, 3).await;
        world.spread("web", 3, json!({})).await;
        world.all::<NodePool>().delete("fixed", &params).await.expect("deleted");
        let left = async || (world.claims().await.len(), world.list::<NodePool>().await.len());
        world.until("all are removed", left, |left| *left == (0, 0)).await;
        world.after(600).await;
        assert_eq!(left().await, (0, 0), "{params:?}");
        assert_eq!(created(&world), 3.0, "{params:?}");
        world.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn static_nodepool_is_ignored_without_feature_gate() {
    let world = World::start(gates("")).await;
    world.pool("fixed", json!({"replicas": 2})).await;
    world.after(300).await;
    assert_eq!(world.claims().await.len(), 0);
    world.stop().await;
}

/// The number of NodeClaims created for the NodePool.
fn created(world: &World) -> f64 {
    let text = world.operator.context().metrics.render();
    let lines = text.lines().filter(|line| {
        line.starts_with("karpenter_nodeclaims_created_total{") && line.contains("nodepool=\"fixed\"")
    });
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

#[tokio::test(start_paused = true)]
async fn launch_failures_of_static_nodepool_back_off() {
    let world = World::start(gates(STATIC)).await;
    world.kwok.change_faults(|faults| faults.without_capacity.push(OfferingPattern::any()));
    world.pool("fixed", json!({"replicas": 2})).await;
    world.after(600).await;
    let tries = created(&world) / 2.0;
    assert!((4.0..=10.0).contains(&tries), "{tries} attempts with two NodeClaims within ten minutes");
    world.kwok.change_faults(|faults| faults.without_capacity.clear());
    until_ready(&world, 2).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn launch_failures_of_static_replacements_back_off() {
    let world = start(json!({"replicas": 2})).await;
    let before = until_ready(&world, 2).await;
    world.kwok.change_faults(|faults| faults.without_capacity.push(OfferingPattern::any()));
    let labels = json!({"spec": {"template": {"metadata": {"labels": {"generation": "second"}}}}});
    world.merge::<NodePool>("fixed", labels).await;
    world.after(600).await;
    let tries = (created(&world) - 2.0) / 2.0;
    assert!((4.0..=10.0).contains(&tries), "{tries} attempts with two NodeClaims within ten minutes");
    assert_eq!(until_ready(&world, 2).await, before);
    world.kwok.change_faults(|faults| faults.without_capacity.clear());
    let replaced = async || until_ready(&world, 2).await.is_disjoint(&before);
    world.until("all are replaced", replaced, |replaced| *replaced).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn restart_does_not_launch_twice() {
    let world = start(json!({"replicas": 3})).await;
    world.until("the first claims", async || world.claims().await.len(), |count| *count > 0).await;
    let world = world.restart().await;
    until_ready(&world, 3).await;
    world.after(300).await;
    assert_eq!(world.claims().await.len(), 3);
    world.stop().await;
}
