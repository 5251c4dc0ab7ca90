//! Which nodes may be disrupted, by class, and the words for those that may not.

use karpenter_disruption::candidate::{Class, candidate};
use karpenter_disruption::command::Method;
use karpenter_disruption::fleet::{Fleet, Machine, Reason};
use karpenter_disruption::propose::propose;

use crate::builders::*;

const CLASSES: [(Class, Reason); 3] = [
    (Class::Graceful, Reason::Underutilized),
    (Class::Eventual, Reason::Drifted),
    (Class::Repair, Reason::Unhealthy),
];

fn one_node() -> Fleet {
    let mut fleet = fleet();
    add(&mut fleet, "a", "small", &[pod("app", 500), pod("app", 500)]);
    fleet
}

/// What each class says: graceful, eventual, repair. `""`: it may go.
fn check(case: &str, fleet: &Fleet, expected: [&str; 3]) {
    for ((class, reason), expected) in CLASSES.into_iter().zip(expected) {
        let said = candidate(fleet, 0, class, reason);
        let said = said.map_or_else(|blocked| blocked.to_string(), |_| String::new());
        assert_eq!(said, expected, "{case}, {class:?}");
    }
}

#[test]
fn what_a_command_takes_away_is_no_news_to_anybody() {
    let mut fleet = one_node();
    fleet.machines[0].is_leaving = true;
    fleet.machines[0].drifted_since_secs = Some(1);
    fleet.in_commands.insert("a".into());
    check("in a command", &fleet, ["Candidate is already being disrupted"; 3]);
    for settings in [compat(), cost()] {
        let proposal = propose(&fleet, &settings);
        let events: Vec<_> = proposal.standings.iter().filter_map(|standing| standing.event()).collect();
        assert_eq!(events, [], "{:?}", settings.mode);
    }
}

#[test]
fn states_of_the_node() {
    type Change = fn(&mut Machine);
    let cases: [(&str, Change, [&str; 3]); 12] = [
        ("nothing", |_| {}, ["", "", ""]),
        ("no node", |one| one.node = None, ["Nodeclaim does not have an associated node"; 3]),
        ("rebooting", |one| one.is_rebooting = true, ["Node is rebooting"; 3]),
        ("leaving", |one| one.is_leaving = true, ["Node is deleting or marked for deletion"; 3]),
        // The order of the checks: what is on its way out is not blamed for not being up.
        (
            "leaving before it was up",
            |one| (one.is_leaving, one.is_initialized) = (true, false),
            ["Node is deleting or marked for deletion"; 3],
        ),
        (
            "unregistered",
            |one| (one.is_registered, one.is_initialized) = (false, false),
            ["Node isn't initialized nor registered"; 3],
        ),
        (
            "uninitialised",
            |one| one.is_initialized = false,
            ["Node isn't initialized", "Node isn't initialized", ""],
        ),
        // Pods that wait for a node that never comes up keep it nominated; repair does not mind.
        (
            "uninitialised and nominated",
            |one| (one.is_initialized, one.is_nominated) = (false, true),
            ["Node isn't initialized", "Node isn't initialized", ""],
        ),
        ("nominated", |one| one.is_nominated = true, ["Node is nominated for a pending pod"; 3]),
        (
            "kept",
            |one| one.is_do_not_disrupt = true,
            [
                "Disruption is blocked through the \"karpenter.sh/do-not-disrupt\" annotation",
                "Disruption is blocked through the \"karpenter.sh/do-not-disrupt\" annotation",
                "",
            ],
        ),
        (
            "no pool label",
            |one| one.pool = None,
            [
                "Node doesn't have required label (label=karpenter.sh/nodepool)",
                "Node doesn't have required label (label=karpenter.sh/nodepool)",
                "repair requires a NodePool to construct and budget a safe replacement",
            ],
        ),
        ("unknown pool", |one| one.pool = Some("gone".into()), ["NodePool not found (NodePool=gone)"; 3]),
    ];
    for (case, change, expected) in cases {
        let mut fleet = one_node();
        change(&mut fleet.machines[0]);
        check(case, &fleet, expected);
    }
}

#[test]
fn a_node_of_a_waiting_proposal_is_taken() {
    let mut fleet = one_node();
    wait(&mut fleet, Method::Emptiness, &["a"]);
    check("waiting", &fleet, ["Candidate is already being disrupted"; 3]);
}

#[test]
fn a_node_rests_only_for_the_reasons_that_failed() {
    const RESTING: &str = "Disruption failed lately, and its replacement is not initialized yet";
    let mut fleet = one_node();
    fleet.resting.insert("a".into(), [Reason::Drifted].into());
    check("drift failed", &fleet, ["", RESTING, ""]);
    fleet.resting.insert("a".into(), [Reason::Underutilized, Reason::Unhealthy].into());
    check("savings and repair failed", &fleet, [RESTING, "", RESTING]);
}

#[test]
fn pods_that_stand_in_the_way() {
    type Change = fn(&mut Fleet);
    const KEPT: &str = "Pod has \"karpenter.sh/do-not-disrupt\" annotation (Pod=default/a-1)";
    const BUDGET: &str = "Pdb prevents pod evictions (PodDisruptionBudget=[default/guard])";
    const BUDGETS: &str =
        "Eviction does not support multiple PDBs (PodDisruptionBudget(s)=[default/guard default/other])";
    let cases: [(&str, Change, &str); 9] = [
        ("kept", |fleet| fleet.machines[0].occupants[1].is_do_not_disrupt = true, KEPT),
        (
            "kept, but finished",
            |fleet| {
                let pod = &mut fleet.machines[0].occupants[1];
                (pod.is_do_not_disrupt, pod.is_active, pod.is_evictable) = (true, false, false);
            },
            "",
        ),
        ("a daemon that is kept", |fleet| bind_daemon(fleet, 0, pod("log", 10)).is_do_not_disrupt = true, {
            "Pod has \"karpenter.sh/do-not-disrupt\" annotation (Pod=default/a-2)"
        }),
        (
            "a budget with room",
            |fleet| {
                guard(fleet, "default/guard", 1, &[(0, 0), (0, 1)]);
            },
            "",
        ),
        (
            "a budget without",
            |fleet| {
                guard(fleet, "default/guard", 0, &[(0, 0)]);
            },
            BUDGET,
        ),
        (
            "a budget without, on a pod that is not evicted",
            |fleet| {
                guard(fleet, "default/guard", 0, &[(0, 0)]);
                fleet.machines[0].occupants[0].is_evictable = false;
            },
            "",
        ),
        (
            "a budget without that lets unready pods go",
            |fleet| {
                let budget = guard(fleet, "default/guard", 0, &[(0, 0)]);
                fleet.pod_budgets[budget].always_allows_unready = true;
                fleet.machines[0].occupants[0].is_unready = true;
            },
            "",
        ),
        (
            "the same with a ready pod",
            |fleet| {
                let budget = guard(fleet, "default/guard", 0, &[(0, 0)]);
                fleet.pod_budgets[budget].always_allows_unready = true;
            },
            BUDGET,
        ),
        (
            "two budgets with room",
            |fleet| {
                guard(fleet, "default/guard", 5, &[(0, 0)]);
                guard(fleet, "default/other", 5, &[(0, 0)]);
            },
            BUDGETS,
        ),
    ];
    for (case, change, expected) in cases {
        let mut fleet = one_node();
        change(&mut fleet);
        check(case, &fleet, [expected, expected, ""]);
        // A bounded drain gets its way in the end.
        fleet.machines[0].termination_grace_period_secs = Some(60);
        check(case, &fleet, [expected, "", ""]);
    }
}

#[test]
fn costs_of_a_candidate() {
    let mut fleet = one_node();
    bind_daemon(&mut fleet, 0, pod("log", 10)).eviction_cost = 5.0;
    bind(&mut fleet, 0, pod("worthless", 10)).eviction_cost = -3.0;
    let found = candidate(&fleet, 0, Class::Graceful, Reason::Empty).expect("nothing stands against it");
    assert_eq!(found.reschedule_cost, 3.0, "one, and two ordinary pods");
    assert_eq!(found.savings_ratio(), 0.1 / 3.0);
    assert!(!found.is_empty);
    fleet.machines[0].occupants.drain(..2);
    let found = candidate(&fleet, 0, Class::Graceful, Reason::Empty).expect("nothing stands against it");
    assert!(found.is_empty, "what is worth nothing does not keep a node");
}
