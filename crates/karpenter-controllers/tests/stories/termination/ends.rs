//! Tests of the termination of a node after its drain, and of nodes that are not managed.

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use karpenter_api::types::NodeClaim;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::termination::world::{World, condition_of, is_ready, is_terminating};

#[tokio::test(start_paused = true)]
async fn deleting_a_node_terminates_its_claim_and_instance() {
    let world = World::start().await;
    world
        .initialized_node("n1", json!({"spec": {"taints": [{"key": "team", "effect": "NoSchedule"}]}}))
        .await;
    world.cloud.add("toy://n1", 3);
    let stays = json!({"spec": {"tolerations": [{"operator": "Exists"}]}});
    world.pod("stays", "n1", stays).await;
    world.pod("web", "n1", json!({})).await;
    let deleted_at = world.seconds();
    world.delete::<Node>("n1").await;
    world.until("the claim is terminating too", async || world.claim("n1").await, is_terminating).await;
    let node = world
        .until(
            "the node is tainted",
            async || world.node("n1").await,
            |node| {
                let taints = node.iter().filter_map(|node| node.spec.as_ref()?.taints.as_ref()).flatten();
                taints.into_iter().any(|taint| taint.key == "karpenter.sh/disrupted")
            },
        )
        .await
        .expect("a node");
    let labels = node.metadata.labels.unwrap_or_default();
    let excluded = labels.get("node.kubernetes.io/exclude-from-external-load-balancers");
    assert_eq!(excluded.map(String::as_str), Some("karpenter"));
    let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
    assert!(taints.iter().any(|taint| taint.key == "team"), "other taints stay: {taints:?}");

    world.until_node_gone("n1").await;
    let took = world.seconds() - deleted_at;
    // The drain takes at least five seconds. Then the instance is checked three times, five seconds apart.
    assert!((19..=22).contains(&took), "{took}");
    assert!(!world.cloud.has("toy://n1"));
    let claim = world.claim("n1").await.expect("held by its own finalizer");
    assert_eq!(condition_of(&claim, "Drained"), ("True", "Drained".to_owned()));
    assert_eq!(condition_of(&claim, "VolumesDetached"), ("True", "VolumesDetached".to_owned()));
    assert_eq!(condition_of(&claim, "InstanceTerminating"), ("True", "InstanceTerminating".to_owned()));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn volumes_are_waited_for_until_the_termination_deadline() {
    let world = World::start().await;
    for name in ["n1", "n2"] {
        world.initialized_node(name, json!({})).await;
        world
            .create::<VolumeAttachment>(json!({
                "metadata": {"name": format!("of-{name}"), "finalizers": ["example.com/attacher"]},
                "spec": {"attacher": "example.com", "nodeName": name,
                    "source": {"persistentVolumeName": format!("data-{name}")}},
            }))
            .await;
    }
    let by = world.time_at(90);
    let annotation =
        json!({"metadata": {"annotations": {"karpenter.sh/nodeclaim-termination-timestamp": by}}});
    world.merge::<NodeClaim>("n2", annotation).await;
    world.delete::<Node>("n1").await;
    world.delete::<Node>("n2").await;
    world.sleep_until_second(80).await;
    for name in ["n1", "n2"] {
        let claim = world.claim(name).await.expect("a claim");
        assert_eq!(
            condition_of(&claim, "VolumesDetached"),
            ("Unknown", "AwaitingVolumeDetachment".to_owned())
        );
    }
    world.until_node_gone("n2").await;
    assert!((91..=98).contains(&world.seconds()), "{}", world.seconds());
    let claim = world.claim("n2").await.expect("a claim");
    assert_eq!(
        condition_of(&claim, "VolumesDetached"),
        ("False", "TerminationGracePeriodElapsed".to_owned())
    );

    world.sleep_until_second(150).await;
    assert!(world.node("n1").await.is_some());
    let events = world.events("AwaitingVolumeDetachment").await;
    assert!(events.contains(&("n1".into(), "Awaiting deletion of bound volumeattachments (of-n1)".into())));
    world.merge::<VolumeAttachment>("of-n1", json!({"metadata": {"finalizers": null}})).await;
    world.until_node_gone("n1").await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn node_without_instance_is_not_drained() {
    let world = World::start().await;
    let never_ready = json!({"metadata": {"annotations": {"fake-kubelet/never-ready": "true"}}});
    world.initialized_node("n1", never_ready.clone()).await;
    world.initialized_node("n2", never_ready).await;
    for name in ["n1", "n2"] {
        let keep = json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}});
        world.pod(&format!("on-{name}"), name, keep).await;
        assert!(!is_ready(&world.node(name).await.expect("a node")));
    }
    world.cloud.remove("toy://n1");
    world.delete::<Node>("n1").await;
    world.delete::<Node>("n2").await;
    let deleted_at = world.seconds();
    world.until_node_gone("n1").await;
    assert!(world.seconds() - deleted_at < 2);
    world.sleep_until_second(120).await;
    assert!(world.node("n2").await.is_some(), "its instance exists, so its pod is waited for");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn unmanaged_nodes_are_not_written() {
    let world = World::start().await;
    let other = json!({"metadata": {"name": "other", "annotations": {"kwok.x-k8s.io/node": "fake"},
        "labels": {"karpenter.k8s.aws/ec2nodeclass": "default"}, "finalizers": ["karpenter.sh/termination"]},
        "spec": {"providerID": "aws://other"}});
    world.create::<Node>(other).await;
    let seen = world
        .until("it is ready", async || world.node("other").await, |n| n.as_ref().is_some_and(is_ready))
        .await;
    world.delete::<Node>("other").await;
    world.sleep_until_second(120).await;
    let left = world.node("other").await.expect("its finalizer stays");
    assert_eq!(left.spec, seen.clone().expect("a node").spec);
    assert_eq!(left.metadata.labels, seen.expect("a node").metadata.labels);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nodes_get_the_label_of_their_node_class() {
    let world = World::start().await;
    world
        .initialized_node("n1", json!({"metadata": {"labels": {"karpenter.kwok.sh/kwoknodeclass": null}}}))
        .await;
    world
        .until(
            "the label",
            async || world.node("n1").await,
            |node| {
                let labels = node.as_ref().and_then(|node| node.metadata.labels.as_ref());
                labels.and_then(|labels| labels.get("karpenter.kwok.sh/kwoknodeclass")).map(String::as_str)
                    == Some("default")
            },
        )
        .await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn node_without_claim_is_drained_and_deleted() {
    let world = World::start().await;
    world.initialized_node("n1", json!({})).await;
    world.pod("web", "n1", json!({})).await;
    let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    world.all::<NodeClaim>().patch("n1", &PatchParams::default(), &patch).await.expect("patched");
    world.delete::<NodeClaim>("n1").await;
    world.delete::<Node>("n1").await;
    world.until_node_gone("n1").await;
    assert!(world.find_pod("web").await.is_none());
    assert!(world.cloud.has("toy://n1"), "the instance is not known without a claim");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn termination_continues_after_a_restart() {
    let mut world = World::start().await;
    world.initialized_node("n1", json!({})).await;
    world.cloud.add("toy://n1", 4);
    let keep = json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "2m"}}});
    world.pod("web", "n1", keep).await;
    world.delete::<Node>("n1").await;
    // The process crashes during the drain, just before and after the pod is deleted, and while the instance
    // terminates.
    for second in [30, 119, 121, 127] {
        world.sleep_until_second(second).await;
        assert!(world.node("n1").await.is_some(), "deleted before second {second}");
        world.restart_controllers().await;
    }
    world.until_node_gone("n1").await;
    assert!(world.seconds() <= 145, "{}", world.seconds());
    assert!(!world.cloud.has("toy://n1"));
    assert!(world.find_pod("web").await.is_none());
    let claim = world.claim("n1").await.expect("held by its own finalizer");
    assert_eq!(condition_of(&claim, "Drained"), ("True", "Drained".to_owned()));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn failed_provider_call_is_retried() {
    let world = World::start().await;
    world.initialized_node("n1", json!({})).await;
    world.cloud.fail_next(5);
    world.delete::<Node>("n1").await;
    world.until_node_gone("n1").await;
    assert_eq!(world.cloud.failures_left(), 0);
    assert!(!world.cloud.has("toy://n1"));
    world.stop().await;
}
