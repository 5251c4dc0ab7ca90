//! Tests of `ttlSecondsAfterEmpty`: the emptiness timestamp on the node, and pods that do not delay its deletion.

use karpenter_api::types::NodeClaim;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};

use super::world::World;

const STAMP: &str = "karpenter.sh/emptiness-timestamp";

async fn stamp(world: &World) -> Option<String> {
    let nodes = world.nodes_of("old").await;
    nodes.values().next().and_then(|node| node.annotations().get(STAMP).cloned())
}

#[tokio::test(start_paused = true)]
async fn empty_node_gets_a_timestamp_and_is_deleted_after_its_ttl() {
    let world = World::start().await;
    world.provisioner("old", json!({"ttlSecondsAfterEmpty": 120})).await;
    world.deploy("web", "old", 1, "1", json!({})).await;
    world.until_running(1).await;
    world.sleep(120).await;
    assert_eq!(stamp(&world).await, None);
    world.scale("web", 0).await;
    let since = world.until("a timestamp", async || stamp(&world).await, Option::is_some).await;
    let emptied = world.seconds();
    // A new pod removes the timestamp, and the TTL starts again.
    world.sleep(60).await;
    world.scale("web", 1).await;
    world.until_running(1).await;
    world.until("no timestamp", async || stamp(&world).await, Option::is_none).await;
    assert!(world.seconds() < emptied + 120);
    world.scale("web", 0).await;
    let again = world.until("a timestamp", async || stamp(&world).await, Option::is_some).await;
    assert!(again > since, "{again:?} {since:?}");
    let emptied = world.seconds();
    world.sleep(118).await;
    assert_eq!(world.nodes_of("old").await.len(), 1);
    world.until("no nodes", async || world.nodes_of("old").await.len(), |count| *count == 0).await;
    // The limit is higher than the TTL, because the command is also validated.
    assert!(world.seconds() - emptied < 180, "{}", world.seconds() - emptied);
}

#[tokio::test(start_paused = true)]
async fn restart_keeps_the_emptiness_timestamp() {
    let mut world = World::start().await;
    world.provisioner("old", json!({"ttlSecondsAfterEmpty": 600})).await;
    world.deploy("web", "old", 1, "1", json!({})).await;
    world.until_running(1).await;
    world.scale("web", 0).await;
    let since = world.until("a timestamp", async || stamp(&world).await, Option::is_some).await;
    let emptied = world.seconds();
    world.sleep(500).await;
    world.stop_karpenter().await;
    world.start_karpenter().await;
    assert_eq!(stamp(&world).await, since);
    world.until("no nodes", async || world.nodes_of("old").await.len(), |count| *count == 0).await;
    assert!(world.seconds() - emptied < 700, "{}", world.seconds() - emptied);
}

#[tokio::test(start_paused = true)]
async fn budgets_and_do_not_evict_daemonset_pods_do_not_keep_an_empty_node() {
    let world = World::start().await;
    let daemon = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "log"}, "spec": {
        "selector": {"matchLabels": {"app": "log"}},
        "template": {
            "metadata": {"labels": {"app": "log"}, "annotations": {"karpenter.sh/do-not-evict": "true"}},
            "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}}}]},
        },
    }});
    world.apply(&daemon).await.expect("a daemon set");
    let guard = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "log"},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "log"}}}});
    world.apply(&guard).await.expect("a budget");
    world.provisioner("old", json!({"ttlSecondsAfterEmpty": 30})).await;
    world.deploy("web", "old", 1, "1", json!({})).await;
    world.until_running(2).await;
    world.scale("web", 0).await;
    world.until("no nodes", async || world.nodes_of("old").await.len(), |count| *count == 0).await;
    assert_eq!(world.list::<NodeClaim>().await.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn deleting_a_provisioner_drains_its_nodes_and_its_status_lists_their_resources() {
    let world = World::start().await;
    world.provisioner("old", json!({"ttlSecondsUntilExpired": 3600})).await;
    world.deploy("web", "old", 2, "3", json!({})).await;
    world.until_running(2).await;
    world.sleep(30).await;
    assert_eq!(world.active("old").await.0, "True");
    let status = world.provisioners().get("old").await.expect("there").data["status"].clone();
    assert_eq!(status["resources"]["cpu"], "8", "{status}");
    assert_eq!(status["resources"].get("nodes"), None::<&Value>);
    let guard = json!({"metadata": {"name": "web"}, "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}}});
    let budgets: Api<k8s_openapi::api::policy::v1::PodDisruptionBudget> = world.api();
    let guard = serde_json::from_value(guard).expect("a budget");
    budgets.create(&PostParams::default(), &guard).await.expect("created");
    world.sleep(10).await;
    world.provisioners().delete("old", &DeleteParams::default()).await.expect("deleted");
    world.sleep(120).await;
    // All nodes are disrupted at once, but gracefully: they are tainted, and PodDisruptionBudgets are respected.
    let nodes = world.nodes_of("old").await;
    assert_eq!(nodes.len(), 2);
    for node in nodes.values() {
        let spec = node.spec.as_ref().expect("a spec");
        assert!(node.metadata.deletion_timestamp.is_some() && spec.unschedulable == Some(true), "{node:?}");
    }
    assert_eq!(world.running().await.len(), 2);
    budgets.delete("web", &DeleteParams::default()).await.expect("deleted");
    world.until("no nodes", async || world.nodes_of("old").await.len(), |count| *count == 0).await;
    assert!(world.list::<NodeClaim>().await.is_empty());
    assert_eq!(world.running().await.len(), 0, "no NodePool can launch nodes for the pods");
}
