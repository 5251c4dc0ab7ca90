//! Capacity buffers: room that is there before its pods are, and only as long as it is wanted.

use k8s_openapi::api::core::v1::PodTemplate;
use karpenter_api::types::{CapacityBuffer, CapacityBufferStatus};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::features::world::{World, condition, create, pod_spec, told, typed, with_gates};

async fn buffer(world: &World, spec: Value) {
    let buffer = json!({"metadata": {"name": "spare"}, "spec": spec});
    let buffer = typed("autoscaling.x-k8s.io/v1beta1", "CapacityBuffer", buffer);
    create(&world.here::<CapacityBuffer>(), buffer).await;
}

async fn template(world: &World) {
    let template = json!({"metadata": {"name": "shape"}, "template": {"spec": pod_spec()}});
    create(&world.here::<PodTemplate>(), template).await;
}

async fn status(world: &World) -> CapacityBufferStatus {
    world.here::<CapacityBuffer>().get("spare").await.expect("the buffer").status.unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn room_is_kept_without_pods_and_goes_with_the_buffer() {
    let world = World::start(with_gates("CapacityBuffer=true")).await;
    template(&world).await;
    buffer(&world, json!({"podTemplateRef": {"name": "shape"}, "replicas": 3})).await;
    world.pass(3).await;
    let first = status(&world).await;
    assert_eq!(condition(&first.conditions, "ReadyForProvisioning"), told("True", "Resolved"));
    assert_eq!(
        (first.replicas, first.pod_template_ref.map(|one| one.name)),
        (Some(3), Some("shape".to_owned()))
    );
    let claims = world.claims().await;
    assert!(!claims.is_empty(), "room is launched");
    world.pass(300).await;
    let names = |claims: Vec<karpenter_api::types::NodeClaim>| -> Vec<Option<String>> {
        claims.into_iter().map(|claim| claim.metadata.name).collect()
    };
    assert_eq!(names(world.claims().await), names(claims), "the same room, though no pod is on it");
    assert_eq!(
        condition(&status(&world).await.conditions, "Provisioning"),
        told("True", "FitsExistingCapacity")
    );
    world.here::<CapacityBuffer>().delete("spare", &DeleteParams::default()).await.expect("deleted");
    world.pass(120).await;
    assert_eq!(world.claims().await.len(), 0, "nobody wants it any more");
}

/// Whoever looks for superfluous nodes rests once it has found none, and has to hear that a buffer is gone.
#[tokio::test(start_paused = true)]
async fn room_that_is_wanted_no_longer_goes_at_once() {
    let world = World::start(with_gates("CapacityBuffer=true")).await;
    template(&world).await;
    buffer(&world, json!({"podTemplateRef": {"name": "shape"}, "replicas": 3})).await;
    world.pass(60).await;
    assert!(!world.claims().await.is_empty(), "room is launched");
    world.here::<CapacityBuffer>().delete("spare", &DeleteParams::default()).await.expect("deleted");
    world.pass(60).await;
    assert_eq!(world.claims().await.len(), 0, "nobody wants it any more");
}

#[tokio::test(start_paused = true)]
async fn pods_take_the_room_at_once_and_it_is_made_anew() {
    let world = World::start(with_gates("CapacityBuffer=true")).await;
    template(&world).await;
    buffer(&world, json!({"podTemplateRef": {"name": "shape"}, "replicas": 2})).await;
    world.pass(60).await;
    let before = world.claims().await.len();
    world.deployment("web", 2).await;
    world.pass(1).await;
    assert_eq!(world.running().await.1, 2, "there was room");
    world.pass(60).await;
    assert!(world.claims().await.len() > before, "and there is again");
    assert_eq!(
        condition(&status(&world).await.conditions, "Provisioning"),
        told("True", "FitsExistingCapacity")
    );
}

#[tokio::test(start_paused = true)]
async fn a_share_of_a_workload_follows_it() {
    let world = World::start(with_gates("CapacityBuffer=true")).await;
    let reference = json!({"apiGroup": "apps", "kind": "Deployment", "name": "web"});
    buffer(&world, json!({"scalableRef": reference, "percentage": 50})).await;
    world.pass(5).await;
    let first = status(&world).await;
    assert_eq!(condition(&first.conditions, "ReadyForProvisioning"), told("False", "ScalableRefNotFound"));
    assert_eq!(condition(&first.conditions, "Provisioning"), told("False", "NotReadyForProvisioning"));
    assert_eq!(world.claims().await.len(), 0);
    world.deployment("web", 4).await;
    world.pass(2).await;
    assert_eq!(status(&world).await.replicas, Some(2), "noticed at once");
    let patch = Patch::Merge(json!({"spec": {"replicas": 9}}));
    let deployments = world.here::<k8s_openapi::api::apps::v1::Deployment>();
    deployments.patch("web", &PatchParams::default(), &patch).await.expect("patched");
    world.pass(60).await;
    let after = status(&world).await;
    assert_eq!(after.replicas, Some(5), "half of nine, rounded up");
    assert_eq!(condition(&after.conditions, "Provisioning"), told("True", "FitsExistingCapacity"));
}

#[tokio::test(start_paused = true)]
async fn nothing_happens_without_the_gate() {
    let world = World::start(with_gates("CapacityBuffer=false")).await;
    template(&world).await;
    buffer(&world, json!({"podTemplateRef": {"name": "shape"}, "replicas": 3})).await;
    world.pass(60).await;
    assert_eq!(world.claims().await.len(), 0);
    assert_eq!(status(&world).await, CapacityBufferStatus::default());
}
