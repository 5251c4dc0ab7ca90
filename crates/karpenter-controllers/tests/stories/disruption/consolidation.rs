//! Tests of consolidation: empty nodes, and nodes that can be replaced by cheaper ones.

use std::collections::BTreeSet;

use karpenter_api::types::{NodeClaim, NodePool};
use serde_json::json;

use crate::disruption::support::{
    anti_affinity, client_with_slow_writes, consolidate_soon, oversized_node, replacements_created_within,
    set_disruption,
};
use crate::disruption::world::{
    World, has_disrupted_taint, is_deleting, is_initialized, is_of, is_running, label, node_of,
};

#[tokio::test(start_paused = true)]
async fn empty_nodes_are_deleted_after_consolidate_after_and_validation() {
    let world = World::start().await;
    world.pool(consolidate_soon(), json!({})).await;
    world.deploy("web", 3, 900, anti_affinity()).await;
    world.until_running("web", 3).await;
    world.until_settled(3).await;
    let emptied_at = {
        world.delete_deployment("web").await;
        world.until_running("web", 0).await;
        world.seconds()
    };
    world.until_settled(0).await;
    let took = world.seconds() - emptied_at;
    assert!(
        (45..=75).contains(&took),
        "consolidateAfter of 30 s, validation after 15 s, evaluation within 10 s: {took}"
    );
    let decisions = world.decisions();
    assert_eq!(decisions.len(), 1, "{decisions:?}");
    assert!(decisions[0].starts_with("delete 3 nodes: "), "{decisions:?}");
    let series = "karpenter_voluntary_disruption_decisions_total{consolidation_type=\"empty\",\
        decision=\"delete\",reason=\"empty\"}";
    assert_eq!(world.metric(series), Some(1.0));
    let terminating = world.events("DisruptionTerminating").await;
    assert_eq!(terminating.iter().filter(|(_, text)| text == "Disrupting Node: Empty").count(), 3);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn node_whose_pods_fit_elsewhere_is_deleted_without_replacement() {
    for mode in ["cost", "compat"] {
        let world = if mode == "cost" { World::start().await } else { World::compat().await };
        world.pool(json!({"consolidateAfter": "Never"}), json!({})).await;
        // Two nodes with eight CPUs are nearly full; then most of the pods are deleted.
        world.deploy("big", 2, 4100, json!({})).await;
        world.until_running("big", 2).await;
        world.until_settled(2).await;
        world.deploy("web", 4, 500, json!({})).await;
        world.until_running("web", 4).await;
        world.scale("big", 1).await;
        world.until_running("big", 1).await;
        let before = world.claim_names().await;
        assert_eq!(before.len(), 2, "{mode}");
        world.merge::<NodePool>("general", json!({"spec": {"disruption": consolidate_soon()}})).await;
        world
            .until("one node is deleted", async || world.claim_names().await, |names| names.len() == 1)
            .await;
        world.until_running("web", 4).await;
        let after = world.claim_names().await;
        assert!(after.is_subset(&before), "{mode}: nothing was launched: {:?}", world.decisions());
        world.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn no_command_is_computed_during_a_scale_in() {
    let world = World::start().await;
    world.pool(json!({"consolidateAfter": "Never"}), json!({})).await;
    world.deploy("big", 4, 4100, json!({})).await;
    world.until_running("big", 4).await;
    world.until_settled(4).await;
    world.deploy("web", 8, 500, json!({})).await;
    world.until_running("web", 8).await;
    let at_once = json!({"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]});
    world.merge::<NodePool>("general", json!({"spec": {"disruption": at_once}})).await;
    // A pod is deleted every second or two. After each deletion, more nodes could be consolidated.
    for left in (0..4).rev() {
        let began = world.seconds();
        world.scale("big", left).await;
        world.until_running("big", left).await;
        world.until("time goes by", async || world.seconds(), |now| *now > began).await;
    }
    let over_at = world.seconds();
    let is_any_closed = async || world.nodes().await.iter().any(has_disrupted_taint);
    assert!(!is_any_closed().await);
    world.until("a node is tainted", is_any_closed, |is_any| *is_any).await;
    let took = world.seconds() - over_at;
    // Pod churn ends when no pod has left a node for two seconds; one of these may have passed already. The command is
    // validated 15 s later.
    assert!((16..=40).contains(&took), "{took}: {:?}", world.decisions());
    // The plan considers all deleted pods: two smaller nodes are cheaper than one of the old nodes by more than the moves
    // of its pods are priced at, and no pod is moved twice.
    world.until_settled(2).await;
    let evicted = world.metric("karpenter_pods_eviction_requests_total{code=\"200\"}");
    assert_eq!(evicted, Some(8.0), "{:?}", world.decisions());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn oversized_node_is_replaced_by_a_cheaper_one_that_is_launched_first() {
    for mode in ["cost", "compat"] {
        let world = if mode == "cost" { World::start().await } else { World::compat().await };
        world.pool(json!({"consolidateAfter": "Never"}), json!({})).await;
        world.deploy("big", 1, 6000, json!({})).await;
        world.deploy("web", 1, 600, json!({})).await;
        world.until_running("big", 1).await;
        let first = world.until_running("web", 1).await;
        world.until_settled(1).await;
        world.delete_deployment("big").await;
        world.until_running("big", 0).await;
        world.merge::<NodePool>("general", json!({"spec": {"disruption": consolidate_soon()}})).await;
        // The replacement exists before the old node is deleted, and only the old node is tainted.
        let old = node_of(&first[0]);
        world
            .until(
                "the node is tainted",
                async || world.nodes().await,
                |nodes| {
                    nodes.iter().any(|node| {
                        !label(node, "kubernetes.io/hostname").is_empty() && has_disrupted_taint(node)
                    })
                },
            )
            .await;
        world.until("two claims", async || world.claims().await.len(), |count| *count == 2).await;
        world.until_settled(1).await;
        let pods = world.until_running("web", 1).await;
        assert_ne!(node_of(&pods[0]), old, "{mode}");
        let types: BTreeSet<String> = world
            .nodes()
            .await
            .iter()
            .map(|node| label(node, "node.kubernetes.io/instance-type").to_owned())
            .collect();
        assert_eq!(types, BTreeSet::from(["s-1x-amd64-linux".to_owned()]), "{mode}");
        let launched = world.events("DisruptionLaunching").await;
        assert!(
            launched.iter().any(|(_, text)| text == "Launching NodeClaim: Underutilized"),
            "{launched:?}"
        );
        assert!(!world.events("DisruptionWaitingReadiness").await.is_empty());
        assert!(!world.events("ConsolidationCandidate").await.is_empty());
        let created = "karpenter_nodeclaims_created_total{min_values_relaxed=\"false\",nodepool=\"general\",\
            reason=\"underutilized\"}";
        assert_eq!(world.metric(created), Some(1.0), "{mode}");
        world.stop().await;
    }
}

/// In cost mode, a replacement is initialized only after its pods are evicted, because otherwise pods of other commands
/// would fill it first.
#[tokio::test(start_paused = true)]
async fn replacement_is_initialized_when_its_pods_are_evicted() {
    for (mode, opens_late) in [("cost", true), ("compat", false)] {
        let world = if mode == "cost" { World::start().await } else { World::compat().await };
        oversized_node(&world).await;
        let old = world.claim_names().await;
        set_disruption(&world, consolidate_soon()).await;
        let mut is_left_before = false;
        let began = world.seconds();
        let is_old = |claim: &NodeClaim| old.contains(claim.metadata.name.as_deref().unwrap_or_default());
        loop {
            let claims = world.claims().await;
            // The test waits until the old NodeClaim no longer exists; a terminating one is not enough.
            if !claims.iter().any(is_old) {
                break;
            }
            let is_leaving = claims.iter().any(is_deleting);
            is_left_before |= is_leaving && claims.iter().any(|claim| !is_initialized(claim));
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            assert!(world.seconds() - began < 1800, "{mode}: {:#?}", world.decisions());
        }
        assert_eq!(is_left_before, opens_late, "{mode}: {:#?}", world.decisions());
        world.until_settled(1).await;
        world.until_running("web", 1).await;
        world.stop().await;
    }
}

/// If the pods that should move to a replacement are deleted, the registration gate must not hold the replacement for a
/// minute, because it is empty and costs money.
#[tokio::test(start_paused = true)]
async fn replacement_whose_pods_are_deleted_is_initialized_soon_and_removed() {
    let world = World::start().await;
    oversized_node(&world).await;
    let old = world.claim_names().await;
    set_disruption(&world, consolidate_soon()).await;
    let claims = async || world.claim_names().await;
    let both = world.until("a replacement", claims, |names| names.len() == 2).await;
    let replacement = both.difference(&old).next().cloned().unwrap_or_default();
    // The only pod that will move to the replacement is deleted, and the Deployment does not create it again.
    world.scale("web", 0).await;
    world.until_running("web", 0).await;
    let began = world.seconds();
    let is_open = async || {
        let claims = world.claims().await;
        let found = claims.iter().find(|claim| claim.metadata.name.as_ref() == Some(&replacement));
        found.is_none_or(is_initialized)
    };
    world.until("the replacement is initialized", is_open, |is_open| *is_open).await;
    let took = world.seconds() - began;
    // The node registers after five seconds. Then the registration gate waits five more seconds for a new pod.
    assert!(took <= 15, "{took}: {:#?}", world.decisions());
    world.until_settled(0).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn fragmented_fleet_converges_and_pods_bind_where_planned() {
    let world = World::start().await;
    world.pool(json!({"consolidateAfter": "Never"}), json!({})).await;
    world.deploy("big", 6, 5000, json!({})).await;
    world.until_running("big", 6).await;
    world.until_settled(6).await;
    world.deploy("web", 12, 700, json!({})).await;
    world.until_running("web", 12).await;
    let before = world.nodes().await.len();
    world.delete_deployment("big").await;
    world.until_running("big", 0).await;
    world.merge::<NodePool>("general", json!({"spec": {"disruption": consolidate_soon()}})).await;
    world
        .until(
            "fewer nodes and no command in progress",
            async || {
                let claims = world.claims().await;
                let pods = world.pods().await;
                let running = pods.iter().filter(|pod| is_of(pod, "web") && is_running(pod)).count();
                (claims.len(), claims.iter().any(crate::disruption::world::is_deleting), running)
            },
            |(claims, is_deleting, running)| *claims < before && !is_deleting && *running == 12,
        )
        .await;
    // Twelve pods of 0.7 CPU need 8.4 CPUs.
    world.sleep(600).await;
    let settled = world.claim_names().await;
    let decisions = world.decisions().len();
    let bindings = world.operator.context().state.bindings();
    world.sleep(3600).await;
    assert_eq!(world.claim_names().await, settled, "no disruption for an hour");
    assert_eq!(world.decisions().len(), decisions, "{:#?}", world.decisions());
    assert!(world.nodes().await.iter().all(|node| !has_disrupted_taint(node)));
    assert_eq!(world.until_running("web", 12).await.len(), 12);
    assert_eq!(bindings.elsewhere, 0, "{bindings:?} {:#?}", world.decisions());
    let verdicts = world.operator.context().verdicts.entries(None);
    assert_eq!(verdicts.len(), settled.len(), "{verdicts:#?}");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn commands_of_one_evaluation_start_concurrently() {
    let mut world = World::start().await;
    world.pool(json!({"consolidateAfter": "Never"}), json!({})).await;
    world.deploy("big", 6, 5000, anti_affinity()).await;
    world.until_running("big", 6).await;
    let mut alone = anti_affinity();
    alone["metadata"]["labels"] = json!({"side": "other-side"});
    let terms =
        "/spec/affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution/0/labelSelector";
    *alone.pointer_mut(terms).expect("a selector") = json!({"matchLabels": {"side": "other-side"}});
    world.deploy("web", 6, 600, alone).await;
    world.until_running("web", 6).await;
    world.until_settled(6).await;
    world.delete_deployment("big").await;
    world.until_running("big", 0).await;
    let line = client_with_slow_writes(world.server.clone(), std::time::Duration::from_millis(700));
    let old = world.take_over(line).await;
    old.stop().await;
    world.sleep(60).await;
    set_disruption(&world, consolidate_soon()).await;
    let launched = async || replacements_created_within(&world.claims().await);
    let (_, within) = world.until("six replacements", launched, |(count, _)| *count == 6).await;
    // Tainting a node, patching its NodeClaim and launching a replacement take more than two seconds each, so the
    // starts overlap.
    assert!(within <= 4, "{within} seconds between the first and the last");
    world.until_settled(6).await;
    world.until_running("web", 6).await;
    let commands = world.decisions();
    assert!(commands.len() >= 3, "{commands:#?}");
    world.stop().await;
}
