//! Tests that consolidation respects the maximum share of pods with a hard hostname spread on one node.

use karpenter_disruption::apply;
use karpenter_disruption::cluster::Cluster;
use karpenter_disruption::evaluate::evaluate;
use karpenter_disruption::lower_bound::lower_bound_per_hour;
use karpenter_model::labels::HOSTNAME;
use karpenter_model::pod::{PodSpec, TopologySpread};
use karpenter_model::selector::LabelSelector;
use karpenter_model::spread_share::SpreadShare;

use crate::builders::*;

fn web() -> PodSpec {
    PodSpec {
        spread: vec![TopologySpread {
            key: HOSTNAME.into(),
            max_skew: 1,
            min_domains: None,
            hard: true,
            selector: Some(LabelSelector::from_match_labels(&label_map(&[("app", "web")]))),
            honor_affinity: true,
            honor_taints: false,
        }],
        ..pod("web", 200)
    }
}

/// A cluster of small nodes that run one replica each.
fn replicas(nodes: usize) -> Cluster {
    let mut cluster = cluster();
    for number in 0..nodes {
        add(&mut cluster, &format!("node-{number:02}"), "small", &[web()]);
    }
    cluster
}

/// The number of nodes and the largest number of replicas on one node after the cluster settled.
fn at_rest(mut cluster: Cluster, percent: u8) -> (usize, usize) {
    cluster.problem.options.hostname_spread_share = SpreadShare::from_percent(percent).expect("a share");
    for _ in 0..10 {
        let commands = evaluate(&cluster, &cost()).commands;
        if commands.is_empty() {
            break;
        }
        cluster = apply::after(&cluster, &commands);
    }
    let most = cluster.problem.nodes.iter().map(|node| node.pods.len()).max();
    (cluster.problem.nodes.len(), most.unwrap_or(0))
}

#[test]
fn three_replicas_stay_on_three_nodes() {
    assert_eq!(at_rest(replicas(3), 10), (3, 1));
    assert_eq!(at_rest(replicas(3), 0), (3, 1));
    let (nodes, most) = at_rest(replicas(3), 100);
    assert!(nodes < 3 && most > 1, "{nodes} nodes, {most} on one");
}

#[test]
fn replicas_are_packed_up_to_spread_share() {
    // Ten percent of thirty replicas are three.
    let (nodes, most) = at_rest(replicas(30), 10);
    assert!((10..30).contains(&nodes) && most <= 3, "{nodes} nodes, {most} on one");
}

#[test]
fn node_above_spread_share_stays_and_bound_accounts_for_it() {
    let mut cluster = cluster();
    add(&mut cluster, "crowded", "small", &[web(), web(), web()]);
    assert_eq!(claims(&evaluate(&cluster, &cost()).commands), Vec::<Vec<&str>>::new());
    let bound = lower_bound_per_hour(&cluster, 1_000).expect("there are pods");
    assert!(bound <= 0.1 + 1e-9, "{bound}");
}
