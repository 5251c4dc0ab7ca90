//! Mode Cost plans for all nodes at once: what one node must not do to the plans for the others.

use std::sync::Arc;

use karpenter_disruption::carried_out;
use karpenter_disruption::command::Command;
use karpenter_disruption::explain::Why;
use karpenter_disruption::fleet::{ConsolidationPolicy, Fleet, Reason, Thorough};
use karpenter_disruption::propose::propose;
use karpenter_disruption::validate::{Rejection, revalidate};

use karpenter_model::labels::ZONE;
use karpenter_model::pod::{PodSpec, TopologySpread};
use karpenter_model::selector::LabelSelector;

use crate::builders::*;

#[test]
fn a_deletion_that_owners_do_not_want_takes_no_room_and_closes_no_node() {
    let mut fleet = fleet();
    pool(&mut fleet, "general").controls.min_saving_per_hour = 0.15;
    // a would fit on b, for less than its owner asks for; then b could not become a small one.
    add(&mut fleet, "a", "small", &[pod("app", 500)]);
    add(&mut fleet, "b", "large", &[pod("app", 1500)]);
    let proposal = propose(&fleet, &cost());
    assert_eq!(claims(&proposal.commands), [["b"]]);
    assert!(matches!(why(&proposal, "a"), Why::BelowThreshold { .. }), "{}", why(&proposal, "a"));
}

#[test]
fn a_deletion_that_a_balanced_pool_does_not_want_takes_no_room() {
    let mut fleet = fleet();
    pool(&mut fleet, "general").policy = ConsolidationPolicy::Balanced;
    // Ten pods for a ninth of the price, and one pod for six ninths.
    let many: Vec<_> = (0..10).map(|_| pod("app", 50)).collect();
    add(&mut fleet, "a", "small", &many);
    add(&mut fleet, "b", "large", &[pod("app", 1500)]);
    add(&mut fleet, "c", "large", &[pod("app", 7500)]);
    let proposal = propose(&fleet, &cost());
    assert_eq!(claims(&proposal.commands), [["b"]]);
}

#[test]
fn room_goes_to_those_that_save_most_for_it() {
    let mut fleet = fleet();
    Arc::make_mut(&mut fleet.problem.catalogs[0]).push(instance_type("tiny", 1, 0.09));
    // What is left on d takes the one pod of a, or all pods of b and c, which cost nearly twice as much together.
    add(&mut fleet, "a", "small", &[pod("app", 1900)]);
    for name in ["b", "c"] {
        add(&mut fleet, name, "tiny", &[pod("app", 440), pod("app", 440)]);
    }
    let many: Vec<_> = (0..12).map(|_| pod("app", 500)).collect();
    add(&mut fleet, "d", "large", &many);
    let proposal = propose(&fleet, &cost());
    assert_eq!(claims(&proposal.commands), [["b"], ["c"]]);
}

#[test]
fn a_node_that_could_go_for_nothing_waits_for_what_saves_more_for_the_trouble() {
    let mut fleet = fleet();
    // A hundred pods for a ninth of the price, on b if that stays; and one pod for a third of it, if b becomes a small one.
    add(&mut fleet, "a", "small", &vec![pod("app", 10); 100]);
    add(&mut fleet, "b", "large", &[pod("app", 1500)]);
    add(&mut fleet, "c", "large", &[pod("app", 7500)]);
    assert_eq!(claims(&propose(&fleet, &cost()).commands), [["b"]]);
    // Where few may go at once nobody waits for another look.
    allow(&mut fleet, "general", Reason::Underutilized, 1);
    assert_eq!(claims(&propose(&fleet, &cost()).commands), [["a"]]);
}

/// One spread pod in each zone, on a node of its own. Only c, in the second zone, has room for that of a, which may go there
/// only if that of b goes to the first zone, where d has room for it; that of b could go to c, too.
fn that_need_each_other() -> Fleet {
    let mut fleet = fleet();
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
    add(&mut fleet, "a", "small", &[spread(1500)]);
    add(&mut fleet, "b", "small", &[spread(500)]);
    add(&mut fleet, "c", "large", &vec![pod("app", 100); 60]);
    add(&mut fleet, "d", "large", &vec![pod("app", 100); 70]);
    for name in ["b", "c"] {
        let node = fleet.problem.nodes.iter_mut().find(|node| &*node.name == name).expect("it was added");
        node.labels.insert(ZONE.into(), ZONES[1].into());
    }
    fleet
}

#[test]
fn nodes_that_can_only_go_together_go_in_one_command() {
    let fleet = that_need_each_other();
    let proposal = propose(&fleet, &cost());
    assert_eq!(claims(&proposal.commands), [["a", "b"]]);
    assert!(proposal.commands[0].replacements.is_empty());
    assert!(revalidate(&proposal.commands[0], &fleet, &cost()).is_ok());
}

#[test]
fn where_they_may_not_go_together_the_one_goes_that_can() {
    let mut by_nodes = that_need_each_other();
    allow(&mut by_nodes, "general", Reason::Underutilized, 1);
    assert_eq!(claims(&propose(&by_nodes, &cost()).commands), [["b"]]);
    let mut by_pods = that_need_each_other();
    guard(&mut by_pods, "spread", 1, &[(0, 0), (1, 0)]);
    assert_eq!(claims(&propose(&by_pods, &cost()).commands), [["b"]]);
    let mut by_owner = that_need_each_other();
    pool(&mut by_owner, "general").controls.max_moves_per_hour = Some(1);
    assert_eq!(claims(&propose(&by_owner, &cost()).commands), [["b"]]);
}

/// Two nodes in one command, each to be replaced by another type of its size.
fn two_for_two() -> (Fleet, Command) {
    let mut fleet = fleet();
    let catalog = Arc::make_mut(&mut fleet.problem.catalogs[0]);
    catalog.push(instance_type("other", 8, 0.2));
    for name in ["a", "b"] {
        add(&mut fleet, name, "large", &[pod("app", 3000), pod("app", 3000)]);
    }
    let commands = propose(&fleet, &cost()).commands;
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
    (fleet, together.expect("half the price"))
}

#[test]
fn the_same_nodes_again_are_no_improvement_at_the_second_look_either() {
    let (mut fleet, command) = two_for_two();
    assert_eq!(command.candidates.len(), 2);
    assert!(revalidate(&command, &fleet, &cost()).is_ok());
    // The other type is sold out, and what they are costs less than it did when they were bought.
    let mut catalog = fleet.problem.catalogs[0].to_vec();
    catalog.retain(|one| &*one.name != "other");
    for one in catalog.iter_mut().filter(|one| &*one.name == "large") {
        one.offerings.iter_mut().for_each(|offering| offering.price_per_hour *= 0.6);
    }
    fleet.problem.catalogs[0] = Arc::new(catalog);
    let rejected = revalidate(&command, &fleet, &cost()).expect_err("large for large");
    assert_eq!(rejected, Rejection::NotCheaper);
}

#[test]
fn what_was_carried_out_is_remembered() {
    let mut fleet = fleet();
    add(&mut fleet, "a", "large", &[pod("app", 1500)]);
    let mut commands = propose(&fleet, &cost()).commands;
    commands[0].is_thorough = true;
    let next = carried_out::after(&fleet, &commands);
    assert!(next.now_secs > NOW_SECS);
    assert_eq!(next.machines[0].moved_onto_at_secs, Some(NOW_SECS));
    assert_eq!(next.machines[0].occupants[0].moved_at_secs, Some(NOW_SECS));
    let thorough = next.thorough.expect("it said so");
    assert_eq!((thorough.began_secs, thorough.last_secs), (NOW_SECS, NOW_SECS));
    // Still at it, and again after a while.
    for (ago_secs, began_secs) in [(299, NOW_SECS - 400), (300, NOW_SECS)] {
        fleet.thorough = Some(Thorough { began_secs: NOW_SECS - 400, last_secs: NOW_SECS - ago_secs });
        let thorough = carried_out::after(&fleet, &commands).thorough.expect("it said so");
        assert_eq!((thorough.began_secs, thorough.last_secs), (began_secs, NOW_SECS));
    }
}
