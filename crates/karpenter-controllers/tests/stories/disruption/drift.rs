//! Tests of drifted nodes: they are replaced within the budgets, and each replacement is launched before its node is
//! deleted.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use karpenter_api::types::NodeClaim;
use karpenter_kwok::Registration;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::disruption::support::{
    PeakCount, Peaks, anti_affinity, client_with_slow_writes, drift, replacements_created_within,
    until_all_replaced,
};
use crate::disruption::world::{World, has_disrupted_taint, is_deleting, node_names, status_of};

fn one_at_a_time() -> Value {
    json!({"consolidateAfter": "Never", "budgets": [{"nodes": "1"}]})
}

#[tokio::test(start_paused = true)]
async fn drifted_nodes_are_replaced_one_by_one_and_replacements_launch_first() {
    let world = World::start().await;
    world.pool(one_at_a_time(), json!({})).await;
    world.deploy("web", 3, 900, anti_affinity()).await;
    world.until_running("web", 3).await;
    world.until_settled(3).await;
    let before = world.claim_names().await;
    drift(&world).await;
    let Peaks { tainted: tainted_max, claims: claims_max } = until_all_replaced(&world, 3, "web", 3).await;
    assert_eq!((tainted_max, claims_max), (1, 4), "{:#?}", world.decisions());
    assert!(world.claim_names().await.is_disjoint(&before));
    let decisions = world.decisions();
    assert_eq!(decisions.len(), 3, "{decisions:?}");
    assert!(decisions.iter().all(|what| what.ends_with(", launch 1 replacements")), "{decisions:?}");
    let created = "karpenter_nodeclaims_created_total{min_values_relaxed=\"false\",nodepool=\"general\",\
        reason=\"drifted\"}";
    assert_eq!(world.metric(created), Some(3.0));
    let disrupted = "karpenter_nodeclaims_disrupted_total{capacity_type=\"on-demand\",consolidation_policy=\"\",\
        nodepool=\"general\",reason=\"drifted\",termination_mode=\"graceful\"}";
    assert_eq!(world.metric(disrupted), Some(3.0));
    let pods = disrupted.replace("nodeclaims_disrupted_total", "pods_disruption_initiated_total");
    assert_eq!(world.metric(&pods), Some(3.0));
    // The provisioner creates NodeClaims only for the pods of the beginning, not during the drift.
    let provisioned = created.replace("drifted", "provisioned");
    assert_eq!(world.metric(&provisioned), Some(3.0));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn replacement_is_not_initialized_before_pods_of_the_drifted_node_are_evicted() {
    let world = World::start().await;
    world.pool(one_at_a_time(), json!({})).await;
    world.deploy("web", 2, 900, json!({})).await;
    world.until_running("web", 2).await;
    world.until_settled(1).await;
    drift(&world).await;
    // The node must be closed for other pods, because its capacity is meant for the moved pods.
    let is_kept = |node: &Node| {
        let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
        taints.into_iter().any(|taint| taint.key == "karpenter.sh/unregistered")
    };
    let view = async || (world.claims().await.iter().any(is_deleting), world.nodes().await);
    let is_seen = |(is_deleting, nodes): &(bool, Vec<Node>)| *is_deleting && nodes.iter().any(is_kept);
    world.until("the old node is deleted while the replacement is not initialized", view, is_seen).await;
    until_all_replaced(&world, 1, "web", 2).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn budget_of_half_disrupts_half_of_the_drifted_nodes() {
    let world = World::start().await;
    let disruption = json!({"consolidateAfter": "Never", "budgets": [{"nodes": "50%"}]});
    world.pool(disruption, json!({})).await;
    world.deploy("web", 4, 900, anti_affinity()).await;
    world.until_running("web", 4).await;
    world.until_settled(4).await;
    drift(&world).await;
    let Peaks { tainted: tainted_max, claims: claims_max } = until_all_replaced(&world, 4, "web", 4).await;
    // While the replacements are initialized and the old nodes still exist, both count when the budget is half of the
    // nodes.
    assert!(
        tainted_max <= claims_max.div_ceil(2) && claims_max <= 7,
        "{tainted_max} tainted, {claims_max} claims"
    );
    assert!(tainted_max >= 2, "the budget is used");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn drift_commands_start_concurrently() {
    let mut world = World::start().await;
    let disruption = json!({"consolidateAfter": "Never", "budgets": [{"nodes": "100%"}]});
    world.pool(disruption, json!({})).await;
    world.deploy("web", 6, 900, anti_affinity()).await;
    world.until_running("web", 6).await;
    world.until_settled(6).await;
    let old =
        world.take_over(client_with_slow_writes(world.server.clone(), Duration::from_millis(700))).await;
    old.stop().await;
    world.sleep(60).await;
    drift(&world).await;
    let launched = async || replacements_created_within(&world.claims().await);
    let (_, within) = world.until("six replacements", launched, |(count, _)| *count == 6).await;
    assert!(within <= 4, "{within} seconds between the first and the last");
    until_all_replaced(&world, 6, "web", 6).await;
    let commands = world.decisions();
    assert_eq!(commands.len(), 6, "{commands:#?}");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn do_not_disrupt_pod_blocks_drift_without_termination_grace_period() {
    for bound in [None, Some("300s")] {
        let world = World::start().await;
        let template = match bound {
            None => json!({}),
            Some(bound) => json!({"spec": {"terminationGracePeriod": bound}}),
        };
        world.pool(one_at_a_time(), template).await;
        let mut kept = anti_affinity();
        kept["metadata"]["annotations"] = json!({"karpenter.sh/do-not-disrupt": "true"});
        world.deploy("kept", 1, 900, kept).await;
        world.until_running("kept", 1).await;
        world.until_settled(1).await;
        let before = world.claim_names().await;
        drift(&world).await;
        if bound.is_some() {
            until_all_replaced(&world, 1, "kept", 1).await;
            assert!(world.claim_names().await.is_disjoint(&before));
        } else {
            world.sleep(900).await;
            assert_eq!(world.claim_names().await, before);
            assert!(world.nodes().await.iter().all(|node| !has_disrupted_taint(node)));
            let events = world.events("DisruptionBlocked").await;
            assert!(
                events.iter().any(|(_, text)| text.starts_with("Pod has \"karpenter.sh/do-not-disrupt\""))
            );
            let verdicts = world.operator.context().verdicts.entries(None);
            assert_eq!(verdicts[0].standing, "PodAnnotated", "{verdicts:?}");
            // Removing the annotation allows the disruption.
            let pods = world.pods().await;
            let name = pods[0].metadata.name.clone().expect("a name");
            let patch = json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": null}}});
            let api = world.api::<Pod>();
            api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await.expect("patched");
            world
                .until(
                    "the node is replaced",
                    async || world.claim_names().await,
                    |names| names.is_disjoint(&before),
                )
                .await;
        }
        world.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn pod_disruption_budget_of_zero_blocks_drift() {
    let world = World::start().await;
    world.pool(one_at_a_time(), json!({})).await;
    world.deploy("web", 2, 900, anti_affinity()).await;
    world.pod_budget("web", json!({"minAvailable": 2})).await;
    world.until_running("web", 2).await;
    world.until_settled(2).await;
    let before = world.claim_names().await;
    drift(&world).await;
    world.sleep(600).await;
    assert_eq!(world.claim_names().await, before);
    let events = world.events("DisruptionBlocked").await;
    let words = "Pdb prevents pod evictions (PodDisruptionBudget=[default/web])";
    assert!(events.iter().any(|(_, text)| text == words), "{events:?}");
    world.stop().await;
}

/// Three nodes drift. The default budget allows to disrupt one at a time.
#[tokio::test(start_paused = true)]
async fn command_whose_replacement_never_registers_is_rolled_back() {
    let world = World::start().await;
    world.pool(json!({"consolidateAfter": "Never"}), json!({})).await;
    world.deploy("web", 3, 900, anti_affinity()).await;
    world.until_running("web", 3).await;
    world.until_settled(3).await;
    let before = world.claim_names().await;
    let most = PeakCount::<Node>::begin(&world, has_disrupted_taint).await;
    world.cloud.change_faults(|faults| faults.registration = Registration::Never);
    drift(&world).await;
    let tainted = async || node_names(world.nodes().await.iter().filter(|node| has_disrupted_taint(node)));
    let first = world.until("one node is tainted", &tainted, |tainted| tainted.len() == 1).await;
    let started = world.seconds();
    world.until("the taint is removed", &tainted, |tainted| tainted.is_disjoint(&first)).await;
    let took = world.seconds() - started;
    assert!((600..660).contains(&took), "ten minutes: {took}");
    world.sleep(120).await;
    assert_eq!(most.most(), 1, "never two at once");
    assert!(before.is_subset(&world.claim_names().await));
    assert_eq!(world.until_running("web", 3).await.len(), 3);
    let marks = world.claims().await;
    let kept =
        marks.iter().filter(|claim| before.contains(claim.metadata.name.as_deref().unwrap_or_default()));
    assert!(
        kept.into_iter().all(|claim| status_of(claim, "DisruptionReason").is_empty() && !is_deleting(claim))
    );
    let failures = "karpenter_voluntary_disruption_queue_failures_total{consolidation_type=\"\",\
        decision=\"replace\",reason=\"drifted\"}";
    assert_eq!(world.metric(failures), Some(1.0));
    // The next attempt succeeds, because instances register again.
    world.cloud.change_faults(|faults| faults.registration = Registration::Normal);
    until_all_replaced(&world, 3, "web", 3).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn command_whose_replacement_disappears_is_rolled_back_at_once() {
    let world = World::start().await;
    world.pool(json!({"consolidateAfter": "Never"}), json!({})).await;
    world.deploy("web", 1, 900, anti_affinity()).await;
    world.until_running("web", 1).await;
    world.until_settled(1).await;
    let before = world.claim_names().await;
    world.cloud.change_faults(|faults| faults.registration = Registration::Slower(Duration::from_secs(60)));
    drift(&world).await;
    let new: BTreeSet<String> = world
        .until("a replacement", async || world.claim_names().await, |names| names.len() == 2)
        .await
        .difference(&before)
        .cloned()
        .collect();
    let name = new.first().expect("a replacement").clone();
    world.all::<NodeClaim>().delete(&name, &Default::default()).await.expect("deleted");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(
        world.nodes().await.iter().all(|node| !has_disrupted_taint(node)),
        "the taint is removed within seconds"
    );
    let provisioned = "karpenter_nodeclaims_created_total{min_values_relaxed=\"false\",nodepool=\"general\",\
        reason=\"provisioned\"}";
    assert_eq!(world.metric(provisioned), Some(1.0), "the provisioner launches nothing for pods that stay");
    until_all_replaced(&world, 1, "web", 1).await;
    world.stop().await;
}
