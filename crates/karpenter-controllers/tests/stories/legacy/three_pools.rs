//! Tests of the example `three-pools` next to a node group of Cluster Autoscaler: nodes of that group are not modified,
//! and pods that fit on them are left to the kube-scheduler.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use kube::api::ListParams;
use serde_json::{Value, json};

use super::manifests::read;
use super::world::World;

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/three-pools").join(name)
}

/// The nodes that do not belong to Karpenter, without their heartbeats.
async fn foreign(world: &World) -> BTreeMap<String, Value> {
    let selected = ListParams::default().labels("eks.amazonaws.com/nodegroup");
    let nodes = world.all::<Node>().list(&selected).await.expect("listed").items;
    let essence = |node: &Node| {
        json!([
            node.labels(),
            node.annotations(),
            node.finalizers(),
            node.spec,
            node.metadata.deletion_timestamp,
            node.metadata.owner_references
        ])
    };
    nodes.iter().map(|node| (node.name_any(), essence(node))).collect()
}

/// The NodePools on whose nodes each workload runs; "" stands for nodes of the node group.
async fn pools_by_workload(world: &World) -> BTreeMap<String, BTreeSet<String>> {
    let nodes = world.list::<Node>().await;
    let pool_of: BTreeMap<String, String> = nodes
        .iter()
        .map(|node| {
            (node.name_any(), node.labels().get("karpenter.sh/nodepool").cloned().unwrap_or_default())
        })
        .collect();
    let mut pools_by_workload: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for pod in world.list::<Pod>().await {
        let app = pod.labels().get("app").or(pod.labels().get("app.kubernetes.io/name")).cloned();
        if let (Some(app), Some(node)) = (app, pod.spec.and_then(|spec| spec.node_name)) {
            pools_by_workload.entry(app).or_default().insert(pool_of[&node].clone());
        }
    }
    pools_by_workload
}

async fn run_example(form: &str, label: &str) {
    let world = World::start().await;
    let group = read(&example("node-group.yaml"));
    for manifest in &group {
        let mut manifest = manifest.clone();
        if manifest["kind"] == "Node" {
            // The test acts as the kubelet of these nodes.
            manifest["metadata"]["annotations"]["kwok.x-k8s.io/node"] = json!("fake");
            let status = manifest.as_object_mut().and_then(|object| object.remove("status"));
            world.apply(&manifest).await.expect("a node");
            let name = manifest["metadata"]["name"].as_str().expect("a name");
            let patch = kube::api::Patch::Merge(json!({ "status": status }));
            world.all::<Node>().patch_status(name, &Default::default(), &patch).await.expect("a status");
        } else {
            world.apply(&manifest).await.expect("a workload");
        }
    }
    world.sleep(60).await;
    let before = foreign(&world).await;
    assert_eq!(before.len(), 2);
    for manifest in read(&example(&format!("{form}/pools.yaml"))) {
        world.apply(&manifest).await.unwrap_or_else(|error| panic!("{manifest}: {error}"));
    }
    world.sleep(60).await;
    assert_eq!(world.list::<Node>().await.len(), 2, "pods that fit on the node group need no node");
    for manifest in read(&example("workloads.yaml")) {
        world.apply(&manifest).await.expect("a workload");
    }
    let pods = 24 + 12 + 4 + 2 + 1 + 3;
    world.until_running(pods).await;
    let expected = [
        ("api", "cpu"),
        ("cache", "memory"),
        ("karpenter", ""),
        ("model", "gpu"),
        ("notebook", "gpu"),
        ("training", "gpu"),
        ("undecided", ""),
    ];
    let expected: BTreeMap<String, BTreeSet<String>> =
        expected.into_iter().map(|(app, pool)| (app.to_owned(), [pool.to_owned()].into())).collect();
    assert_eq!(pools_by_workload(&world).await, expected);
    // The table in the documentation of the example has a row for each of these nodes.
    let listed = world.all::<Node>().list(&ListParams::default().labels(label)).await.expect("listed").items;
    assert_eq!(listed.len() + 2, world.list::<Node>().await.len());
    for node in &listed {
        for column in ["node.kubernetes.io/instance-type", "karpenter.sh/capacity-type"] {
            assert!(node.labels().contains_key(column), "{column}");
        }
        let category = node.labels()["karpenter.k8s.aws/instance-category"].as_str();
        let allowed: &[&str] = match node.labels()["karpenter.sh/nodepool"].as_str() {
            "cpu" => &["c"],
            "memory" => &["r", "x"],
            _ => &["g", "p"],
        };
        assert!(allowed.contains(&category), "{category}: {:?}", node.labels());
    }
    for app in ["api", "cache", "model", "notebook", "training"] {
        world.scale(app, 0).await;
    }
    world
        .until("only the node group is left", async || world.list::<Node>().await.len(), |count| *count == 2)
        .await;
    assert_eq!(foreign(&world).await, before, "foreign nodes are unchanged");
    assert_eq!(world.running().await.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn provisioners_beside_a_cluster_autoscaler() {
    run_example("v1alpha5", "karpenter.sh/provisioner-name").await;
}

#[tokio::test(start_paused = true)]
async fn node_pools_beside_a_cluster_autoscaler() {
    run_example("v1", "karpenter.sh/nodepool").await;
}
