//! Sick nodes.

use karpenter_disruption::command::{Decision, Method};
use karpenter_disruption::explain::Why;
use karpenter_disruption::fleet::{Fleet, Reason};
use karpenter_disruption::propose::propose;
use karpenter_model::labels;
use karpenter_model::problem::Mobility;

use crate::builders::*;

/// Ten nodes with a pod each, none of them empty; `a` is sick.
fn ten_nodes() -> Fleet {
    let mut fleet = fleet();
    for name in ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"] {
        add(&mut fleet, name, "small", &[pod("app", 1500)]);
    }
    pool(&mut fleet, "general").consolidate_after_secs = None;
    fleet.machines[0].repair = sick(1.0);
    fleet.machines[0].is_ready = false;
    fleet
}

#[test]
fn a_sick_node_is_replaced_before_anything_else() {
    let mut fleet = ten_nodes();
    fleet.machines[1].drifted_since_secs = Some(1);
    let proposal = propose(&fleet, &compat());
    assert_eq!(claims(&proposal.commands), [["a"]]);
    let command = &proposal.commands[0];
    assert_eq!((command.method, command.decision), (Method::Repair, Decision::Replace));
    assert_eq!(command.termination_grace_period_secs, None);
    assert_eq!(*why(&proposal, "b"), Why::NotNow);
}

#[test]
fn the_highest_score_then_the_least_trouble_then_the_name() {
    let mut fleet = ten_nodes();
    fleet.machines[1].repair = sick(2.0);
    assert_eq!(claims(&propose(&fleet, &compat()).commands), [["b"]]);
    fleet.machines[0].repair = sick(2.0);
    assert_eq!(claims(&propose(&fleet, &compat()).commands), [["a"]], "names decide");
    // A node near its end counts for less.
    fleet.machines[1].expire_after_secs = Some(1000);
    fleet.machines[1].created_at_secs = NOW_SECS - 900;
    let proposal = propose(&fleet, &cost());
    assert_eq!(claims(&proposal.commands), [["b"]], "one per pass in every mode");
    assert_eq!(*why(&proposal, "a"), Why::NotNow);
}

#[test]
fn too_many_sick_nodes_stop_repair() {
    let mut fleet = ten_nodes();
    fleet.machines[1].is_unhealthy = true;
    assert_eq!(propose(&fleet, &compat()).commands.len(), 1, "two of ten are 20 %");
    fleet.machines[2].is_unhealthy = true;
    let proposal = propose(&fleet, &compat());
    assert!(proposal.commands.is_empty());
    assert_eq!(
        why(&proposal, "a").to_string(),
        "more than 20% of nodes in nodepool \"general\" are unhealthy"
    );
    // Rounded up: in a pool of one, one sick node is no epidemic.
    fleet.machines.truncate(1);
    assert_eq!(propose(&fleet, &compat()).commands.len(), 1);
}

#[test]
fn budgets_count_unless_the_node_never_came_up() {
    let mut fleet = ten_nodes();
    allow(&mut fleet, "general", Reason::Unhealthy, 0);
    let exhausted = Why::BudgetExhausted { pool: "general".into(), reason: Reason::Unhealthy };
    assert_eq!(*why(&propose(&fleet, &compat()), "a"), exhausted);
    fleet.machines[0].is_initialized = false;
    assert_eq!(claims(&propose(&fleet, &compat()).commands), [["a"]]);
}

#[test]
fn vetoes_and_pods() {
    let mut fleet = ten_nodes();
    fleet.machines[0].is_do_not_disrupt = true;
    assert_eq!(propose(&fleet, &compat()).commands.len(), 1, "do-not-disrupt does not keep a sick node");
    fleet.machines[0].occupants[0].is_do_not_disrupt = true;
    fleet.problem.nodes[0].pods[0].mobility = Mobility::Blocked;
    let proposal = propose(&fleet, &compat());
    let unbounded = "repair requires a termination grace period to bypass blocking pods";
    assert_eq!(why(&proposal, "a").to_string(), unbounded);
    fleet.machines[0].termination_grace_period_secs = Some(60);
    let proposal = propose(&fleet, &compat());
    assert_eq!(proposal.commands[0].moves.len(), 1, "a place is needed for the blocked pod too");
    fleet.machines[0].repair.as_mut().expect("sick").is_vetoed = true;
    let vetoed = "repair is blocked through the \"karpenter.sh/do-not-repair\" annotation";
    assert_eq!(why(&propose(&fleet, &compat()), "a").to_string(), vetoed);
}

#[test]
fn the_bound_of_the_drain() {
    for (of_policy, of_claim, expected) in [
        (None, None, None),
        (None, Some(60), None),
        (Some(30), None, Some(30)),
        (Some(30), Some(60), Some(30)),
        (Some(90), Some(60), Some(60)),
        (Some(0), Some(60), Some(0)),
    ] {
        let mut fleet = ten_nodes();
        fleet.machines[0].repair.as_mut().expect("sick").termination_grace_period_secs = of_policy;
        fleet.machines[0].termination_grace_period_secs = of_claim;
        let proposal = propose(&fleet, &compat());
        let bound = proposal.commands[0].termination_grace_period_secs;
        assert_eq!(bound, expected, "policy {of_policy:?}, claim {of_claim:?}");
    }
}

#[test]
fn a_reboot_keeps_node_and_pods() {
    let mut fleet = ten_nodes();
    fleet.machines[0].repair.as_mut().expect("sick").is_reboot = true;
    let proposal = propose(&fleet, &compat());
    let command = &proposal.commands[0];
    assert_eq!(command.decision, Decision::Reboot);
    assert!(command.moves.is_empty() && command.replacements.is_empty());
    assert_eq!(command.saving_per_hour(), 0.0);
}

#[test]
fn nodes_of_static_pools() {
    let mut fleet = fleet();
    add_static_pool(&mut fleet, "fixed", 1, Some(0));
    let machine = add_to(&mut fleet, "a", "fixed", "small", labels::CAPACITY_TYPE_ON_DEMAND, &[]);
    fleet.machines[machine].repair = sick(1.0);
    let blocked = propose(&fleet, &compat());
    assert_eq!(*why(&blocked, "a"), Why::StaticAtLimit);
    let settings = karpenter_disruption::settings::Settings { terminate_first_repair: true, ..compat() };
    assert_eq!(propose(&fleet, &settings).commands[0].decision, Decision::TerminateFirst);
    pool(&mut fleet, "fixed").nodes_left = Some(1);
    let replaced = propose(&fleet, &settings);
    assert_eq!(replaced.commands[0].static_pool.as_deref(), Some("fixed"));
}

#[test]
fn nodes_of_static_pools_are_repaired_one_at_a_time() {
    let mut fleet = fleet();
    add_static_pool(&mut fleet, "fixed", 10, Some(5));
    for number in 0..10 {
        let name = format!("n{number}");
        add_to(&mut fleet, &name, "fixed", "small", labels::CAPACITY_TYPE_ON_DEMAND, &[pod("app", 1500)]);
    }
    fleet.machines[0].repair = sick(1.0);
    fleet.machines[1].repair = sick(2.0);
    for settings in [compat(), cost()] {
        let mut fleet = fleet.clone();
        assert_eq!(claims(&propose(&fleet, &settings).commands), [["n1"]], "{:?}", settings.mode);
        // It is marked, and what takes its place is coming up.
        fleet.machines[1].is_leaving = true;
        let coming = add_to(&mut fleet, "new", "fixed", "small", labels::CAPACITY_TYPE_ON_DEMAND, &[]);
        fleet.machines[coming].is_initialized = false;
        fleet.problem.nodes[coming].initialized = false;
        let proposal = propose(&fleet, &settings);
        assert!(proposal.commands.is_empty(), "{:?}", settings.mode);
        assert_eq!(*why(&proposal, "n0"), Why::StaticScalingDown, "{:?}", settings.mode);
        // The next has its turn when the first is being deleted.
        fleet.machines[1].is_deleting = true;
        assert_eq!(claims(&propose(&fleet, &settings).commands), [["n0"]], "{:?}", settings.mode);
    }
}

#[test]
fn a_dry_run_does_not_keep_a_sick_node() {
    let mut fleet = ten_nodes();
    pool(&mut fleet, "general").controls.is_dry_run = true;
    assert_eq!(propose(&fleet, &compat()).commands.len(), 1);
}
