//! Tests of what happens to nodes when Karpenter is uninstalled.

use crate::installing::foreign;
use crate::world::World;
use karpenter_install::Error;
use karpenter_install::install::Choices;
use karpenter_install::settings::Settings;
use karpenter_install::uninstall::{self, Nodes};
use serde_json::{Value, json};
use std::time::Duration;

/// A cluster with a running Karpenter, which has launched nodes for pods.
async fn running_karpenter() -> (World, tokio::task::JoinHandle<()>) {
    let world = World::start().await;
    world.install(&World::settings(), &Choices::default()).await.expect("installed");
    let karpenter = world.run_karpenter().await;
    world.apply_workload().await;
    world.until("nodes", async || world.registered().await).await;
    (world, karpenter)
}

async fn left(world: &World) -> Vec<String> {
    let mut left = Vec::new();
    for (group, kind) in [
        ("apps", "Deployment"),
        ("", "ServiceAccount"),
        ("rbac.authorization.k8s.io", "ClusterRole"),
        ("rbac.authorization.k8s.io", "RoleBinding"),
        ("coordination.k8s.io", "Lease"),
    ] {
        for object in world.list(group, "v1", kind).await {
            let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            if name.contains("karpenter") {
                left.push(format!("{kind} {name}"));
            }
        }
    }
    left
}

#[tokio::test(start_paused = true)]
async fn drain_removes_nodes_before_the_controller() {
    let (world, karpenter) = running_karpenter().await;
    let choices = uninstall::Choices { with_definitions: true, ..World::uninstalling(Nodes::Drain) };
    world.uninstall(&choices).await.expect("uninstalled");
    karpenter.await.expect("ended");
    assert!(world.reported("all instances are terminated") && world.reported("deleted NodePool default"));
    assert!(world.ready_nodes().await.is_empty());
    assert_eq!(left(&world).await, Vec::<String>::new());
    let definitions = world.list("apiextensions.k8s.io", "v1", "CustomResourceDefinition").await;
    assert!(definitions.is_empty(), "{definitions:?}");
    world.forget();
    world.uninstall(&choices).await.expect("nothing to do");
    assert!(world.reported("nothing to do"));
}

#[tokio::test(start_paused = true)]
async fn kept_nodes_stay_ready_without_karpenter() {
    let (world, karpenter) = running_karpenter().await;
    let before = world.ready_nodes().await.len();
    world.uninstall(&World::uninstalling(Nodes::Keep)).await.expect("uninstalled");
    karpenter.await.expect("ended");
    let nodes = world.ready_nodes().await;
    assert_eq!(nodes.len(), before);
    for node in &nodes {
        assert!(node["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty), "{node}");
        assert!(node["metadata"]["ownerReferences"].as_array().is_none_or(Vec::is_empty), "{node}");
    }
    assert_eq!(left(&world).await, Vec::<String>::new());
    // The NodeClaims have no finalizers, so they are deleted at once, and their Nodes stay.
    for claim in world.list("karpenter.sh", "v1", "NodeClaim").await {
        let name = claim["metadata"]["name"].as_str().expect("text");
        world.delete("karpenter.sh", "v1", "NodeClaim", name).await;
    }
    world.clock.sleep(Duration::from_secs(300)).await;
    assert!(world.list("karpenter.sh", "v1", "NodeClaim").await.is_empty());
    assert_eq!(world.ready_nodes().await.len(), before, "nodes stay ready without a controller");
    let pods = world.list("", "v1", "Pod").await;
    assert!(
        pods.iter()
            .filter(|pod| pod["metadata"]["labels"]["app"] == "work")
            .all(|pod| pod["status"]["phase"] == "Running")
    );
}

#[tokio::test(start_paused = true)]
async fn hand_over_restores_the_previous_controller() {
    let world = World::start().await;
    foreign(&world).await;
    let settings = Settings { name: "karpenter-rs".to_owned(), ..World::settings() };
    let over = Choices { takes_over: true, ..Choices::default() };
    world.install(&settings, &over).await.expect("taken over");
    let karpenter = world.run_karpenter().await;
    world.apply_workload().await;
    world.until("nodes", async || world.registered().await).await;
    let choices =
        uninstall::Choices { name: "karpenter-rs".to_owned(), ..World::uninstalling(Nodes::HandOver) };
    world.uninstall(&choices).await.expect("uninstalled");
    karpenter.await.expect("ended");
    let theirs = world.get("apps", "Deployment", "karpenter", "karpenter").await.expect("there");
    assert_eq!(theirs["spec"]["replicas"], 2);
    assert!(theirs["metadata"]["annotations"].get("install.karpenter.sh/replicas-before").is_none());
    for node in world.ready_nodes().await {
        assert_eq!(
            node["metadata"]["finalizers"],
            json!(["karpenter.sh/termination"]),
            "the finalizer stays"
        );
    }
    assert!(!world.list("karpenter.sh", "v1", "NodePool").await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn timeout_of_drain_reports_remaining_objects_and_keeps_the_controller() {
    let (world, _karpenter) = running_karpenter().await;
    // The PodDisruptionBudget allows no eviction.
    world
        .apply(json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": "never", "namespace": "default"},
            "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "work"}}}}))
        .await;
    world.clock.sleep(Duration::from_secs(5)).await;
    let hurried =
        uninstall::Choices { timeout: Duration::from_secs(60), ..World::uninstalling(Nodes::Drain) };
    match world.uninstall(&hurried).await {
        Err(Error::TimedOut(why)) => {
            assert!(why.contains("NodeClaim default-") && why.contains("kubectl get pdb"), "{why}");
        }
        other => panic!("{other:?}"),
    }
    assert!(world.get("apps", "Deployment", "karpenter", "karpenter").await.is_some());
    world.delete_budget().await;
    world.uninstall(&World::uninstalling(Nodes::Drain)).await.expect("continues where it stopped");
    assert!(world.list("karpenter.sh", "v1", "NodeClaim").await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn definitions_with_objects_stay_and_are_reported() {
    let (world, karpenter) = running_karpenter().await;
    let choices = uninstall::Choices { with_definitions: true, ..World::uninstalling(Nodes::Keep) };
    match world.uninstall(&choices).await {
        Err(Error::Refused(lines)) => {
            assert!(lines.iter().any(|line| line.contains("nodepools exist")), "{lines:?}")
        }
        other => panic!("{other:?}"),
    }
    karpenter.await.expect("ended");
    let kept: Vec<Value> = world.list("apiextensions.k8s.io", "v1", "CustomResourceDefinition").await;
    assert!(kept.iter().any(|each| each["metadata"]["name"] == "nodepools.karpenter.sh"));
    assert!(
        !kept.iter().any(|each| each["metadata"]["name"] == "nodeoverlays.karpenter.sh"),
        "definitions without objects are deleted"
    );
}

#[tokio::test(start_paused = true)]
async fn dry_run_reports_steps_and_runs_none() {
    let (world, _karpenter) = running_karpenter().await;
    let dry =
        uninstall::Choices { is_dry_run: true, with_definitions: true, ..World::uninstalling(Nodes::Drain) };
    world.forget();
    world.uninstall(&dry).await.expect("reported");
    assert!(
        world.reported("would delete NodePool default") && world.reported("would stop Deployment"),
        "{:?}",
        world.lines
    );
    assert!(world.registered().await);
    let kept = uninstall::kept_objects(&world.client).await.expect("read");
    let kinds: Vec<&str> = kept.iter().filter_map(|each| each["kind"].as_str()).collect();
    assert_eq!(kinds, ["NodePool", "KWOKNodeClass"]);
    assert!(kept[0]["metadata"].get("uid").is_none() && kept[0].get("status").is_none(), "{}", kept[0]);
}
