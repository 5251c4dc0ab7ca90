//! Savings keep to the share of pods of a hard hostname spread that may be on one node.

use karpenter_disruption::bound::lower_bound_per_hour;
use karpenter_disruption::carried_out;
use karpenter_disruption::fleet::Fleet;
use karpenter_disruption::propose::propose;
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

/// So many small nodes with one replica each.
fn replicas(nodes: usize) -> Fleet {
    let mut fleet = fleet();
    for number in 0..nodes {
        add(&mut fleet, &format!("node-{number:02}"), "small", &[web()]);
    }
    fleet
}

/// The most replicas on one node once savings have come to rest.
fn at_rest(mut fleet: Fleet, percent: u8) -> (usize, usize) {
    fleet.problem.options.hostname_spread_share = SpreadShare::from_percent(percent).expect("a share");
    for _ in 0..10 {
        let commands = propose(&fleet, &cost()).commands;
        if commands.is_empty() {
            break;
        }
        fleet = carried_out::after(&fleet, &commands);
    }
    let most = fleet.problem.nodes.iter().map(|node| node.pods.len()).max();
    (fleet.problem.nodes.len(), most.unwrap_or(0))
}

#[test]
fn three_replicas_keep_their_three_nodes() {
    assert_eq!(at_rest(replicas(3), 10), (3, 1));
    assert_eq!(at_rest(replicas(3), 0), (3, 1));
    let (nodes, most) = at_rest(replicas(3), 100);
    assert!(nodes < 3 && most > 1, "{nodes} nodes, {most} on one");
}

#[test]
fn replicas_are_brought_together_as_far_as_the_share_allows() {
    // A tenth of thirty are three.
    let (nodes, most) = at_rest(replicas(30), 10);
    assert!((10..30).contains(&nodes) && most <= 3, "{nodes} nodes, {most} on one");
}

#[test]
fn node_above_the_share_stays_and_the_bound_knows_it() {
    let mut fleet = fleet();
    add(&mut fleet, "crowded", "small", &[web(), web(), web()]);
    assert_eq!(claims(&propose(&fleet, &cost()).commands), Vec::<Vec<&str>>::new());
    let bound = lower_bound_per_hour(&fleet, 1_000).expect("there are pods");
    assert!(bound <= 0.1 + 1e-9, "{bound}");
}
