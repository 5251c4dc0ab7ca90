//! Which nodes count towards a budget, and which use it up.

use karpenter_disruption::budgets::{left, remaining};
use karpenter_disruption::candidate::Blocked;
use karpenter_disruption::command::Method;
use karpenter_disruption::fleet::{Fleet, Machine, Reason};
use karpenter_disruption::propose::{Why, propose};
use karpenter_disruption::validate::{Rejection, revalidate};

use crate::builders::*;

#[test]
fn who_counts_and_who_uses_it_up() {
    type Change = fn(&mut Machine);
    // (nodes, disrupting for most reasons, disrupting for reason Unhealthy) with two sound nodes besides.
    let cases: [(&str, Change, (u32, u32, u32)); 8] = [
        ("sound", |_| {}, (3, 0, 0)),
        ("not ready", |one| one.is_ready = false, (3, 1, 0)),
        ("leaving", |one| one.is_leaving = true, (3, 1, 1)),
        ("coming up", |one| one.is_initialized = false, (2, 0, 0)),
        ("rebooting", |one| one.is_rebooting = true, (3, 1, 1)),
        ("rebooting, not up again", |one| (one.is_rebooting, one.is_initialized) = (true, false), (3, 1, 1)),
        ("instance ending", |one| (one.is_leaving, one.is_instance_terminating) = (true, true), (2, 0, 0)),
        ("not ready and leaving", |one| (one.is_leaving, one.is_ready) = (true, false), (3, 1, 1)),
    ];
    for (case, change, (nodes, disrupting, sick)) in cases {
        let mut fleet = fleet();
        for name in ["a", "b", "c"] {
            add(&mut fleet, name, "small", &[]);
        }
        change(&mut fleet.machines[0]);
        for reason in Reason::ALL {
            let found = remaining(&fleet, reason)["general"];
            let expected = if reason == Reason::Unhealthy { sick } else { disrupting };
            assert_eq!((found.nodes, found.disrupting), (nodes, expected), "{case}, {reason:?}");
        }
    }
}

#[test]
fn nothing_is_allowed_unless_it_is_said() {
    let mut fleet = fleet();
    add(&mut fleet, "a", "small", &[]);
    pool(&mut fleet, "general").allowed.clear();
    assert_eq!(left(&fleet, Reason::Empty)["general"], 0);
    assert!(remaining(&fleet, Reason::Empty)["general"].is_blocking());
}

#[test]
fn waiting_proposals_use_budgets_up_and_never_below_zero() {
    let mut fleet = fleet();
    for name in ["a", "b", "c"] {
        add(&mut fleet, name, "small", &[]);
    }
    allow(&mut fleet, "general", Reason::Drifted, 2);
    wait(&mut fleet, Method::Emptiness, &["a"]);
    assert_eq!(left(&fleet, Reason::Drifted)["general"], 1);
    fleet.machines[1].is_leaving = true;
    fleet.machines[2].is_ready = false;
    assert_eq!(left(&fleet, Reason::Drifted)["general"], 0);
}

#[test]
fn a_node_that_rests_after_a_failure_keeps_nobody_else_from_anything() {
    let mut fleet = fleet();
    for name in ["a", "b"] {
        add(&mut fleet, name, "small", &[pod("app", 600)]);
        fleet.machines.last_mut().expect("one").drifted_since_secs = Some(0);
    }
    allow(&mut fleet, "general", Reason::Drifted, 1);
    fleet.resting.insert("a".into(), [Reason::Drifted].into());
    for settings in [compat(), cost()] {
        let proposal = propose(&fleet, &settings);
        assert_eq!(claims(&proposal.commands), [["b"]], "the budget of one is free, and so is the method");
        assert_eq!(*why(&proposal, "a"), Why::Blocked(Blocked::Resting));
    }
    // Savings are another matter than drift: whoever has no pods left may go.
    let mut emptied = fleet.clone();
    emptied.machines[0].occupants.clear();
    emptied.problem.nodes[0].pods.clear();
    for settings in [compat(), cost()] {
        assert_eq!(propose(&emptied, &settings).commands[0].method, Method::Emptiness, "{:?}", settings.mode);
    }
    emptied.resting.insert("a".into(), [Reason::Empty].into());
    for settings in [compat(), cost()] {
        assert_eq!(propose(&emptied, &settings).commands[0].method, Method::Drift, "{:?}", settings.mode);
    }
    // So is a node that falls sick, unless it was the repair that failed.
    fleet.machines[0].repair = sick(1.0);
    allow(&mut fleet, "general", Reason::Unhealthy, 1);
    let repaired = |fleet: &Fleet| propose(fleet, &cost()).commands[0].method == Method::Repair;
    assert!(repaired(&fleet));
    fleet.resting.insert("a".into(), [Reason::Unhealthy].into());
    assert!(!repaired(&fleet));
}

#[test]
fn what_budgets_do_not_allow_yet_stands_by() {
    let mut fleet = fleet();
    for name in ["a", "b", "c", "d"] {
        add(&mut fleet, name, "medium", &[pod("app", 100)]);
    }
    allow(&mut fleet, "general", Reason::Underutilized, 1);
    assert!(propose(&fleet, &cost()).standby.is_empty(), "nobody asked");
    fleet.plans_ahead = true;
    let proposal = propose(&fleet, &cost());
    assert_eq!((proposal.commands.len(), proposal.standby.len()), (1, 2), "{:?}", proposal.standby);
    // While it stands by, it takes nothing from the budget, and nothing is moved onto its node.
    let next = proposal.standby[0].clone();
    let names: Vec<&str> = claims_of(&next);
    wait(&mut fleet, Method::Rebalance, &names);
    assert_eq!(left(&fleet, Reason::Underutilized)["general"], 0, "as an ordinary proposal it would");
    fleet.waiting[0].is_standby = true;
    assert_eq!(left(&fleet, Reason::Underutilized)["general"], 1);
    // As long as another one is leaving there is no budget; then there is.
    let going = proposal.commands[0].candidates[0].machine;
    let mut meanwhile = fleet.clone();
    meanwhile.waiting.clear();
    meanwhile.machines[going].is_leaving = true;
    let rejected = revalidate(&next, &meanwhile, &cost()).expect_err("one is leaving");
    assert_eq!(rejected, Rejection::Budget { pool: "general".into() });
    // Two at once will never be let go, however long they wait.
    let mut both = next.clone();
    both.candidates.extend(proposal.standby[1].candidates.clone());
    let rejected = revalidate(&both, &meanwhile, &cost()).expect_err("too many");
    assert_eq!(rejected, Rejection::TooMany { pool: "general".into() });
    meanwhile.machines[going].is_instance_terminating = true;
    revalidate(&next, &meanwhile, &cost()).expect("the other one is gone");
}

#[test]
fn a_budget_that_is_closed_is_not_planned_for() {
    let mut fleet = fleet();
    for name in ["a", "b"] {
        add(&mut fleet, name, "small", &[]);
    }
    fleet.plans_ahead = true;
    allow(&mut fleet, "general", Reason::Empty, 0);
    let proposal = propose(&fleet, &cost());
    assert!(proposal.commands.is_empty() && proposal.standby.is_empty());
    allow(&mut fleet, "general", Reason::Empty, 1);
    fleet.machines[0].is_leaving = true;
    let proposal = propose(&fleet, &cost());
    assert!(proposal.commands.is_empty());
    assert_eq!(claims(&proposal.standby), [["b"]]);
}
