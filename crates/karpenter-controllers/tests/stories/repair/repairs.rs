//! Tests of node repair as a disruption method: which unhealthy nodes are replaced or rebooted.

use std::collections::BTreeSet;

use karpenter_api::types::{NodeClaim, NodePool};
use karpenter_kwok::{REBOOT_REQUIRED, UNHEALTHY};
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::repair::world::{World, boot_id, condition_of, gates};

const REPAIR: &str = "NodeRepair=true";

/// A cluster with five nodes that run one pod each.
async fn five_nodes(pool: Value, template: Value) -> (World, Vec<String>) {
    let world = World::start(gates(REPAIR)).await;
    world.pool("general", pool).await;
    world.spread("web", 5, template).await;
    let initialized = async || {
        let claims = world.claims().await;
        claims
            .into_iter()
            .filter(|(_, claim)| condition_of(claim, "Initialized").0 == "True")
            .map(|(name, _)| name)
            .collect()
    };
    let names: Vec<String> =
        world.until("five nodes", initialized, |names: &Vec<String>| names.len() == 5).await;
    (world, names)
}

async fn inject_condition(world: &World, claim: &str, condition: &str) -> String {
    let node = world.node_of(claim).await;
    world.kwok.inject_condition(&node, condition, "True", "Injected").await.expect("written");
    node
}

async fn names(world: &World) -> BTreeSet<String> {
    world.claims().await.into_keys().collect()
}

#[tokio::test(start_paused = true)]
async fn unhealthy_node_is_deleted_after_its_replacement_is_created() {
    let (world, claims) = five_nodes(json!({}), json!({})).await;
    let unhealthy = &claims[2];
    inject_condition(&world, unhealthy, UNHEALTHY).await;
    world.after(25).await;
    assert_eq!(names(&world).await, claims.iter().cloned().collect(), "its toleration has not passed");
    let before = async || {
        let now = world.claims().await;
        let is_deleting = now.get(unhealthy).is_none_or(|claim| claim.metadata.deletion_timestamp.is_some());
        (now.len(), is_deleting)
    };
    let (count, _) =
        world.until("the unhealthy claim is terminating", before, |(_, is_deleting)| *is_deleting).await;
    assert!(count >= 5, "its replacement exists");
    world.until("it is deleted", async || world.claim(unhealthy).await, Option::is_none).await;
    world.until_running(5).await;
    let now = names(&world).await;
    assert_eq!(now.len(), 5);
    assert_eq!(claims.iter().filter(|name| now.contains(*name)).count(), 4, "other nodes are not disrupted");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn repair_stops_while_too_many_nodes_are_unhealthy() {
    let (world, claims) = five_nodes(json!({}), json!({})).await;
    let first = inject_condition(&world, &claims[0], UNHEALTHY).await;
    inject_condition(&world, &claims[1], UNHEALTHY).await;
    world.after(180).await;
    assert_eq!(names(&world).await, claims.iter().cloned().collect());
    let events = world.events("NodeRepairBlocked").await;
    assert!(events.iter().any(|(_, message)| message.contains("are unhealthy")), "{events:?}");
    world.kwok.remove_condition(&first, UNHEALTHY).await.expect("written");
    world.until("the other claim is deleted", async || world.claim(&claims[1]).await, Option::is_none).await;
    assert!(world.claim(&claims[0]).await.is_some());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn budget_and_do_not_repair_block_repair_and_do_not_disrupt_does_not() {
    let closed = json!({"disruption": {"budgets": [{"nodes": "0", "reasons": ["Unhealthy"]}]}});
    let (world, claims) = five_nodes(closed, json!({})).await;
    let unhealthy = &claims[0];
    let node = inject_condition(&world, unhealthy, UNHEALTHY).await;
    world.after(120).await;
    assert!(world.claim(unhealthy).await.is_some(), "no budget");
    let veto = |value: Value| json!({"metadata": {"annotations": {"karpenter.sh/do-not-repair": value}}});
    world.merge::<k8s_openapi::api::core::v1::Node>(&node, veto(json!("true"))).await;
    let open = json!({"spec": {"disruption": {"budgets": [{"nodes": "100%"}]}}});
    world.merge::<NodePool>("general", open).await;
    world.after(120).await;
    assert!(world.claim(unhealthy).await.is_some(), "do-not-repair");
    let events = world.events("DisruptionBlocked").await;
    assert!(events.iter().any(|(_, message)| message.contains("karpenter.sh/do-not-repair")), "{events:?}");
    let wish = json!({"metadata": {"annotations": {"karpenter.sh/do-not-repair": null, "karpenter.sh/do-not-disrupt": "true"}}});
    world.merge::<k8s_openapi::api::core::v1::Node>(&node, wish).await;
    world.until("it is deleted", async || world.claim(unhealthy).await, Option::is_none).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn do_not_disrupt_pod_runs_until_the_grace_period_of_the_policy() {
    let keep = json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}});
    let (world, claims) = five_nodes(json!({}), keep).await;
    let unhealthy = &claims[0];
    let node = inject_condition(&world, unhealthy, UNHEALTHY).await;
    let is_deleting = |claim: &Option<NodeClaim>| {
        claim.as_ref().is_none_or(|claim| claim.metadata.deletion_timestamp.is_some())
    };
    world.until("it is deleted", async || world.claim(unhealthy).await, is_deleting).await;
    world.after(30).await;
    assert!(world.node(&node).await.is_some(), "the policy has a termination grace period of 45 s");
    let since = world.seconds();
    world.until("it is deleted", async || world.node(&node).await, Option::is_none).await;
    assert!(world.seconds() - since < 120, "within two minutes");
    world.stop().await;
}

/// The policy has a termination grace period of 45 s; a NodePool may have a shorter one.
#[tokio::test(start_paused = true)]
async fn shorter_termination_grace_period_of_policy_and_nodepool_applies() {
    for (of_pool, bound) in [("1m", 45), ("35s", 35)] {
        let keep = json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}});
        let pool = json!({"template": {"spec": {"terminationGracePeriod": of_pool}}});
        let (world, claims) = five_nodes(pool, keep).await;
        let unhealthy = &claims[0];
        let node = inject_condition(&world, unhealthy, UNHEALTHY).await;
        let ending =
            async || world.claim(unhealthy).await.filter(|claim| claim.metadata.deletion_timestamp.is_some());
        let claim = world.until("it is deleted", ending, Option::is_some).await.expect("a claim");
        let began = world.seconds();
        let annotations = claim.metadata.annotations.clone().unwrap_or_default();
        let until = annotations.get("karpenter.sh/nodeclaim-termination-timestamp").expect("a bound");
        let until: jiff::Timestamp = until.parse().expect("a time");
        let deleted = claim.metadata.deletion_timestamp.expect("it is deleted").0;
        let granted = until.duration_since(deleted).as_secs();
        assert!((bound - 1..=bound).contains(&granted), "{of_pool}: {granted}");
        while world.seconds() - began < 30 {
            let pod = world.pod_on(&node).await;
            let is_well = pod.is_some_and(|pod| pod.metadata.deletion_timestamp.is_none());
            assert!(is_well && world.node(&node).await.is_some(), "{of_pool}: {}", world.seconds() - began);
            world.after(1).await;
        }
        world.until("it is deleted", async || world.node(&node).await, Option::is_none).await;
        let took = world.seconds() - began;
        assert!((bound..=bound + 15).contains(&took), "{of_pool}: {took}");
        world.until_running(5).await;
        world.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn not_ready_node_is_replaced_after_ten_minutes() {
    for status in ["False", "Unknown"] {
        let (world, claims) = five_nodes(json!({}), json!({})).await;
        let node = world.node_of(&claims[0]).await;
        let freeze = json!({"metadata": {"labels": {"kwok.x-k8s.io/stage": "unhealthy"}}});
        world.merge::<k8s_openapi::api::core::v1::Node>(&node, freeze).await;
        world.kwok.inject_condition(&node, "Ready", status, "Injected").await.expect("written");
        world.after(590).await;
        assert!(world.claim(&claims[0]).await.is_some(), "{status}: not yet");
        world.until("it is deleted", async || world.claim(&claims[0]).await, Option::is_none).await;
        world.until_running(5).await;
        world.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn node_is_replaced_after_two_reboots() {
    let (world, claims) = five_nodes(json!({}), json!({})).await;
    let unhealthy = &claims[0];
    let node = inject_condition(&world, unhealthy, REBOOT_REQUIRED).await;
    let began = world.seconds();
    let mut boots = BTreeSet::new();
    loop {
        let Some(found) = world.node(&node).await else { break };
        boots.insert(boot_id(&found));
        assert!(world.claims().await.len() <= 6);
        world.after(5).await;
        assert!(world.seconds() - began < 35 * 60, "after 35 minutes: {boots:?}");
    }
    boots.remove("");
    assert_eq!(boots.len(), 2, "{boots:?}");
    world.until_running(5).await;
    assert!(!names(&world).await.contains(unhealthy));
    let succeeded = world.operator.context().metrics.nodes_reboots.with_label_values(&["succeeded"]).get();
    assert_eq!(succeeded, 2);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn budget_of_one_allows_one_reboot_at_a_time() {
    let one = json!({"disruption": {"budgets": [{"nodes": "1"}]}});
    let world = World::start(gates(REPAIR)).await;
    world.pool("general", one).await;
    world.spread("web", 10, json!({})).await;
    let claims: Vec<String> = world.claims().await.into_keys().collect();
    for claim in &claims[..2] {
        inject_condition(&world, claim, REBOOT_REQUIRED).await;
    }
    let mut most = 0;
    let mut rebooted = BTreeSet::new();
    for _ in 0..600 {
        let now = world.claims().await;
        let is = |claim: &NodeClaim, status: &str| condition_of(claim, "Rebooting").0 == status;
        most = most.max(now.values().filter(|claim| is(claim, "True")).count());
        for (name, claim) in now.iter().filter(|(_, claim)| is(claim, "False")) {
            if rebooted.insert(name.clone()) {
                world
                    .kwok
                    .remove_condition(&world.node_of(&claim.name_any()).await, REBOOT_REQUIRED)
                    .await
                    .expect("written");
            }
        }
        if rebooted.len() == 2 {
            break;
        }
        world.after(1).await;
    }
    assert_eq!((most, rebooted.len()), (1, 2));
    assert_eq!(names(&world).await, claims.iter().cloned().collect(), "no claim is replaced");
    world.stop().await;
}
