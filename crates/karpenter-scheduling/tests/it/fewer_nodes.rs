//! Tests that among fleets of almost the same price the one with the fewest nodes is selected.

use crate::support::builders;

use std::sync::Arc;

use builders::*;
use karpenter_model::node_count_tolerance::NodeCountTolerance;
use karpenter_model::plan::Plan;
use karpenter_model::problem::{Mode, Problem};
use karpenter_scheduling::schedule;
use karpenter_scheduling::validate::validate;

/// 60 pods of 1.8 CPUs. Instances of 2 to 16 CPUs hold one pod per 2 CPUs; larger ones cost `premium` more per CPU.
fn problem(premium: f64, tolerance_percent: f64) -> Problem {
    let instance = |name: &str, cpus: i64, factor: f64| {
        let mut instance = instance_type(name, cpus, &ZONES[..1], cpus as f64 * 0.05 * factor);
        instance.offerings.retain(|one| one.capacity_type().is_some_and(|kind| &**kind == "on-demand"));
        instance
    };
    let large = 1.0 + premium;
    let types = vec![
        instance("small", 2, 1.0),
        instance("medium", 4, large),
        instance("large", 8, large),
        instance("huge", 16, large),
    ];
    let mut problem = Problem {
        catalogs: vec![Arc::new(types)],
        pods: vec![group("web", pod("web", 1800), 60)],
        ..world()
    };
    problem.options.node_count_tolerance =
        NodeCountTolerance::from_percent(tolerance_percent).expect("a percentage");
    problem
}

#[track_caller]
fn planned(problem: &Problem) -> Plan {
    let plan = schedule(problem);
    let faults: Vec<String> = validate(problem, &plan).iter().map(ToString::to_string).collect();
    assert_eq!(faults, Vec::<String>::new());
    assert!(plan.unschedulable.is_empty());
    assert!(plan.lower_bound_per_hour <= plan.price_per_hour + 1e-9);
    plan
}

#[test]
fn fleet_with_fewest_nodes_is_planned_within_the_tolerance() {
    // Columns: premium of larger instances, tolerance in percent, expected number of nodes. The fewest possible nodes
    // are seven with 16 CPUs and one with 8.
    for (premium, tolerance, nodes) in [(0.0, 0.5, 8), (0.003, 0.5, 8), (0.003, 0.0, 60), (0.009, 1.0, 8)] {
        let plan = planned(&problem(premium, tolerance));
        assert_eq!(plan.new_nodes.len(), nodes, "premium {premium}, tolerance {tolerance} %");
        let cheapest = 6.0;
        assert!(plan.price_per_hour <= cheapest * (1.0 + tolerance / 100.0) + 1e-9);
    }
}

#[test]
fn plan_within_one_percent_of_its_bound_stays_within() {
    // A tolerance of 2.5 % would allow fewer nodes, but the plan without a charge is at its lower bound, and the
    // replacement must stay near it.
    let plan = planned(&problem(0.015, 2.5));
    assert!(plan.price_per_hour <= plan.lower_bound_per_hour * 1.01 + 1e-9);
}

#[test]
fn no_plan_costs_more_than_compat_mode() {
    for tolerance in [0.5, 10.0] {
        let plan = planned(&problem(0.02, tolerance));
        assert!(plan.price_per_hour <= plan.compat_price_per_hour + 1e-9);
    }
}

#[test]
fn compat_mode_and_low_effort_ignore_the_tolerance() {
    for change in [
        |problem: &mut Problem| problem.options.mode = Mode::Compat,
        |problem: &mut Problem| {
            problem.options.effort = 100;
        },
    ] {
        let (mut with, mut without) = (problem(0.003, 0.5), problem(0.003, 0.0));
        change(&mut with);
        change(&mut without);
        assert_eq!(planned(&with).new_nodes.len(), planned(&without).new_nodes.len());
    }
}
