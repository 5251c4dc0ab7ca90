//! Tests which nodes a budget counts, and which of them reduce the number of nodes that may still be disrupted.

use karpenter_disruption::budgets::{left, remaining};
use karpenter_disruption::candidate::Blocked;
use karpenter_disruption::cluster::{Cluster, Reason, StateNode};
use karpenter_disruption::command::Method;
use karpenter_disruption::evaluate::{Verdict, evaluate};
use karpenter_disruption::validate::{Rejection, revalidate};

use crate::builders::*;

#[test]
fn budget_counts_initialized_nodes_and_subtracts_disrupted_ones() {
    type Change = fn(&mut StateNode);
    // Each case: a change of one node, and the expected numbers (nodes, disrupting nodes for most reasons, disrupting
    // nodes for reason Unhealthy). The cluster has two other nodes, which are healthy.
    let cases: [(&str, Change, (u32, u32, u32)); 8] = [
        ("sound", |_| {}, (3, 0, 0)),
        ("not ready", |one| one.is_ready = false, (3, 1, 0)),
        ("leaving", |one| one.is_marked_for_deletion = true, (3, 1, 1)),
        ("not initialized", |one| one.is_initialized = false, (2, 0, 0)),
        ("rebooting", |one| one.is_rebooting = true, (3, 1, 1)),
        (
            "rebooting, not initialized",
            |one| (one.is_rebooting, one.is_initialized) = (true, false),
            (3, 1, 1),
        ),
        (
            "instance terminating",
            |one| (one.is_marked_for_deletion, one.is_instance_terminating) = (true, true),
            (2, 0, 0),
        ),
        (
            "not ready and marked for deletion",
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
fn reason_without_entry_allows_no_disruption() {
    let mut cluster = cluster();
    add(&mut cluster, "a", "small", &[]);
    pool(&mut cluster, "general").allowed.clear();
    assert_eq!(left(&cluster, Reason::Empty)["general"], 0);
    assert!(remaining(&cluster, Reason::Empty)["general"].is_blocking());
}

#[test]
fn proposed_commands_use_budget_but_never_below_zero() {
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
fn held_off_node_does_not_block_other_nodes_or_reasons() {
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
    // The hold-off applies to drift only, so the node is deleted once it is empty.
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
    // An unhealthy node is repaired, unless its repair was the command that failed.
    cluster.state_nodes[0].repair = sick(1.0);
    allow(&mut cluster, "general", Reason::Unhealthy, 1);
    let repaired = |cluster: &Cluster| evaluate(cluster, &cost()).commands[0].method == Method::Repair;
    assert!(repaired(&cluster));
    cluster.held_off.insert("a".into(), [Reason::Unhealthy].into());
    assert!(!repaired(&cluster));
}

#[test]
fn command_beyond_budget_awaits_budget() {
    let mut cluster = cluster();
    for name in ["a", "b", "c", "d"] {
        add(&mut cluster, name, "medium", &[pod("app", 100)]);
    }
    allow(&mut cluster, "general", Reason::Underutilized, 1);
    assert!(evaluate(&cluster, &cost()).awaiting_budget.is_empty(), "not requested");
    cluster.plan_beyond_budgets = true;
    let evaluation = evaluate(&cluster, &cost());
    assert_eq!(
        (evaluation.commands.len(), evaluation.awaiting_budget.len()),
        (1, 2),
        "{:?}",
        evaluation.awaiting_budget
    );
    // A command that awaits a budget does not use the budget, and no pods are moved to its candidate.
    let next = evaluation.awaiting_budget[0].clone();
    let names: Vec<&str> = claims_of(&next);
    wait(&mut cluster, Method::Rebalance, &names);
    assert_eq!(
        left(&cluster, Reason::Underutilized)["general"],
        0,
        "without awaiting a budget it would count"
    );
    cluster.proposed_commands[0].awaits_budget = true;
    assert_eq!(left(&cluster, Reason::Underutilized)["general"], 1);
    // While the node of the first command is being deleted, the budget is used up; afterwards it allows the waiting
    // command.
    let going = evaluation.commands[0].candidates[0].state_node;
    let mut meanwhile = cluster.clone();
    meanwhile.proposed_commands.clear();
    meanwhile.state_nodes[going].is_marked_for_deletion = true;
    let rejected = revalidate(&next, &meanwhile, &cost()).expect_err("another node is being deleted");
    assert_eq!(rejected, Rejection::Budget { pool: "general".into() });
    // A command with two candidates never fits into a budget of one.
    let mut both = next.clone();
    both.candidates.extend(evaluation.awaiting_budget[1].candidates.clone());
    let rejected = revalidate(&both, &meanwhile, &cost()).expect_err("too many");
    assert_eq!(rejected, Rejection::TooMany { pool: "general".into() });
    meanwhile.state_nodes[going].is_instance_terminating = true;
    revalidate(&next, &meanwhile, &cost()).expect("the other node is deleted");
}

#[test]
fn zero_budget_is_not_planned_for() {
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
