//! Tests of the order of methods, of proposed commands, and of the verdicts for every node.

use karpenter_disruption::cluster::{Cluster, Reason};
use karpenter_disruption::command::Method;
use karpenter_disruption::evaluate::{VerdictRequest, evaluate, explain_node, explain_nodes, methods};
use karpenter_disruption::settings::Mode;
use karpenter_disruption::verdict::{EventKind, Verdict};

use crate::builders::*;

/// One node for each method: unhealthy, empty, drifted, underutilized, and enough others for repair not to stop.
fn all_kinds() -> Cluster {
    let mut cluster = cluster();
    let sick_one = add(&mut cluster, "sick", "small", &[pod("app", 1800)]);
    cluster.state_nodes[sick_one].repair = sick(1.0);
    add(&mut cluster, "empty", "small", &[]);
    let drifted = add(&mut cluster, "drifted", "small", &[pod("app", 1800)]);
    cluster.state_nodes[drifted].drifted_since_secs = Some(1);
    add(&mut cluster, "underused", "large", &[pod("app", 1800)]);
    for name in ["p", "q", "r", "s"] {
        let other = add(&mut cluster, name, "small", &[pod("app", 1800)]);
        cluster.state_nodes[other].is_do_not_disrupt = true;
    }
    cluster
}

#[test]
fn methods_are_asked_in_order() {
    for (mode, settings) in [(Mode::Compat, compat()), (Mode::Cost, cost())] {
        let mut cluster = all_kinds();
        let mut seen = Vec::new();
        for name in ["sick", "empty", "drifted", "underused"] {
            let evaluation = evaluate(&cluster, &settings);
            seen.push(evaluation.commands[0].method);
            assert_eq!(claims_of(&evaluation.commands[0]), [name], "{mode:?}");
            // The node is being deleted, so it is not in the problem, and none of its pods is pending.
            let state_node = cluster.state_nodes.iter_mut().find(|one| &*one.claim == name).expect("added");
            (state_node.is_marked_for_deletion, state_node.repair) = (true, None);
            let at = state_node.at.take().expect("it has a node");
            cluster.problem.nodes[at].pods.clear();
            cluster.problem.nodes[at].initialized = false;
            cluster.problem.nodes[at].allocatable.set("cpu", 0);
        }
        let last = if mode == Mode::Cost { Method::Rebalance } else { Method::SingleNodeConsolidation };
        assert_eq!(seen, [Method::Repair, Method::Emptiness, Method::Drift, last]);
        assert!(seen.iter().all(|method| methods(mode).contains(method)));
    }
}

#[test]
fn method_with_proposed_command_is_skipped() {
    let mut cluster = cluster();
    add(&mut cluster, "empty", "small", &[]);
    add(&mut cluster, "also-empty", "small", &[]);
    add(&mut cluster, "underused", "large", &[pod("app", 1500)]);
    wait(&mut cluster, Method::Emptiness, &["empty"]);
    let evaluation = evaluate(&cluster, &cost());
    assert_eq!(*verdict(&evaluation, "also-empty"), Verdict::NotNow);
    assert_eq!(verdict(&evaluation, "empty").to_string(), "Candidate is already being disrupted");
    assert_eq!(verdict(&evaluation, "empty").event(), None);
    assert_eq!(claims(&evaluation.commands), [["underused"]]);
}

#[test]
fn compat_mode_evaluates_nothing_while_command_is_proposed() {
    let names = ["sick", "empty", "drifted", "underused"];
    // The result is the same for every method with a proposed command.
    for proposing in [Method::Emptiness, Method::MultiNodeConsolidation, Method::SingleNodeConsolidation] {
        let mut cluster = all_kinds();
        wait(&mut cluster, proposing, &["other"]);
        let evaluation = evaluate(&cluster, &compat());
        assert!(evaluation.has_no_commands(), "{proposing:?}: {:?}", claims(&evaluation.commands));
        for name in names {
            assert_eq!(*verdict(&evaluation, name), Verdict::NotNow, "{proposing:?}");
        }
        // In cost mode, a proposed command blocks only its own method.
        assert_eq!(claims(&evaluate(&cluster, &cost()).commands), [["sick"]], "{proposing:?}");
        cluster.proposed_commands.clear();
        assert_eq!(claims(&evaluate(&cluster, &compat()).commands), [["sick"]]);
    }
}

#[test]
fn proposed_candidates_count_against_budget() {
    let mut cluster = cluster();
    add(&mut cluster, "empty", "small", &[]);
    add(&mut cluster, "underused", "large", &[pod("app", 1500)]);
    allow(&mut cluster, "general", Reason::Underutilized, 1);
    wait(&mut cluster, Method::Emptiness, &["empty"]);
    let evaluation = evaluate(&cluster, &cost());
    assert!(evaluation.commands.is_empty());
    let exhausted = Verdict::BudgetExhausted { pool: "general".into(), reason: Reason::Underutilized };
    assert_eq!(*verdict(&evaluation, "underused"), exhausted);
}

#[test]
fn every_node_has_verdict() {
    for settings in [compat(), cost()] {
        let cluster = all_kinds();
        let evaluation = evaluate(&cluster, &settings);
        let spoken: Vec<_> = evaluation.verdicts.iter().map(|one| (one.state_node, &*one.claim)).collect();
        let expected: Vec<_> = cluster.state_nodes.iter().map(|one| &*one.claim).enumerate().collect();
        assert_eq!(spoken, expected);
        assert_eq!(evaluation.budgets.len(), 4);
    }
}

#[test]
fn single_node_is_explained_on_request() {
    let mut cluster = cluster();
    add(&mut cluster, "a", "small", &[pod("app", 1800)]);
    add(&mut cluster, "b", "large", &[pod("app", 1500)]);
    cluster.problem.nodes[1].allocatable.set("cpu", 1600);
    let verdict = explain_node(&cluster, &cost(), 0).expect_err("nothing is cheaper than a small");
    assert_eq!(verdict.event(), Some(EventKind::Unconsolidatable));
    assert_eq!(verdict.to_string(), "Can't replace with a cheaper node");
    assert!(explain_node(&cluster, &cost(), 1).is_ok());
}

#[test]
fn nodes_without_command_are_explained_round_robin() {
    let mut cluster = cluster();
    for name in ["a", "b", "c"] {
        add(&mut cluster, name, "small", &[pod("app", 1800)]);
    }
    let mut asked = Vec::new();
    let mut request = VerdictRequest { most: 2, ..VerdictRequest::default() };
    for _ in 0..3 {
        let mut evaluation = evaluate(&cluster, &cost());
        assert!(
            evaluation.has_no_commands()
                && evaluation.verdicts.iter().all(|one| one.verdict.is_unexplained())
        );
        request.after = explain_nodes(&mut evaluation, &cluster, &cost(), &request);
        let explained =
            evaluation.verdicts.iter().filter(|one| matches!(one.verdict, Verdict::NotCheaper { .. }));
        asked.push(explained.map(|one| one.claim.to_string()).collect::<Vec<_>>());
    }
    assert_eq!(asked, [["a", "b"], ["a", "c"], ["b", "c"]]);
    // Requested nodes come first and do not change the round-robin order.
    request = VerdictRequest { wanted: ["c".to_owned()].into(), most: 2, ..VerdictRequest::default() };
    let mut evaluation = evaluate(&cluster, &cost());
    assert_eq!(&*explain_nodes(&mut evaluation, &cluster, &cost(), &request), "a");
    assert!(matches!(verdict(&evaluation, "c"), Verdict::NotCheaper { .. }));
    let Verdict::Stays { price_per_hour, pods, .. } = verdict(&evaluation, "b") else {
        panic!("{evaluation:?}")
    };
    assert_eq!((*price_per_hour, *pods), (0.1, 1));
}

#[test]
fn rebalance_waits_for_end_of_pod_churn() {
    let mut cluster = cluster();
    add(&mut cluster, "a", "medium", &[pod("app", 100)]);
    add(&mut cluster, "b", "medium", &[pod("app", 100)]);
    cluster.churn_ends_at_secs = Some(NOW_SECS + 3);
    let evaluation = evaluate(&cluster, &cost());
    assert!(evaluation.has_no_commands());
    assert_eq!(*verdict(&evaluation, "a"), Verdict::Settling { until_secs: Some(NOW_SECS + 3) });
    // Compat mode and Emptiness ignore pod churn.
    assert!(!evaluate(&cluster, &compat()).commands.is_empty());
    add(&mut cluster, "c", "small", &[]);
    assert_eq!(claims(&evaluate(&cluster, &cost()).commands), [["c"]]);
    cluster.state_nodes.pop();
    cluster.problem.nodes.pop();
    cluster.churn_ends_at_secs = Some(NOW_SECS);
    assert_eq!(evaluate(&cluster, &cost()).commands[0].method, Method::Rebalance);
}
