//! Tests of CapacityBuffers: nodes for them are launched before pods exist, and are kept as long as the buffer exists.

use k8s_openapi::api::core::v1::PodTemplate;
use karpenter_api::types::{CapacityBuffer, CapacityBufferStatus};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::features::world::{World, condition, create, pod_spec, status_and_reason, typed, with_gates};

async fn buffer(world: &World, spec: Value) {
    let buffer = json!({"metadata": {"name": "spare"}, "spec": spec});
    let buffer = typed("autoscaling.x-k8s.io/v1beta1", "CapacityBuffer", buffer);
    create(&world.namespaced::<CapacityBuffer>(), buffer).await;
}

async fn template(world: &World) {
    let template = json!({"metadata": {"name": "shape"}, "template": {"spec": pod_spec()}});
    create(&world.namespaced::<PodTemplate>(), template).await;
}

async fn status(world: &World) -> CapacityBufferStatus {
    world.namespaced::<CapacityBuffer>().get("spare").await.expect("the buffer").status.unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn buffer_keeps_capacity_without_pods_until_it_is_deleted() {
    let world = World::start(with_gates("CapacityBuffer=true")).await;
    template(&world).await;
    buffer(&world, json!({"podTemplateRef": {"name": "shape"}, "replicas": 3})).await;
    world.sleep(3).await;
    let first = status(&world).await;
    assert_eq!(condition(&first.conditions, "ReadyForProvisioning"), status_and_reason("True", "Resolved"));
    assert_eq!(
        (first.replicas, first.pod_template_ref.map(|one| one.name)),
        (Some(3), Some("shape".to_owned()))
    );
    let claims = world.claims().await;
    assert!(!claims.is_empty(), "nodes are launched");
    world.sleep(300).await;
    let names = |claims: Vec<karpenter_api::types::NodeClaim>| -> Vec<Option<String>> {
        claims.into_iter().map(|claim| claim.metadata.name).collect()
    };
    assert_eq!(names(world.claims().await), names(claims), "the same nodes, although they have no pods");
    assert_eq!(
        condition(&status(&world).await.conditions, "Provisioning"),
        status_and_reason("True", "FitsExistingCapacity")
    );
    world.namespaced::<CapacityBuffer>().delete("spare", &DeleteParams::default()).await.expect("deleted");
    world.sleep(120).await;
    assert_eq!(world.claims().await.len(), 0, "the capacity is not needed any more");
}

/// After an evaluation that finds nothing to disrupt, the next one is delayed. The deletion of a buffer must end the
/// delay.
#[tokio::test(start_paused = true)]
async fn capacity_of_deleted_buffer_is_removed_at_once() {
    let world = World::start(with_gates("CapacityBuffer=true")).await;
    template(&world).await;
    buffer(&world, json!({"podTemplateRef": {"name": "shape"}, "replicas": 3})).await;
    world.sleep(60).await;
    assert!(!world.claims().await.is_empty(), "nodes are launched");
    world.namespaced::<CapacityBuffer>().delete("spare", &DeleteParams::default()).await.expect("deleted");
    world.sleep(60).await;
    assert_eq!(world.claims().await.len(), 0, "the capacity is not needed any more");
}

#[tokio::test(start_paused = true)]
async fn pods_use_buffer_capacity_at_once_and_it_is_replenished() {
    let world = World::start(with_gates("CapacityBuffer=true")).await;
    template(&world).await;
    buffer(&world, json!({"podTemplateRef": {"name": "shape"}, "replicas": 2})).await;
    world.sleep(60).await;
    let before = world.claims().await.len();
    world.deployment("web", 2).await;
    world.sleep(1).await;
    assert_eq!(world.running().await.1, 2, "the pods bind to the buffer's nodes");
    world.sleep(60).await;
    assert!(world.claims().await.len() > before, "further nodes replenish the buffer");
    assert_eq!(
        condition(&status(&world).await.conditions, "Provisioning"),
        status_and_reason("True", "FitsExistingCapacity")
    );
}

#[tokio::test(start_paused = true)]
async fn percentage_buffer_follows_its_workload() {
    let world = World::start(with_gates("CapacityBuffer=true")).await;
    let reference = json!({"apiGroup": "apps", "kind": "Deployment", "name": "web"});
    buffer(&world, json!({"scalableRef": reference, "percentage": 50})).await;
    world.sleep(5).await;
    let first = status(&world).await;
    assert_eq!(
        condition(&first.conditions, "ReadyForProvisioning"),
        status_and_reason("False", "ScalableRefNotFound")
    );
    assert_eq!(
        condition(&first.conditions, "Provisioning"),
        status_and_reason("False", "NotReadyForProvisioning")
    );
    assert_eq!(world.claims().await.len(), 0);
    world.deployment("web", 4).await;
    world.sleep(2).await;
    assert_eq!(status(&world).await.replicas, Some(2), "the change is observed at once");
    let patch = Patch::Merge(json!({"spec": {"replicas": 9}}));
    let deployments = world.namespaced::<k8s_openapi::api::apps::v1::Deployment>();
    deployments.patch("web", &PatchParams::default(), &patch).await.expect("patched");
    world.sleep(60).await;
    let after = status(&world).await;
    assert_eq!(after.replicas, Some(5), "half of nine, rounded up");
    assert_eq!(
        condition(&after.conditions, "Provisioning"),
        status_and_reason("True", "FitsExistingCapacity")
    );
}

#[tokio::test(start_paused = true)]
async fn buffers_have_no_effect_without_the_gate() {
    let world = World::start(with_gates("CapacityBuffer=false")).await;
    template(&world).await;
    buffer(&world, json!({"podTemplateRef": {"name": "shape"}, "replicas": 3})).await;
    world.sleep(60).await;
    assert_eq!(world.claims().await.len(), 0);
    assert_eq!(status(&world).await, CapacityBufferStatus::default());
}
