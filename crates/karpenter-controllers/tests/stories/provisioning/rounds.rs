//! Rounds: which pods make claims, how many, and what is said about the others.

use karpenter_api::types::NodeClaim;
use karpenter_model::quantity::Quantity;
use serde_json::json;

use crate::provisioning::world::{World, instance_types, values_of};

fn requested_cpu(claims: &[NodeClaim]) -> Quantity {
    let requests = claims.iter().filter_map(|claim| claim.spec.resources.as_ref()?.requests.as_ref());
    requests.filter_map(|requests| requests.get("cpu").copied()).sum()
}

#[tokio::test(start_paused = true)]
async fn ten_pods_become_claims_in_one_batch_and_no_more_follow() {
    let world = World::start().await;
    let pool = world.pool("general", json!({})).await;
    world.pods(10).await;
    world.pass(3).await;
    let claims = world.claims().await;
    assert!(!claims.is_empty(), "one second of quiet ends the batch");
    assert_eq!(requested_cpu(&claims), "10".parse().expect("a quantity"));
    for claim in &claims {
        assert!(claim.metadata.name.as_deref().expect("a name").starts_with("general-"));
        let owner = &claim.metadata.owner_references.as_ref().expect("an owner")[0];
        assert_eq!((owner.kind.as_str(), Some(&owner.uid)), ("NodePool", pool.metadata.uid.as_ref()));
        assert!(!instance_types(claim).is_empty());
        assert_eq!(values_of(claim, "karpenter.sh/capacity-type"), ["on-demand"]);
        assert_eq!(
            claim.metadata.annotations.as_ref().expect("some")["karpenter.sh/nodepool-hash-version"],
            "v3"
        );
    }
    assert_eq!(world.events("Nominated").await.len(), 10);
    let journal = world.context.journal.entries_after(0);
    assert_eq!(journal.len(), 1, "{journal:#?}");
    assert!(journal[0].revision > 0 && journal[0].cost_after_per_hour > journal[0].cost_before_per_hour);

    // Nobody launches the claims; they are still the pods' places.
    world.pass(120).await;
    assert_eq!(world.claims().await.len(), claims.len());

    // Further pods need further claims, for themselves only.
    for number in 10..20 {
        world.pod(&format!("p{number}"), json!({})).await;
    }
    world.pass(5).await;
    let all = world.claims().await;
    assert!(all.len() > claims.len());
    world.pass(60).await;
    assert_eq!(world.claims().await.len(), all.len());
}

#[tokio::test(start_paused = true)]
async fn a_launched_claim_keeps_its_pods_too() {
    let world = World::start().await;
    world.pool("general", json!({})).await;
    world.pods(5).await;
    world.pass(3).await;
    let claims = world.claims().await;
    for claim in &claims {
        world.launch(claim).await;
    }
    world.pass(60).await;
    assert_eq!(world.claims().await.len(), claims.len());
}

#[tokio::test(start_paused = true)]
async fn limits_are_respected_over_several_rounds() {
    let world = World::start().await;
    world.pool("general", json!({"limits": {"cpu": "8"}})).await;
    let kwok = karpenter_catalog::kwok::generic();
    let largest_cpu = |claim: &NodeClaim| {
        let options = instance_types(claim);
        let sold = kwok.iter().filter(|one| options.iter().any(|name| **name == *one.name));
        sold.map(|one| one.capacity.get("cpu")).max().expect("an option")
    };
    for batch in 0..3 {
        for number in 0..5 {
            world.pod(&format!("p{batch}-{number}"), json!({})).await;
        }
        world.pass(15).await;
        let claims = world.claims().await;
        assert!(!claims.is_empty());
        assert!(claims.iter().map(largest_cpu).sum::<i64>() <= 8_000, "{claims:#?}");
    }
    let failed = world.events("FailedScheduling").await;
    assert!(failed.iter().any(|line| line.contains("exceed limits for nodepool")), "{failed:?}");
}

#[tokio::test(start_paused = true)]
async fn a_pod_without_a_place_hears_why_once() {
    let world = World::start().await;
    world.pool("general", json!({})).await;
    world
        .pod(
            "huge",
            json!({"spec": {"containers": [{"name": "c", "image": "i",
        "resources": {"requests": {"cpu": "5000"}}}]}}),
        )
        .await;
    world.pod("nowhere", json!({"spec": {"nodeSelector": {"topology.kubernetes.io/zone": "moon"}}})).await;
    world
        .pod(
            "alone",
            json!({"spec": {"affinity": {"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [
            {"key": "karpenter.sh/nodepool", "operator": "DoesNotExist"}]}]}}}}}),
        )
        .await;
    world.pass(120).await;
    assert_eq!(world.claims().await, []);
    let failed = world.events("FailedScheduling").await;
    assert_eq!(failed.len(), 2, "{failed:#?}");
    assert!(failed[0].starts_with("huge: Failed to schedule pod, "), "{failed:#?}");
    assert!(failed[0].contains("cpu 5k wanted"), "{failed:#?}");
    assert!(failed[1].starts_with("nowhere: ") && failed[1].contains("moon"), "{failed:#?}");
    assert_eq!(world.context.journal.entries_after(0).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn pods_that_nobody_refused_make_no_claims() {
    let world = World::start().await;
    world.pool("general", json!({})).await;
    world.pod("gated", json!({"spec": {"schedulingGates": [{"name": "wait"}]}})).await;
    world.pod("other", json!({"spec": {"schedulerName": "somebody-else"}})).await;
    world.pass(60).await;
    assert_eq!(world.claims().await, []);
    assert_eq!(world.events("FailedScheduling").await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn pools_are_used_only_while_they_may_launch() {
    let world = World::start().await;
    let pool = world.pool("general", json!({})).await;
    world.set_ready(&pool, "False").await;
    world.pool("fixed", json!({"replicas": 1})).await;
    let foreign = json!({"group": "example.com", "kind": "Other", "name": "x"});
    world.pool("foreign", json!({"template": {"spec": {"nodeClassRef": foreign}}})).await;
    world.pods(1).await;
    world.pass(30).await;
    assert_eq!(world.claims().await, []);
    let failed = world.events("FailedScheduling").await;
    assert!(failed[0].ends_with("no dynamic nodepools found"), "{failed:?}");
    world.set_ready(&pool, "True").await;
    world.pass(2).await;
    assert_eq!(world.claims().await.len(), 1, "a pool that became ready is tried at once");
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_matches_nothing_is_told_so() {
    let world = World::start().await;
    let requirement = json!({"key": "kubernetes.io/arch", "operator": "In", "values": ["riscv"]});
    world.pool("empty", json!({"template": {"spec": {"requirements": [requirement]}}})).await;
    world.pods(1).await;
    world.pass(5).await;
    let events = world.events("NoCompatibleInstanceTypes").await;
    assert_eq!(events, ["empty: NodePool requirements filtered out all compatible available instance types"]);
}

#[tokio::test(start_paused = true)]
async fn claims_that_fail_again_and_again_are_made_ever_more_slowly() {
    let world = World::start().await;
    world.pool("general", json!({})).await;
    world.pods(3).await;
    let mut made = 0;
    let started = world.context.clock.now();
    for _ in 0..600 {
        for claim in world.claims().await {
            made += 1;
            world.delete_claim(claim.metadata.name.as_deref().expect("a name")).await;
        }
        world.pass(1).await;
    }
    let minutes = world.context.clock.now().duration_since(started).as_mins();
    assert_eq!(minutes, 10);
    assert!((3..=10).contains(&made), "{made} claims in ten minutes");
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_node_that_leaves_get_a_claim_before_they_are_evicted() {
    let world = World::start().await;
    world.pool("general", json!({})).await;
    world.deployment("web", 3).await;
    world.pass(5).await;
    let claims = world.claims().await;
    assert_eq!(claims.len(), 1);
    let old = claims[0].metadata.name.clone().expect("a name");
    world.launch(&claims[0]).await;
    world.open(&old).await;
    world.pass(20).await;
    assert_eq!(world.pods_on(&old).await.len(), 3);
    assert_eq!(world.context.state.reservations(), []);

    world.start_deleting_claim(&old).await;
    world.taint(&old, json!({"key": "karpenter.sh/disrupted", "effect": "NoSchedule"})).await;
    world.pass(5).await;
    let new: Vec<NodeClaim> =
        world.claims().await.into_iter().filter(|claim| claim.metadata.name.as_ref() != Some(&old)).collect();
    assert_eq!(new.len(), 1, "while the pods still run");
    assert_eq!(world.pods_on(&old).await.len(), 3);
    let planned = world.context.state.reservations_on(new[0].metadata.name.as_deref().expect("a name"));
    assert_eq!(planned.len(), 3);

    // They come back under other names, and take the places of their predecessors.
    for pod in world.pods_on(&old).await {
        world.delete_pod(pod.metadata.name.as_deref().expect("a name")).await;
        world.pass(2).await;
    }
    world.pass(30).await;
    assert_eq!(world.claims().await.len(), 2);
    let returned = world.context.state.reservations_on(new[0].metadata.name.as_deref().expect("a name"));
    assert_eq!(returned.len(), 3);
    assert!(returned.iter().all(|place| planned.iter().all(|before| before.uid != place.uid)));
}

#[tokio::test(start_paused = true)]
async fn a_restart_finds_claims_in_flight_and_makes_no_others() {
    let mut world = World::start().await;
    let four = json!({"key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["4"]});
    world.pool("general", json!({"template": {"spec": {"requirements": [four]}}})).await;
    world.pods(10).await;
    world.pass(3).await;
    let claims = world.claims().await;
    assert!(claims.len() > 2);
    world.restart().await;
    world.pass(60).await;
    assert_eq!(world.claims().await.len(), claims.len(), "none of them launched");
    world.launch(&claims[0]).await;
    world.restart().await;
    world.pass(60).await;
    assert_eq!(world.claims().await.len(), claims.len(), "one of them launched");
    assert_eq!(world.context.state.reservations().len(), 10, "the pods have places again");
}

#[tokio::test(start_paused = true)]
async fn a_thousand_pods_are_planned_within_one_batch() {
    let world = World::start().await;
    world.pool("general", json!({})).await;
    world.deployment("web", 1000).await;
    world.pass(30).await;
    let claims = world.claims().await;
    assert_eq!(requested_cpu(&claims), "1000".parse().expect("a quantity"));
    assert_eq!(world.context.state.reservations().len(), 1000);
    let journal = world.context.journal.entries_after(0);
    assert!(journal.len() <= 2, "{journal:#?}");
}

#[tokio::test(start_paused = true)]
async fn claims_that_could_not_be_created_are_created_later_and_only_those() {
    let world = World::start_failing(3, |_| {}).await;
    let four = json!({"key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["4"]});
    world.pool("general", json!({"template": {"spec": {"requirements": [four]}}})).await;
    world.pods(10).await;
    world.pass(60).await;
    let claims = world.claims().await;
    assert_eq!(claims.len(), 4, "three pods each");
    let first = &world.context.journal.entries_after(0)[0].what;
    assert!(first.starts_with("launch 1 of 4 nodes for 10 pods"), "{first}");
    assert_eq!(world.context.state.reservations().len(), 10);
}
