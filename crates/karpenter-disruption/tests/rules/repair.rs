//! Node repair.

use karpenter_disruption::cluster::{Cluster, Reason};
use karpenter_disruption::command::{Decision, Method};
use karpenter_disruption::evaluate::evaluate;
use karpenter_disruption::verdict::Verdict;
use karpenter_model::labels;
use karpenter_model::problem::Mobility;

use crate::builders::*;

/// Ten nodes with a pod each, none of them empty; `a` is unhealthy.
fn ten_nodes() -> Cluster {
    let mut cluster = cluster();
    for name in ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"] {
        add(&mut cluster, name, "small", &[pod("app", 1500)]);
    }
    pool(&mut cluster, "general").consolidate_after_secs = None;
    cluster.state_nodes[0].repair = sick(1.0);
    cluster.state_nodes[0].is_ready = false;
    cluster
}

#[test]
fn repair_precedes_other_methods() {
    let mut cluster = ten_nodes();
    cluster.state_nodes[1].drifted_since_secs = Some(1);
    let evaluation = evaluate(&cluster, &compat());
    assert_eq!(claims(&evaluation.commands), [["a"]]);
    let command = &evaluation.commands[0];
    assert_eq!((command.method, command.decision), (Method::Repair, Decision::Replace));
    assert_eq!(command.termination_grace_period_secs, None);
    assert_eq!(*verdict(&evaluation, "b"), Verdict::NotNow);
}

#[test]
fn repair_orders_by_score_then_cost_then_name() {
    let mut cluster = ten_nodes();
    cluster.state_nodes[1].repair = sick(2.0);
    assert_eq!(claims(&evaluate(&cluster, &compat()).commands), [["b"]]);
    cluster.state_nodes[0].repair = sick(2.0);
    assert_eq!(
        claims(&evaluate(&cluster, &compat()).commands),
        [["a"]],
        "equal otherwise, so ordered by name"
    );
    // The disruption cost of a node near the end of its lifetime is lower.
    cluster.state_nodes[1].expire_after_secs = Some(1000);
    cluster.state_nodes[1].created_at_secs = NOW_SECS - 900;
    let evaluation = evaluate(&cluster, &cost());
    assert_eq!(claims(&evaluation.commands), [["b"]], "one per pass in every mode");
    assert_eq!(*verdict(&evaluation, "a"), Verdict::NotNow);
}

#[test]
fn repair_stops_above_twenty_percent_unhealthy() {
    let mut cluster = ten_nodes();
    cluster.state_nodes[1].is_unhealthy = true;
    assert_eq!(evaluate(&cluster, &compat()).commands.len(), 1, "two of ten are 20 %");
    cluster.state_nodes[2].is_unhealthy = true;
    let evaluation = evaluate(&cluster, &compat());
    assert!(evaluation.commands.is_empty());
    assert_eq!(
        verdict(&evaluation, "a").to_string(),
        "more than 20% of nodes in nodepool \"general\" are unhealthy"
    );
    // The threshold is rounded up: in a NodePool of one node, a single unhealthy node does not stop repair.
    cluster.state_nodes.truncate(1);
    assert_eq!(evaluate(&cluster, &compat()).commands.len(), 1);
}

#[test]
fn repair_budget_applies_to_initialized_nodes_only() {
    let mut cluster = ten_nodes();
    allow(&mut cluster, "general", Reason::Unhealthy, 0);
    let exhausted = Verdict::BudgetExhausted { pool: "general".into(), reason: Reason::Unhealthy };
    assert_eq!(*verdict(&evaluate(&cluster, &compat()), "a"), exhausted);
    cluster.state_nodes[0].is_initialized = false;
    assert_eq!(claims(&evaluate(&cluster, &compat()).commands), [["a"]]);
}

#[test]
fn do_not_repair_and_protected_pods_block_repair() {
    let mut cluster = ten_nodes();
    cluster.state_nodes[0].is_do_not_disrupt = true;
    assert_eq!(evaluate(&cluster, &compat()).commands.len(), 1, "do-not-disrupt does not block repair");
    cluster.state_nodes[0].pods[0].is_do_not_disrupt = true;
    cluster.problem.nodes[0].pods[0].mobility = Mobility::Blocked;
    let evaluation = evaluate(&cluster, &compat());
    let unbounded = "repair requires a termination grace period to bypass blocking pods";
    assert_eq!(verdict(&evaluation, "a").to_string(), unbounded);
    cluster.state_nodes[0].termination_grace_period_secs = Some(60);
    let evaluation = evaluate(&cluster, &compat());
    assert_eq!(evaluation.commands[0].moves.len(), 1, "the blocked pod has a target, too");
    cluster.state_nodes[0].repair.as_mut().expect("sick").is_vetoed = true;
    let vetoed = "repair is blocked through the \"karpenter.sh/do-not-repair\" annotation";
    assert_eq!(verdict(&evaluate(&cluster, &compat()), "a").to_string(), vetoed);
}

#[test]
fn repair_uses_shorter_termination_grace_period() {
    for (of_policy, of_claim, expected) in [
        (None, None, None),
        (None, Some(60), None),
        (Some(30), None, Some(30)),
        (Some(30), Some(60), Some(30)),
        (Some(90), Some(60), Some(60)),
        (Some(0), Some(60), Some(0)),
    ] {
        let mut cluster = ten_nodes();
        cluster.state_nodes[0].repair.as_mut().expect("sick").termination_grace_period_secs = of_policy;
        cluster.state_nodes[0].termination_grace_period_secs = of_claim;
        let evaluation = evaluate(&cluster, &compat());
        let bound = evaluation.commands[0].termination_grace_period_secs;
        assert_eq!(bound, expected, "policy {of_policy:?}, claim {of_claim:?}");
    }
}

#[test]
fn reboot_keeps_node_and_pods() {
    let mut cluster = ten_nodes();
    cluster.state_nodes[0].repair.as_mut().expect("sick").is_reboot = true;
    let evaluation = evaluate(&cluster, &compat());
    let command = &evaluation.commands[0];
    assert_eq!(command.decision, Decision::Reboot);
    assert!(command.moves.is_empty() && command.replacements.is_empty());
    assert_eq!(command.saving_per_hour(), 0.0);
}

#[test]
fn unhealthy_node_of_static_pool_is_replaced_from_template() {
    let mut cluster = cluster();
    add_static_pool(&mut cluster, "fixed", 1, Some(0));
    let state_node = add_to(&mut cluster, "a", "fixed", "small", labels::CAPACITY_TYPE_ON_DEMAND, &[]);
    cluster.state_nodes[state_node].repair = sick(1.0);
    let blocked = evaluate(&cluster, &compat());
    assert_eq!(*verdict(&blocked, "a"), Verdict::StaticAtLimit);
    let settings = karpenter_disruption::settings::Settings { terminate_first_repair: true, ..compat() };
    assert_eq!(evaluate(&cluster, &settings).commands[0].decision, Decision::TerminateFirst);
    pool(&mut cluster, "fixed").nodes_left = Some(1);
    let replaced = evaluate(&cluster, &settings);
    assert_eq!(replaced.commands[0].static_pool.as_deref(), Some("fixed"));
}

#[test]
fn static_pool_repairs_one_node_at_a_time() {
    let mut cluster = cluster();
    add_static_pool(&mut cluster, "fixed", 10, Some(5));
    for number in 0..10 {
        let name = format!("n{number}");
        add_to(&mut cluster, &name, "fixed", "small", labels::CAPACITY_TYPE_ON_DEMAND, &[pod("app", 1500)]);
    }
    cluster.state_nodes[0].repair = sick(1.0);
    cluster.state_nodes[1].repair = sick(2.0);
    for settings in [compat(), cost()] {
        let mut cluster = cluster.clone();
        assert_eq!(claims(&evaluate(&cluster, &settings).commands), [["n1"]], "{:?}", settings.mode);
        // The first node is marked for deletion, and its replacement is not initialized.
        cluster.state_nodes[1].is_marked_for_deletion = true;
        let coming = add_to(&mut cluster, "new", "fixed", "small", labels::CAPACITY_TYPE_ON_DEMAND, &[]);
        cluster.state_nodes[coming].is_initialized = false;
        cluster.problem.nodes[coming].initialized = false;
        let evaluation = evaluate(&cluster, &settings);
        assert!(evaluation.commands.is_empty(), "{:?}", settings.mode);
        assert_eq!(*verdict(&evaluation, "n0"), Verdict::StaticScalingDown, "{:?}", settings.mode);
        // The next node is repaired once the first one is being deleted.
        cluster.state_nodes[1].is_deleting = true;
        assert_eq!(claims(&evaluate(&cluster, &settings).commands), [["n0"]], "{:?}", settings.mode);
    }
}

#[test]
fn dry_run_does_not_apply_to_repair() {
    let mut cluster = ten_nodes();
    pool(&mut cluster, "general").pool_policy.is_dry_run = true;
    assert_eq!(evaluate(&cluster, &compat()).commands.len(), 1);
}
