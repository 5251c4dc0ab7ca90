//! The second look at a command after its delay.

use std::sync::Arc;

use karpenter_disruption::command::Command;
use karpenter_disruption::fleet::{Fleet, Reason};
use karpenter_disruption::propose::propose;
use karpenter_disruption::settings::Settings;
use karpenter_disruption::validate::{Rejection, revalidate};

use crate::builders::*;

fn proposed(fleet: &mut Fleet, settings: &Settings) -> Command {
    let mut commands = propose(fleet, settings).commands;
    assert_eq!(commands.len(), 1);
    let command = commands.remove(0);
    // While it waits, the fleet knows about it.
    let names: Vec<String> = claims_of(&command).into_iter().map(str::to_owned).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    wait(fleet, command.method, &names);
    command
}

fn three_empty() -> (Fleet, Command) {
    let mut fleet = fleet();
    for name in ["a", "b", "c"] {
        add(&mut fleet, name, "small", &[]);
    }
    let command = proposed(&mut fleet, &compat());
    (fleet, command)
}

#[test]
fn empty_nodes_are_dropped_one_by_one() {
    let (fleet, command) = three_empty();
    let again = revalidate(&command, &fleet, &compat()).expect("nothing changed");
    assert_eq!(claims_of(&again), ["a", "b", "c"]);

    let (mut fleet, command) = three_empty();
    bind(&mut fleet, 0, pod("app", 100));
    fleet.machines[1].is_nominated = true;
    let again = revalidate(&command, &fleet, &compat()).expect("one is still empty");
    assert_eq!(claims_of(&again), ["c"]);
    assert!((again.price_before_per_hour - 0.1).abs() < 1e-9);
    fleet.machines[2].is_leaving = true;
    let rejected = revalidate(&command, &fleet, &compat()).expect_err("none is left");
    assert_eq!(rejected, Rejection::Churn { gone: 3 });
    assert_eq!(rejected.reason(), "churn");

    let (mut fleet, command) = three_empty();
    allow(&mut fleet, "general", Reason::Empty, 2);
    let again = revalidate(&command, &fleet, &compat()).expect("two are allowed");
    assert_eq!(claims_of(&again), ["a", "b"]);
    allow(&mut fleet, "general", Reason::Empty, 0);
    let rejected = revalidate(&command, &fleet, &compat()).expect_err("none is allowed");
    assert_eq!(rejected.reason(), "budget");
}

#[test]
fn indexes_follow_the_machines() {
    let (mut fleet, command) = three_empty();
    fleet.machines.reverse();
    let again = revalidate(&command, &fleet, &compat()).expect("nothing changed");
    let machines: Vec<usize> = again.candidates.iter().map(|candidate| candidate.machine).collect();
    assert_eq!(machines, [2, 1, 0]);
}

#[test]
fn a_new_machine_of_the_same_name_is_another() {
    let (mut fleet, command) = three_empty();
    fleet.machines[0].uid = "another".into();
    let again = revalidate(&command, &fleet, &compat()).expect("two are left");
    assert_eq!(claims_of(&again), ["b", "c"]);
}

fn one_for_one(settings: &Settings) -> (Fleet, Command) {
    let mut fleet = fleet();
    add(&mut fleet, "a", "large", &[pod("app", 1500)]);
    let command = proposed(&mut fleet, settings);
    (fleet, command)
}

#[test]
fn replacements_are_planned_once_more() {
    for settings in [compat(), cost()] {
        let (fleet, command) = one_for_one(&settings);
        let again = revalidate(&command, &fleet, &settings).expect("nothing changed");
        assert_eq!(types_of(&fleet, &again, 0), types_of(&fleet, &command, 0));
        assert_eq!(again.moves, command.moves);

        type Change = fn(&mut Fleet);
        let cases: [(&str, Change, &str); 7] = [
            ("gone", |fleet| fleet.machines.clear(), "churn"),
            ("nominated", |fleet| fleet.machines[0].is_nominated = true, "budget"),
            ("no budget", |fleet| allow(fleet, "general", Reason::Underutilized, 0), "budget"),
            ("kept by a pod", |fleet| fleet.machines[0].occupants[0].is_do_not_disrupt = true, "churn"),
            (
                "busy again",
                |fleet| {
                    bind(fleet, 0, pod("app", 6000));
                },
                "scheduling",
            ),
            ("cheaper now", |fleet| fleet.machines[0].price_per_hour = 0.05, "scheduling"),
            (
                "nowhere to go",
                |fleet| {
                    fleet.problem.pools.clear();
                    pool(fleet, "general").launches_as = None;
                },
                "scheduling",
            ),
        ];
        for (case, change, reason) in cases {
            let (mut fleet, command) = one_for_one(&settings);
            change(&mut fleet);
            let rejected = revalidate(&command, &fleet, &settings).expect_err(case);
            assert_eq!(rejected.reason(), reason, "{case}: {rejected}");
        }
    }
}

#[test]
fn a_deletion_that_would_need_a_node_now_is_dropped() {
    for settings in [compat(), cost()] {
        let mut fleet = fleet();
        add(&mut fleet, "a", "medium", &[pod("app", 500)]);
        let host = add(&mut fleet, "b", "small", &[pod("app", 1300)]);
        let command = proposed(&mut fleet, &settings);
        assert_eq!(claims_of(&command), ["a"]);
        bind(&mut fleet, host, pod("app", 500));
        let rejected = revalidate(&command, &fleet, &settings).expect_err("b is full");
        assert_eq!(rejected, Rejection::NewResults);
    }
}

#[test]
fn other_types_than_foreseen_are_a_new_plan() {
    let (mut fleet, command) = one_for_one(&compat());
    // Small was foreseen and does not do any more.
    bind(&mut fleet, 0, pod("app", 1500));
    let rejected = revalidate(&command, &fleet, &compat()).expect_err("the plan is another");
    assert_eq!(rejected, Rejection::NewResults);
}

#[test]
fn who_wants_one_node_at_most_is_asked_as_when_it_was_planned() {
    let mut fleet = fleet();
    // Two small nodes are the cheapest, but one medium is cheaper than a large one, too.
    for small in Arc::make_mut(&mut fleet.problem.catalogs[0]).iter_mut().filter(|one| &*one.name == "small")
    {
        small.offerings.iter_mut().for_each(|offering| offering.price_per_hour *= 0.9);
    }
    add(&mut fleet, "a", "large", &[pod("app", 1800), pod("app", 1800)]);
    pool(&mut fleet, "general").controls.is_many_to_many_enabled = false;
    let command = propose(&fleet, &cost()).commands.remove(0);
    assert_eq!(command.replacements.len(), 1);
    let again = revalidate(&command, &fleet, &cost()).expect("nothing has changed");
    assert_eq!(again.replacements.len(), 1);
}
