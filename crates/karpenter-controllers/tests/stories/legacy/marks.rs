//! Tests of annotations and labels that v1alpha5 defined for nodes and pods (do-not-consolidate, the name of a
//! Provisioner), and of drift, which is disabled by default for v1alpha5.

use k8s_openapi::api::core::v1::Node;
use karpenter_api::types::NodeClaim;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::world::World;

#[tokio::test(start_paused = true)]
async fn do_not_consolidate_blocks_consolidation_of_a_node() {
    let world = World::start().await;
    world.provisioner("old", json!({"consolidation": {"enabled": true}})).await;
    world.deploy("web", "old", 1, "1", json!({})).await;
    world.until_running(1).await;
    let (name, _) = world.nodes_of("old").await.pop_first().expect("a node");
    let mark = |value: serde_json::Value| json!({"metadata": {"annotations": {"karpenter.sh/do-not-consolidate": value}}});
    world.merge::<Node>(&name, mark(json!("true"))).await;
    world.scale("web", 0).await;
    world.sleep(1800).await;
    assert!(world.node(&name).await.is_some());
    world.merge::<Node>(&name, mark(json!(null))).await;
    world.until("the node is removed", async || world.node(&name).await.is_none(), |is_gone| *is_gone).await;
}

#[tokio::test(start_paused = true)]
async fn do_not_consolidate_false_enables_consolidation_of_a_node() {
    let world = World::start().await;
    world.provisioner("old", json!({})).await;
    world.deploy("web", "old", 1, "1", json!({})).await;
    world.until_running(1).await;
    let (name, _) = world.nodes_of("old").await.pop_first().expect("a node");
    world.scale("web", 0).await;
    world.sleep(1800).await;
    assert!(world.node(&name).await.is_some(), "consolidation is not enabled");
    let mark = json!({"metadata": {"annotations": {"karpenter.sh/do-not-consolidate": "false"}}});
    world.merge::<Node>(&name, mark).await;
    world.until("the node is removed", async || world.node(&name).await.is_none(), |is_gone| *is_gone).await;
}

#[tokio::test(start_paused = true)]
async fn edited_provisioner_does_not_disrupt_its_nodes() {
    let world = World::start().await;
    world.provisioner("old", json!({"consolidation": {"enabled": true}})).await;
    world.deploy("web", "old", 1, "3", json!({})).await;
    world.until_running(1).await;
    let (name, _) = world.nodes_of("old").await.pop_first().expect("a node");
    let patch = Patch::Merge(
        json!({"spec": {"labels": {"team": "b"}, "taints": [{"key": "t", "effect": "NoSchedule"}]}}),
    );
    world.provisioners().patch("old", &PatchParams::default(), &patch).await.expect("edited");
    let is_drifted = async || {
        let claims = world.list::<NodeClaim>().await;
        claims.iter().any(|claim| {
            let conditions = claim.status.iter().flat_map(|status| &status.conditions);
            conditions.into_iter().any(|one| one.type_ == "Drifted" && one.status.as_str() == "True")
        })
    };
    world.until("the drift condition is set", is_drifted, |is_drifted| *is_drifted).await;
    world.sleep(3600).await;
    assert!(world.node(&name).await.is_some(), "drift does not disrupt the node");
}

#[tokio::test(start_paused = true)]
async fn pods_select_a_provisioner_by_name_or_none() {
    let world = World::start().await;
    world.provisioner("one", json!({"weight": 100})).await;
    world.provisioner("two", json!({})).await;
    let affinity = |operator: &str, values: &[&str]| {
        let expression =
            json!({"key": "karpenter.sh/provisioner-name", "operator": operator, "values": values});
        let terms = json!([{"matchExpressions": [expression]}]);
        json!({"spec": {"nodeSelector": null, "affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}}})
    };
    world.deploy("by-selector", "two", 1, "1", json!({})).await;
    world.deploy("by-affinity", "", 1, "1", affinity("In", &["two"])).await;
    world.deploy("anywhere", "", 1, "3", json!({"spec": {"nodeSelector": null}})).await;
    world.deploy("nowhere", "", 1, "1", affinity("DoesNotExist", &[])).await;
    world.until_running(3).await;
    world.sleep(300).await;
    let running = world.running().await;
    assert_eq!(running.len(), 3);
    for (provisioner, apps) in [("one", vec!["anywhere"]), ("two", vec!["by-affinity", "by-selector"])] {
        let nodes = world.nodes_of(provisioner).await;
        assert_eq!(nodes.len(), 1, "{provisioner}");
        let aboard = running.iter().filter(|pod| {
            pod.spec
                .as_ref()
                .and_then(|spec| spec.node_name.as_ref())
                .is_some_and(|node| nodes.contains_key(node))
        });
        let mut found: Vec<String> = aboard.map(|pod| pod.labels()["app"].clone()).collect();
        found.sort();
        assert_eq!(found, apps);
    }
}
