//! Which nodes count towards a budget, and which use it up.

use karpenter_disruption::budgets::{left, remaining};
use karpenter_disruption::candidate::Blocked;
use karpenter_disruption::cluster::{Cluster, Reason, StateNode};
use karpenter_disruption::command::Method;
use karpenter_disruption::evaluate::{Verdict, evaluate};
use karpenter_disruption::validate::{Rejection, revalidate};

use crate::builders::*;

#[test]
fn who_counts_and_who_uses_it_up() {
    type Change = fn(&mut StateNode);
    // (nodes, disrupting for most reasons, disrupting for reason Unhealthy) with two sound nodes besides.
    let cases: [(&str, Change, (u32, u32, u32)); 8] = [
        ("sound", |_| {}, (3, 0, 0)),
        ("not ready", |one| one.is_ready = false, (3, 1, 0)),
        ("leaving", |one| one.is_marked_for_deletion = true, (3, 1, 1)),
        ("coming up", |one| one.is_initialized = false, (2, 0, 0)),
        ("rebooting", |one| one.is_rebooting = true, (3, 1, 1)),
        ("rebooting, not up again", |one| (one.is_rebooting, one.is_initialized) = (true, false), (3, 1, 1)),
        (
            "instance ending",
            |one| (one.is_marked_for_deletion, one.is_instance_terminating) = (true, true),
            (2, 0, 0),
        ),
        (
            "not ready and leaving",
            |one| (one.is_marked_for_deletion, one.is_ready) = (true, false),
            (3, 1, 1),
        ),
    ];
    for (case, change, (nodes, disrupting, sick)) in cases {
        let mut cluster = cluster();
        for name in ["a", "b", "c"] {
            add(&mut cluster, name, "small", &[]);
        }
        change(&mut cluster.state_nodes[0]);
        for reason in Reason::ALL {
            let found = remaining(&cluster, reason)["general"];
            let expected = if reason == Reason::Unhealthy { sick } else { disrupting };
            assert_eq!((found.nodes, found.disrupting), (nodes, expected), "{case}, {reason:?}");
        }
    }
}

#[test]
fn nothing_is_allowed_unless_it_is_said() {
    let mut cluster = cluster();
    add(&mut cluster, "a", "small", &[]);
    pool(&mut cluster, "general").allowed.clear();
    assert_eq!(left(&cluster, Reason::Empty)["general"], 0);
    assert!(remaining(&cluster, Reason::Empty)["general"].is_blocking());
}

#[test]
fn waiting_proposals_use_budgets_up_and_never_below_zero() {
    let mut cluster = cluster();
    for name in ["a", "b", "c"] {
        add(&mut cluster, name, "small", &[]);
    }
    allow(&mut cluster, "general", Reason::Drifted, 2);
    wait(&mut cluster, Method::Emptiness, &["a"]);
    assert_eq!(left(&cluster, Reason::Drifted)["general"], 1);
    cluster.state_nodes[1].is_marked_for_deletion = true;
    cluster.state_nodes[2].is_ready = false;
    assert_eq!(left(&cluster, Reason::Drifted)["general"], 0);
}

#[test]
fn a_node_that_rests_after_a_failure_keeps_nobody_else_from_anything() {
    let mut cluster = cluster();
    for name in ["a", "b"] {
        add(&mut cluster, name, "small", &[pod("app", 600)]);
        cluster.state_nodes.last_mut().expect("one").drifted_since_secs = Some(0);
    }
    allow(&mut cluster, "general", Reason::Drifted, 1);
    cluster.held_off.insert("a".into(), [Reason::Drifted].into());
    for settings in [compat(), cost()] {
        let evaluation = evaluate(&cluster, &settings);
        assert_eq!(claims(&evaluation.commands), [["b"]], "the budget of one is free, and so is the method");
        assert_eq!(*verdict(&evaluation, "a"), Verdict::Blocked(Blocked::Resting));
    }
    // Savings are another matter than drift: whoever has no pods left may go.
    let mut emptied = cluster.clone();
    emptied.state_nodes[0].pods.clear();
    emptied.problem.nodes[0].pods.clear();
    for settings in [compat(), cost()] {
        assert_eq!(
            evaluate(&emptied, &settings).commands[0].method,
            Method::Emptiness,
            "{:?}",
            settings.mode
        );
    }
    emptied.held_off.insert("a".into(), [Reason::Empty].into());
    for settings in [compat(), cost()] {
        assert_eq!(evaluate(&emptied, &settings).commands[0].method, Method::Drift, "{:?}", settings.mode);
    }
    // So is a node that falls sick, unless it was the repair that failed.
    cluster.state_nodes[0].repair = sick(1.0);
    allow(&mut cluster, "general", Reason::Unhealthy, 1);
    let repaired = |cluster: &Cluster| evaluate(cluster, &cost()).commands[0].method == Method::Repair;
    assert!(repaired(&cluster));
    cluster.held_off.insert("a".into(), [Reason::Unhealthy].into());
    assert!(!repaired(&cluster));
}

#[test]
fn what_budgets_do_not_allow_yet_stands_by() {
    let mut cluster = cluster();
    for name in ["a", "b", "c", "d"] {
        add(&mut cluster, name, "medium", &[pod("app", 100)]);
    }
    allow(&mut cluster, "general", Reason::Underutilized, 1);
    assert!(evaluate(&cluster, &cost()).awaiting_budget.is_empty(), "nobody asked");
    cluster.plan_beyond_budgets = true;
    let evaluation = evaluate(&cluster, &cost());
    assert_eq!(
        (evaluation.commands.len(), evaluation.awaiting_budget.len()),
        (1, 2),
        "{:?}",
        evaluation.awaiting_budget
    );
    // While it stands by, it takes nothing from the budget, and nothing is moved onto its node.
    let next = evaluation.awaiting_budget[0].clone();
    let names: Vec<&str> = claims_of(&next);
    wait(&mut cluster, Method::Rebalance, &names);
    assert_eq!(left(&cluster, Reason::Underutilized)["general"], 0, "as an ordinary proposal it would");
    cluster.proposed_commands[0].awaits_budget = true;
    assert_eq!(left(&cluster, Reason::Underutilized)["general"], 1);
    // As long as another one is leaving there is no budget; then there is.
    let going = evaluation.commands[0].candidates[0].state_node;
    let mut meanwhile = cluster.clone();
    meanwhile.proposed_commands.clear();
    meanwhile.state_nodes[going].is_marked_for_deletion = true;
    let rejected = revalidate(&next, &meanwhile, &cost()).expect_err("one is leaving");
    assert_eq!(rejected, Rejection::Budget { pool: "general".into() });
    // Two at once will never be let go, however long they wait.
    let mut both = next.clone();
    both.candidates.extend(evaluation.awaiting_budget[1].candidates.clone());
    let rejected = revalidate(&both, &meanwhile, &cost()).expect_err("too many");
    assert_eq!(rejected, Rejection::TooMany { pool: "general".into() });
    meanwhile.state_nodes[going].is_instance_terminating = true;
    revalidate(&next, &meanwhile, &cost()).expect("the other one is gone");
}

#[test]
fn a_budget_that_is_closed_is_not_planned_for() {
    let mut cluster = cluster();
    for name in ["a", "b"] {
        add(&mut cluster, name, "small", &[]);
    }
    cluster.plan_beyond_budgets = true;
    allow(&mut cluster, "general", Reason::Empty, 0);
    let evaluation = evaluate(&cluster, &cost());
    assert!(evaluation.commands.is_empty() && evaluation.awaiting_budget.is_empty());
    allow(&mut cluster, "general", Reason::Empty, 1);
    cluster.state_nodes[0].is_marked_for_deletion = true;
    let evaluation = evaluate(&cluster, &cost());
    assert!(evaluation.commands.is_empty());
    assert_eq!(claims(&evaluation.awaiting_budget), [["b"]]);
}
