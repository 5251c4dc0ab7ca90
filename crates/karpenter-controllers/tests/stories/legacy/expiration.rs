//! Tests of `ttlSecondsUntilExpired`: nodes expire gracefully, one at a time, each after its replacement is launched.
//! The current value of the Provisioner applies to existing nodes.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Node;
use karpenter_api::types::NodeClaim;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use super::world::{World, is_open};

#[tokio::test(start_paused = true)]
async fn expired_nodes_are_replaced_one_at_a_time_replacement_first() {
    let world = World::start().await;
    world.provisioner("old", json!({"ttlSecondsUntilExpired": 600})).await;
    world.deploy("web", "old", 2, "3", json!({})).await;
    world.until_running(2).await;
    let first: BTreeSet<String> = world.nodes_of("old").await.into_keys().collect();
    assert_eq!(first.len(), 2);
    let claims = world.list::<NodeClaim>().await;
    assert!(
        claims.iter().all(|claim| format!("{:?}", claim.spec.expire_after).contains("Never")),
        "{claims:?}"
    );
    while world.seconds() < 590 {
        world.sleep(10).await;
        let now: BTreeSet<String> = world.nodes_of("old").await.into_keys().collect();
        assert_eq!(now, first, "no node is expired after {} s", world.seconds());
    }
    let mut going_together = 0;
    while world.seconds() < 1100 {
        world.sleep(1).await;
        let nodes = world.nodes_of("old").await;
        let open = nodes.values().filter(|node| is_open(node)).count();
        assert!(
            open >= 2,
            "a node was deleted before its replacement was initialized, at {} s",
            world.seconds()
        );
        let is_going = |node: &&Node| node.metadata.deletion_timestamp.is_some();
        going_together = going_together.max(nodes.values().filter(is_going).count());
    }
    assert_eq!(going_together, 1);
    let now: BTreeSet<String> = world.nodes_of("old").await.into_keys().collect();
    assert!(now.is_disjoint(&first), "{first:?} {now:?}");
    assert_eq!((now.len(), world.running().await.len()), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn changed_ttl_applies_to_existing_nodes() {
    let world = World::start().await;
    world.provisioner("old", json!({})).await;
    world.deploy("web", "old", 1, "3", json!({})).await;
    world.until_running(1).await;
    let first: Vec<String> = world.nodes_of("old").await.into_keys().collect();
    world.sleep(3600).await;
    assert_eq!(world.nodes_of("old").await.into_keys().collect::<Vec<_>>(), first);
    let ttl = |seconds: serde_json::Value| Patch::Merge(json!({"spec": {"ttlSecondsUntilExpired": seconds}}));
    world.provisioners().patch("old", &PatchParams::default(), &ttl(json!(1800))).await.expect("edited");
    world
        .until(
            "the node is replaced",
            async || world.nodes_of("old").await,
            |nodes| nodes.len() == 1 && !nodes.contains_key(&first[0]),
        )
        .await;
    let second: Vec<String> = world.nodes_of("old").await.into_keys().collect();
    world.provisioners().patch("old", &PatchParams::default(), &ttl(json!(null))).await.expect("edited");
    world.sleep(3600).await;
    assert_eq!(world.nodes_of("old").await.into_keys().collect::<Vec<_>>(), second);
}

#[tokio::test(start_paused = true)]
async fn do_not_evict_pod_blocks_expiration_but_not_a_drain() {
    let world = World::start().await;
    world.provisioner("old", json!({"ttlSecondsUntilExpired": 300})).await;
    let held = json!({"metadata": {"annotations": {"karpenter.sh/do-not-evict": "true"}}});
    world.deploy("web", "old", 1, "3", held).await;
    world.until_running(1).await;
    let first: Vec<String> = world.nodes_of("old").await.into_keys().collect();
    world.sleep(1800).await;
    assert_eq!(world.nodes_of("old").await.into_keys().collect::<Vec<_>>(), first, "the node is kept");
    let events = world.events("DisruptionBlocked").await;
    assert!(events.iter().any(|(_, text)| text.contains("karpenter.sh/do-not-evict")), "{events:?}");
    world.all::<Node>().delete(&first[0], &DeleteParams::default()).await.expect("deleted");
    world
        .until("the node is removed", async || world.node(&first[0]).await.is_none(), |is_gone| *is_gone)
        .await;
    world.until_running(1).await;
}
