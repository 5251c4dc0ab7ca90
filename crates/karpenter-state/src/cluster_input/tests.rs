use std::sync::Arc;

use crate::pod::Pod;

use super::{ClusterInput, PoolInput, assemble_cluster};
use crate::testing::{POOL, objects, pod_yaml};

const CLAIM: &str = "
apiVersion: karpenter.sh/v1
kind: NodeClaim
metadata: {name: general-1, labels: {karpenter.sh/nodepool: general}}
spec:
  nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}
  requirements:
  - {key: node.kubernetes.io/instance-type, operator: In, values: [c-4x-amd64-linux, m-2x-amd64-linux]}
  - {key: topology.kubernetes.io/zone, operator: In, values: [test-zone-a]}
";

fn cluster(text: &str) -> ClusterInput {
    let read = objects(text);
    let types = Arc::new(karpenter_catalog::kwok::generic());
    let arcs = |pods: Vec<Pod>| pods.into_iter().map(Arc::new).collect::<Vec<_>>();
    let (bound, pending) = read.pods.into_iter().partition(|pod| pod.node_name.is_some());
    ClusterInput {
        pools: read
            .node_pools
            .into_iter()
            .map(|pool| PoolInput { pool: Arc::new(pool), instance_types: types.clone() })
            .collect(),
        nodes: read.nodes.into_iter().map(Arc::new).collect(),
        node_claims: read.node_claims.into_iter().map(Arc::new).collect(),
        bound: arcs(bound),
        pending: arcs(pending),
        ..ClusterInput::default()
    }
}

#[test]
fn unlaunched_claim_has_smallest_allocatable_and_largest_usage() {
    let mut cluster = cluster(&format!("{POOL}---{CLAIM}---\n{}", pod_yaml("p", "")));
    let round = assemble_cluster(&cluster);
    let find = |name: &str| {
        let types = &cluster.pools[0].instance_types;
        types.iter().find(|one| &*one.name == name).expect("in kwok's list")
    };
    let (small, large) = (find("m-2x-amd64-linux"), find("c-4x-amd64-linux"));
    assert!(small.capacity.get("cpu") < large.capacity.get("cpu"));
    let node = &round.problem.nodes[0];
    assert_eq!(node.allocatable.get("cpu"), small.allocatable().get("cpu"));
    let memory = small.allocatable().get("memory").min(large.allocatable().get("memory"));
    assert_eq!(node.allocatable.get("memory"), memory);
    assert_eq!(node.labels.get("topology.kubernetes.io/zone").map(|zone| &**zone), Some("test-zone-a"));
    let pool = &round.problem.pools[0];
    assert_eq!((pool.usage.get("nodes"), pool.usage.get("cpu")), (1, large.capacity.get("cpu")));
    assert_eq!(round.hosts[0].claim.as_ref().unwrap().metadata.name.as_deref(), Some("general-1"));

    // In the three rounds the same pod is pending, then nominated for the claim, then pending again because the claim
    // is being deleted.
    assert_eq!((node.pods.len(), round.problem.pods.len()), (0, 1));
    let pod = cluster.pending.remove(0);
    cluster.expected.push(("general-1".to_owned(), pod));
    let round = assemble_cluster(&cluster);
    assert_eq!((round.problem.nodes[0].pods.len(), round.problem.pods.len()), (1, 0));
    cluster.marked_for_deletion.insert("general-1".to_owned());
    let round = assemble_cluster(&cluster);
    assert_eq!((round.problem.nodes.len(), round.problem.pods.len()), (0, 1));
    assert_eq!(round.problem.pools[0].usage.get("nodes"), 0);
    assert_eq!(&*round.pods[0][0].name, "p");
}

#[test]
fn pods_of_deleted_nodes_are_not_counted() {
    let node = "{apiVersion: v1, kind: Node, metadata: {name: n1}, status: {allocatable: {cpu: 2}}}\n";
    let text = format!("{POOL}---\n{node}---\n{}", pod_yaml("bound", "nodeName: n1"));
    let mut cluster = cluster(&text);
    let round = assemble_cluster(&cluster);
    assert_eq!((round.problem.nodes.len(), round.problem.nodes[0].pods.len()), (1, 1));
    cluster.marked_for_deletion.insert("n1".to_owned());
    let round = assemble_cluster(&cluster);
    assert_eq!((round.problem.nodes.len(), round.problem.pods.len()), (0, 0));
}
