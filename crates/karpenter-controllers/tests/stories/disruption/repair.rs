//! Tests of unhealthy nodes: they are replaced with a bounded drain, or rebooted in place.

use k8s_openapi::api::core::v1::Node;
use karpenter_api::types::NodeClaim;
use serde_json::json;
use tracing::Level;

use crate::captured_log::CapturedLog;
use crate::disruption::world::{World, has_disrupted_taint, is_deleting, status_of};

async fn world() -> World {
    let world = World::start_with(|options| options.feature_gates.node_repair = true).await;
    world.pool(json!({"consolidateAfter": "Never", "budgets": [{"nodes": "1"}]}), json!({})).await;
    let anti_affinity = json!({"spec": {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
        [{"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}]}}}});
    world.deploy("web", 2, 900, anti_affinity).await;
    world.until_running("web", 2).await;
    world.until_settled(2).await;
    world
}

fn name(node: &Node) -> String {
    node.metadata.name.clone().unwrap_or_default()
}

fn claim_of<'a>(claims: &'a [NodeClaim], node: &str) -> Option<&'a NodeClaim> {
    claims
        .iter()
        .find(|claim| claim.status.as_ref().and_then(|status| status.node_name.as_deref()) == Some(node))
}

#[tokio::test(start_paused = true)]
async fn unhealthy_node_is_replaced_and_its_drain_is_bounded() {
    let captured = CapturedLog::start();
    let world = world().await;
    let sick = name(&world.nodes().await[0]);
    let began = world.seconds();
    world.cloud.inject_condition(&sick, "KWOKUnhealthy", "True", "Test").await.expect("injected");
    let ending = async || {
        let claims = world.claims().await;
        claim_of(&claims, &sick).filter(|claim| is_deleting(claim)).cloned()
    };
    let claim = world.until("the claim is deleted", ending, Option::is_some).await.expect("a claim");
    let asked_at = world.seconds();
    assert!((30..=90).contains(&(asked_at - began)), "the toleration is 30 s: {}", asked_at - began);
    assert_eq!(status_of(&claim, "DisruptionReason"), "True");
    let until = claim
        .metadata
        .annotations
        .as_ref()
        .and_then(|all| all.get("karpenter.sh/nodeclaim-termination-timestamp"));
    let until: jiff::Timestamp = until.expect("a bound").parse().expect("a time");
    let left = until.duration_since(world.clock.now()).as_secs();
    assert!((40..=45).contains(&left), "the policy says 45 s: {left}");
    world.until_settled(2).await;
    world.until_running("web", 2).await;
    let repaired = "karpenter_nodeclaims_unhealthy_disrupted_total{capacity_type=\"on-demand\",\
        condition=\"kwok_unhealthy\",image_id=\"\",nodepool=\"general\",termination_mode=\"eventual\"}";
    assert_eq!(world.metric(repaired), Some(1.0));
    let grounds = captured.lines(Level::INFO, "selected repair policy");
    assert_eq!(grounds.len(), 1, "{grounds:?}");
    let says = |words: &str| grounds[0].contains(words);
    assert!(
        says(&format!("node={sick:?}"))
            && says("condition=\"KWOKUnhealthy\" status=\"True\" reason=\"Test\"")
    );
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn node_that_needs_a_reboot_keeps_its_instance() {
    let world = world().await;
    let before = world.claim_names().await;
    let sick = name(&world.nodes().await[0]);
    world.cloud.inject_condition(&sick, "KWOKRebootRequired", "True", "Test").await.expect("injected");
    let rebooting = async || {
        let claims = world.claims().await;
        claim_of(&claims, &sick).map(|claim| status_of(claim, "Rebooting")).unwrap_or_default()
    };
    world.until("the node reboots", &rebooting, |status| *status == "True").await;
    assert!(world.nodes().await.iter().all(|node| !has_disrupted_taint(node)), "no taint of a command");
    world.cloud.remove_condition(&sick, "KWOKRebootRequired").await.expect("removed");
    world.until("the reboot is over", &rebooting, |status| *status == "False").await;
    world.until_settled(2).await;
    assert_eq!(world.claim_names().await, before);
    let series = "karpenter_voluntary_disruption_decisions_total{consolidation_type=\"\",decision=\"reboot\",\
        reason=\"unhealthy\"}";
    assert_eq!(world.metric(series), Some(1.0));
    world.stop().await;
}
