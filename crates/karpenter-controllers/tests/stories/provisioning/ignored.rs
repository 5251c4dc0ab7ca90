//! Tests of objects that provisioning ignores, as upstream does.

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DeleteParams};
use serde_json::json;

use crate::embedded::create;
use crate::provisioning::world::World;

#[tokio::test(start_paused = true)]
async fn daemonset_with_resource_claims_does_not_stop_provisioning() {
    let world = World::start().await;
    world.pool("general", json!({})).await;
    let resources = json!({"requests": {"cpu": "1"}, "claims": [{"name": "gpu"}]});
    let spec = json!({"containers": [{"name": "c", "image": "i", "resources": resources}],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]});
    let sets: Api<DaemonSet> = Api::default_namespaced(world.client.clone());
    let labels = json!({"app": "devices"});
    create(
        &sets,
        json!({"metadata": {"name": "devices"}, "spec": {"selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec}}}),
    )
    .await;
    world.pods(3).await;
    world.pass(5).await;
    let claims = world.claims().await;
    assert_eq!(world.events("Nominated").await.len(), 3);
    let requests = claims.iter().filter_map(|claim| claim.spec.resources.as_ref()?.requests.as_ref());
    let cpu: karpenter_model::quantity::Quantity =
        requests.filter_map(|requests| requests.get("cpu").copied()).sum();
    assert_eq!(cpu, "3".parse().expect("a quantity"), "the daemonset's pods are not counted");
}

#[tokio::test(start_paused = true)]
async fn managed_node_without_provider_id_is_ignored() {
    let world = World::start().await;
    world.pool("general", json!({})).await;
    let nodes = world.all::<Node>();
    for (name, key) in [("managed", "karpenter.sh/nodepool"), ("other", "example.com/nodepool")] {
        create(
            &nodes,
            json!({
                "metadata": {"name": name, "finalizers": ["karpenter.sh/termination"],
                    "labels": {"kubernetes.io/hostname": name, key: "general"},
                    "annotations": {"kwok.x-k8s.io/node": "fake"}},
                "spec": {"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]},
                "status": {"capacity": {"cpu": "8", "memory": "32Gi", "pods": "110"},
                    "allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"}},
            }),
        )
        .await;
    }
    world.pod("aboard", json!({"spec": {"nodeName": "managed"}})).await;
    nodes.delete("managed", &DeleteParams::default()).await.expect("deleted");
    world.pass(30).await;
    assert_eq!(world.claims().await.len(), 0, "its pods are ignored");

    // A node without the nodepool label is tracked by its name.
    world.pod("moves", json!({"spec": {"nodeName": "other"}})).await;
    nodes.delete("other", &DeleteParams::default()).await.expect("deleted");
    world.pass(30).await;
    assert_eq!(world.claims().await.len(), 1);
}
