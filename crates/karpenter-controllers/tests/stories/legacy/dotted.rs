//! Tests of the node labels with dotted names that Karpenter used before 0.15.

use kube::ResourceExt;
use serde_json::json;

use super::world::World;

const FAMILY: &str = "karpenter.k8s.aws/instance.family";

#[tokio::test(start_paused = true)]
async fn dotted_labels_select_nodes_of_provisioners_only() {
    let world = World::start().await;
    let class = json!({"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "new"}, "spec": {
        "amiSelectorTerms": [{"alias": "al2023@latest"}], "instanceProfile": "p",
        "subnetSelectorTerms": [{"tags": {"a": "b"}}], "securityGroupSelectorTerms": [{"tags": {"a": "b"}}],
    }});
    world.apply(&class).await.expect("a class");
    let reference = json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "new"});
    let pool = json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "new"},
        "spec": {"template": {"spec": {"nodeClassRef": reference, "requirements": []}}}});
    world.apply(&pool).await.expect("a pool");
    let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "karpenter.k8s.aws/instance.cpu", "operator": "In", "values": ["4"]}]},
    ]}}});
    let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {
        "nodeSelector": {FAMILY: "m5"}, "affinity": affinity,
        "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
    }});
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template}});
    world.apply(&deployment).await.expect("a Deployment");
    world.sleep(120).await;
    let nodes = world.list::<k8s_openapi::api::core::v1::Node>().await;
    assert!(nodes.is_empty(), "nodes of v1 NodePools do not have the label: {nodes:?}");
    world.provisioner("old", json!({})).await;
    world.until_running(1).await;
    let nodes = world.nodes_of("old").await;
    let node = nodes.values().next().expect("a node");
    assert_eq!(node.labels()[FAMILY], "m5");
    assert_eq!(node.labels()["karpenter.k8s.aws/instance-family"], "m5");
}
