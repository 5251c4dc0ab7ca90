//! Tests of settings of NodePools by annotation, and of joint evictions under PodDisruptionBudgets.

use karpenter_disruption::cluster::{Cluster, PoolPolicy};
use karpenter_disruption::command::Method;
use karpenter_disruption::evaluate::evaluate;
use karpenter_disruption::settings::Settings;
use karpenter_disruption::validate::{Rejection, revalidate};
use karpenter_disruption::verdict::Verdict;

use crate::builders::*;

/// A cluster with two nodes. Each of them could be replaced by a smaller node, but one smaller node cannot replace
/// both.
fn two_large() -> Cluster {
    let mut cluster = cluster();
    for name in ["a", "b"] {
        add(&mut cluster, name, "large", &[pod("app", 1800), pod("app", 1800)]);
        let at = cluster.problem.nodes.len() - 1;
        cluster.problem.nodes[at].allocatable.set("cpu", 3700);
    }
    cluster
}

fn with(pool_policy: PoolPolicy) -> Cluster {
    let mut cluster = two_large();
    pool(&mut cluster, "general").pool_policy = pool_policy;
    cluster
}

fn modes() -> [Settings; 2] {
    [compat(), cost()]
}

#[test]
fn command_needs_minimum_saving() {
    // Each replacement saves 0.2 of the price 0.4.
    for settings in modes() {
        for (ratio, per_hour, is_enough) in
            [(0.0, 0.0, true), (0.5, 0.0, true), (0.51, 0.0, false), (0.0, 0.41, false), (0.4, 0.15, true)]
        {
            let pool_policy = PoolPolicy {
                min_saving_ratio: ratio,
                min_saving_per_hour: per_hour,
                ..PoolPolicy::default()
            };
            let evaluation = evaluate(&with(pool_policy), &settings);
            assert_eq!(!evaluation.commands.is_empty(), is_enough, "{ratio} {per_hour} {:?}", settings.mode);
        }
    }
    let pool_policy = PoolPolicy { min_saving_per_hour: 0.41, ..PoolPolicy::default() };
    let evaluation = evaluate(&with(pool_policy), &compat());
    let Verdict::BelowThreshold { saving_per_hour, wanted_per_hour } = verdict(&evaluation, "a") else {
        panic!("{}", verdict(&evaluation, "a"))
    };
    assert!((saving_per_hour - 0.2).abs() < 1e-9);
    assert_eq!(*wanted_per_hour, 0.41);
}

#[test]
fn cool_down_blocks_consolidation_of_moved_pods() {
    for settings in modes() {
        let pool_policy = PoolPolicy { cool_down_secs: 600, ..PoolPolicy::default() };
        let mut cluster = with(pool_policy);
        cluster.state_nodes[0].moved_onto_at_secs = Some(NOW_SECS - 599);
        cluster.state_nodes[1].pods[1].moved_at_secs = Some(NOW_SECS - 10);
        let evaluation = evaluate(&cluster, &settings);
        assert!(evaluation.commands.is_empty());
        assert_eq!(*verdict(&evaluation, "a"), Verdict::CoolDown { until_secs: NOW_SECS + 1 });
        assert_eq!(*verdict(&evaluation, "b"), Verdict::CoolDown { until_secs: NOW_SECS + 590 });
        cluster.state_nodes[0].moved_onto_at_secs = Some(NOW_SECS - 600);
        assert_eq!(claims(&evaluate(&cluster, &settings).commands), [["a"]]);
        // The cool-down does not apply to drift.
        cluster.state_nodes[1].drifted_since_secs = Some(1);
        assert_eq!(evaluate(&cluster, &settings).commands[0].method, Method::Drift);
    }
}

#[test]
fn max_moves_per_hour_limits_commands() {
    for settings in modes() {
        let pool_policy =
            PoolPolicy { max_moves_per_hour: Some(5), moved_last_hour: 3, ..PoolPolicy::default() };
        let mut cluster = with(pool_policy);
        let moved: usize = evaluate(&cluster, &settings).commands.iter().map(|one| one.pods_moved()).sum();
        assert_eq!(moved, 2, "two are left, and a node has two");
        pool(&mut cluster, "general").pool_policy.moved_last_hour = 4;
        let evaluation = evaluate(&cluster, &settings);
        assert!(evaluation.commands.is_empty());
        let expected = Verdict::MovesExhausted { pool: "general".into(), per_hour: 5, left: 1, wanted: 2 };
        assert_eq!(*verdict(&evaluation, "a"), expected, "{:?}", settings.mode);
        // The limit allows to move four pods, not five.
        assert_eq!(
            expected.to_string(),
            "NodePool \"general\" allows 5 pod moves per hour, 1 are left, 2 would be needed"
        );
    }
}

#[test]
fn dry_run_reports_commands_without_executing() {
    for settings in modes() {
        let pool_policy = PoolPolicy { is_dry_run: true, ..PoolPolicy::default() };
        let mut cluster = with(pool_policy);
        add(&mut cluster, "empty", "small", &[]);
        let evaluation = evaluate(&cluster, &settings);
        assert!(evaluation.commands.is_empty());
        assert_eq!(claims(&evaluation.dry_run_commands), [["empty"]]);
        assert_eq!(*verdict(&evaluation, "empty"), Verdict::DryRun { method: Method::Emptiness });
        assert_eq!(*verdict(&evaluation, "a"), Verdict::NotNow);
    }
}

#[test]
fn dry_run_does_not_apply_to_drift() {
    for settings in modes() {
        let mut cluster = with(PoolPolicy { is_dry_run: true, ..PoolPolicy::default() });
        cluster.state_nodes[1].drifted_since_secs = Some(1);
        let evaluation = evaluate(&cluster, &settings);
        assert_eq!(claims(&evaluation.commands), [["b"]], "{:?}", settings.mode);
        assert_eq!(evaluation.commands[0].method, Method::Drift);
    }
}

#[test]
fn several_replacements_need_many_to_many() {
    // The pods of a node request six CPUs. The node costs as much as five small ones, and three small ones would be
    // enough.
    let mut cluster = cluster();
    let types = vec![instance_type("small", 2, 0.1), instance_type("large", 8, 0.5)];
    cluster.problem.catalogs[0] = std::sync::Arc::new(types);
    add(&mut cluster, "a", "large", &[pod("app", 1800), pod("app", 1800), pod("app", 1800)]);
    let evaluation = evaluate(&cluster, &cost());
    assert_eq!(evaluation.commands.len(), 1, "{}", verdict(&evaluation, "a"));
    assert_eq!(evaluation.commands[0].replacements.len(), 3);
    assert!((evaluation.commands[0].saving_per_hour() - 0.2).abs() < 1e-9);
    let mut kept = cluster.clone();
    pool(&mut kept, "general").pool_policy.is_many_to_many_enabled = false;
    assert!(evaluate(&kept, &cost()).commands.is_empty(), "one node for it is not cheaper");
    // The annotation is added after the command was proposed.
    let rejected = revalidate(&evaluation.commands[0], &kept, &cost()).expect_err("not allowed any more");
    assert_eq!(rejected, Rejection::NewResults);
    assert!(revalidate(&evaluation.commands[0], &cluster, &cost()).is_ok());
}

#[test]
fn validation_respects_changed_pool_annotations() {
    for settings in modes() {
        let cluster = two_large();
        let command = evaluate(&cluster, &settings).commands.remove(0);
        let mut dry = cluster.clone();
        pool(&mut dry, "general").pool_policy.is_dry_run = true;
        let rejected = revalidate(&command, &dry, &settings).expect_err("a dry run");
        assert_eq!(rejected, Rejection::Churn { gone: command.candidates.len() });
        let mut limited = cluster.clone();
        pool(&mut limited, "general").pool_policy.max_moves_per_hour = Some(1);
        let rejected = revalidate(&command, &limited, &settings).expect_err("two pods would move");
        assert_eq!(rejected, Rejection::MovesExhausted { pool: "general".into() });
        assert!(revalidate(&command, &cluster, &settings).is_ok());
    }
}

#[test]
fn dry_run_of_one_pool_does_not_block_another() {
    let mut cluster = two_large();
    add_pool(&mut cluster, "dry", &["on-demand"]);
    pool(&mut cluster, "dry").pool_policy.is_dry_run = true;
    add_to(&mut cluster, "empty", "dry", "small", "on-demand", &[]);
    let evaluation = evaluate(&cluster, &compat());
    assert_eq!(claims(&evaluation.dry_run_commands), [["empty"]]);
    assert_eq!(claims(&evaluation.commands), [["a"]]);
}

#[test]
fn joint_evictions_respect_pdbs() {
    let mut cluster = two_large();
    let budget = guard(&mut cluster, "default/guard", 3, &[(0, 0), (0, 1), (1, 0), (1, 1)]);
    let evaluation = evaluate(&cluster, &cost());
    assert_eq!(evaluation.commands.len(), 1, "three evictions are enough for one node");
    let left = evaluation.verdicts.iter().find(|one| matches!(one.verdict, Verdict::PodBudgetJoint { .. }));
    let expected = Verdict::PodBudgetJoint { name: "default/guard".into(), wanted: 4, allowed: 3 };
    assert_eq!(left.map(|one| &one.verdict), Some(&expected));
    cluster.pod_budgets[budget].disruptions_allowed = 1;
    assert!(evaluate(&cluster, &cost()).commands.is_empty());
    assert_eq!(evaluate(&cluster, &compat()).commands.len(), 1, "upstream does not count them together");
    cluster.pod_budgets[budget].always_allows_unready = true;
    for state_node in &mut cluster.state_nodes {
        state_node.pods[0].is_unready = true;
    }
    assert_eq!(evaluate(&cluster, &cost()).commands.len(), 1, "unready pods do not count");
}

#[test]
fn drifted_nodes_of_one_pdb_are_replaced_one_by_one() {
    let mut cluster = two_large();
    guard(&mut cluster, "default/guard", 1, &[(0, 0), (0, 1), (1, 0), (1, 1)]);
    for state_node in &mut cluster.state_nodes {
        state_node.drifted_since_secs = Some(1);
    }
    let evaluation = evaluate(&cluster, &cost());
    assert_eq!(claims(&evaluation.commands), [["a"]]);
    assert!(matches!(verdict(&evaluation, "b"), Verdict::PodBudgetJoint { .. }));
    // With a termination grace period, a drain does not wait for PodDisruptionBudgets. Other drains affected by the
    // same PodDisruptionBudget wait for it.
    cluster.state_nodes[0].termination_grace_period_secs = Some(60);
    cluster.state_nodes[1].termination_grace_period_secs = Some(60);
    assert_eq!(claims(&evaluate(&cluster, &cost()).commands), [["a"], ["b"]]);
    cluster.state_nodes[1].termination_grace_period_secs = None;
    let evaluation = evaluate(&cluster, &cost());
    assert_eq!(claims(&evaluation.commands), [["a"]]);
    assert!(matches!(verdict(&evaluation, "b"), Verdict::PodBudgetJoint { .. }));
}

#[test]
fn outstanding_evictions_of_deleting_nodes_count() {
    let mut cluster = two_large();
    guard(&mut cluster, "default/guard", 2, &[(0, 0), (0, 1), (1, 0), (1, 1)]);
    cluster.state_nodes[0].is_marked_for_deletion = true;
    cluster.state_nodes[0].at = None;
    cluster.problem.nodes[0].pods.clear();
    assert!(evaluate(&cluster, &cost()).commands.is_empty());
}
