//! Emptiness.

use karpenter_disruption::cluster::{ConsolidationPolicy, Reason};
use karpenter_disruption::command::{Decision, Method};
use karpenter_disruption::evaluate::evaluate;
use karpenter_disruption::verdict::Verdict;

use crate::builders::*;

#[test]
fn empty_nodes_are_deleted_in_one_command_by_price() {
    for policy in [
        ConsolidationPolicy::WhenEmpty,
        ConsolidationPolicy::WhenEmptyOrUnderutilized,
        ConsolidationPolicy::Balanced,
    ] {
        let mut cluster = cluster();
        pool(&mut cluster, "general").policy = policy;
        add(&mut cluster, "cheap", "small", &[]);
        add(&mut cluster, "busy", "large", &[pod("app", 7000)]);
        let expensive = add(&mut cluster, "expensive", "medium", &[]);
        bind_daemon(&mut cluster, expensive, pod("log", 100));
        for settings in [compat(), cost()] {
            let evaluation = evaluate(&cluster, &settings);
            assert_eq!(claims(&evaluation.commands), [["expensive", "cheap"]]);
            let command = &evaluation.commands[0];
            assert_eq!((command.method, command.decision), (Method::Emptiness, Decision::Delete));
            assert!((command.saving_per_hour() - 0.3).abs() < 1e-9);
            assert!(command.moves.is_empty());
            assert_eq!(*verdict(&evaluation, "cheap"), Verdict::Chosen { method: Method::Emptiness });
        }
    }
}

#[test]
fn empty_nodes_are_limited_by_budget() {
    let mut cluster = cluster();
    for name in ["a", "b", "c"] {
        add(&mut cluster, name, "small", &[]);
    }
    allow(&mut cluster, "general", Reason::Empty, 2);
    let evaluation = evaluate(&cluster, &compat());
    assert_eq!(claims(&evaluation.commands), [["a", "b"]]);
    let exhausted = Verdict::BudgetExhausted { pool: "general".into(), reason: Reason::Empty };
    assert_eq!(*verdict(&evaluation, "c"), exhausted);
    let outcome = &evaluation.outcomes[1];
    assert_eq!((outcome.method, outcome.is_constrained_by_budgets), (Method::Emptiness, true));
}

#[test]
fn empty_node_is_kept_with_reason() {
    let mut cluster = cluster();
    add(&mut cluster, "a", "small", &[]);
    let settings = compat();
    let mut never = cluster.clone();
    pool(&mut never, "general").consolidate_after_secs = None;
    let mut settling = cluster.clone();
    pool(&mut settling, "general").consolidate_after_secs = Some(30);
    settling.state_nodes[0].last_pod_event_secs = Some(NOW_SECS - 29);
    let mut unsettled = settling.clone();
    unsettled.state_nodes[0].last_pod_event_secs = None;
    let mut buffer = cluster.clone();
    bind(&mut buffer, 0, pod("buffer", 100)).is_virtual = true;
    buffer.state_nodes[0].pods[0].is_reschedulable = false;
    let mut of_static_pool = cluster.clone();
    pool(&mut of_static_pool, "general").replicas = Some(1);
    for (cluster, expected) in [
        (never, "NodePool \"general\" has consolidation disabled".to_owned()),
        (
            settling.clone(),
            "Not consolidated before 1970-01-12T13:46:41Z, because pods were bound or removed recently"
                .to_owned(),
        ),
        (unsettled, "consolidateAfter has not elapsed".to_owned()),
        (buffer, "Node \"a\" has buffer pods".to_owned()),
        (of_static_pool, "Belongs to a static NodePool and has not drifted".to_owned()),
    ] {
        let evaluation = evaluate(&cluster, &settings);
        assert!(evaluation.commands.is_empty(), "{expected}");
        assert_eq!(verdict(&evaluation, "a").to_string(), expected);
    }
    settling.state_nodes[0].last_pod_event_secs = Some(NOW_SECS - 30);
    assert_eq!(evaluate(&settling, &settings).commands.len(), 1, "consolidateAfter has elapsed");
}
