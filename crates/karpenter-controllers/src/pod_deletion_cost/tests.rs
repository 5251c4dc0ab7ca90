use karpenter_disruption::cluster::{Cluster, NodePod, NodePoolView, Reason, StateNode};
use karpenter_model::problem::Node as ProblemNode;
use serde_json::json;

use super::rank::{NODES_MAX, Ranking};
use super::*;

/// A cluster of one NodePool whose nodes have these prices and run one pod each. The budgets allow ten disruptions.
fn cluster(prices: &[f64]) -> Cluster {
    let mut cluster = Cluster::default();
    for (at, price) in prices.iter().enumerate() {
        cluster.problem.nodes.push(ProblemNode {
            name: format!("node-{at}").into(),
            labels: Default::default(),
            taints: Vec::new(),
            initialized: true,
            pool: Some("general".into()),
            allocatable: Default::default(),
            pods: Vec::new(),
            volume_limits: BTreeMap::new(),
            price_per_hour: Some(*price),
            is_settling: false,
        });
        cluster.state_nodes.push(StateNode {
            claim: format!("claim-{at}").into(),
            node: Some(format!("node-{at}").into()),
            pool: Some("general".into()),
            at: Some(at),
            is_registered: true,
            is_initialized: true,
            is_ready: true,
            last_pod_event_secs: Some(0),
            instance_type: Some("type".into()),
            price_per_hour: *price,
            pods: vec![NodePod {
                is_active: true,
                is_reschedulable: true,
                is_evictable: true,
                eviction_cost: 1.0,
                ..NodePod::default()
            }],
            ..StateNode::default()
        });
    }
    let pool = NodePoolView {
        name: "general".into(),
        launches_as: Some(0),
        is_ready: true,
        consolidate_after_secs: Some(0),
        allowed: Reason::ALL.into_iter().map(|reason| (reason, 10)).collect(),
        ..NodePoolView::default()
    };
    cluster.pools.insert("general".into(), pool);
    cluster
}

fn nodes(count: usize) -> Vec<Ranked> {
    (0..count)
        .map(|state_node| Ranked { state_node, costs: vec![Cost::Absent], ..Ranked::default() })
        .collect()
}

#[test]
fn drifted_nodes_rank_first_then_by_saving_per_disruption() {
    let mut cluster = cluster(&[1.0, 3.0, 2.0, 2.0, 9.0, 9.0]);
    cluster.state_nodes[0].drifted_since_secs = Some(0);
    let mut nodes = nodes(6);
    nodes[4].is_pinned = true;
    nodes[5].is_terminating = true;
    let expected = Ranking { going: vec![5], ranked: vec![0, 1, 2, 3], rest: vec![4] };
    assert_eq!(rank(&cluster, &nodes), expected);
    // Node 1 gets three times as many pods, so its saving per disruption is lower. Nodes with the same saving per
    // disruption are sorted by name.
    let pods = cluster.state_nodes[1].pods.clone();
    cluster.state_nodes[1].pods.extend([pods.clone(), pods].concat());
    assert_eq!(rank(&cluster, &nodes).ranked, [0, 2, 3, 1]);
}

#[test]
fn budgets_limit_ranking_and_others_are_cleared() {
    let mut cluster = cluster(&[5.0, 4.0, 3.0, 2.0, 1.0]);
    cluster.state_nodes[3].drifted_since_secs = Some(0);
    cluster.state_nodes[4].drifted_since_secs = Some(0);
    let nodes = nodes(5);
    let limit = |cluster: &mut Cluster, reason, count| {
        for pool in cluster.pools.values_mut() {
            pool.allowed.insert(reason, count);
        }
    };
    limit(&mut cluster, Reason::Drifted, 1);
    limit(&mut cluster, Reason::Underutilized, 2);
    assert_eq!(rank(&cluster, &nodes), Ranking { going: vec![], ranked: vec![3, 0, 1], rest: vec![2, 4] });
    for pool in cluster.pools.values_mut() {
        pool.consolidate_after_secs = None;
    }
    assert_eq!(rank(&cluster, &nodes).ranked, [3], "drift does not depend on consolidateAfter");
    for pool in cluster.pools.values_mut() {
        pool.replicas = Some(5);
    }
    assert!(rank(&cluster, &nodes).ranked.is_empty(), "static NodePools are not ranked");
}

#[test]
fn protected_nodes_are_cleared() {
    let mut cluster = cluster(&[1.0, 1.0, 1.0, 1.0]);
    cluster.state_nodes[0].is_do_not_disrupt = true;
    cluster.state_nodes[1].pods[0].is_do_not_disrupt = true;
    cluster.state_nodes[2].is_instance_type_unknown = true;
    cluster.state_nodes[3].is_initialized = false;
    assert_eq!(rank(&cluster, &nodes(4)), Ranking { going: vec![], ranked: vec![], rest: vec![0, 1, 2, 3] });
}

#[test]
fn first_rank_has_lowest_cost_and_unchanged_pods_are_skipped() {
    let ranking = Ranking { going: vec![3], ranked: vec![1, 0, 2], rest: vec![4] };
    let mut nodes = nodes(5);
    nodes[4].costs = vec![Cost::Is(-7)];
    let all =
        [(3, Cost::Is(i32::MIN)), (1, Cost::Is(-3)), (0, Cost::Is(-2)), (2, Cost::Is(-1)), (4, Cost::Absent)];
    assert_eq!(planned_writes(&ranking, &nodes), all);
    nodes[0].costs = vec![Cost::Is(-2), Cost::Is(-2)];
    nodes[1].costs = vec![Cost::Is(-3), Cost::Unreadable];
    nodes[2].costs = vec![];
    nodes[3].costs = vec![Cost::Is(i32::MIN)];
    assert_eq!(planned_writes(&ranking, &nodes), [(1, Cost::Is(-3)), (4, Cost::Absent)]);
}

#[test]
fn writes_are_limited_to_fifty_nodes_plus_terminating_ones() {
    let mut nodes = nodes(200);
    let ranking =
        Ranking { going: (0..60).collect(), ranked: (60..130).collect(), rest: (130..200).collect() };
    for node in &mut nodes[130..] {
        node.costs = vec![Cost::Is(1)];
    }
    let writes = planned_writes(&ranking, &nodes);
    assert_eq!(writes.len(), 60 + NODES_MAX);
    assert_eq!(writes.last(), Some(&(60 + NODES_MAX - 1, Cost::Is(-70 + 49))));
    // Nodes that need no writes do not count towards the limit of nodes per pass.
    for (node, cost) in nodes[60..110].iter_mut().zip(-70..) {
        node.costs = vec![Cost::Is(cost)];
    }
    let writes = planned_writes(&ranking, &nodes);
    assert_eq!(writes[60], (110, Cost::Is(-20)));
    assert_eq!((writes[80], writes.len()), ((130, Cost::Absent), 60 + NODES_MAX));
}

#[test]
fn controllers_of_pods_are_recognized() {
    let pod = |owners: serde_json::Value, namespace: &str| -> Arc<Pod> {
        let object = json!({"metadata": {"name": "p", "namespace": namespace, "ownerReferences": owners}});
        Arc::new(serde_json::from_value(object).expect("a pod"))
    };
    let owner = |version: &str, kind: &str, controller: bool| json!([{"apiVersion": version, "kind": kind, "name": "o", "uid": "o", "controller": controller}]);
    let cases = [
        (owner("apps/v1", "ReplicaSet", true), "default", true, false),
        (owner("apps/v1", "ReplicaSet", false), "default", false, true),
        (owner("batch/v1", "Job", true), "default", false, false),
        (owner("apps/v1", "DaemonSet", true), "default", false, false),
        (owner("apps/v1", "StatefulSet", true), "default", false, true),
        (owner("example.com/v1", "ReplicaSet", true), "default", false, true),
        (json!([]), "default", false, true),
        (json!([]), "kube-system", false, false),
    ];
    for (owners, namespace, is_written, pins) in cases {
        let pod = pod(owners.clone(), namespace);
        assert_eq!(is_controlled_by(&pod, &["ReplicaSet"]), is_written, "{owners}");
        assert_eq!(is_pinning(&pod), pins, "{owners} in {namespace}");
    }
}
