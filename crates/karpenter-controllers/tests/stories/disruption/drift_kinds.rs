//! Tests of which changes of a NodePool cause drift, and of what blocks the replacement of drifted nodes.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Node, Taint};
use karpenter_api::types::NodePool;
use serde_json::{Value, json};

use crate::disruption::support::{PeakCount, anti_affinity, drift};
use crate::disruption::world::{World, has_disrupted_taint, is_initialized, label, node_names, status_of};
use crate::embedded::condition_of;

/// A pod that tolerates every taint that these tests use.
fn tolerant() -> Value {
    json!({"spec": {"tolerations": [{"key": "example.com/drift", "operator": "Exists"}]}})
}

fn taints_of(node: &Node) -> Vec<Taint> {
    node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default()
}

/// Changes the template and waits until the only node is replaced by one that satisfies `is_as_wanted`.
async fn replaced(template: Value, is_as_wanted: impl Fn(&Node) -> bool) {
    let world = World::start().await;
    let disruption = json!({"consolidateAfter": "Never", "budgets": [{"nodes": "100%"}]});
    world.pool(disruption, json!({})).await;
    world.deploy("web", 1, 600, tolerant()).await;
    world.until_running("web", 1).await;
    world.until_settled(1).await;
    let before = world.claim_names().await;
    world.merge::<NodePool>("general", json!({"spec": {"template": template}})).await;
    let is_other = async || world.claim_names().await.is_disjoint(&before);
    world.until("another claim", is_other, |is_other| *is_other).await;
    world.until_settled(1).await;
    world.until_running("web", 1).await;
    let nodes = world.nodes().await;
    assert!(is_as_wanted(&nodes[0]), "{template}: {:#?}", nodes[0]);
    assert_eq!(world.decisions().len(), 1, "{template}: {:#?}", world.decisions());
    world.sleep(300).await;
    assert!(world.claims().await.iter().all(|claim| status_of(claim, "Drifted") != "True"), "{template}");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn changed_annotations_cause_drift() {
    replaced(json!({"metadata": {"annotations": {"example.com/drift": "yes"}}}), |node| {
        let annotations = node.metadata.annotations.as_ref();
        annotations.and_then(|all| all.get("example.com/drift")).is_some_and(|value| value == "yes")
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn changed_labels_cause_drift() {
    replaced(json!({"metadata": {"labels": {"example.com/drift": "yes"}}}), |node| {
        label(node, "example.com/drift") == "yes"
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn changed_taints_cause_drift() {
    let taint = json!({"key": "example.com/drift", "value": "yes", "effect": "NoExecute"});
    replaced(json!({"spec": {"taints": [taint]}}), |node| {
        taints_of(node).iter().map(|taint| taint.key.as_str()).eq(["example.com/drift"])
    })
    .await;
}

/// The new node keeps a startup taint until the test removes it. The old node must exist until then.
#[tokio::test(start_paused = true)]
async fn changed_startup_taints_cause_drift_and_block_initialization() {
    let world = World::start().await;
    let disruption = json!({"consolidateAfter": "Never", "budgets": [{"nodes": "100%"}]});
    world.pool(disruption, json!({})).await;
    world.deploy("web", 1, 600, json!({})).await;
    world.until_running("web", 1).await;
    world.until_settled(1).await;
    let before = world.claim_names().await;
    let old = world.nodes().await.remove(0).metadata.name.expect("a name");
    let taint = json!({"key": "example.com/start", "value": "yes", "effect": "NoExecute"});
    let template = json!({"spec": {"template": {"spec": {"startupTaints": [taint]}}}});
    world.merge::<NodePool>("general", template).await;
    let new = async || {
        let nodes = world.nodes().await;
        nodes.into_iter().find(|node| node.metadata.name.as_ref() != Some(&old))
    };
    let bears_it_only = |node: &Option<Node>| {
        let taints = node.as_ref().map(taints_of).unwrap_or_default();
        let key_value_effect = |taint: &Taint| (taint.key.clone(), taint.value.clone(), taint.effect.clone());
        let wanted = ("example.com/start".to_owned(), Some("yes".to_owned()), "NoExecute".to_owned());
        taints.len() == 1 && key_value_effect(&taints[0]) == wanted
    };
    world.until("a node with the taint", &new, bears_it_only).await;
    world.sleep(300).await;
    let waiting = new().await;
    assert!(bears_it_only(&waiting), "{waiting:#?}");
    assert!(
        before.is_subset(&world.claim_names().await),
        "the old node stays until the replacement is initialized"
    );
    let claims = world.claims().await;
    let coming = claims.iter().find(|claim| !is_initialized(claim)).expect("the new one");
    assert_eq!(condition_of(coming, "Initialized").1, "StartupTaintsExist");
    let name = waiting.and_then(|node| node.metadata.name).expect("a name");
    world.merge::<Node>(&name, json!({"spec": {"taints": null}})).await;
    let is_other = async || world.claim_names().await.is_disjoint(&before);
    world.until("the old node is deleted", is_other, |is_other| *is_other).await;
    world.until_settled(1).await;
    world.until_running("web", 1).await;
    assert_eq!(taints_of(&world.nodes().await[0]), [], "the startup taint is not added again");
    assert_eq!(world.decisions().len(), 1, "{:#?}", world.decisions());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn drift_condition_is_set_within_five_seconds() {
    let world = World::start().await;
    world.pool(json!({"consolidateAfter": "Never", "budgets": [{"nodes": "0"}]}), json!({})).await;
    world.deploy("web", 10, 900, anti_affinity()).await;
    world.until_running("web", 10).await;
    world.until_settled(10).await;
    let drifted = async |reason: &str| {
        let claims = world.claims().await;
        claims.iter().filter(|claim| condition_of(claim, "Drifted") == ("True", reason.to_owned())).count()
    };
    let label = |value: Value| json!({"metadata": {"labels": {"generation": value}}});
    let spot = json!([{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]}]);
    for (template, reason, wanted) in [
        (label(json!("second")), "NodePoolDrifted", 10),
        (label(Value::Null), "NodePoolDrifted", 0),
        (json!({"spec": {"requirements": spot}}), "RequirementsDrifted", 10),
    ] {
        world.merge::<NodePool>("general", json!({"spec": {"template": template}})).await;
        let began = world.clock.now();
        world.until(reason, async || drifted(reason).await, |count| *count == wanted).await;
        let took = world.clock.now().duration_since(began);
        assert!(took.as_secs() < 5, "{template}: {took}");
    }
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn changed_requirements_cause_drift_independently_of_the_hash() {
    let is = |key: &str, values: &[&str]| json!({"key": key, "operator": "In", "values": values});
    let requirements = json!([
        is("karpenter.sh/capacity-type", &["spot"]),
        is("kubernetes.io/os", &["linux"]),
        is("kubernetes.io/arch", &["amd64"]),
        is("karpenter.kwok.sh/instance-family", &["s"]),
        is("karpenter.kwok.sh/instance-cpu", &["1", "2"]),
    ]);
    replaced(json!({"spec": {"requirements": requirements}}), |node| {
        label(node, "karpenter.sh/capacity-type") == "spot"
    })
    .await;
}

/// Three nodes drift. The default budget allows to disrupt one at a time.
#[tokio::test(start_paused = true)]
async fn replacement_that_never_initializes_is_kept_and_the_command_rolled_back() {
    let world = World::start().await;
    world.pool(json!({"consolidateAfter": "Never"}), json!({})).await;
    world.deploy("web", 3, 900, anti_affinity()).await;
    world.until_running("web", 3).await;
    world.until_settled(3).await;
    let before = world.claim_names().await;
    let most = PeakCount::<Node>::begin(&world, has_disrupted_taint).await;
    // This startup taint is never removed.
    let taint = json!({"key": "example.com/stuck", "effect": "PreferNoSchedule"});
    world
        .merge::<NodePool>("general", json!({"spec": {"template": {"spec": {"startupTaints": [taint]}}}}))
        .await;
    let tainted = async || node_names(world.nodes().await.iter().filter(|node| has_disrupted_taint(node)));
    let first = world.until("one node is tainted", &tainted, |tainted| tainted.len() == 1).await;
    let began = world.seconds();
    world.until("the taint is removed", &tainted, |tainted| tainted.is_disjoint(&first)).await;
    let took = world.seconds() - began;
    assert!((600..=660).contains(&took), "within eleven minutes: {took}");
    world.sleep(120).await;
    let claims = world.claims().await;
    assert!(before.is_subset(&world.claim_names().await), "{claims:#?}");
    let coming = claims.iter().filter(|claim| !is_initialized(claim)).count();
    assert_eq!((claims.len(), coming), (4, 1), "the only replacement stays");
    assert_eq!(world.until_running("web", 3).await.len(), 3);
    // After each failed command the hold-off is longer, also if another node is the next candidate.
    let mut tries = vec![began];
    for _ in 0..2 {
        world.until("one node is tainted", &tainted, |tainted| tainted.len() == 1).await;
        tries.push(world.seconds());
        world.until("the taint is removed", &tainted, BTreeSet::is_empty).await;
    }
    let waits: Vec<i64> = tries.windows(2).map(|pair| (pair[1] - pair[0]) / 60).collect();
    assert_eq!(waits, [25, 40], "ten minutes of timeout, then a hold-off of 15 and of 30 minutes");
    assert_eq!(most.most(), 1, "never two at once");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn pod_disruption_budget_with_unready_pods_blocks_drift() {
    let world = World::start().await;
    let disruption = json!({"consolidateAfter": "Never", "budgets": [{"nodes": "100%"}]});
    world.pool(disruption, json!({})).await;
    let mut unready = anti_affinity();
    unready["metadata"]["annotations"] = json!({"fake-kubelet/never-ready": "true"});
    world.deploy("web", 2, 900, unready).await;
    // The budget allows one pod to be unavailable. Both pods are unavailable already.
    world.pod_budget("web", json!({"minAvailable": 1})).await;
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
