//! A round that could do nothing is not planned again before something changes.

use k8s_openapi::api::core::v1::Pod;
use karpenter_api::types::NodePool;
use karpenter_controllers::operator::Options;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::features::world::World;

#[tokio::test(start_paused = true)]
async fn pods_that_fit_nowhere_are_planned_once() {
    let world = World::start(Options::default()).await;
    world.pod("huge", json!({"cpu": "10000"})).await;
    world.pass(30).await;
    let planned = world.plans();
    assert!(planned >= 1);
    world.pass(600).await;
    assert_eq!(world.plans(), planned, "nothing has changed");
}

#[tokio::test(start_paused = true)]
async fn whatever_may_help_leads_to_a_new_plan() {
    let world = World::start(Options::default()).await;
    world.pod("huge", json!({"cpu": "10000"})).await;
    world.pass(30).await;
    let mut planned = world.plans();
    let labels = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
    world.here::<Pod>().patch("huge", &PatchParams::default(), &labels).await.expect("patched");
    world.pass(30).await;
    assert!(world.plans() > planned, "the pod changed");
    planned = world.plans();
    let limits = Patch::Merge(json!({"spec": {"limits": {"cpu": "100000"}}}));
    world.all::<NodePool>().patch("default", &PatchParams::default(), &limits).await.expect("patched");
    world.pass(30).await;
    assert!(world.plans() > planned, "the pool changed");
    planned = world.plans();
    world.pod("small", json!({"cpu": "1"})).await;
    world.pass(5).await;
    assert!(world.plans() > planned, "another pod came");
    assert_eq!(world.claims().await.len(), 1);
    world.pass(300).await;
    let planned = world.plans();
    world.pass(300).await;
    assert_eq!(world.plans(), planned, "all has been done that can be");
}
