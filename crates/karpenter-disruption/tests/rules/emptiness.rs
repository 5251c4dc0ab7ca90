//! Empty nodes.

use karpenter_disruption::command::{Decision, Method};
use karpenter_disruption::explain::Why;
use karpenter_disruption::fleet::{ConsolidationPolicy, Reason};
use karpenter_disruption::propose::propose;

use crate::builders::*;

#[test]
fn all_empty_nodes_go_in_one_command_dearest_first() {
    for policy in [
        ConsolidationPolicy::WhenEmpty,
        ConsolidationPolicy::WhenEmptyOrUnderutilized,
        ConsolidationPolicy::Balanced,
    ] {
        let mut fleet = fleet();
        pool(&mut fleet, "general").policy = policy;
        add(&mut fleet, "cheap", "small", &[]);
        add(&mut fleet, "busy", "large", &[pod("app", 7000)]);
        let dear = add(&mut fleet, "dear", "medium", &[]);
        bind_daemon(&mut fleet, dear, pod("log", 100));
        for settings in [compat(), cost()] {
            let proposal = propose(&fleet, &settings);
            assert_eq!(claims(&proposal.commands), [["dear", "cheap"]]);
            let command = &proposal.commands[0];
            assert_eq!((command.method, command.decision), (Method::Emptiness, Decision::Delete));
            assert!((command.saving_per_hour() - 0.3).abs() < 1e-9);
            assert!(command.moves.is_empty());
            assert_eq!(*why(&proposal, "cheap"), Why::Chosen { method: Method::Emptiness });
        }
    }
}

#[test]
fn budgets_cut_the_list() {
    let mut fleet = fleet();
    for name in ["a", "b", "c"] {
        add(&mut fleet, name, "small", &[]);
    }
    allow(&mut fleet, "general", Reason::Empty, 2);
    let proposal = propose(&fleet, &compat());
    assert_eq!(claims(&proposal.commands), [["a", "b"]]);
    let exhausted = Why::BudgetExhausted { pool: "general".into(), reason: Reason::Empty };
    assert_eq!(*why(&proposal, "c"), exhausted);
    let outcome = &proposal.outcomes[1];
    assert_eq!((outcome.method, outcome.is_constrained_by_budgets), (Method::Emptiness, true));
}

#[test]
fn what_keeps_an_empty_node() {
    let mut fleet = fleet();
    add(&mut fleet, "a", "small", &[]);
    let settings = compat();
    let mut never = fleet.clone();
    pool(&mut never, "general").consolidate_after_secs = None;
    let mut settling = fleet.clone();
    pool(&mut settling, "general").consolidate_after_secs = Some(30);
    settling.machines[0].quiet_since_secs = Some(NOW_SECS - 29);
    let mut unsettled = settling.clone();
    unsettled.machines[0].quiet_since_secs = None;
    let mut buffer = fleet.clone();
    bind(&mut buffer, 0, pod("buffer", 100)).is_virtual = true;
    buffer.machines[0].occupants[0].is_reschedulable = false;
    let mut of_static_pool = fleet.clone();
    pool(&mut of_static_pool, "general").replicas = Some(1);
    for (fleet, expected) in [
        (never, "NodePool \"general\" has consolidation disabled".to_owned()),
        (settling.clone(), "Pods came or went; left alone until 1970-01-12T13:46:41Z".to_owned()),
        (unsettled, "Not yet left alone for as long as its pool asks".to_owned()),
        (buffer, "Node \"a\" has buffer pods".to_owned()),
        (of_static_pool, "Belongs to a static NodePool and has not drifted".to_owned()),
    ] {
        let proposal = propose(&fleet, &settings);
        assert!(proposal.commands.is_empty(), "{expected}");
        assert_eq!(why(&proposal, "a").to_string(), expected);
    }
    settling.machines[0].quiet_since_secs = Some(NOW_SECS - 30);
    assert_eq!(propose(&settling, &settings).commands.len(), 1, "the wait is over");
}
