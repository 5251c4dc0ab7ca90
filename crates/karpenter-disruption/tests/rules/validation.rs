//! Tests of the validation of a command after its delay.

use std::sync::Arc;

use karpenter_disruption::cluster::{Cluster, Reason};
use karpenter_disruption::command::Command;
use karpenter_disruption::evaluate::evaluate;
use karpenter_disruption::settings::Settings;
use karpenter_disruption::validate::{Rejection, revalidate};

use crate::builders::*;

fn proposed(cluster: &mut Cluster, settings: &Settings) -> Command {
    let mut commands = evaluate(cluster, settings).commands;
    assert_eq!(commands.len(), 1);
    let command = commands.remove(0);
    // The proposed command is part of the cluster.
    let names: Vec<String> = claims_of(&command).into_iter().map(str::to_owned).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    wait(cluster, command.method, &names);
    command
}

fn three_empty() -> (Cluster, Command) {
    let mut cluster = cluster();
    for name in ["a", "b", "c"] {
        add(&mut cluster, name, "small", &[]);
    }
    let command = proposed(&mut cluster, &compat());
    (cluster, command)
}

#[test]
fn validation_removes_nodes_that_are_no_longer_empty() {
    let (cluster, command) = three_empty();
    let again = revalidate(&command, &cluster, &compat()).expect("nothing changed");
    assert_eq!(claims_of(&again), ["a", "b", "c"]);

    let (mut cluster, command) = three_empty();
    bind(&mut cluster, 0, pod("app", 100));
    cluster.state_nodes[1].is_nominated = true;
    let again = revalidate(&command, &cluster, &compat()).expect("one is still empty");
    assert_eq!(claims_of(&again), ["c"]);
    assert!((again.price_before_per_hour - 0.1).abs() < 1e-9);
    cluster.state_nodes[2].is_marked_for_deletion = true;
    let rejected = revalidate(&command, &cluster, &compat()).expect_err("none is left");
    assert_eq!(rejected, Rejection::Churn { gone: 3 });
    assert_eq!(rejected.reason(), "churn");

    let (mut cluster, command) = three_empty();
    allow(&mut cluster, "general", Reason::Empty, 2);
    let again = revalidate(&command, &cluster, &compat()).expect("two are allowed");
    assert_eq!(claims_of(&again), ["a", "b"]);
    allow(&mut cluster, "general", Reason::Empty, 0);
    let rejected = revalidate(&command, &cluster, &compat()).expect_err("none is allowed");
    assert_eq!(rejected.reason(), "budget");
}

#[test]
fn validation_updates_indexes() {
    let (mut cluster, command) = three_empty();
    cluster.state_nodes.reverse();
    let again = revalidate(&command, &cluster, &compat()).expect("nothing changed");
    let state_nodes: Vec<usize> = again.candidates.iter().map(|candidate| candidate.state_node).collect();
    assert_eq!(state_nodes, [2, 1, 0]);
}

#[test]
fn claim_with_same_name_and_other_uid_is_another() {
    let (mut cluster, command) = three_empty();
    cluster.state_nodes[0].uid = "another".into();
    let again = revalidate(&command, &cluster, &compat()).expect("two are left");
    assert_eq!(claims_of(&again), ["b", "c"]);
}

fn one_for_one(settings: &Settings) -> (Cluster, Command) {
    let mut cluster = cluster();
    add(&mut cluster, "a", "large", &[pod("app", 1500)]);
    let command = proposed(&mut cluster, settings);
    (cluster, command)
}

#[test]
fn validation_plans_replacements_again() {
    for settings in [compat(), cost()] {
        let (cluster, command) = one_for_one(&settings);
        let again = revalidate(&command, &cluster, &settings).expect("nothing changed");
        assert_eq!(types_of(&cluster, &again, 0), types_of(&cluster, &command, 0));
        assert_eq!(again.moves, command.moves);

        type Change = fn(&mut Cluster);
        let cases: [(&str, Change, &str); 7] = [
            ("gone", |cluster| cluster.state_nodes.clear(), "churn"),
            ("nominated", |cluster| cluster.state_nodes[0].is_nominated = true, "budget"),
            ("no budget", |cluster| allow(cluster, "general", Reason::Underutilized, 0), "budget"),
            (
                "do-not-disrupt pod",
                |cluster| cluster.state_nodes[0].pods[0].is_do_not_disrupt = true,
                "churn",
            ),
            (
                "more pods",
                |cluster| {
                    bind(cluster, 0, pod("app", 6000));
                },
                "scheduling",
            ),
            ("cheaper now", |cluster| cluster.state_nodes[0].price_per_hour = 0.05, "scheduling"),
            (
                "no target",
                |cluster| {
                    cluster.problem.pools.clear();
                    pool(cluster, "general").launches_as = None;
                },
                "scheduling",
            ),
        ];
        for (case, change, reason) in cases {
            let (mut cluster, command) = one_for_one(&settings);
            change(&mut cluster);
            let rejected = revalidate(&command, &cluster, &settings).expect_err(case);
            assert_eq!(rejected.reason(), reason, "{case}: {rejected}");
        }
    }
}

#[test]
fn deletion_that_needs_replacement_now_is_rejected() {
    for settings in [compat(), cost()] {
        let mut cluster = cluster();
        add(&mut cluster, "a", "medium", &[pod("app", 500)]);
        let host = add(&mut cluster, "b", "small", &[pod("app", 1300)]);
        let command = proposed(&mut cluster, &settings);
        assert_eq!(claims_of(&command), ["a"]);
        bind(&mut cluster, host, pod("app", 500));
        let rejected = revalidate(&command, &cluster, &settings).expect_err("b is full");
        assert_eq!(rejected, Rejection::NewResults);
    }
}

#[test]
fn other_instance_types_are_new_results() {
    let (mut cluster, command) = one_for_one(&compat());
    // The type small was proposed and is too small now.
    bind(&mut cluster, 0, pod("app", 1500));
    let rejected = revalidate(&command, &cluster, &compat()).expect_err("other instance types");
    assert_eq!(rejected, Rejection::NewResults);
}

#[test]
fn validation_respects_limit_of_one_replacement() {
    let mut cluster = cluster();
    // The cheapest plan has two small nodes, but one node of type medium is also cheaper than one of type large.
    for small in
        Arc::make_mut(&mut cluster.problem.catalogs[0]).iter_mut().filter(|one| &*one.name == "small")
    {
        small.offerings.iter_mut().for_each(|offering| offering.price_per_hour *= 0.9);
    }
    add(&mut cluster, "a", "large", &[pod("app", 1800), pod("app", 1800)]);
    pool(&mut cluster, "general").pool_policy.is_many_to_many_enabled = false;
    let command = evaluate(&cluster, &cost()).commands.remove(0);
    assert_eq!(command.replacements.len(), 1);
    let again = revalidate(&command, &cluster, &cost()).expect("nothing has changed");
    assert_eq!(again.replacements.len(), 1);
}
