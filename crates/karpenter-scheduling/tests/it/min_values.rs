//! Tests of nodes of NodePools with `minValues`. Pinning a node to one domain, because a constraint counts its pods,
//! must not remove instance types that `minValues` requires. Otherwise the node would be rejected with its pods, and
//! placements that rely on their counts would be wrong.

use crate::support::builders;

use std::sync::Arc;

use builders::{ZONES, all_of, group, instance_type, near, node, pod, pool, spread, wants, world};
use karpenter_model::instance_type::InstanceType;
use karpenter_model::labels::{self, CAPACITY_TYPE, CAPACITY_TYPE_ON_DEMAND, CAPACITY_TYPE_SPOT};
use karpenter_model::plan::Plan;
use karpenter_model::pod::PodSpec;
use karpenter_model::problem::{MinValuesPolicy, Mode, Problem};
use karpenter_model::reason::Reason;
use karpenter_model::requirements::Requirement;
use karpenter_scheduling::schedule;
use karpenter_scheduling::validate::validate;

fn unavailable_in(mut instance_type: InstanceType, key: &str, value: &str) -> InstanceType {
    for offering in &mut instance_type.offerings {
        offering.available &=
            offering.requirements.get(key).is_none_or(|requirement| !requirement.has(value));
    }
    instance_type
}

/// Two equal instance types, one of them unavailable in one domain, and a NodePool with `minValues: 2` for a label key.
fn scarce(key: &str, value: &str, min_values_of: &str) -> Problem {
    let mut problem = world();
    problem.catalogs = vec![Arc::new(vec![
        instance_type("plain", 4, &ZONES[..2], 0.1),
        unavailable_in(instance_type("scarce", 4, &ZONES[..2], 0.1), key, value),
    ])];
    problem.pools[0].weight = 10;
    problem.pools[0].requirements = all_of([Requirement::exists(min_values_of).with_min_values(Some(2))]);
    problem
}

fn spread_over(key: &str, app: &str, cpu_millis: i64) -> PodSpec {
    PodSpec { spread: vec![spread(key, app, 1)], ..pod(app, cpu_millis) }
}

/// The plans of compat and cost mode; both must be valid.
#[track_caller]
fn plans(problem: &Problem) -> [Plan; 2] {
    [Mode::Compat, Mode::Cost].map(|mode| {
        let mut problem = problem.clone();
        problem.options.mode = mode;
        let plan = schedule(&problem);
        let violations: Vec<String> = validate(&problem, &plan).iter().map(ToString::to_string).collect();
        assert_eq!(violations, Vec::<String>::new(), "{mode:?}: {:#?}", plan.new_nodes);
        plan
    })
}

fn chosen<'a>(problem: &'a Problem, plan: &Plan, key: &str) -> Vec<&'a str> {
    let of_node = |node: &karpenter_model::plan::PlannedNode| {
        let offering = &problem.catalogs[0][node.instance_type].offerings[node.offering];
        offering.requirements.get(key).and_then(Requirement::single_value).map_or("", |value| &**value)
    };
    plan.new_nodes.iter().map(of_node).collect()
}

#[test]
fn spread_pins_capacity_type_that_meets_min_values() {
    let mut problem = scarce(CAPACITY_TYPE, CAPACITY_TYPE_SPOT, labels::INSTANCE_TYPE);
    let mut spot = pool("spot");
    spot.requirements = all_of([wants(CAPACITY_TYPE, &[CAPACITY_TYPE_SPOT])]);
    problem.pools.push(spot);
    // The existing node is full. It is there so that spot counts as a domain in every plan.
    let mut full = node("full", ZONES[0], 0);
    full.labels.insert(CAPACITY_TYPE.into(), CAPACITY_TYPE_SPOT.into());
    problem.nodes.push(full);
    // The first pod fills its node. It states no spread, but the spread of the other pods counts it.
    problem.pods = vec![
        group("whole", pod("web", 3900), 1),
        group("spread", spread_over(CAPACITY_TYPE, "web", 3800), 2),
    ];
    for plan in plans(&problem) {
        assert!(plan.unschedulable.is_empty(), "{:?}", plan.unschedulable);
        let mut capacity_types = chosen(&problem, &plan, CAPACITY_TYPE);
        capacity_types.sort_unstable();
        assert_eq!(capacity_types, [CAPACITY_TYPE_ON_DEMAND, CAPACITY_TYPE_ON_DEMAND, CAPACITY_TYPE_SPOT]);
    }
}

#[test]
fn affinity_pins_zone_that_meets_min_values() {
    let mut problem = scarce(labels::ZONE, ZONES[0], labels::INSTANCE_TYPE);
    problem.pods = vec![
        group("first", pod("cache", 3900), 1),
        group("second", PodSpec { affinity: vec![near(labels::ZONE, "cache")], ..pod("web", 3800) }, 1),
    ];
    for plan in plans(&problem) {
        assert!(plan.unschedulable.is_empty(), "{:?}", plan.unschedulable);
        assert_eq!(chosen(&problem, &plan, labels::ZONE), [ZONES[1]; 2]);
    }
}

#[test]
fn best_effort_keeps_min_values_when_pinning_a_zone() {
    let mut problem = scarce(labels::ZONE, ZONES[0], labels::INSTANCE_TYPE);
    problem.options.min_values_policy = MinValuesPolicy::BestEffort;
    problem.pods = vec![
        group("first", pod("cache", 3900), 1),
        group("second", PodSpec { affinity: vec![near(labels::ZONE, "cache")], ..pod("web", 3800) }, 1),
    ];
    for plan in plans(&problem) {
        assert!(plan.new_nodes.iter().all(|node| node.instance_type_options.len() == 2));
    }
}

#[test]
fn best_effort_lowers_min_values_to_available_values() {
    let mut problem = scarce(labels::ZONE, "nowhere", labels::INSTANCE_TYPE);
    let made_up = wants("example.com/team", &["a", "b"]).with_min_values(Some(2));
    let types = Requirement::exists(labels::INSTANCE_TYPE).with_min_values(Some(5));
    problem.pools[0].requirements = all_of([types, made_up]);
    problem.options.min_values_policy = MinValuesPolicy::BestEffort;
    problem.pods = vec![group("web", pod("web", 1000), 3)];
    for plan in plans(&problem) {
        assert!(plan.unschedulable.is_empty(), "{:?}", plan.unschedulable);
        let [node] = &plan.new_nodes[..] else { panic!("one node, not {:#?}", plan.new_nodes) };
        let simulated = |key: &str| node.requirements.get(key).and_then(|requirement| requirement.min_values);
        assert!(node.min_values_relaxed);
        assert_eq!((node.instance_type_options.len(), simulated(labels::INSTANCE_TYPE)), (2, Some(2)));
        assert_eq!(
            simulated("example.com/team"),
            None,
            "types have no such value, and a minimum of 0 is not stated"
        );
    }
}

#[test]
fn node_stays_undecided_if_no_zone_meets_min_values() {
    let mut problem = scarce(labels::ZONE, "nowhere", labels::ZONE);
    problem.pools.push(pool("other"));
    problem.pods =
        vec![group("whole", pod("web", 3900), 1), group("spread", spread_over(labels::ZONE, "web", 3800), 2)];
    for plan in plans(&problem) {
        assert!(plan.unschedulable.is_empty(), "{:?}", plan.unschedulable);
        let open: Vec<bool> = plan
            .new_nodes
            .iter()
            .map(|node| node.requirements.get(labels::ZONE).is_none_or(|zone| zone.single_value().is_none()))
            .collect();
        assert_eq!(open, [true, false, false]);
    }
}

/// A NodePool with `minValues: 2` for a label that only offerings have, not instance types.
fn of_offerings_only() -> Problem {
    let key = "example.com/rack";
    let mut problem = scarce(labels::ZONE, "nowhere", key);
    for instance_type in Arc::make_mut(&mut problem.catalogs[0]) {
        for (position, offering) in instance_type.offerings.iter_mut().enumerate() {
            offering.requirements.add(wants(key, &[["r1", "r2"][position % 2]]));
        }
    }
    problem.well_known.insert(key.into());
    problem.pods = vec![group("web", pod("web", 1000), 3)];
    problem
}

#[test]
fn values_of_offerings_do_not_count_for_min_values() {
    let mut problem = of_offerings_only();
    for plan in plans(&problem) {
        assert!(plan.new_nodes.is_empty(), "{:#?}", plan.new_nodes);
        let left = &plan.unschedulable[0];
        let unmet = Reason::MinValues { key: "example.com/rack".into(), wanted: 2, found: 0 };
        assert!(left.reasons.iter().any(|refusal| refusal.reason == unmet), "{:?}", left.reasons);
    }
    problem.options.min_values_policy = MinValuesPolicy::BestEffort;
    for plan in plans(&problem) {
        assert!(plan.unschedulable.is_empty(), "{:?}", plan.unschedulable);
        assert!(plan.new_nodes.iter().all(|node| node.min_values_relaxed));
    }
}
