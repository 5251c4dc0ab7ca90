//! Tests of offerings that override capacity: a node's capacity is that of its offering, not that of its instance type.

use crate::support::builders;

use std::sync::Arc;

use builders::{group, instance_type, launch, plan, pod, resources, run, world};
use karpenter_model::instance_type::{InstanceType, Offering, Overrides};
use karpenter_model::labels::CAPACITY_TYPE_ON_DEMAND;
use karpenter_model::plan::{Plan, PlannedNode};
use karpenter_model::problem::{Mode, Problem};
use karpenter_scheduling::schedule;
use karpenter_scheduling::validate::{Violation, validate};

const MODES: [Mode; 2] = [Mode::Compat, Mode::Cost];
const SLOTS: &str = "example.com/slots";

fn overrides(capacity: &[(&str, i64)], overhead: &[(&str, i64)]) -> Option<Arc<Overrides>> {
    Some(Arc::new(Overrides { capacity: resources(capacity), overhead: resources(overhead) }))
}

/// An instance type with one on-demand offering in one zone, and one more offering per function in `more`, which
/// changes it.
fn of_sizes(name: &str, price: f64, more: &[&dyn Fn(&mut Offering)]) -> InstanceType {
    let mut made = instance_type(name, 4, &["zone-a"], price);
    made.offerings.retain(|one| one.capacity_type().is_some_and(|of| &**of == CAPACITY_TYPE_ON_DEMAND));
    for change in more {
        let mut offering = made.offerings[0].clone();
        change(&mut offering);
        made.offerings.push(offering);
    }
    made
}

/// A problem with `count` pods that each request `cpu_millis` of cpu and `slots` units of a custom resource.
fn problem(types: Vec<InstanceType>, cpu_millis: i64, slots: i64, count: u32) -> Problem {
    let mut spec = pod("web", cpu_millis);
    spec.requests.set(SLOTS, slots);
    Problem { catalogs: vec![Arc::new(types)], pods: vec![group("web", spec, count)], ..world() }
}

fn planned(problem: &Problem, mode: Mode) -> Plan {
    let mut problem = problem.clone();
    problem.options.mode = mode;
    let plan = schedule(&problem);
    let faults: Vec<String> = validate(&problem, &plan).iter().map(ToString::to_string).collect();
    assert_eq!(faults, Vec::<String>::new(), "{mode:?}");
    plan
}

fn names(problem: &Problem, node: &PlannedNode) -> Vec<String> {
    let options = node.instance_type_options.iter();
    options.map(|option| problem.catalogs[0][*option].name.to_string()).collect()
}

#[test]
fn pod_that_requests_resource_of_override_gets_such_an_offering() {
    let with_slots = |one: &mut Offering| one.overrides = overrides(&[(SLOTS, 4)], &[("memory", 1 << 30)]);
    let types = vec![of_sizes("plain", 0.1, &[]), of_sizes("capable", 0.2, &[&with_slots])];
    let problem = problem(types, 500, 1, 1);
    for mode in MODES {
        let plan = planned(&problem, mode);
        assert_eq!(plan.new_nodes.len(), 1, "{mode:?}");
        assert_eq!(names(&problem, &plan.new_nodes[0]), ["capable"], "{mode:?}");
        assert_eq!(plan.new_nodes[0].offering, 1, "{mode:?}");
    }
}

#[test]
fn override_of_unavailable_offering_does_not_count() {
    let gone = |one: &mut Offering| {
        one.overrides = overrides(&[(SLOTS, 4)], &[]);
        one.available = false;
    };
    let problem = problem(vec![of_sizes("capable", 0.2, &[&gone])], 500, 1, 1);
    for mode in MODES {
        assert_eq!(planned(&problem, mode).new_nodes.len(), 0, "{mode:?}");
    }
}

/// The cheaper offering of the instance type has smaller nodes; it is used if they are large enough.
#[test]
fn cheaper_offering_is_chosen_if_it_is_large_enough() {
    let smaller = |one: &mut Offering| {
        one.overrides = overrides(&[("cpu", 2000)], &[]);
        one.price_per_hour = 0.05;
    };
    for (cpu_millis, price, offering) in [(1500, 0.05, 1), (1900, 0.05, 1), (1901, 0.2, 0), (3000, 0.2, 0)] {
        let problem = problem(vec![of_sizes("two-sizes", 0.2, &[&smaller])], cpu_millis, 0, 1);
        for mode in MODES {
            let plan = planned(&problem, mode);
            let node = &plan.new_nodes[0];
            assert_eq!((node.offering, node.price_per_hour), (offering, price), "{cpu_millis}m {mode:?}");
            assert_eq!(names(&problem, node), ["two-sizes"], "listed once");
        }
    }
}

/// The pods do not fit on one small node, but two small nodes cost less than a large one.
#[test]
fn cost_mode_compares_sizes_of_one_type() {
    let smaller = |one: &mut Offering| {
        one.overrides = overrides(&[("cpu", 2000)], &[]);
        one.price_per_hour = 0.05;
    };
    let problem = problem(vec![of_sizes("two-sizes", 0.2, &[&smaller])], 900, 0, 4);
    let plan = planned(&problem, Mode::Cost);
    assert_eq!((plan.new_nodes.len(), plan.price_per_hour), (2, 0.1));
}

#[test]
fn planned_offering_that_is_too_small_is_a_violation() {
    let smaller = |one: &mut Offering| {
        one.overrides = overrides(&[("cpu", 2000)], &[]);
        one.price_per_hour = 0.05;
    };
    let mut problem = problem(vec![of_sizes("two-sizes", 0.2, &[&smaller])], 3000, 0, 1);
    problem.pools[0].requirements = Default::default();
    let mut node = launch(&problem, "zone-a", &[0], &[run(0, 0, 1)]);
    assert_eq!(validate(&problem, &plan(vec![node.clone()])), []);
    (node.offering, node.price_per_hour) = (1, 0.05);
    let found = validate(&problem, &plan(vec![node]));
    assert!(
        matches!(&found[..], [Violation::OptionTooSmall { resource, wanted: 3000, free: 1900, .. }] if &**resource == "cpu"),
        "{found:?}"
    );
}
