//! Tests of cost mode, which plans for all nodes at once: commands that are rejected or deferred do not affect the
//! others.

use std::sync::Arc;

use karpenter_disruption::apply;
use karpenter_disruption::cluster::{Cluster, ConsolidationPolicy, Reason};
use karpenter_disruption::command::Command;
use karpenter_disruption::evaluate::evaluate;
use karpenter_disruption::lower_bound::lower_bound_per_hour;
use karpenter_disruption::settings::Settings;
use karpenter_disruption::validate::{Rejection, revalidate};
use karpenter_disruption::verdict::Verdict;

use karpenter_model::labels::ZONE;
use karpenter_model::pod::{PodSpec, TopologySpread};
use karpenter_model::selector::LabelSelector;

use crate::builders::*;

#[test]
fn rejected_deletion_reserves_no_capacity_and_blocks_no_node() {
    let mut cluster = cluster();
    pool(&mut cluster, "general").pool_policy.min_saving_per_hour = 0.15;
    // The pod of a would fit on b, but the deletion of a saves less than the minimum. If the pod of a moved to b, b
    // could not be replaced by a small node.
    add(&mut cluster, "a", "small", &[pod("app", 500)]);
    add(&mut cluster, "b", "large", &[pod("app", 1500)]);
    let evaluation = evaluate(&cluster, &cost());
    assert_eq!(claims(&evaluation.commands), [["b"]]);
    assert!(
        matches!(verdict(&evaluation, "a"), Verdict::BelowThreshold { .. }),
        "{}",
        verdict(&evaluation, "a")
    );
}

#[test]
fn rejected_balanced_deletion_reserves_no_capacity() {
    let mut cluster = cluster();
    pool(&mut cluster, "general").policy = ConsolidationPolicy::Balanced;
    // The deletion of a moves ten pods and saves a ninth of the price. A disruption of b moves one pod and saves at
    // least a third.
    let many: Vec<_> = (0..10).map(|_| pod("app", 50)).collect();
    add(&mut cluster, "a", "small", &many);
    add(&mut cluster, "b", "large", &[pod("app", 1500)]);
    add(&mut cluster, "c", "large", &[pod("app", 7500)]);
    let evaluation = evaluate(&cluster, &cost());
    assert_eq!(claims(&evaluation.commands), [["b"]]);
}

#[test]
fn free_capacity_is_used_for_highest_saving() {
    let mut cluster = cluster();
    Arc::make_mut(&mut cluster.problem.catalogs[0]).push(instance_type("tiny", 1, 0.09));
    // The free capacity of d fits either the pod of a, or all pods of b and c. Deleting b and c saves nearly twice as much as
    // deleting a.
    add(&mut cluster, "a", "small", &[pod("app", 1900)]);
    for name in ["b", "c"] {
        add(&mut cluster, name, "tiny", &[pod("app", 440), pod("app", 440)]);
    }
    let many: Vec<_> = (0..12).map(|_| pod("app", 500)).collect();
    add(&mut cluster, "d", "large", &many);
    let evaluation = evaluate(&cluster, &cost());
    assert_eq!(claims(&evaluation.commands), [["b"], ["c"]]);
}

#[test]
fn node_is_removed_if_it_saves_more_than_its_moves_are_priced_at() {
    let mut cluster = cluster();
    // Removing `a` saves a fifth of the price and moves 100 pods to free capacity of `b`.
    add(&mut cluster, "a", "small", &vec![pod("app", 10); 100]);
    add(&mut cluster, "b", "large", &[pod("app", 6500)]);
    let with_ratio = |saving_ratio| Settings { saving_ratio, ..cost() };
    assert_eq!(claims(&evaluate(&cluster, &with_ratio(0.05)).commands), [["a"]]);
    let evaluation = evaluate(&cluster, &with_ratio(0.3));
    assert!(evaluation.commands.is_empty());
    // Moving a pod is priced at 0.3 of what the 101 pods cost on average in the lower bound.
    let bound = lower_bound_per_hour(&cluster, cost().effort).unwrap();
    let Verdict::Stays { disruption_price_per_hour, pods, .. } = verdict(&evaluation, "a") else {
        panic!("{:?}", verdict(&evaluation, "a"))
    };
    assert!((disruption_price_per_hour - 100.0 * 0.3 * bound / 101.0).abs() < 1e-9);
    assert_eq!(*pods, 100);
}

/// Three nodes with one spread pod each, in three zones. Only c, in the second zone, has capacity for the pod of a, and
/// that pod may move there only after the pod of b has moved to the first zone, where d has capacity. The pod of b
/// could also move to c.
fn mutually_dependent_nodes() -> Cluster {
    let mut cluster = cluster();
    let spread = |cpu_millis| PodSpec {
        spread: vec![TopologySpread {
            key: ZONE.into(),
            max_skew: 1,
            min_domains: None,
            hard: true,
            selector: Some(LabelSelector::from_match_labels(&label_map(&[("app", "spread")]))),
            honor_affinity: true,
            honor_taints: false,
        }],
        ..pod("spread", cpu_millis)
    };
    add(&mut cluster, "a", "small", &[spread(1500)]);
    add(&mut cluster, "b", "small", &[spread(500)]);
    add(&mut cluster, "c", "large", &vec![pod("app", 100); 60]);
    add(&mut cluster, "d", "large", &vec![pod("app", 100); 70]);
    for name in ["b", "c"] {
        let node = cluster.problem.nodes.iter_mut().find(|node| &*node.name == name).expect("it was added");
        node.labels.insert(ZONE.into(), ZONES[1].into());
    }
    cluster
}

#[test]
fn mutually_dependent_nodes_are_one_command() {
    let cluster = mutually_dependent_nodes();
    let evaluation = evaluate(&cluster, &cost());
    assert_eq!(claims(&evaluation.commands), [["a", "b"]]);
    assert!(evaluation.commands[0].replacements.is_empty());
    assert!(revalidate(&evaluation.commands[0], &cluster, &cost()).is_ok());
}

#[test]
fn budget_of_one_deletes_the_independent_node() {
    let mut by_nodes = mutually_dependent_nodes();
    allow(&mut by_nodes, "general", Reason::Underutilized, 1);
    assert_eq!(claims(&evaluate(&by_nodes, &cost()).commands), [["b"]]);
    let mut by_pods = mutually_dependent_nodes();
    guard(&mut by_pods, "spread", 1, &[(0, 0), (1, 0)]);
    assert_eq!(claims(&evaluate(&by_pods, &cost()).commands), [["b"]]);
    let mut by_owner = mutually_dependent_nodes();
    pool(&mut by_owner, "general").pool_policy.max_moves_per_hour = Some(1);
    assert_eq!(claims(&evaluate(&by_owner, &cost()).commands), [["b"]]);
}

/// A command with two nodes, each of which is replaced by another instance type of its size.
fn two_for_two() -> (Cluster, Command) {
    let mut cluster = cluster();
    let catalog = Arc::make_mut(&mut cluster.problem.catalogs[0]);
    catalog.push(instance_type("other", 8, 0.2));
    for name in ["a", "b"] {
        add(&mut cluster, name, "large", &[pod("app", 3000), pod("app", 3000)]);
    }
    let commands = evaluate(&cluster, &cost()).commands;
    let mut together: Option<Command> = None;
    for command in commands {
        match &mut together {
            None => together = Some(command),
            Some(all) => {
                all.candidates.extend(command.candidates);
                all.replacements.extend(command.replacements);
                all.price_before_per_hour += command.price_before_per_hour;
                all.price_after_per_hour += command.price_after_per_hour;
            }
        }
    }
    (cluster, together.expect("half the price"))
}

#[test]
fn validation_rejects_replacements_equal_to_candidates() {
    let (mut cluster, command) = two_for_two();
    assert_eq!(command.candidates.len(), 2);
    assert!(revalidate(&command, &cluster, &cost()).is_ok());
    // The other type is unavailable, and the candidates' own type became cheaper since their launch.
    let mut catalog = cluster.problem.catalogs[0].to_vec();
    catalog.retain(|one| &*one.name != "other");
    for one in catalog.iter_mut().filter(|one| &*one.name == "large") {
        one.offerings.iter_mut().for_each(|offering| offering.price_per_hour *= 0.6);
    }
    cluster.problem.catalogs[0] = Arc::new(catalog);
    let rejected = revalidate(&command, &cluster, &cost()).expect_err("large for large");
    assert_eq!(rejected, Rejection::NotCheaper);
}

#[test]
fn applied_commands_are_recorded_in_move_history() {
    let mut cluster = cluster();
    add(&mut cluster, "a", "large", &[pod("app", 1500)]);
    let commands = evaluate(&cluster, &cost()).commands;
    let next = apply::after(&cluster, &commands);
    assert!(next.now_secs > NOW_SECS);
    assert_eq!(next.state_nodes[0].moved_onto_at_secs, Some(NOW_SECS));
    assert_eq!(next.state_nodes[0].pods[0].moved_at_secs, Some(NOW_SECS));
}
