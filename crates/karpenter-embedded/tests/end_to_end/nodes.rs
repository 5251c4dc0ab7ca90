//! Tests of nodes that are created, fail and are deleted, and of their pods.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, EvictParams};
use serde_json::{Value, json};

use crate::world::World;

fn deployment(replicas: i32, spec: Value) -> Value {
    let mut pod = json!({"containers": [{"name": "c", "image": "i"}]});
    for (key, value) in spec.as_object().into_iter().flatten() {
        pod[key] = value.clone();
    }
    json!({"metadata": {"name": "web"}, "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": pod}}})
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn condition(node: &Node, kind: &str) -> Option<(String, String)> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    let found = conditions.iter().find(|condition| condition.type_ == kind)?;
    Some((found.status.clone(), found.reason.clone().unwrap_or_default()))
}

fn taints(node: &Node) -> Vec<String> {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
    let mut taints: Vec<String> =
        taints.iter().map(|taint| format!("{}:{}", taint.key, taint.effect)).collect();
    taints.sort();
    taints
}

fn nodes_of(pods: &[Pod]) -> Vec<String> {
    let mut nodes: Vec<String> = pods
        .iter()
        .filter(|pod| pod.metadata.deletion_timestamp.is_none() && is_ready(pod))
        .filter_map(|pod| pod.spec.as_ref()?.node_name.clone())
        .collect();
    nodes.sort();
    nodes
}

#[tokio::test(start_paused = true)]
async fn node_boots_and_stays_ready() {
    let world = World::start().await;
    world.node("slow", json!({"metadata": {"annotations": {"fake-kubelet/boot-seconds": "30"}}})).await;
    tokio::time::sleep(Duration::from_secs(29)).await;
    let get = async || world.all::<Node>().get("slow").await.expect("the node");
    assert_eq!(condition(&get().await, "Ready"), None);
    let ready = |node: &Node| condition(node, "Ready") == Some(("True".into(), "KubeletReady".into()));
    world.until("the node is ready", get, ready).await;
    world.until("its taints are gone", get, |node| taints(node).is_empty()).await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let later = get().await;
    assert!(ready(&later) && taints(&later).is_empty());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn pods_are_evicted_from_unreachable_node() {
    let world = World::start().await;
    world
        .node("doomed", json!({"metadata": {"annotations": {"fake-kubelet/dies-after-seconds": "120"}}}))
        .await;
    world.create::<Deployment>(deployment(2, json!({}))).await;
    let pods = async || world.pods("app=web").await;
    world.until("both pods run", pods, |pods| nodes_of(pods) == ["doomed", "doomed"]).await;
    world.node("spare", json!({})).await;
    let created = world.clock.now();
    let get = async || world.all::<Node>().get("doomed").await.expect("the node");
    let silent =
        |node: &Node| condition(node, "Ready") == Some(("Unknown".into(), "NodeStatusUnknown".into()));
    world.until("the node is unreachable", get, silent).await;
    let both = ["node.kubernetes.io/unreachable:NoExecute", "node.kubernetes.io/unreachable:NoSchedule"];
    world.until("the node is tainted", get, |node| taints(node) == both).await;
    let noticed = world.clock.now().as_second() - created.as_second();
    assert!((150..=175).contains(&noticed), "noticed after {noticed} s");
    world
        .until("replacement pods run on the other node", pods, |pods| nodes_of(pods) == ["spare", "spare"])
        .await;
    // The default toleration for unreachable nodes is five minutes.
    let moved = world.clock.now().as_second() - created.as_second();
    assert!((noticed + 295..=noticed + 310).contains(&moved), "replaced after {moved} s");
    // Without a kubelet, the old pods remain terminating until the node is deleted.
    assert_eq!(pods().await.len(), 4);
    world.all::<Node>().delete("doomed", &DeleteParams::default()).await.expect("deleted");
    world.until("pods of the deleted node are collected", pods, |pods| pods.len() == 2).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn eviction_respects_pod_disruption_budget() {
    let world = World::start().await;
    world.node("n1", json!({})).await;
    world.create::<Deployment>(deployment(3, json!({}))).await;
    world
        .create::<PodDisruptionBudget>(json!({"metadata": {"name": "web"},
            "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}}}))
        .await;
    let pods = async || world.pods("app=web").await;
    world.until("all pods run", pods, |pods| nodes_of(pods).len() == 3).await;
    let budget = async || {
        let budget = world.api::<PodDisruptionBudget>().get("web").await.expect("the budget");
        budget.status.map(|status| (status.expected_pods, status.current_healthy, status.disruptions_allowed))
    };
    world.until("one eviction is allowed", budget, |counts| *counts == Some((3, 3, 1))).await;
    let cordon = kube::api::Patch::Merge(json!({"spec": {"unschedulable": true}}));
    world.all::<Node>().patch("n1", &Default::default(), &cordon).await.expect("cordoned");
    let first = pods().await;
    let evict = async |pod: &Pod| {
        let name = pod.metadata.name.clone().unwrap_or_default();
        world.api::<Pod>().evict(&name, &EvictParams::default()).await
    };
    evict(&first[0]).await.expect("the first eviction is allowed");
    match evict(&first[1]).await {
        Err(kube::Error::Api(status)) => assert_eq!(status.code, 429, "{status:?}"),
        other => panic!("the budget was ignored: {other:?}"),
    }
    world
        .until("no eviction is allowed", budget, |counts| {
            counts.is_some_and(|(_, healthy, left)| healthy == 2 && left == 0)
        })
        .await;
    world.node("n2", json!({})).await;
    world.until("the replacement runs", pods, |pods| nodes_of(pods) == ["n1", "n1", "n2"]).await;
    world.until("one eviction is allowed again", budget, |counts| *counts == Some((3, 3, 1))).await;
    evict(&first[1]).await.expect("the second eviction is allowed");
    world.until("its replacement runs", pods, |pods| nodes_of(pods) == ["n1", "n2", "n2"]).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn termination_takes_the_scripted_time() {
    let world = World::start().await;
    world.node("n1", json!({})).await;
    let pod = |name: &str, hook: i64, grace: i64| {
        json!({"metadata": {"name": name}, "spec": {"terminationGracePeriodSeconds": grace, "containers": [
            {"name": "c", "image": "i", "lifecycle": {"preStop": {"sleep": {"seconds": hook}}}}]}})
    };
    world.create::<Pod>(pod("patient", 20, 60)).await;
    world.create::<Pod>(pod("cut-short", 60, 10)).await;
    for (name, expected) in [("patient", 20), ("cut-short", 10)] {
        let get = async || world.api::<Pod>().get_opt(name).await.expect("an answer");
        world.until("the pod runs", get, |pod| pod.as_ref().is_some_and(is_ready)).await;
        let asked = world.clock.now();
        world.api::<Pod>().delete(name, &DeleteParams::default()).await.expect("deleted");
        world.until("the pod is gone", get, Option::is_none).await;
        let took = world.clock.now().as_second() - asked.as_second();
        assert!((expected - 1..=expected + 1).contains(&took), "{name} took {took} s");
    }
    world.stop().await;
}
