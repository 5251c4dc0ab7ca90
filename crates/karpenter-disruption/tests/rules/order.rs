//! The order of methods, what waits already, and that every machine is spoken about.

use karpenter_disruption::command::Method;
use karpenter_disruption::explain::{EventKind, Why};
use karpenter_disruption::fleet::{Fleet, Reason};
use karpenter_disruption::propose::{Curiosity, explain_some, methods, propose, why_not};
use karpenter_disruption::settings::Mode;

use crate::builders::*;

/// One node for each method: sick, empty, drifted, underused, and enough others that one sick node is no epidemic.
fn all_kinds() -> Fleet {
    let mut fleet = fleet();
    let sick_one = add(&mut fleet, "sick", "small", &[pod("app", 1800)]);
    fleet.machines[sick_one].repair = sick(1.0);
    add(&mut fleet, "empty", "small", &[]);
    let drifted = add(&mut fleet, "drifted", "small", &[pod("app", 1800)]);
    fleet.machines[drifted].drifted_since_secs = Some(1);
    add(&mut fleet, "underused", "large", &[pod("app", 1800)]);
    for name in ["p", "q", "r", "s"] {
        let other = add(&mut fleet, name, "small", &[pod("app", 1800)]);
        fleet.machines[other].is_do_not_disrupt = true;
    }
    fleet
}

#[test]
fn methods_have_their_turn_in_order() {
    for (mode, settings) in [(Mode::Compat, compat()), (Mode::Cost, cost())] {
        let mut fleet = all_kinds();
        let mut seen = Vec::new();
        for name in ["sick", "empty", "drifted", "underused"] {
            let proposal = propose(&fleet, &settings);
            seen.push(proposal.commands[0].method);
            assert_eq!(claims_of(&proposal.commands[0]), [name], "{mode:?}");
            // It is on its way: no node to plan for, and no pods to wait.
            let machine = fleet.machines.iter_mut().find(|one| &*one.claim == name).expect("added");
            (machine.is_leaving, machine.repair) = (true, None);
            let at = machine.at.take().expect("it has a node");
            fleet.problem.nodes[at].pods.clear();
            fleet.problem.nodes[at].initialized = false;
            fleet.problem.nodes[at].allocatable.set("cpu", 0);
        }
        let last = if mode == Mode::Cost { Method::Rebalance } else { Method::SingleNodeConsolidation };
        assert_eq!(seen, [Method::Repair, Method::Emptiness, Method::Drift, last]);
        assert!(seen.iter().all(|method| methods(mode).contains(method)));
    }
}

#[test]
fn a_method_that_waits_lets_the_next_have_its_turn() {
    let mut fleet = fleet();
    add(&mut fleet, "empty", "small", &[]);
    add(&mut fleet, "also-empty", "small", &[]);
    add(&mut fleet, "underused", "large", &[pod("app", 1500)]);
    wait(&mut fleet, Method::Emptiness, &["empty"]);
    let proposal = propose(&fleet, &cost());
    assert_eq!(*why(&proposal, "also-empty"), Why::NotNow);
    assert_eq!(why(&proposal, "empty").to_string(), "Candidate is already being disrupted");
    assert_eq!(why(&proposal, "empty").event(), None);
    assert_eq!(claims(&proposal.commands), [["underused"]]);
}

#[test]
fn upstreams_loop_does_nothing_while_a_proposal_waits() {
    let names = ["sick", "empty", "drifted", "underused"];
    // Whatever waits, all that come before and after it do too.
    for waiting in [Method::Emptiness, Method::MultiNodeConsolidation, Method::SingleNodeConsolidation] {
        let mut fleet = all_kinds();
        wait(&mut fleet, waiting, &["somebody"]);
        let proposal = propose(&fleet, &compat());
        assert!(proposal.is_quiet(), "{waiting:?}: {:?}", claims(&proposal.commands));
        for name in names {
            assert_eq!(*why(&proposal, name), Why::NotNow, "{waiting:?}");
        }
        // Where several commands go at once, only those of one method wait for each other.
        assert_eq!(claims(&propose(&fleet, &cost()).commands), [["sick"]], "{waiting:?}");
        fleet.waiting.clear();
        assert_eq!(claims(&propose(&fleet, &compat()).commands), [["sick"]]);
    }
}

#[test]
fn waiting_nodes_use_up_the_budgets_of_others() {
    let mut fleet = fleet();
    add(&mut fleet, "empty", "small", &[]);
    add(&mut fleet, "underused", "large", &[pod("app", 1500)]);
    allow(&mut fleet, "general", Reason::Underutilized, 1);
    wait(&mut fleet, Method::Emptiness, &["empty"]);
    let proposal = propose(&fleet, &cost());
    assert!(proposal.commands.is_empty());
    let exhausted = Why::BudgetExhausted { pool: "general".into(), reason: Reason::Underutilized };
    assert_eq!(*why(&proposal, "underused"), exhausted);
}

#[test]
fn everybody_is_spoken_about() {
    for settings in [compat(), cost()] {
        let fleet = all_kinds();
        let proposal = propose(&fleet, &settings);
        let spoken: Vec<_> = proposal.standings.iter().map(|one| (one.machine, &*one.claim)).collect();
        let expected: Vec<_> = fleet.machines.iter().map(|one| &*one.claim).enumerate().collect();
        assert_eq!(spoken, expected);
        assert_eq!(proposal.budgets.len(), 4);
    }
}

#[test]
fn one_node_is_explained_on_request() {
    let mut fleet = fleet();
    add(&mut fleet, "a", "small", &[pod("app", 1800)]);
    add(&mut fleet, "b", "large", &[pod("app", 1500)]);
    fleet.problem.nodes[1].allocatable.set("cpu", 1600);
    let why = why_not(&fleet, &cost(), 0).expect_err("nothing is cheaper than a small");
    assert_eq!(why.event(), Some(EventKind::Unconsolidatable));
    assert_eq!(why.to_string(), "Can't replace with a cheaper node");
    assert!(why_not(&fleet, &cost(), 1).is_ok());
}

#[test]
fn some_of_those_that_nothing_was_found_for_are_asked_about_in_turn() {
    let mut fleet = fleet();
    for name in ["a", "b", "c"] {
        add(&mut fleet, name, "small", &[pod("app", 1800)]);
    }
    let mut asked = Vec::new();
    let mut curiosity = Curiosity { most: 2, ..Curiosity::default() };
    for _ in 0..3 {
        let mut proposal = propose(&fleet, &cost());
        assert!(proposal.is_quiet() && proposal.standings.iter().all(|one| one.why == Why::Fine));
        curiosity.after = explain_some(&mut proposal, &fleet, &cost(), &curiosity);
        let explained = proposal.standings.iter().filter(|one| matches!(one.why, Why::NotCheaper { .. }));
        asked.push(explained.map(|one| one.claim.to_string()).collect::<Vec<_>>());
    }
    assert_eq!(asked, [["a", "b"], ["a", "c"], ["b", "c"]]);
    // Who is asked for comes first and moves nobody's turn.
    curiosity = Curiosity { wanted: ["c".to_owned()].into(), most: 2, ..Curiosity::default() };
    let mut proposal = propose(&fleet, &cost());
    assert_eq!(&*explain_some(&mut proposal, &fleet, &cost(), &curiosity), "a");
    assert!(matches!(why(&proposal, "c"), Why::NotCheaper { .. }));
    assert_eq!(*why(&proposal, "b"), Why::Fine);
}

#[test]
fn while_pods_are_leaving_no_plan_is_made_for_the_whole_fleet() {
    let mut fleet = fleet();
    add(&mut fleet, "a", "medium", &[pod("app", 100)]);
    add(&mut fleet, "b", "medium", &[pod("app", 100)]);
    fleet.settles_at_secs = Some(NOW_SECS + 3);
    let proposal = propose(&fleet, &cost());
    assert!(proposal.is_quiet());
    assert_eq!(*why(&proposal, "a"), Why::Settling { until_secs: Some(NOW_SECS + 3) });
    // Upstream's rules know nothing of it, and neither do empty nodes.
    assert!(!propose(&fleet, &compat()).commands.is_empty());
    add(&mut fleet, "c", "small", &[]);
    assert_eq!(claims(&propose(&fleet, &cost()).commands), [["c"]]);
    fleet.machines.pop();
    fleet.problem.nodes.pop();
    fleet.settles_at_secs = Some(NOW_SECS);
    assert_eq!(propose(&fleet, &cost()).commands[0].method, Method::Rebalance);
}
