//! Drifted nodes of ordinary and of static pools.

use std::collections::BTreeSet;
use std::sync::Arc;

use karpenter_disruption::command::{Decision, Destination, Method};
use karpenter_disruption::explain::Why;
use karpenter_disruption::fleet::{Fleet, Reason};
use karpenter_disruption::propose::propose;
use karpenter_disruption::settings::Settings;
use karpenter_disruption::static_drift::{full_reservations, terminate_first_reason};
use karpenter_model::labels;

use crate::builders::*;

/// Full nodes that drifted one after the other, the first of them last by name.
fn drifted(names: &[&str]) -> Fleet {
    let mut fleet = fleet();
    for (number, name) in names.iter().enumerate() {
        let machine = add(&mut fleet, name, "medium", &[pod("app", 1900), pod("app", 1900)]);
        fleet.machines[machine].drifted_since_secs = Some(100 + number as i64);
    }
    fleet
}

#[test]
fn the_oldest_drift_first_one_per_pass_in_compat() {
    let fleet = drifted(&["z", "a"]);
    let proposal = propose(&fleet, &compat());
    assert_eq!(claims(&proposal.commands), [["z"]]);
    let command = &proposal.commands[0];
    assert_eq!((command.method, command.decision), (Method::Drift, Decision::Replace));
    assert_eq!(command.moves.len(), 2);
    assert!(command.moves.iter().all(|(_, to)| *to == Destination::New(0)));
    assert_eq!(*why(&proposal, "a"), Why::NotNow);
}

#[test]
fn several_at_once_in_cost_mode_within_budgets() {
    let mut fleet = drifted(&["a", "b", "c"]);
    assert_eq!(claims(&propose(&fleet, &cost()).commands), [["a"], ["b"], ["c"]]);
    allow(&mut fleet, "general", Reason::Drifted, 2);
    let proposal = propose(&fleet, &cost());
    assert_eq!(claims(&proposal.commands), [["a"], ["b"]]);
    let exhausted = Why::BudgetExhausted { pool: "general".into(), reason: Reason::Drifted };
    assert_eq!(*why(&proposal, "c"), exhausted);
}

#[test]
fn a_node_becomes_many_only_for_a_saving_that_is_worth_it() {
    for (small_per_hour, count) in [(0.098, 1), (0.06, 4)] {
        let mut fleet = fleet();
        fleet.problem.catalogs[0] =
            Arc::new(vec![instance_type("small", 2, small_per_hour), instance_type("large", 8, 0.4)]);
        let pods: Vec<_> = (0..4).map(|_| pod("app", 1900)).collect();
        let machine = add(&mut fleet, "a", "large", &pods);
        fleet.machines[machine].drifted_since_secs = Some(100);
        let proposal = propose(&fleet, &cost());
        assert_eq!(proposal.commands[0].replacements.len(), count, "small ones at {small_per_hour}");
        assert_eq!(proposal.commands[0].moves.len(), 4);
    }
}

#[test]
fn commands_do_not_count_on_the_same_room() {
    let mut fleet = drifted(&["a", "b"]);
    // Room for two of the four pods.
    add(&mut fleet, "other", "large", &[pod("app", 3900)]);
    let proposal = propose(&fleet, &cost());
    assert_eq!(claims(&proposal.commands), [["a"], ["b"]]);
    let onto_other = proposal.commands.iter().flat_map(|command| &command.moves);
    assert_eq!(onto_other.filter(|(_, to)| *to == Destination::Existing(2)).count(), 2);
}

#[test]
fn empty_nodes_come_first() {
    let mut fleet = drifted(&["a"]);
    let empty = add(&mut fleet, "empty", "small", &[]);
    fleet.machines[empty].drifted_since_secs = Some(900);
    pool(&mut fleet, "general").consolidate_after_secs = None;
    let proposal = propose(&fleet, &compat());
    assert_eq!(claims(&proposal.commands), [["empty"]]);
    assert_eq!(proposal.commands[0].decision, Decision::Delete);
}

#[test]
fn one_node_may_be_replaced_by_several() {
    let mut fleet = fleet();
    // Nothing holds both pods any more.
    let machine = add(&mut fleet, "a", "large", &[pod("app", 3800), pod("app", 3800)]);
    fleet.machines[machine].drifted_since_secs = Some(1);
    fleet.problem.pools[0].requirements.add(wants(labels::INSTANCE_TYPE, &["small", "medium"]));
    let proposal = propose(&fleet, &compat());
    assert_eq!(proposal.commands[0].replacements.len(), 2);
}

#[test]
fn a_node_whose_pods_fit_nowhere_is_passed_over() {
    let mut fleet = drifted(&["a", "b"]);
    let stuck = bind(&mut fleet, 0, pod("huge", 100)).name.clone();
    let mut spec = pod("huge", 100);
    spec.node_selector.add(wants("disk", &["fast"]));
    fleet.problem.nodes[0].pods[2].spec = spec.into();
    let proposal = propose(&fleet, &compat());
    assert_eq!(claims(&proposal.commands), [["b"]]);
    let Why::WouldNotFit { unplaced } = why(&proposal, "a") else { panic!("{:?}", why(&proposal, "a")) };
    assert_eq!(unplaced.len(), 1);
    assert_eq!(unplaced[0].pod, stuck);
    assert!(!unplaced[0].reasons.is_empty());
    let text = why(&proposal, "a").to_string();
    assert!(text.starts_with("Not all pods would schedule, default/a-2 => "), "{text}");
}

#[test]
fn a_place_on_a_node_that_is_coming_up_does_not_count() {
    let mut fleet = drifted(&["a"]);
    let coming = add(&mut fleet, "coming", "large", &[]);
    fleet.machines[coming].is_initialized = false;
    fleet.problem.nodes[1].initialized = false;
    let proposal = propose(&fleet, &compat());
    assert!(proposal.commands.is_empty());
    let text = why(&proposal, "a").to_string();
    assert!(text.contains("would schedule against uninitialized nodeclaim/coming, node/coming"), "{text}");
    let proposal = propose(&fleet, &cost());
    assert_eq!(proposal.commands[0].replacements.len(), 1, "a place of its own does");
}

#[test]
fn pods_that_wait_neither_block_nor_are_launched_for() {
    let mut fleet = drifted(&["a"]);
    let group = |prefix: &str, spec| karpenter_model::problem::PodGroup {
        spec: std::sync::Arc::new(spec),
        names: karpenter_model::problem::PodNames::Numbered { prefix: prefix.into(), count: 1 },
        created_at_secs: 0,
    };
    let mut nowhere = pod("nowhere", 100);
    nowhere.node_selector.add(wants("disk", &["fast"]));
    fleet.problem.pods = vec![group("nowhere", nowhere), group("large", pod("large", 7500))];
    let proposal = propose(&fleet, &compat());
    assert_eq!(claims(&proposal.commands), [["a"]]);
    assert_eq!(proposal.commands[0].replacements.len(), 1, "the other node is provisioning's business");
}

#[test]
fn a_settling_node_takes_pods_that_have_to_move() {
    let mut fleet = drifted(&["a"]);
    add(&mut fleet, "b", "medium", &[]);
    fleet.problem.nodes[1].is_settling = true;
    pool(&mut fleet, "general").consolidate_after_secs = None;
    for settings in [compat(), cost()] {
        let proposal = propose(&fleet, &settings);
        assert_eq!(proposal.commands[0].decision, Decision::Delete, "{:?}", settings.mode);
        assert!(proposal.commands[0].moves.iter().all(|(_, to)| *to == Destination::Existing(1)));
    }
    // Unless it is about to go itself.
    wait(&mut fleet, Method::Emptiness, &["b"]);
    assert_eq!(propose(&fleet, &cost()).commands[0].decision, Decision::Replace);
}

/// A node in a full reservation, in a pool that knows nothing else.
fn reserved_node() -> Fleet {
    let mut fleet = fleet();
    let mut only = instance_type("small", 2, 0.1);
    only.offerings = vec![reserved(ZONES[0], "cr-1", 0)];
    only.requirements.replace(wants(labels::CAPACITY_TYPE, &[labels::CAPACITY_TYPE_RESERVED]));
    fleet.problem.catalogs[0] = std::sync::Arc::new(vec![only]);
    fleet.problem.pools[0].requirements =
        [wants(labels::CAPACITY_TYPE, &[labels::CAPACITY_TYPE_RESERVED])].into_iter().collect();
    let kind = labels::CAPACITY_TYPE_RESERVED;
    let machine = add_to(&mut fleet, "a", "general", "small", kind, &[pod("app", 1500)]);
    fleet.machines[machine].drifted_since_secs = Some(1);
    fleet.machines[machine].reservation_id = Some("cr-1".into());
    fleet
}

#[test]
fn a_node_in_a_full_reservation_ends_first_if_it_may() {
    let fleet = reserved_node();
    let blocked = propose(&fleet, &compat());
    assert!(blocked.commands.is_empty());
    assert!(matches!(why(&blocked, "a"), Why::WouldNotFit { .. }));
    let event = blocked.standings[0].event();
    assert_eq!(event, Some(karpenter_disruption::explain::EventKind::DisruptionBlocked));
    for settings in [terminate_first(), Settings { terminate_first_drift: true, ..cost() }] {
        let proposal = propose(&fleet, &settings);
        let command = &proposal.commands[0];
        assert_eq!(command.decision, Decision::TerminateFirst);
        assert!(command.replacements.is_empty() && command.moves.is_empty());
        assert_eq!(terminate_first_reason(&fleet, command), "no-reserved-capacity");
    }
    // A slot of another reservation frees nothing.
    let mut fleet = fleet;
    fleet.machines[0].reservation_id = Some("cr-2".into());
    assert!(propose(&fleet, &terminate_first()).commands.is_empty());
}

#[test]
fn a_freed_slot_has_to_be_enough() {
    let mut fleet = reserved_node();
    // Two pods that need a node each now.
    let machine = 0;
    fleet.problem.nodes[0].allocatable.set("cpu", 4000);
    bind(&mut fleet, machine, pod("app", 1500));
    let proposal = propose(&fleet, &terminate_first());
    assert!(proposal.commands.is_empty());
    assert!(matches!(why(&proposal, "a"), Why::WouldNotFit { .. }));
}

fn of_static_pool(replicas: u32, nodes_left: Option<u32>, names: &[&str]) -> Fleet {
    let mut fleet = fleet();
    add_static_pool(&mut fleet, "fixed", replicas, nodes_left);
    for (number, name) in names.iter().enumerate() {
        let machine = add_to(&mut fleet, name, "fixed", "small", labels::CAPACITY_TYPE_ON_DEMAND, &[]);
        fleet.machines[machine].drifted_since_secs = Some(number as i64);
    }
    fleet
}

fn terminate_first() -> Settings {
    Settings { terminate_first_drift: true, ..compat() }
}

#[test]
fn static_pools_replace_one_by_one_within_limit_and_budget() {
    let names = ["a", "b", "c"];
    let none: [[&str; 1]; 0] = [];
    let all = propose(&of_static_pool(3, None, &names), &compat());
    assert_eq!(claims(&all.commands), [["a"], ["b"], ["c"]]);
    for command in &all.commands {
        assert_eq!((command.method, command.decision), (Method::StaticDrift, Decision::Replace));
        assert_eq!(command.static_pool.as_deref(), Some("fixed"));
    }
    let limited = propose(&of_static_pool(3, Some(1), &names), &compat());
    assert_eq!(claims(&limited.commands), [["a"]]);
    assert_eq!(*why(&limited, "b"), Why::NotNow);
    let full = propose(&of_static_pool(3, Some(0), &names), &compat());
    assert_eq!(claims(&full.commands), none);
    assert_eq!(
        why(&full, "a").to_string(),
        "static NodePool is at its node limit and cannot stage a replacement"
    );
    let too_many = propose(&of_static_pool(2, None, &names), &compat());
    assert_eq!(claims(&too_many.commands), none);
    assert_eq!(*why(&too_many, "a"), Why::StaticScalingDown);
    // A replacement is there, and the node it is for is marked: upstream begins nothing until that is being deleted.
    let mut under_way = of_static_pool(2, None, &names);
    under_way.machines[2].drifted_since_secs = None;
    under_way.machines[0].is_leaving = true;
    assert_eq!(claims(&propose(&under_way, &compat()).commands), none);
    assert_eq!(claims(&propose(&under_way, &cost()).commands), [["b"]]);
    under_way.machines[0].is_deleting = true;
    assert_eq!(claims(&propose(&under_way, &compat()).commands), [["b"]]);
    let mut held = of_static_pool(3, None, &names);
    pool(&mut held, "fixed").is_in_launch_backoff = true;
    let held = propose(&held, &cost());
    assert_eq!(claims(&held.commands), none);
    assert_eq!(*why(&held, "a"), Why::LaunchesFail { pool: "fixed".into() });
    let mut budgeted = of_static_pool(3, None, &names);
    allow(&mut budgeted, "fixed", Reason::Drifted, 2);
    assert_eq!(claims(&propose(&budgeted, &compat()).commands), [["a"], ["b"]]);
}

#[test]
fn a_static_pool_at_its_limit_ends_nodes_first_if_it_may() {
    let mut fleet = of_static_pool(2, Some(0), &["a", "b"]);
    allow(&mut fleet, "fixed", Reason::Drifted, 1);
    let proposal = propose(&fleet, &terminate_first());
    assert_eq!(claims(&proposal.commands), [["a"]]);
    let command = &proposal.commands[0];
    assert_eq!((command.decision, command.static_pool.as_deref()), (Decision::TerminateFirst, None));
    assert_eq!(terminate_first_reason(&fleet, command), "static-at-limit");
    // Nobody would fill the gap.
    pool(&mut fleet, "fixed").is_ready = false;
    assert!(propose(&fleet, &terminate_first()).commands.is_empty());
}

#[test]
fn with_full_reservations_only_holders_of_a_slot_go() {
    let mut fleet = of_static_pool(2, None, &["a", "b"]);
    pool(&mut fleet, "fixed").full_reservations = Some(BTreeSet::from(["cr-1".into()]));
    let holder = &mut fleet.machines[1];
    holder.capacity_type = Some(labels::CAPACITY_TYPE_RESERVED.into());
    holder.reservation_id = Some("cr-1".into());
    let proposal = propose(&fleet, &terminate_first());
    assert_eq!(claims(&proposal.commands), [["b"]]);
    assert_eq!(proposal.commands[0].decision, Decision::TerminateFirst);
    assert_eq!(terminate_first_reason(&fleet, &proposal.commands[0]), "no-reserved-capacity");
    assert_eq!(
        why(&proposal, "a").to_string(),
        "static NodePool's capacity reservations are full and cannot stage a replacement"
    );
    // Without the gate there is nothing to do but to try.
    assert_eq!(claims(&propose(&fleet, &compat()).commands), [["a"], ["b"]]);
}

#[test]
fn when_reservations_count_as_full() {
    let fleet = fleet();
    let open = &fleet.problem.well_known;
    let mut of_type = instance_type("r", 2, 0.1);
    let only_reserved =
        [wants(labels::CAPACITY_TYPE, &[labels::CAPACITY_TYPE_RESERVED])].into_iter().collect();
    of_type.requirements.replace(wants(
        labels::CAPACITY_TYPE,
        &[labels::CAPACITY_TYPE_ON_DEMAND, labels::CAPACITY_TYPE_SPOT, labels::CAPACITY_TYPE_RESERVED],
    ));
    of_type.offerings.push(reserved("zone-a", "cr-1", 0));
    let full = full_reservations(&[of_type.clone()], &only_reserved, open);
    assert_eq!(full, Some(BTreeSet::from(["cr-1".into()])));
    assert_eq!(full_reservations(&[of_type.clone()], &no_requirements(), open), None, "on demand will do");
    of_type.offerings.last_mut().expect("pushed").reservation_capacity = Some(1);
    assert_eq!(full_reservations(&[of_type.clone()], &only_reserved, open), None, "there is room");
    let last = of_type.offerings.last_mut().expect("pushed");
    (last.available, last.reservation_capacity) = (false, Some(0));
    assert_eq!(
        full_reservations(&[of_type], &only_reserved, open),
        Some(BTreeSet::new()),
        "no longer offered"
    );
}
