//! Tests that a node in a partition placement group is registered only after EC2 returned its partition.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use karpenter_api::labels;
use karpenter_api::types::NodeClaim;
use karpenter_aws::api::ec2::PlacementGroup;
use serde_json::json;

use super::world::World;

const MINUTE: Duration = Duration::from_secs(60);
const PARTITION: &str = labels::AWS_PLACEMENT_GROUP_PARTITION;

/// The status and the reason of the condition Registered.
fn registered(claim: &NodeClaim) -> (String, String, String) {
    let conditions = claim.status.iter().flat_map(|status| &status.conditions);
    let mut found = conditions.filter(|condition| condition.type_ == "Registered");
    found.next().map_or_else(Default::default, |condition| {
        (condition.status.as_str().to_owned(), condition.reason.clone(), condition.message.clone())
    })
}

fn is_open(node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    taints.is_none_or(|taints| taints.iter().all(|taint| taint.key != labels::TAINT_UNREGISTERED))
}

fn partition(node: &Node) -> Option<&str> {
    node.metadata.labels.as_ref()?.get(PARTITION).map(String::as_str)
}

#[tokio::test(start_paused = true)]
async fn node_is_registered_with_partition_of_ec2() {
    let world = World::start().await;
    world.aws.world(|cloud| {
        let group = PlacementGroup {
            id: "pg-1".to_owned(),
            name: "racks".to_owned(),
            strategy: "partition".to_owned(),
            partition_count: 3,
            state: "available".to_owned(),
            ..PlacementGroup::default()
        };
        cloud.placement_groups.insert(group.id.clone(), group);
        cloud.are_partitions_hidden = true;
    });
    world.introduce_with(json!({"placementGroupSelector": {"name": "racks"}})).await;
    world.pass(MINUTE).await;
    world.inflate(1).await;
    world.pass(MINUTE).await;
    let (nodes, claims) = (world.nodes().await, world.claims().await);
    assert_eq!((nodes.len(), claims.len()), (1, 1));
    assert!(!is_open(&nodes[0]), "{:?}", nodes[0].spec);
    let held = registered(&claims[0]);
    assert_eq!(
        (held.0.as_str(), held.1.as_str(), held.2.as_str()),
        ("Unknown", "RegistrationHookPending", "placement-group")
    );
    assert_eq!(world.running_pods().await, 0);

    world.aws.world(|cloud| cloud.are_partitions_hidden = false);
    // There must never be a registered node without its partition.
    for _ in 0..600 {
        world.clock.sleep(Duration::from_millis(50)).await;
        let node = world.nodes().await.remove(0);
        assert!(!is_open(&node) || partition(&node) == Some("1"), "{:?}", node.metadata.labels);
    }
    let (node, claim) = (world.nodes().await.remove(0), world.claims().await.remove(0));
    assert!(is_open(&node));
    assert_eq!(partition(&node), Some("1"));
    assert_eq!(registered(&claim).0, "True");
    assert_eq!(claim.metadata.labels.as_ref().and_then(|labels| labels.get(PARTITION)).unwrap(), "1");
    assert_eq!(world.running_pods().await, 1);
}
