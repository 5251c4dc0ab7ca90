//! Nodes that are no longer what their pool asks for: replaced one by one, the replacement first.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use karpenter_api::types::NodeClaim;
use karpenter_kwok::Registration;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::disruption::support::{Most, Watched, apart, drift, follow, launched_within, slow};
use crate::disruption::world::{World, is_closed, is_ending, node_names, status_of};

fn one_at_a_time() -> Value {
    json!({"consolidateAfter": "Never", "budgets": [{"nodes": "1"}]})
}

#[tokio::test(start_paused = true)]
async fn drifted_nodes_are_replaced_one_by_one_and_the_replacement_comes_first() {
    let world = World::start().await;
    world.pool(one_at_a_time(), json!({})).await;
    world.deploy("web", 3, 900, apart()).await;
    world.until_running("web", 3).await;
    world.until_settled(3).await;
    let before = world.claim_names().await;
    drift(&world).await;
    let Most { closed: closed_max, claims: claims_max } = follow(&world, 3, "web", 3).await;
    assert_eq!((closed_max, claims_max), (1, 4), "{:#?}", world.decisions());
    assert!(world.claim_names().await.is_disjoint(&before));
    let decisions = world.decisions();
    assert_eq!(decisions.len(), 3, "{decisions:?}");
    assert!(decisions.iter().all(|what| what.ends_with(", launch 1 in their place")), "{decisions:?}");
    let created = "karpenter_nodeclaims_created_total{min_values_relaxed=\"false\",nodepool=\"general\",\
        reason=\"drifted\"}";
    assert_eq!(world.metric(created), Some(3.0));
    let disrupted = "karpenter_nodeclaims_disrupted_total{capacity_type=\"on-demand\",consolidation_policy=\"\",\
        nodepool=\"general\",reason=\"drifted\",termination_mode=\"graceful\"}";
    assert_eq!(world.metric(disrupted), Some(3.0));
    let pods = disrupted.replace("nodeclaims_disrupted_total", "pods_disruption_initiated_total");
    assert_eq!(world.metric(&pods), Some(3.0));
    // The provisioner launched for the pods once, at the very beginning.
    let provisioned = created.replace("drifted", "provisioned");
    assert_eq!(world.metric(&provisioned), Some(3.0));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_replacement_is_kept_closed_for_the_pods_of_the_node_that_drifted() {
    let world = World::start().await;
    world.pool(one_at_a_time(), json!({})).await;
    world.deploy("web", 2, 900, json!({})).await;
    world.until_running("web", 2).await;
    world.until_settled(1).await;
    drift(&world).await;
    // Others would take the room that is meant for those pods: it opens when they are on their way.
    let is_kept = |node: &Node| {
        let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
        taints.into_iter().any(|taint| taint.key == "karpenter.sh/unregistered")
    };
    let sight = async || (world.claims().await.iter().any(is_ending), world.nodes().await);
    let is_seen = |(is_ending, nodes): &(bool, Vec<Node>)| *is_ending && nodes.iter().any(is_kept);
    world.until("the old one goes while the new one is closed", sight, is_seen).await;
    follow(&world, 1, "web", 2).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn half_of_the_nodes_may_drift_at_once() {
    let world = World::start().await;
    let disruption = json!({"consolidateAfter": "Never", "budgets": [{"nodes": "50%"}]});
    world.pool(disruption, json!({})).await;
    world.deploy("web", 4, 900, apart()).await;
    world.until_running("web", 4).await;
    world.until_settled(4).await;
    drift(&world).await;
    let Most { closed: closed_max, claims: claims_max } = follow(&world, 4, "web", 4).await;
    // Replacements that have come up count among the nodes of which half may go.
    assert!(
        closed_max <= claims_max.div_ceil(2) && claims_max <= 7,
        "{closed_max} closed, {claims_max} claims"
    );
    assert!(closed_max >= 2, "the budget is used");
    world.stop().await;
}

/// They do not wait for each other's writes.
#[tokio::test(start_paused = true)]
async fn all_that_drifted_is_begun_at_the_same_time() {
    let mut world = World::start().await;
    let disruption = json!({"consolidateAfter": "Never", "budgets": [{"nodes": "100%"}]});
    world.pool(disruption, json!({})).await;
    world.deploy("web", 6, 900, apart()).await;
    world.until_running("web", 6).await;
    world.until_settled(6).await;
    let old = world.take_over(slow(world.server.clone(), Duration::from_millis(700))).await;
    old.stop().await;
    world.sleep(60).await;
    drift(&world).await;
    let launched = async || launched_within(&world.claims().await);
    let (_, within) = world.until("six replacements", launched, |(count, _)| *count == 6).await;
    assert!(within <= 4, "{within} seconds between the first and the last");
    follow(&world, 6, "web", 6).await;
    let commands = world.decisions();
    assert_eq!(commands.len(), 6, "{commands:#?}");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_protects_a_pod_protects_its_node_unless_the_drain_is_bounded() {
    for bound in [None, Some("300s")] {
        let world = World::start().await;
        let template = match bound {
            None => json!({}),
            Some(bound) => json!({"spec": {"terminationGracePeriod": bound}}),
        };
        world.pool(one_at_a_time(), template).await;
        let mut kept = apart();
        kept["metadata"]["annotations"] = json!({"karpenter.sh/do-not-disrupt": "true"});
        world.deploy("kept", 1, 900, kept).await;
        world.until_running("kept", 1).await;
        world.until_settled(1).await;
        let before = world.claim_names().await;
        drift(&world).await;
        if bound.is_some() {
            follow(&world, 1, "kept", 1).await;
            assert!(world.claim_names().await.is_disjoint(&before));
        } else {
            world.sleep(900).await;
            assert_eq!(world.claim_names().await, before);
            assert!(world.nodes().await.iter().all(|node| !is_closed(node)));
            let told = world.events("DisruptionBlocked").await;
            assert!(told.iter().any(|(_, text)| text.starts_with("Pod has \"karpenter.sh/do-not-disrupt\"")));
            let standings = world.operator.context().standings.entries(None);
            assert_eq!(standings[0].standing, "PodAnnotated", "{standings:?}");
            // The annotation goes, and so does the node.
            let pods = world.pods().await;
            let name = pods[0].metadata.name.clone().expect("a name");
            let patch = json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": null}}});
            let api = world.api::<Pod>();
            api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await.expect("patched");
            world
                .until("it goes", async || world.claim_names().await, |names| names.is_disjoint(&before))
                .await;
        }
        world.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_budget_that_allows_nothing_blocks_drift() {
    let world = World::start().await;
    world.pool(one_at_a_time(), json!({})).await;
    world.deploy("web", 2, 900, apart()).await;
    world.pod_budget("web", json!({"minAvailable": 2})).await;
    world.until_running("web", 2).await;
    world.until_settled(2).await;
    let before = world.claim_names().await;
    drift(&world).await;
    world.sleep(600).await;
    assert_eq!(world.claim_names().await, before);
    let told = world.events("DisruptionBlocked").await;
    let words = "Pdb prevents pod evictions (PodDisruptionBudget=[default/web])";
    assert!(told.iter().any(|(_, text)| text == words), "{told:?}");
    world.stop().await;
}

/// Three nodes drift; with the budget of a pool that says nothing about it, one is tried at a time.
#[tokio::test(start_paused = true)]
async fn a_replacement_that_never_registers_is_given_up_and_the_old_node_opened_again() {
    let world = World::start().await;
    world.pool(json!({"consolidateAfter": "Never"}), json!({})).await;
    world.deploy("web", 3, 900, apart()).await;
    world.until_running("web", 3).await;
    world.until_settled(3).await;
    let before = world.claim_names().await;
    let most = Watched::<Node>::begin(&world, is_closed).await;
    world.cloud.change_faults(|faults| faults.registration = Registration::Never);
    drift(&world).await;
    let closed = async || node_names(world.nodes().await.iter().filter(|node| is_closed(node)));
    let first = world.until("one is closed", &closed, |closed| closed.len() == 1).await;
    let started = world.seconds();
    world.until("it is open again", &closed, |closed| closed.is_disjoint(&first)).await;
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
        kept.into_iter().all(|claim| status_of(claim, "DisruptionReason").is_empty() && !is_ending(claim))
    );
    let failures = "karpenter_voluntary_disruption_queue_failures_total{consolidation_type=\"\",\
        decision=\"replace\",reason=\"drifted\"}";
    assert_eq!(world.metric(failures), Some(1.0));
    // It works as soon as machines register again.
    world.cloud.change_faults(|faults| faults.registration = Registration::Normal);
    follow(&world, 3, "web", 3).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_replacement_that_is_lost_ends_the_command_at_once() {
    let world = World::start().await;
    world.pool(json!({"consolidateAfter": "Never"}), json!({})).await;
    world.deploy("web", 1, 900, apart()).await;
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
    assert!(world.nodes().await.iter().all(|node| !is_closed(node)), "open again within a moment");
    let provisioned = "karpenter_nodeclaims_created_total{min_values_relaxed=\"false\",nodepool=\"general\",\
        reason=\"provisioned\"}";
    assert_eq!(world.metric(provisioned), Some(1.0), "nobody launched for pods that stay");
    follow(&world, 1, "web", 1).await;
    world.stop().await;
}
