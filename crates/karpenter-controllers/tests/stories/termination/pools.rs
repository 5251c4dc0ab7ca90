//! Tests of the status and annotations of NodePools.

use karpenter_api::hash::node_pool_hash;
use karpenter_api::types::{KWOKNodeClass, NodeClaim, NodePool};
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use crate::termination::world::World;

fn pool(name: &str, group: &str, kind: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"template": {"spec": {"requirements": [],
        "nodeClassRef": {"group": group, "kind": kind, "name": "default"}}}}})
}

async fn find(world: &World, name: &str) -> NodePool {
    world.all::<NodePool>().get(name).await.expect("a pool")
}

fn status_of(pool: &NodePool, kind: &str) -> (&'static str, String) {
    let conditions = pool.status.iter().flat_map(|status| &status.conditions);
    let found = conditions.into_iter().find(|condition| condition.type_ == kind);
    found.map_or(("", String::new()), |found| (found.status.as_str(), found.reason.clone()))
}

#[tokio::test(start_paused = true)]
async fn nodepool_becomes_ready_with_its_node_class_and_counts_its_nodes() {
    let world = World::start().await;
    world.create::<NodePool>(pool("general", "karpenter.kwok.sh", "KWOKNodeClass")).await;
    world.create::<NodePool>(pool("other", "karpenter.k8s.aws", "EC2NodeClass")).await;
    world
        .until(
            "the condition names the missing node class",
            async || find(&world, "general").await,
            |pool| status_of(pool, "NodeClassReady") == ("False", "NodeClassNotFound".to_owned()),
        )
        .await;
    world.create::<KWOKNodeClass>(json!({"metadata": {"name": "default"}, "spec": {}})).await;
    let pool = world
        .until(
            "it is ready",
            async || find(&world, "general").await,
            |pool| status_of(pool, "Ready").0 == "True",
        )
        .await;
    assert_eq!(status_of(&pool, "NodeRegistrationHealthy").0, "Unknown");
    assert_eq!(status_of(&pool, "ValidationSucceeded").0, "True");
    let annotations = pool.metadata.annotations.clone().unwrap_or_default();
    assert_eq!(annotations.get("karpenter.sh/nodepool-hash"), Some(&node_pool_hash(&pool).to_string()));
    assert_eq!(annotations.get("karpenter.sh/nodepool-hash-version").map(String::as_str), Some("v3"));
    let counted = world
        .until(
            "nothing is counted",
            async || find(&world, "general").await.status,
            |status| status.as_ref().is_some_and(|status| status.resources.is_some()),
        )
        .await
        .expect("a status");
    assert_eq!(counted.nodes, Some(0));
    assert_eq!(counted.resources.map(|resources| resources.len()), Some(5));

    world.initialized_node("n1", json!({})).await;
    world.initialized_node("n2", json!({})).await;
    let counted = world
        .until(
            "both are counted",
            async || find(&world, "general").await,
            |pool| pool.status.as_ref().is_some_and(|status| status.nodes == Some(2)),
        )
        .await;
    let resources = counted.status.and_then(|status| status.resources).expect("resources");
    let resources = serde_json::to_value(resources).expect("json");
    assert_eq!((&resources["cpu"], &resources["memory"]), (&json!("16"), &json!("64Gi")));
    world.delete::<NodeClaim>("n2").await;
    world
        .until(
            "one is counted",
            async || find(&world, "general").await,
            |pool| pool.status.as_ref().is_some_and(|status| status.nodes == Some(1)),
        )
        .await;
    let other = find(&world, "other").await;
    assert_eq!(other.metadata.annotations, None, "another provider's pool");
    assert!(other.status.is_none_or(|status| status.conditions.is_empty()));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn claims_are_migrated_to_the_current_hash_version() {
    let world = World::start().await;
    let old = json!({"metadata": {"annotations": {"karpenter.sh/nodepool-hash": "1",
        "karpenter.sh/nodepool-hash-version": "v2"}}});
    for name in ["fresh", "drifted"] {
        world.initialized_node(name, json!({})).await;
        world.merge::<NodeClaim>(name, old.clone()).await;
    }
    let claims: Api<NodeClaim> = world.all();
    let conditions = claims.get("drifted").await.expect("a claim").status.map(|status| status.conditions);
    let mut conditions = json!(conditions);
    conditions.as_array_mut().expect("conditions").push(json!({"type": "Drifted", "status": "True",
        "reason": "NodePoolDrifted", "message": "", "lastTransitionTime": world.clock.time()}));
    let patch = Patch::Merge(json!({"status": {"conditions": conditions}}));
    claims.patch_status("drifted", &PatchParams::default(), &patch).await.expect("patched");
    world.create::<NodePool>(pool("general", "karpenter.kwok.sh", "KWOKNodeClass")).await;
    let annotation = |claim: &Option<NodeClaim>, name: &str| {
        let annotations = claim.as_ref().and_then(|claim| claim.metadata.annotations.as_ref());
        annotations.and_then(|annotations| annotations.get(name)).cloned()
    };
    for (name, keeps_hash) in [("fresh", false), ("drifted", true)] {
        let claim = world
            .until(
                "the version",
                async || world.claim(name).await,
                |claim| annotation(claim, "karpenter.sh/nodepool-hash-version").as_deref() == Some("v3"),
            )
            .await;
        let hash = node_pool_hash(&find(&world, "general").await).to_string();
        let expected = if keeps_hash { "1".to_owned() } else { hash };
        assert_eq!(annotation(&claim, "karpenter.sh/nodepool-hash"), Some(expected), "{name}");
    }
    world.stop().await;
}
