//! Nodes that are empty or could be cheaper.

use std::collections::BTreeSet;

use karpenter_api::types::{NodeClaim, NodePool};
use serde_json::json;

use crate::disruption::support::{allow, apart, launched_within, quick, slow, too_large};
use crate::disruption::world::{
    World, is_closed, is_ending, is_initialized, is_of, is_running, label, node_of,
};

#[tokio::test(start_paused = true)]
async fn empty_nodes_go_after_their_pools_wait_and_a_second_look() {
    let world = World::start().await;
    world.pool(quick(), json!({})).await;
    world.deploy("web", 3, 900, apart()).await;
    world.until_running("web", 3).await;
    world.until_settled(3).await;
    let emptied_at = {
        world.delete_deployment("web").await;
        world.until_running("web", 0).await;
        world.seconds()
    };
    world.until_settled(0).await;
    let took = world.seconds() - emptied_at;
    assert!((45..=75).contains(&took), "30 s of quiet, 15 s of rest, at most 10 s to be found: {took}");
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
async fn a_node_whose_pods_fit_elsewhere_goes_and_nothing_is_launched() {
    for mode in ["cost", "compat"] {
        let world = if mode == "cost" { World::start().await } else { World::compat().await };
        world.pool(json!({"consolidateAfter": "Never"}), json!({})).await;
        // Two nodes of eight CPUs, each nearly full; then most of it goes away.
        world.deploy("big", 2, 4100, json!({})).await;
        world.until_running("big", 2).await;
        world.until_settled(2).await;
        world.deploy("web", 4, 500, json!({})).await;
        world.until_running("web", 4).await;
        world.scale("big", 1).await;
        world.until_running("big", 1).await;
        let before = world.claim_names().await;
        assert_eq!(before.len(), 2, "{mode}");
        world.merge::<NodePool>("general", json!({"spec": {"disruption": quick()}})).await;
        world.until("one node goes", async || world.claim_names().await, |names| names.len() == 1).await;
        world.until_running("web", 4).await;
        let after = world.claim_names().await;
        assert!(after.is_subset(&before), "{mode}: nothing was launched: {:?}", world.decisions());
        world.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_planned_in_the_middle_of_a_scale_in() {
    let world = World::start().await;
    world.pool(json!({"consolidateAfter": "Never"}), json!({})).await;
    world.deploy("big", 4, 4100, json!({})).await;
    world.until_running("big", 4).await;
    world.until_settled(4).await;
    world.deploy("web", 8, 500, json!({})).await;
    world.until_running("web", 8).await;
    let at_once = json!({"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]});
    world.merge::<NodePool>("general", json!({"spec": {"disruption": at_once}})).await;
    // One goes every second or two, and with each of them there is room for more to go.
    for left in (0..4).rev() {
        let began = world.seconds();
        world.scale("big", left).await;
        world.until_running("big", left).await;
        world.until("time goes by", async || world.seconds(), |now| *now > began).await;
    }
    let over_at = world.seconds();
    let is_any_closed = async || world.nodes().await.iter().any(is_closed);
    assert!(!is_any_closed().await);
    world.until("a node is closed", is_any_closed, |is_any| *is_any).await;
    let took = world.seconds() - over_at;
    // Two seconds without a pod that leaves, one of which may be over; then it rests for fifteen.
    assert!((16..=40).contains(&took), "{took}: {:?}", world.decisions());
    // What was planned knows of everything: one node is enough, and no pod is moved twice.
    world.until_settled(1).await;
    let evicted = world.metric("karpenter_pods_eviction_requests_total{code=\"200\"}");
    assert_eq!(evicted, Some(6.0), "{:?}", world.decisions());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_too_large_is_replaced_by_a_cheaper_one_first() {
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
        world.merge::<NodePool>("general", json!({"spec": {"disruption": quick()}})).await;
        // The replacement is there before the old node goes, and only the old one is closed.
        let old = node_of(&first[0]);
        world
            .until(
                "the node is closed",
                async || world.nodes().await,
                |nodes| {
                    nodes
                        .iter()
                        .any(|node| !label(node, "kubernetes.io/hostname").is_empty() && is_closed(node))
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

/// An open one would be filled by pods of other commands before its own have left their node.
#[tokio::test(start_paused = true)]
async fn a_replacement_opens_when_its_pods_are_on_their_way() {
    for (mode, opens_late) in [("cost", true), ("compat", false)] {
        let world = if mode == "cost" { World::start().await } else { World::compat().await };
        too_large(&world).await;
        let old = world.claim_names().await;
        allow(&world, quick()).await;
        let mut is_left_before = false;
        let began = world.seconds();
        let is_old = |claim: &NodeClaim| old.contains(claim.metadata.name.as_deref().unwrap_or_default());
        loop {
            let claims = world.claims().await;
            // Until the old node is gone for good, not only told to go.
            if !claims.iter().any(is_old) {
                break;
            }
            let is_leaving = claims.iter().any(is_ending);
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

/// It would be kept for a minute, empty, and be paid for.
#[tokio::test(start_paused = true)]
async fn a_replacement_that_nobody_comes_to_any_more_opens_soon_and_goes() {
    let world = World::start().await;
    too_large(&world).await;
    let old = world.claim_names().await;
    allow(&world, quick()).await;
    let claims = async || world.claim_names().await;
    let both = world.until("a replacement", claims, |names| names.len() == 2).await;
    let replacement = both.difference(&old).next().cloned().unwrap_or_default();
    // The pod that it was launched for has no successor.
    world.scale("web", 0).await;
    world.until_running("web", 0).await;
    let began = world.seconds();
    let is_open = async || {
        let claims = world.claims().await;
        let found = claims.iter().find(|claim| claim.metadata.name.as_ref() == Some(&replacement));
        found.is_none_or(is_initialized)
    };
    world.until("the replacement opens", is_open, |is_open| *is_open).await;
    let took = world.seconds() - began;
    // Five seconds until the node registers, and five in which a successor might have come.
    assert!(took <= 15, "{took}: {:#?}", world.decisions());
    world.until_settled(0).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_fragmented_fleet_reaches_a_quiet_fix_point_and_its_pods_land_where_planned() {
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
    world.merge::<NodePool>("general", json!({"spec": {"disruption": quick()}})).await;
    world
        .until(
            "fewer nodes and nothing under way",
            async || {
                let claims = world.claims().await;
                let pods = world.pods().await;
                let running = pods.iter().filter(|pod| is_of(pod, "web") && is_running(pod)).count();
                (claims.len(), claims.iter().any(crate::disruption::world::is_ending), running)
            },
            |(claims, is_ending, running)| *claims < before && !is_ending && *running == 12,
        )
        .await;
    // Twelve pods of 0.7 CPU need 8.4 CPUs.
    world.sleep(600).await;
    let settled = world.claim_names().await;
    let decisions = world.decisions().len();
    let bindings = world.operator.context().state.bindings();
    world.sleep(3600).await;
    assert_eq!(world.claim_names().await, settled, "the fix-point is quiet for an hour");
    assert_eq!(world.decisions().len(), decisions, "{:#?}", world.decisions());
    assert!(world.nodes().await.iter().all(|node| !is_closed(node)));
    assert_eq!(world.until_running("web", 12).await.len(), 12);
    assert_eq!(bindings.elsewhere, 0, "{bindings:?} {:#?}", world.decisions());
    let standings = world.operator.context().standings.entries(None);
    assert_eq!(standings.len(), settled.len(), "{standings:#?}");
    world.stop().await;
}

/// Commands that were found together do not wait for each other's writes.
#[tokio::test(start_paused = true)]
async fn commands_of_one_look_begin_at_the_same_time() {
    let mut world = World::start().await;
    world.pool(json!({"consolidateAfter": "Never"}), json!({})).await;
    world.deploy("big", 6, 5000, apart()).await;
    world.until_running("big", 6).await;
    let mut alone = apart();
    alone["metadata"]["labels"] = json!({"side": "other-side"});
    let terms =
        "/spec/affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution/0/labelSelector";
    *alone.pointer_mut(terms).expect("a selector") = json!({"matchLabels": {"side": "other-side"}});
    world.deploy("web", 6, 600, alone).await;
    world.until_running("web", 6).await;
    world.until_settled(6).await;
    world.delete_deployment("big").await;
    world.until_running("big", 0).await;
    let line = slow(world.server.clone(), std::time::Duration::from_millis(700));
    let old = world.take_over(line).await;
    old.stop().await;
    world.sleep(60).await;
    allow(&world, quick()).await;
    let launched = async || launched_within(&world.claims().await);
    let (_, within) = world.until("six replacements", launched, |(count, _)| *count == 6).await;
    // Closing a node, marking its claim and launching takes more than two seconds each.
    assert!(within <= 4, "{within} seconds between the first and the last");
    world.until_settled(6).await;
    world.until_running("web", 6).await;
    let commands = world.decisions();
    assert!(commands.len() >= 3, "{commands:#?}");
    world.stop().await;
}
