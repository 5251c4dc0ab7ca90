//! Tests of empty nodes, from the deletion of the last pod to the termination of the instance.

use k8s_openapi::api::core::v1::{Node, Pod};
use karpenter_api::types::NodePool;
use karpenter_controllers::claims::hooks::Hooks;
use karpenter_controllers::disruption::Disruption;
use karpenter_controllers::nodeclaim::lifecycle::Lifecycle;
use karpenter_controllers::nodeclaim::pod_events::PodEventsController;
use karpenter_controllers::registration_health::RegistrationHealth;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::termination::world::{World, condition_of, is_terminating};

async fn world(disruption: Value) -> World {
    world_with(disruption, |disruption| disruption).await
}

/// Like [`world`], but `change` modifies the disruption controller first.
pub(super) async fn world_with(disruption: Value, change: impl FnOnce(Disruption) -> Disruption) -> World {
    let world = World::start().await;
    world
        .create::<NodePool>(json!({"metadata": {"name": "general"}, "spec": {"disruption": disruption,
            "template": {"spec": {"requirements": [], "nodeClassRef":
                {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}}}}}))
        .await;
    let context = || world.context.clone();
    world.spawn(change(Disruption::new(context().disruption_inputs())), Disruption::watch);
    let lifecycle = Lifecycle::new(
        context().reads(),
        context().writes(),
        context().cloud.clone(),
        Hooks::default(),
        RegistrationHealth::default(),
    );
    world.spawn(lifecycle, Lifecycle::watch);
    world.spawn(PodEventsController::new(context().reads(), context().writes()), PodEventsController::watch);
    world
}

fn is_tainted(node: &Option<Node>) -> bool {
    let taints = node.iter().filter_map(|node| node.spec.as_ref()?.taints.as_ref()).flatten();
    taints.into_iter().any(|taint| taint.key == "karpenter.sh/disrupted")
}

#[tokio::test(start_paused = true)]
async fn empty_node_is_deleted_after_consolidate_after() {
    let world = world(json!({"consolidateAfter": "5m", "budgets": [{"nodes": "100%"}]})).await;
    for name in ["empty", "busy", "kept"] {
        world.initialized_node(name, json!({})).await;
    }
    world
        .merge::<Node>("kept", json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}}))
        .await;
    world.pod("last", "empty", json!({})).await;
    world.pod("web", "busy", json!({})).await;
    world.sleep_until_second(60).await;
    world.api::<Pod>().delete("last", &DeleteParams::default()).await.expect("deleted");

    world.sleep_until_second(60 + 300 + 14).await;
    let claim = world.claim("empty").await;
    assert!(
        !is_terminating(&claim),
        "`consolidateAfter` of 5 m and the validation after 15 s have not passed"
    );
    assert!(!is_tainted(&world.node("empty").await));
    let claim = world
        .until("the claim is terminating", async || world.claim("empty").await, is_terminating)
        .await
        .expect("held");
    let second = world.seconds();
    assert!((375..=386).contains(&second), "found within 10 s, validated after 15 s: {second}");
    assert_eq!(condition_of(&claim, "DisruptionReason"), ("True", "Empty".to_owned()));
    assert!(is_tainted(&world.node("empty").await));
    world.until_node_gone("empty").await;
    world.until("the claim is deleted", async || world.claim("empty").await, Option::is_none).await;
    assert!(!world.cloud.has("toy://empty"));
    let events = world.events("DisruptionTerminating").await;
    assert!(events.contains(&("empty".into(), "Disrupting Node: Empty".into())), "{events:?}");
    assert!(events.contains(&("empty".into(), "Disrupting NodeClaim: Empty".into())), "{events:?}");

    world.sleep_until_second(1200).await;
    assert!(!is_terminating(&world.claim("busy").await) && !is_terminating(&world.claim("kept").await));
    let blocked = world.events("DisruptionBlocked").await;
    let words = "Disruption is blocked through the \"karpenter.sh/do-not-disrupt\" annotation";
    assert!(blocked.contains(&("kept".into(), words.into())), "{blocked:?}");
    let record = world.context.journal.entries_after(0);
    assert_eq!(record.iter().map(|entry| entry.what.as_str()).collect::<Vec<_>>(), ["delete 1 nodes: empty"]);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn budget_of_zero_blocks_emptiness() {
    let world = world(json!({"consolidateAfter": "0s", "budgets": [{"nodes": "0"}]})).await;
    world.initialized_node("n1", json!({})).await;
    world.initialized_node("n2", json!({})).await;
    world.sleep_until_second(600).await;
    assert!(!is_terminating(&world.claim("n1").await) && !is_terminating(&world.claim("n2").await));
    let events = world.events("DisruptionBlocked").await;
    let words = "No allowed disruptions for disruption reason Empty due to blocking budget";
    assert!(events.contains(&("general".into(), words.into())), "{events:?}");
    // The budget allows one node at a time.
    world.merge::<NodePool>("general", json!({"spec": {"disruption": {"budgets": [{"nodes": "1"}]}}})).await;
    world.until("n1 is terminating", async || world.claim("n1").await, is_terminating).await;
    assert!(!is_terminating(&world.claim("n2").await));
    world.until("n2 is terminating", async || world.claim("n2").await, is_terminating).await;
    assert!(world.claim("n1").await.is_none(), "the first was deleted before the second was disrupted");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn node_that_gets_a_pod_before_validation_is_not_disrupted() {
    let world = world(json!({"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]})).await;
    world.initialized_node("n1", json!({})).await;
    world.initialized_node("n2", json!({})).await;
    // The command is found within 10 s and validated 15 s later.
    world.sleep_until_second(12).await;
    world.pod("web", "n1", json!({})).await;
    world.until("n2 is terminating", async || world.claim("n2").await, is_terminating).await;
    assert!((15..=26).contains(&world.seconds()), "{}", world.seconds());
    world.sleep_until_second(120).await;
    let claim = world.claim("n1").await;
    assert!(!is_terminating(&claim));
    assert_eq!(condition_of(&claim.expect("a claim"), "DisruptionReason").0, "");
    assert!(!is_tainted(&world.node("n1").await));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn stray_taints_of_an_earlier_process_are_removed() {
    let world = world(json!({"consolidateAfter": "Never"})).await;
    let taints = json!({"spec": {"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"},
        {"key": "team", "effect": "NoSchedule"}]}});
    world.initialized_node("n1", taints).await;
    let node =
        world.until("the taint is removed", async || world.node("n1").await, |node| !is_tainted(node)).await;
    assert!(world.seconds() <= 11, "{}", world.seconds());
    let taints = node.and_then(|node| node.spec).and_then(|spec| spec.taints).unwrap_or_default();
    assert_eq!(taints.iter().map(|taint| taint.key.as_str()).collect::<Vec<_>>(), ["team"]);
    assert!(!is_terminating(&world.claim("n1").await));
    world.stop().await;
}
