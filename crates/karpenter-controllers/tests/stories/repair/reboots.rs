//! Tests of reboots and their failures. The tests request reboots directly, without an unhealthy node.

use karpenter_cloud::CloudError;
use karpenter_controllers::claims::reboot_request;
use kube::ResourceExt;
use serde_json::json;

use crate::repair::world::{World, boot_id, condition_of, gates, has_taint, is_initialized};

const REBOOTING: &str = "karpenter.sh/rebooting";

struct RebootTarget {
    claim: String,
    node: String,
    id: String,
}

/// A cluster with one node that runs one pod.
async fn one_node(template: serde_json::Value) -> (World, RebootTarget) {
    let world = World::start(gates("")).await;
    world.pool("general", json!({})).await;
    world.spread("web", 1, template).await;
    let claims = world.claims().await;
    let claim = claims.keys().next().cloned().expect("a claim");
    let ready = |found: &Option<karpenter_api::types::NodeClaim>| {
        found.as_ref().is_some_and(|claim| condition_of(claim, "Initialized").0 == "True")
    };
    let found = world.until("it is initialized", async || world.claim(&claim).await, ready).await;
    let status = found.and_then(|claim| claim.status).expect("a status");
    let (node, id) = (status.node_name.expect("a node"), status.provider_id.expect("an id"));
    (world, RebootTarget { claim, node, id })
}

async fn request_reboot(world: &World, target: &RebootTarget, bound_secs: Option<i64>) {
    let claim = world.claim(&target.claim).await.expect("the claim");
    let context = world.operator.context();
    let (reads, client, history) = (context.reads(), &context.client, &context.repairs.history);
    let commit = |condition, bound| reboot_request::commit(&reads, client, history, &claim, condition, bound);
    let committed = commit("KWOKRebootRequired/Injected", bound_secs).await;
    assert!(committed.expect("written"), "a reboot was requested");
    assert!(!commit("again", None).await.expect("read"), "only once");
}

async fn until_condition(world: &World, target: &RebootTarget, status: &str, reason: &str) {
    let is = |found: &Option<karpenter_api::types::NodeClaim>| {
        found
            .as_ref()
            .is_some_and(|claim| condition_of(claim, "Rebooting") == (status_of(status), reason.to_owned()))
    };
    world.until(reason, async || world.claim(&target.claim).await, is).await;
}

fn status_of(text: &str) -> &'static str {
    match text {
        "True" => "True",
        "False" => "False",
        _ => "Unknown",
    }
}

fn count(world: &World, result: &str) -> u64 {
    world.operator.context().metrics.nodes_reboots.with_label_values(&[result]).get()
}

#[tokio::test(start_paused = true)]
async fn reboot_keeps_the_claim_and_the_node() {
    let (world, target) = one_node(json!({})).await;
    let before = world.node(&target.node).await.expect("the node");
    let pod = world.pod_on(&target.node).await.expect("its pod");
    let requested_at = world.seconds();
    request_reboot(&world, &target, Some(60)).await;
    let is_tainted = |node: &Option<k8s_openapi::api::core::v1::Node>| {
        node.as_ref().is_some_and(|node| has_taint(node, REBOOTING))
    };
    world.until("the node is tainted", async || world.node(&target.node).await, is_tainted).await;
    until_condition(&world, &target, "False", "RebootSucceeded").await;
    assert!(world.seconds() - requested_at >= 5, "the minimum drain time");
    let claim = world.claim(&target.claim).await.expect("the same claim");
    assert_eq!(claim.annotations().get("karpenter.sh/reboot-pre-boot-id"), None);
    world
        .until(
            "it is initialized again",
            async || world.node(&target.node).await,
            |node| node.as_ref().is_some_and(is_initialized),
        )
        .await;
    world.until_running(1).await;
    let after = world.node(&target.node).await.expect("the same node");
    assert_eq!(after.uid(), before.uid());
    assert_ne!(boot_id(&after), boot_id(&before));
    let uid = claim.uid().unwrap_or_default();
    assert!(boot_id(&after).starts_with(&format!("kwok-{uid}-")), "{}", boot_id(&after));
    assert!(!has_taint(&after, REBOOTING));
    let back = world.pod_on(&target.node).await.expect("a pod is back");
    assert_ne!(back.uid(), pod.uid(), "the old one was evicted");
    assert_eq!(world.claims().await.len(), 1, "nothing was launched meanwhile");
    let observed = world.events("RebootObserved").await;
    assert_eq!(observed.len(), 1, "{observed:?}");
    assert_eq!(count(&world, "succeeded"), 1);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn do_not_disrupt_pod_stays_on_the_node_during_the_reboot() {
    let keep = json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}});
    let (world, target) = one_node(keep).await;
    let before = boot_id(&world.node(&target.node).await.expect("the node"));
    let pod = world.pod_on(&target.node).await.expect("its pod");
    request_reboot(&world, &target, Some(60)).await;
    world.after(55).await;
    assert_eq!(
        boot_id(&world.node(&target.node).await.expect("the node")),
        before,
        "the drain bound of a minute has not passed"
    );
    until_condition(&world, &target, "False", "RebootSucceeded").await;
    world.after(60).await;
    let same = world.pod_on(&target.node).await.expect("its pod");
    assert_eq!(same.uid(), pod.uid());
    assert_eq!(world.claims().await.len(), 1);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn do_not_disrupt_pod_blocks_an_unlimited_drain() {
    let keep = json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}});
    let (world, target) = one_node(keep).await;
    request_reboot(&world, &target, None).await;
    world.after(3600).await;
    let claim = world.claim(&target.claim).await.expect("the claim");
    assert_eq!(condition_of(&claim, "Rebooting"), ("True", "RebootRequested".to_owned()));
    let pod = world.pod_on(&target.node).await.expect("its pod").name_any();
    let patch =
        kube::api::Patch::Merge(json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": null}}}));
    let pods = world.api::<k8s_openapi::api::core::v1::Pod>();
    pods.patch(&pod, &kube::api::PatchParams::default(), &patch).await.expect("patched");
    until_condition(&world, &target, "False", "RebootSucceeded").await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn rejected_reboot_replaces_the_node() {
    let refusals = [
        CloudError::RebootNotImplemented,
        CloudError::RebootFailed { message: "forbidden".to_owned() },
        CloudError::NotFound { message: "instance not found".to_owned() },
    ];
    for refusal in refusals {
        let (world, target) = one_node(json!({})).await;
        world.kwok.change_faults(|faults| faults.reboot_errors.push_back(refusal.clone()));
        request_reboot(&world, &target, Some(0)).await;
        world.until("the claim is deleted", async || world.claim(&target.claim).await, Option::is_none).await;
        world.until_running(1).await;
        assert!(!world.claims().await.contains_key(&target.claim));
        let events = world.events("RebootFailed").await;
        assert_eq!(events.len(), 1, "{refusal}: {events:?}");
        assert_eq!((count(&world, "provider_error"), count(&world, "succeeded")), (1, 0), "{refusal}");
        world.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn failed_reboot_calls_are_retried_for_five_minutes() {
    let (world, target) = one_node(json!({})).await;
    let stutter = |count: usize| {
        let error = CloudError::Transient { message: "again".to_owned() };
        world.kwok.change_faults(|faults| faults.reboot_errors.extend(vec![error; count]));
    };
    stutter(5);
    request_reboot(&world, &target, Some(0)).await;
    until_condition(&world, &target, "False", "RebootSucceeded").await;
    stutter(1000);
    world.after(60).await;
    let requested_at = world.seconds();
    request_reboot(&world, &target, Some(0)).await;
    world.until("the claim is deleted", async || world.claim(&target.claim).await, Option::is_none).await;
    assert!(world.seconds() - requested_at >= 300, "{}", world.seconds() - requested_at);
    assert_eq!((count(&world, "provider_error"), count(&world, "succeeded")), (1, 1));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn node_that_does_not_recover_is_replaced_after_twenty_minutes() {
    let (world, target) = one_node(json!({})).await;
    world.kwok.change_faults(|faults| faults.stuck_reboots.insert(target.id.clone()));
    request_reboot(&world, &target, Some(0)).await;
    until_condition(&world, &target, "True", "RebootIssued").await;
    let claim = world.claim(&target.claim).await.expect("the claim");
    assert_eq!(condition_of(&claim, "Initialized"), ("Unknown", "Rebooting".to_owned()));
    world.after(19 * 60).await;
    assert!(world.claim(&target.claim).await.is_some(), "a minute before the timeout");
    world.until("the claim is deleted", async || world.claim(&target.claim).await, Option::is_none).await;
    assert_eq!(count(&world, "recovery_timeout"), 1);
    let events = world.events("RebootFailed").await;
    let message = "node did not recover within the observation window".to_owned();
    assert_eq!(events, [(target.claim.clone(), message)]);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn invalid_request_does_not_disrupt_the_node() {
    let keep = json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}});
    let (world, target) = one_node(keep).await;
    request_reboot(&world, &target, None).await;
    let bad = json!({"metadata": {"annotations": {"karpenter.sh/reboot-termination-grace-period": "soon"}}});
    world.merge::<karpenter_api::types::NodeClaim>(&target.claim, bad).await;
    until_condition(&world, &target, "False", "RebootFailed").await;
    world.after(600).await;
    let node = world.node(&target.node).await.expect("the node stays");
    assert!(!has_taint(&node, REBOOTING) && is_initialized(&node));
    assert_eq!(count(&world, "invalid_request"), 1);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn reboot_continues_after_a_restart_of_the_controller() {
    let (world, target) = one_node(json!({})).await;
    world.kwok.change_faults(|faults| {
        let error = CloudError::Transient { message: "again".to_owned() };
        faults.reboot_errors.extend(vec![error; 3]);
    });
    request_reboot(&world, &target, Some(30)).await;
    let is_recorded = |found: &Option<karpenter_api::types::NodeClaim>| {
        let claim = found.as_ref();
        claim.is_some_and(|claim| claim.annotations().contains_key("karpenter.sh/reboot-pre-boot-id"))
    };
    world.until("the boot is recorded", async || world.claim(&target.claim).await, is_recorded).await;
    let world = world.restart().await;
    until_condition(&world, &target, "False", "RebootSucceeded").await;
    let claim = world.claim(&target.claim).await.expect("the same claim");
    let node = world.node(&target.node).await.expect("the same node");
    let expected = format!("kwok-{}-", claim.uid().unwrap_or_default());
    assert!(boot_id(&node).starts_with(&expected), "{}", boot_id(&node));
    assert_eq!(world.claims().await.len(), 1);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn deleted_claim_is_not_rebooted() {
    let keep = json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}});
    let (world, target) = one_node(keep).await;
    request_reboot(&world, &target, Some(600)).await;
    world.after(30).await;
    let params = kube::api::DeleteParams::default();
    world.all::<karpenter_api::types::NodeClaim>().delete(&target.claim, &params).await.expect("deleted");
    world.after(700).await;
    assert_eq!(boot_id(&world.node(&target.node).await.expect("held by its pod")), "", "not rebooted");
    assert_eq!(count(&world, "succeeded") + count(&world, "provider_error"), 0);
    world.stop().await;
}
