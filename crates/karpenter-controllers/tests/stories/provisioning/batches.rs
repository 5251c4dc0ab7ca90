//! Tests of batches: which NodeClaims are created for which pods, and which events the other pods get.

use karpenter_api::types::NodeClaim;
use karpenter_model::quantity::Quantity;
use serde_json::json;

use crate::provisioning::world::{World, instance_types, values_of};

fn requested_cpu(claims: &[NodeClaim]) -> Quantity {
    let requests = claims.iter().filter_map(|claim| claim.spec.resources.as_ref()?.requests.as_ref());
    requests.filter_map(|requests| requests.get("cpu").copied()).sum()
}

#[tokio::test(start_paused = true)]
async fn one_batch_creates_nodeclaims_once_for_ten_pods() {
    let world = World::start().await;
    let pool = world.pool("general", json!({})).await;
    world.pods(10).await;
    world.pass(3).await;
    let claims = world.claims().await;
    assert!(!claims.is_empty(), "the batch closes after one idle second");
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

    // The NodeClaims are never launched in this test, but the pods keep their reservations on them.
    world.pass(120).await;
    assert_eq!(world.claims().await.len(), claims.len());

    // New NodeClaims are created only for the additional pods.
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
async fn launched_nodeclaim_keeps_its_reservations() {
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
async fn limits_are_respected_over_several_batches() {
    let world = World::start().await;
    world.pool("general", json!({"limits": {"cpu": "8"}})).await;
    let kwok = karpenter_catalog::kwok::generic();
    let largest_cpu = |claim: &NodeClaim| {
        let options = instance_types(claim);
        let types = kwok.iter().filter(|one| options.iter().any(|name| **name == *one.name));
        types.map(|one| one.capacity.get("cpu")).max().expect("an option")
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
async fn unschedulable_pod_gets_one_event_with_the_reason() {
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
async fn pods_that_are_not_marked_unschedulable_are_ignored() {
    let world = World::start().await;
    world.pool("general", json!({})).await;
    world.pod("gated", json!({"spec": {"schedulingGates": [{"name": "wait"}]}})).await;
    world.pod("other", json!({"spec": {"schedulerName": "other-scheduler"}})).await;
    world.pass(60).await;
    assert_eq!(world.claims().await, []);
    assert_eq!(world.events("FailedScheduling").await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn only_ready_dynamic_nodepools_of_the_provider_are_used() {
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
    let reasons = "cluster: no dynamic nodepools found; nodepool general: not ready";
    let fix = "correct what the conditions of NodePool general report";
    assert_eq!(failed[0], format!("p0: Failed to schedule pod, {reasons}; fix: {fix}"));
    world.set_ready(&pool, "True").await;
    world.pass(2).await;
    assert_eq!(world.claims().await.len(), 1, "a NodePool is used as soon as it is ready");
}

#[tokio::test(start_paused = true)]
async fn nodepool_without_instance_types_gets_an_event() {
    let world = World::start().await;
    let requirement = json!({"key": "kubernetes.io/arch", "operator": "In", "values": ["riscv"]});
    world.pool("empty", json!({"template": {"spec": {"requirements": [requirement]}}})).await;
    world.pods(1).await;
    world.pass(5).await;
    let events = world.events("NoCompatibleInstanceTypes").await;
    assert_eq!(events, ["empty: NodePool requirements filtered out all compatible available instance types"]);
}

#[tokio::test(start_paused = true)]
async fn repeated_launch_failures_back_off() {
    let world = World::start().await;
    world.pool("general", json!({})).await;
    world.pods(3).await;
    let mut created = 0;
    let started = world.context.clock.now();
    for _ in 0..600 {
        for claim in world.claims().await {
            created += 1;
            world.delete_claim(claim.metadata.name.as_deref().expect("a name")).await;
        }
        world.pass(1).await;
    }
    let minutes = world.context.clock.now().duration_since(started).as_mins();
    assert_eq!(minutes, 10);
    assert!((3..=10).contains(&created), "{created} claims in ten minutes");
}

#[tokio::test(start_paused = true)]
async fn pods_of_terminating_node_get_a_nodeclaim_before_eviction() {
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
    assert_eq!(new.len(), 1, "the pods still run");
    assert_eq!(world.pods_on(&old).await.len(), 3);
    let planned = world.context.state.reservations_on(new[0].metadata.name.as_deref().expect("a name"));
    assert_eq!(planned.len(), 3);

    // For each deleted pod, the Deployment creates a new one, which inherits the reservation.
    for pod in world.pods_on(&old).await {
        world.delete_pod(pod.metadata.name.as_deref().expect("a name")).await;
        world.pass(2).await;
    }
    world.pass(30).await;
    assert_eq!(world.claims().await.len(), 2);
    let returned = world.context.state.reservations_on(new[0].metadata.name.as_deref().expect("a name"));
    assert_eq!(returned.len(), 3);
    assert!(returned.iter().all(|reservation| planned.iter().all(|before| before.uid != reservation.uid)));
}

#[tokio::test(start_paused = true)]
async fn restarted_process_uses_in_flight_nodeclaims() {
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
    assert_eq!(world.context.state.reservations().len(), 10, "all pods have reservations again");
}

#[tokio::test(start_paused = true)]
async fn thousand_pods_are_planned_in_one_batch() {
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
async fn nodeclaims_that_failed_to_create_are_retried() {
    let world = World::start_failing(3, |_| {}).await;
    let four = json!({"key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["4"]});
    world.pool("general", json!({"template": {"spec": {"requirements": [four]}}})).await;
    world.pods(10).await;
    world.pass(60).await;
    let claims = world.claims().await;
    assert_eq!(claims.len(), 4, "three pods each");
    let first = &world.context.journal.entries_after(0)[0].what;
    assert!(first.starts_with("launched 1 of 4 nodes for 10 pods"), "{first}");
    assert_eq!(world.context.state.reservations().len(), 10);
}
