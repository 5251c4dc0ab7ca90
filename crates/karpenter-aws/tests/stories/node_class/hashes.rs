use std::time::Duration;

use karpenter_api::hash::{ec2_node_class_hash_v5, ec2_node_class_hash_v6};
use serde_json::{Value, json};

use super::world::World;

const HASH: &str = "karpenter.k8s.aws/ec2nodeclass-hash";
const VERSION: &str = "karpenter.k8s.aws/ec2nodeclass-hash-version";

async fn stamped(world: &World, name: &str) -> (String, String) {
    let annotations = world.class(name).await.metadata.annotations.unwrap_or_default();
    (annotations[VERSION].clone(), annotations[HASH].clone())
}

async fn on_claim(world: &World, name: &str) -> Value {
    let annotations = world.claim(name).await.metadata.annotations.unwrap_or_default();
    json!([annotations.get(VERSION), annotations.get(HASH)])
}

#[tokio::test(start_paused = true)]
async fn new_class_gets_newer_hash_version() {
    let world = World::start().await;
    world.create_class("default", json!({})).await;
    world.pass(Duration::from_secs(2)).await;
    let class = world.class("default").await;
    let hash = ec2_node_class_hash_v6(&class, Some("Q0E=")).to_string();
    assert_eq!(stamped(&world, "default").await, ("v6".to_owned(), hash.clone()));
    world.patch_class("default", json!({"spec": {"userData": "echo hello"}})).await;
    world.pass(Duration::from_secs(2)).await;
    let (version, changed) = stamped(&world, "default").await;
    assert_eq!(version, "v6");
    assert_ne!(changed, hash);
}

#[tokio::test(start_paused = true)]
async fn class_of_upstream_release_keeps_hash_version() {
    let world = World::start().await;
    world
        .create_class_with(
            json!({"name": "default", "annotations": {VERSION: "v5", HASH: "1"}}),
            json!({"kubelet": {"maxPods": 20}}),
        )
        .await;
    world.create_claim("old", "default", json!({VERSION: "v5", HASH: "1"}), json!([])).await;
    world.pass(Duration::from_secs(2)).await;
    let hash =
        ec2_node_class_hash_v5(&world.class("default").await, Some("Q0E=")).expect("typed").to_string();
    assert_eq!(stamped(&world, "default").await, ("v5".to_owned(), hash));
    assert_eq!(on_claim(&world, "old").await, json!(["v5", "1"]));
}

#[tokio::test(start_paused = true)]
async fn claims_of_older_hash_versions_are_migrated_with_class() {
    let world = World::start().await;
    for (name, annotations, conditions) in [
        ("plain", json!({VERSION: "v4", HASH: "1"}), json!([])),
        ("current", json!({VERSION: "v6", HASH: "1"}), json!([])),
        ("bare", json!({}), json!([])),
    ] {
        world.create_claim(name, "default", annotations, conditions).await;
    }
    let drifted = json!([{"type": "Drifted", "status": "True", "reason": "x", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    world.create_claim("drifted", "default", json!({VERSION: "v4", HASH: "1"}), drifted).await;
    world.create_claim("of-other", "other", json!({VERSION: "v4", HASH: "1"}), json!([])).await;
    world.pass(Duration::from_secs(1)).await;
    world
        .create_class_with(json!({"name": "default", "annotations": {VERSION: "v4", HASH: "1"}}), json!({}))
        .await;
    world.pass(Duration::from_secs(2)).await;
    let (version, hash) = stamped(&world, "default").await;
    assert_eq!(version, "v6");
    assert_eq!(on_claim(&world, "plain").await, json!(["v6", hash]));
    assert_eq!(on_claim(&world, "bare").await, json!(["v6", hash]));
    assert_eq!(on_claim(&world, "current").await, json!(["v6", "1"]));
    assert_eq!(on_claim(&world, "drifted").await, json!(["v6", "1"]));
    assert_eq!(on_claim(&world, "of-other").await, json!(["v4", "1"]));
}

#[tokio::test(start_paused = true)]
async fn settings_outside_older_hash_version_cause_drift() {
    // Columns: kubelet settings of a node class that has the annotations of an upstream release, its new settings,
    // expected hash version.
    let table = [
        (json!({"maxPods": 20}), json!({"featureGates": {"X": true}}), "v6"),
        (json!({}), json!({"maxParallelImagePulls": 5}), "v6"),
        (json!({"maxPods": 20}), json!({"maxPods": "max_pods - 5"}), "v6"),
        (json!({"maxPods": 20}), json!({"maxPods": 30}), "v5"),
    ];
    for (before, after, expected) in table {
        let world = World::start().await;
        world
            .create_class_with(
                json!({"name": "default", "annotations": {VERSION: "v5", HASH: "1"}}),
                json!({"kubelet": before}),
            )
            .await;
        world.pass(Duration::from_secs(2)).await;
        let (version, launched_with) = stamped(&world, "default").await;
        assert_eq!(version, "v5", "{before}");
        let of_claim = json!({VERSION: "v5", HASH: launched_with});
        world.create_claim("running", "default", of_claim, json!([])).await;
        world.pass(Duration::from_secs(2)).await;
        world.patch_class("default", json!({"spec": {"kubelet": after}})).await;
        world.pass(Duration::from_secs(2)).await;
        let (version, hash) = stamped(&world, "default").await;
        assert_eq!(version, expected, "{before} {after}");
        assert_ne!(hash, launched_with, "{before} {after}");
        // The hash version is the same, but the hash differs, so the NodeClaim is drifted.
        assert_eq!(on_claim(&world, "running").await, json!([version, launched_with]), "{before} {after}");
    }
}

#[tokio::test(start_paused = true)]
async fn migration_of_uncovered_settings_causes_no_drift() {
    let world = World::start().await;
    world.create_claim("running", "default", json!({VERSION: "v5", HASH: "1"}), json!([])).await;
    world.pass(Duration::from_secs(1)).await;
    world
        .create_class_with(
            json!({"name": "default", "annotations": {VERSION: "v5", HASH: "1"}}),
            json!({"kubelet": {"featureGates": {"X": true}}}),
        )
        .await;
    world.pass(Duration::from_secs(2)).await;
    let (version, hash) = stamped(&world, "default").await;
    assert_eq!(version, "v6");
    assert_eq!(on_claim(&world, "running").await, json!(["v6", hash]));
}
