//! Empty nodes go away by themselves, from the last pod to the end of the machine.

use k8s_openapi::api::core::v1::{Node, Pod};
use karpenter_api::types::NodePool;
use karpenter_controllers::disruption::Disruption;
use karpenter_controllers::nodeclaim::hooks::Hooks;
use karpenter_controllers::nodeclaim::lifecycle::Lifecycle;
use karpenter_controllers::nodeclaim::pod_events::PodEventsController;
use karpenter_controllers::nodepool::RegistrationHealth;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::termination::world::{World, is_ending, said};

async fn world(disruption: Value) -> World {
    world_with(disruption, |disruption| disruption).await
}

/// The same with something changed about the controller.
pub(super) async fn world_with(disruption: Value, change: impl FnOnce(Disruption) -> Disruption) -> World {
    let world = World::start().await;
    world
        .create::<NodePool>(json!({"metadata": {"name": "general"}, "spec": {"disruption": disruption,
            "template": {"spec": {"requirements": [], "nodeClassRef":
                {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}}}}}))
        .await;
    let context = || world.context.clone();
    world.spawn(change(Disruption::new(context())), Disruption::watch);
    let lifecycle = Lifecycle::new(context(), Hooks::default(), RegistrationHealth::default());
    world.spawn(lifecycle, Lifecycle::watch);
    world.spawn(PodEventsController::new(context()), PodEventsController::watch);
    world
}

fn is_tainted(node: &Option<Node>) -> bool {
    let taints = node.iter().filter_map(|node| node.spec.as_ref()?.taints.as_ref()).flatten();
    taints.into_iter().any(|taint| taint.key == "karpenter.sh/disrupted")
}

#[tokio::test(start_paused = true)]
async fn a_node_goes_when_it_has_been_empty_for_long_enough() {
    let world = world(json!({"consolidateAfter": "5m", "budgets": [{"nodes": "100%"}]})).await;
    for name in ["empty", "busy", "kept"] {
        world.machine(name, json!({})).await;
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
    assert!(!is_ending(&claim), "five quiet minutes and fifteen seconds are not over");
    assert!(!is_tainted(&world.node("empty").await));
    let claim =
        world.until("the claim goes", async || world.claim("empty").await, is_ending).await.expect("held");
    let second = world.seconds();
    assert!(
        (375..=386).contains(&second),
        "found within ten seconds, looked at again after fifteen: {second}"
    );
    assert_eq!(said(&claim, "DisruptionReason"), ("True", "Empty".to_owned()));
    assert!(is_tainted(&world.node("empty").await));
    world.until_node_gone("empty").await;
    world.until("the claim is gone", async || world.claim("empty").await, Option::is_none).await;
    assert!(!world.cloud.has("toy://empty"));
    let told = world.events("DisruptionTerminating").await;
    assert!(told.contains(&("empty".into(), "Disrupting Node: Empty".into())), "{told:?}");
    assert!(told.contains(&("empty".into(), "Disrupting NodeClaim: Empty".into())), "{told:?}");

    world.sleep_until_second(1200).await;
    assert!(!is_ending(&world.claim("busy").await) && !is_ending(&world.claim("kept").await));
    let blocked = world.events("DisruptionBlocked").await;
    let words = "Disruption is blocked through the \"karpenter.sh/do-not-disrupt\" annotation";
    assert!(blocked.contains(&("kept".into(), words.into())), "{blocked:?}");
    let record = world.context.journal.entries_after(0);
    assert_eq!(record.iter().map(|entry| entry.what.as_str()).collect::<Vec<_>>(), ["delete 1 nodes: empty"]);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_budget_of_zero_keeps_empty_nodes() {
    let world = world(json!({"consolidateAfter": "0s", "budgets": [{"nodes": "0"}]})).await;
    world.machine("n1", json!({})).await;
    world.machine("n2", json!({})).await;
    world.sleep_until_second(600).await;
    assert!(!is_ending(&world.claim("n1").await) && !is_ending(&world.claim("n2").await));
    let told = world.events("DisruptionBlocked").await;
    let words = "No allowed disruptions for disruption reason Empty due to blocking budget";
    assert!(told.contains(&("general".into(), words.into())), "{told:?}");
    // One at a time from now on.
    world.merge::<NodePool>("general", json!({"spec": {"disruption": {"budgets": [{"nodes": "1"}]}}})).await;
    world.until("n1 goes", async || world.claim("n1").await, is_ending).await;
    assert!(!is_ending(&world.claim("n2").await));
    world.until("n2 goes", async || world.claim("n2").await, is_ending).await;
    assert!(world.claim("n1").await.is_none(), "the first was gone before the second was asked");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_comes_while_the_decision_rests_saves_its_node() {
    let world = world(json!({"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]})).await;
    world.machine("n1", json!({})).await;
    world.machine("n2", json!({})).await;
    // Found at ten seconds at the latest, looked at again fifteen seconds later.
    world.sleep_until_second(12).await;
    world.pod("web", "n1", json!({})).await;
    world.until("n2 goes", async || world.claim("n2").await, is_ending).await;
    assert!((15..=26).contains(&world.seconds()), "{}", world.seconds());
    world.sleep_until_second(120).await;
    let claim = world.claim("n1").await;
    assert!(!is_ending(&claim));
    assert_eq!(said(&claim.expect("a claim"), "DisruptionReason").0, "");
    assert!(!is_tainted(&world.node("n1").await));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn marks_of_a_process_that_is_gone_are_taken_off() {
    let world = world(json!({"consolidateAfter": "Never"})).await;
    let taints = json!({"spec": {"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"},
        {"key": "team", "effect": "NoSchedule"}]}});
    world.machine("n1", taints).await;
    let node =
        world.until("the mark is off", async || world.node("n1").await, |node| !is_tainted(node)).await;
    assert!(world.seconds() <= 11, "{}", world.seconds());
    let taints = node.and_then(|node| node.spec).and_then(|spec| spec.taints).unwrap_or_default();
    assert_eq!(taints.iter().map(|taint| taint.key.as_str()).collect::<Vec<_>>(), ["team"]);
    assert!(!is_ending(&world.claim("n1").await));
    world.stop().await;
}
