//! Tests of events that users and tools rely on: changed conditions, removed finalizers, and pods with resource claims.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Event, Pod};
use karpenter_api::types::NodeClaim;
use karpenter_controllers::operator::Options;
use kube::api::{DeleteParams, ListParams};
use serde_json::json;

use crate::features::world::{World, create, with_gates};

/// Kind, reason and message of all events of Karpenter.
async fn published_events(world: &World) -> BTreeSet<(String, String, String)> {
    let events = world.all::<Event>().list(&ListParams::default()).await.expect("listed").items;
    let of_karpenter = |event: &Event| event.reporting_component.as_deref() == Some("karpenter");
    let text = |text: Option<String>| text.unwrap_or_default();
    events
        .into_iter()
        .filter(of_karpenter)
        .map(|event| (text(event.involved_object.kind), text(event.reason), text(event.message)))
        .collect()
}

fn became_true(kind: &str, condition: &str) -> (String, String, String) {
    let words = format!(
        "Status condition transitioned, Type: {condition}, Status: Unknown -> True, Reason: {condition}"
    );
    (kind.to_owned(), condition.to_owned(), words)
}

#[tokio::test(start_paused = true)]
async fn condition_changes_and_finalizers_are_published_as_events() {
    let world = World::start(with_gates("")).await;
    world.deployment("web", 1).await;
    world.sleep(60).await;
    let expected: BTreeSet<_> = [
        became_true("NodePool", "ValidationSucceeded"),
        became_true("NodePool", "NodeClassReady"),
        became_true("NodePool", "Ready"),
        became_true("NodeClaim", "Launched"),
        became_true("NodeClaim", "Registered"),
        became_true("NodeClaim", "Initialized"),
        became_true("NodeClaim", "Ready"),
    ]
    .into();
    let missing: Vec<_> = expected.difference(&published_events(&world).await).cloned().collect();
    assert!(missing.is_empty(), "{missing:#?}");
    let claim = world.claims().await.remove(0).metadata.name.expect("a name");
    world.all::<NodeClaim>().delete(&claim, &DeleteParams::default()).await.expect("deleted");
    world.sleep(60).await;
    let published_events = published_events(&world).await;
    let drained = became_true("NodeClaim", "Drained");
    assert!(published_events.contains(&drained), "{published_events:#?}");
    for kind in ["NodeClaim", "Node"] {
        let finalized = "Finalized karpenter.sh/termination".to_owned();
        assert!(
            published_events.contains(&(kind.to_owned(), "Finalized".to_owned(), finalized)),
            "{kind}: {published_events:#?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn condition_events_are_not_published_without_observability() {
    let world =
        World::start(Options { disable_cluster_state_observability: true, ..Options::default() }).await;
    world.deployment("web", 1).await;
    world.sleep(60).await;
    assert_eq!(world.claims().await.len(), 1);
    let published_events = published_events(&world).await;
    assert!(published_events.iter().any(|(_, reason, _)| reason == "Nominated"), "{published_events:#?}");
    assert!(
        !published_events.iter().any(|(_, _, words)| words.starts_with("Status condition")),
        "{published_events:#?}"
    );
}

#[tokio::test(start_paused = true)]
async fn pod_with_resource_claims_gets_an_event_and_does_not_block_others() {
    let world = World::start(with_gates("")).await;
    let resources = json!({"requests": {"cpu": "1"}, "claims": [{"name": "gpu"}]});
    let spec = json!({"containers": [{"name": "c", "image": "i", "resources": resources}],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]});
    create(&world.namespaced::<Pod>(), json!({"metadata": {"name": "devices"}, "spec": spec})).await;
    world.deployment("web", 1).await;
    world.sleep(60).await;
    assert_eq!(world.claims().await.len(), 1);
    let words = "Failed to schedule pod, pod has Dynamic Resource Allocation requirements that are not yet \
        supported by Karpenter";
    let published_events = published_events(&world).await;
    let expected = ("Pod".to_owned(), "FailedScheduling".to_owned(), words.to_owned());
    assert!(published_events.contains(&expected), "{published_events:#?}");
}
