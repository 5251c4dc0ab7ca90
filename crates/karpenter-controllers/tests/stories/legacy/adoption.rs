//! Tests of adoption: nodes that an earlier Karpenter launched get NodeClaims.

use k8s_openapi::api::core::v1::Node;
use karpenter_api::types::NodeClaim;
use kube::ResourceExt;
use serde_json::json;

use super::world::World;

#[tokio::test(start_paused = true)]
async fn node_of_v1alpha5_karpenter_is_adopted_and_disrupted_by_its_rules() {
    let world = World::start().await;
    let amounts = json!({"cpu": "4", "memory": "16Gi", "pods": "58"});
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": "ip-10-0-0-1", "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {
                "karpenter.sh/provisioner-name": "old", "karpenter.sh/initialized": "true",
                "karpenter.sh/capacity-type": "on-demand", "kubernetes.io/hostname": "ip-10-0-0-1",
                "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "kwok.x-k8s.io/node": "fake",
                "node.kubernetes.io/instance-type": "m5.xlarge", "topology.kubernetes.io/zone": "us-east-1a",
            },
        },
        "spec": {"providerID": "kwok://ip-10-0-0-1"},
        "status": {"capacity": amounts, "allocatable": amounts},
    });
    let node: Node = serde_json::from_value(node).expect("a node");
    world.all::<Node>().create(&Default::default(), &node).await.expect("created");
    let patch = kube::api::Patch::Merge(json!({ "status": node.status }));
    world.all::<Node>().patch_status("ip-10-0-0-1", &Default::default(), &patch).await.expect("a status");
    world.sleep(120).await;
    assert!(world.list::<NodeClaim>().await.is_empty(), "its Provisioner does not exist");
    world.provisioner("old", json!({"ttlSecondsAfterEmpty": 300})).await;
    world.deploy("web", "old", 1, "3", json!({})).await;
    world.until_running(1).await;
    world.sleep(60).await;
    assert_eq!(world.nodes_of("old").await.len(), 1, "the pod runs on the existing node");
    let claims = world.list::<NodeClaim>().await;
    assert_eq!(claims.len(), 1);
    let status = claims[0].status.as_ref().expect("a status");
    assert_eq!(status.provider_id.as_deref(), Some("kwok://ip-10-0-0-1"));
    assert_eq!(status.node_name.as_deref(), Some("ip-10-0-0-1"));
    let node = world.node("ip-10-0-0-1").await.expect("there");
    assert_eq!(node.labels()["karpenter.sh/nodepool"], "old");
    assert_eq!(node.finalizers(), ["karpenter.sh/termination"]);
    let counted =
        world.provisioners().get("old").await.expect("there").data["status"]["resources"]["cpu"].clone();
    assert_eq!(counted, "4");
    world.scale("web", 0).await;
    world
        .until("the empty node is deleted", async || world.nodes_of("old").await.len(), |count| *count == 0)
        .await;
    assert!(world.list::<NodeClaim>().await.is_empty());
}
