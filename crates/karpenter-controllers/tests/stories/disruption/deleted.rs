//! Tests of deleted NodeClaims and NodePools: their nodes are drained within the terminationGracePeriod, and a deleted
//! NodePool launches no nodes.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use karpenter_api::types::{NodeClaim, NodePool};
use kube::api::DeleteParams;
use serde_json::json;

use crate::disruption::support::{PeakCount, anti_affinity};
use crate::disruption::world::{World, has_disrupted_taint, is_of, is_running, label, node_of};

#[tokio::test(start_paused = true)]
async fn deleted_claim_is_drained_within_termination_grace_period() {
    let world = World::start().await;
    let bound = json!({"spec": {"terminationGracePeriod": "60s"}});
    world.pool(json!({"consolidateAfter": "Never"}), bound).await;
    let kept = json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}},
        "spec": {"terminationGracePeriodSeconds": 30}});
    world.deploy("kept", 1, 600, kept).await;
    let pod = world.until_running("kept", 1).await.remove(0);
    world.until_settled(1).await;
    let (node, claim) = (node_of(&pod), world.claim_names().await.pop_first().expect("a claim"));
    world.delete::<NodeClaim>(&claim).await;
    let began = world.clock.now();
    let passed = || world.clock.now().duration_since(began).as_secs();
    let tainted = async || world.node(&node).await.is_none_or(|node| has_disrupted_taint(&node));
    world.until("the node is tainted", tainted, |tainted| *tainted).await;
    assert!(passed() <= 3, "{}", passed());

    let found = world.claim(&claim).await.expect("it is drained");
    let annotations = found.metadata.annotations.unwrap_or_default();
    let by = annotations.get("karpenter.sh/nodeclaim-termination-timestamp").expect("a deadline");
    let deleted = found.metadata.deletion_timestamp.expect("it is deleted").0;
    assert_eq!(by.parse::<Timestamp>().expect("a time").duration_since(deleted).as_secs(), 60);
    let events = world.events("TerminationGracePeriodExpiring").await;
    assert!(events.contains(&(claim.clone(), format!("All pods will be deleted by {by}"))), "{events:?}");

    let first = async || {
        let pods = world.pods().await;
        pods.into_iter().find(|one| one.metadata.uid == pod.metadata.uid && is_running(one))
    };
    while passed() < 25 {
        assert!(first().await.is_some(), "after {} s", passed());
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    world.until("the pod is deleted when its own grace period requires it", first, Option::is_none).await;
    assert!((29..=33).contains(&passed()), "{}", passed());
    world.until("the node is removed", async || world.node(&node).await, Option::is_none).await;
    world.until("the claim is removed", async || world.claim(&claim).await, Option::is_none).await;
    assert!(passed() <= 75, "{}", passed());
    world.stop().await;
}

/// Deletes a NodePool with three nodes, with the propagation policy in `params`. If `has_other` is true, the pods fit
/// into another NodePool.
async fn delete_nodepool(params: &DeleteParams, has_other: bool) {
    let world = World::start().await;
    let never = json!({"consolidateAfter": "Never"});
    world.pool_of(json!({"weight": 10, "disruption": never})).await;
    if has_other {
        world.pool_named("other", json!({"disruption": never})).await;
    }
    world.deploy("web", 3, 900, anti_affinity()).await;
    if has_other {
        world.pod_budget("web", json!({"maxUnavailable": 1})).await;
    }
    world.until_running("web", 3).await;
    world.until_settled(3).await;
    let before = world.claim_names().await;
    let known = before.clone();
    let is_new = move |claim: &NodeClaim| {
        label(claim, "karpenter.sh/nodepool") == "general"
            && claim.metadata.name.as_ref().is_some_and(|name| !known.contains(name))
    };
    let new = PeakCount::<NodeClaim>::begin(&world, is_new).await;
    world.all::<NodePool>().delete("general", params).await.expect("deleted");
    let began = world.seconds();
    let mut names: BTreeSet<String> = before.clone();
    while !names.is_empty() {
        let there: BTreeSet<String> =
            world.claims().await.into_iter().filter_map(|claim| claim.metadata.name).collect();
        names = &names & &there;
        let running = world.pods().await.iter().filter(|pod| is_of(pod, "web") && is_running(pod)).count();
        assert!(!has_other || running >= 2, "one may be missing: {running} run");
        assert!(world.seconds() - began < 900, "{params:?}: {names:?} are never removed");
        world.sleep(1).await;
    }
    if has_other {
        world.until_settled(3).await;
        world.until_running("web", 3).await;
        let claims = world.claims().await;
        assert!(claims.iter().all(|claim| label(claim, "karpenter.sh/nodepool") == "other"), "{claims:#?}");
    }
    world.sleep(600).await;
    assert_eq!(world.claims().await.len(), if has_other { 3 } else { 0 });
    assert_eq!(world.nodes().await.len(), if has_other { 3 } else { 0 });
    assert_eq!(new.most(), 0, "{params:?}: claims of a deleted NodePool");
    let pools = world.list::<NodePool>().await;
    assert_eq!(pools.len(), usize::from(has_other), "{params:?}");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn pods_of_deleted_nodepool_move_to_another_nodepool() {
    for params in [DeleteParams::background(), DeleteParams::foreground()] {
        delete_nodepool(&params, true).await;
    }
}

#[tokio::test(start_paused = true)]
async fn deleted_nodepool_launches_nothing() {
    for params in [DeleteParams::background(), DeleteParams::foreground()] {
        delete_nodepool(&params, false).await;
    }
}
