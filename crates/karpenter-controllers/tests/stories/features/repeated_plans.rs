//! Tests that a pass without effect is not planned again until something changes.

use k8s_openapi::api::core::v1::Pod;
use karpenter_api::types::NodePool;
use karpenter_controllers::operator::Options;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::features::world::World;

#[tokio::test(start_paused = true)]
async fn unschedulable_pods_are_planned_once() {
    let world = World::start(Options::default()).await;
    world.pod("huge", json!({"cpu": "10000"})).await;
    world.sleep(30).await;
    let planned = world.plans();
    assert!(planned >= 1);
    world.sleep(600).await;
    assert_eq!(world.plans(), planned, "nothing has changed");
}

#[tokio::test(start_paused = true)]
async fn relevant_changes_lead_to_a_new_plan() {
    let world = World::start(Options::default()).await;
    world.pod("huge", json!({"cpu": "10000"})).await;
    world.sleep(30).await;
    let mut planned = world.plans();
    let labels = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
    world.namespaced::<Pod>().patch("huge", &PatchParams::default(), &labels).await.expect("patched");
    world.sleep(30).await;
    assert!(world.plans() > planned, "the pod changed");
    planned = world.plans();
    let limits = Patch::Merge(json!({"spec": {"limits": {"cpu": "100000"}}}));
    world.all::<NodePool>().patch("default", &PatchParams::default(), &limits).await.expect("patched");
    world.sleep(30).await;
    assert!(world.plans() > planned, "the NodePool changed");
    planned = world.plans();
    world.pod("small", json!({"cpu": "1"})).await;
    world.sleep(5).await;
    assert!(world.plans() > planned, "another pod was created");
    assert_eq!(world.claims().await.len(), 1);
    world.sleep(300).await;
    let planned = world.plans();
    world.sleep(300).await;
    assert_eq!(world.plans(), planned, "nothing has changed");
}
