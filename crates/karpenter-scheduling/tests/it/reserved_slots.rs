//! Tests of the assignment of reservation slots to planned nodes: every slot that a pod could use is used before other
//! capacity, whatever label the provider uses for reservations.

use crate::support::builders;

use std::sync::Arc;

use builders::{all_of, group, instance_type, near, offering, pod, pool, wants};
use karpenter_model::instance_type::{InstanceType, Offering};
use karpenter_model::labels::{
    AWS_CAPACITY_RESERVATION_ID, CAPACITY_TYPE, CAPACITY_TYPE_ON_DEMAND, CAPACITY_TYPE_RESERVED, HOSTNAME,
    WELL_KNOWN, ZONE,
};
use karpenter_model::plan::{Plan, PlannedNode};
use karpenter_model::pod::PodSpec;
use karpenter_model::problem::{Mode, Problem, ReservedMode};
use karpenter_scheduling::schedule;
use karpenter_scheduling::validate::validate;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};

const MODES: [Mode; 2] = [Mode::Compat, Mode::Cost];
const ZONES: [&str; 3] = ["a", "b", "c"];
const OTHER_LABEL: &str = "example.com/reservation";

/// A reserved offering; the provider's label `label` with value `id` identifies the reservation.
fn slot(label: &str, zone: &str, id: &str, slots: u32) -> Offering {
    let mut offering = offering(zone, CAPACITY_TYPE_RESERVED, 0.000_000_01);
    offering.requirements.add(wants(label, &[id]));
    offering.reservation_id_label = Some(label.into());
    offering.reservation_capacity = Some(slots);
    offering
}

fn on_demand_and(name: &str, cpus: i64, price: f64, more: Vec<Offering>) -> InstanceType {
    let mut made = instance_type(name, cpus, &ZONES, price);
    made.offerings.retain(|one| one.capacity_type().is_some_and(|of| &**of == CAPACITY_TYPE_ON_DEMAND));
    made.offerings.extend(more);
    made.requirements.replace(wants(CAPACITY_TYPE, &[CAPACITY_TYPE_ON_DEMAND, CAPACITY_TYPE_RESERVED]));
    made
}

fn problem(types: Vec<InstanceType>, pods: Vec<(PodSpec, u32)>) -> Problem {
    let labels = [AWS_CAPACITY_RESERVATION_ID, OTHER_LABEL];
    Problem {
        catalogs: vec![Arc::new(types)],
        pools: vec![pool("default")],
        pods: pods
            .into_iter()
            .enumerate()
            .map(|(index, (spec, count))| group(&format!("pod-{index}"), spec, count))
            .collect(),
        well_known: WELL_KNOWN.iter().chain(&labels).map(|key| Arc::from(*key)).collect(),
        ..Problem::default()
    }
}

fn plan(problem: &Problem, mode: Mode, reserved_mode: ReservedMode) -> Plan {
    let mut problem = problem.clone();
    problem.options.mode = mode;
    problem.options.reserved_mode = reserved_mode;
    let plan = schedule(&problem);
    let faults: Vec<String> = validate(&problem, &plan).iter().map(ToString::to_string).collect();
    assert_eq!(faults, Vec::<String>::new(), "{mode:?} {reserved_mode:?}");
    plan
}

fn offering_of<'a>(problem: &'a Problem, node: &PlannedNode) -> &'a Offering {
    &problem.catalogs[problem.pools[node.pool].catalog][node.instance_type].offerings[node.offering]
}

/// The number of nodes on reserved capacity, the number of other nodes, and their total price in hundredths.
fn launched(problem: &Problem, plan: &Plan) -> (usize, usize, i64) {
    let reserved = plan.new_nodes.iter().filter(|node| offering_of(problem, node).is_reserved()).count();
    (reserved, plan.new_nodes.len() - reserved, (plan.price_per_hour * 100.0).round() as i64)
}

/// Pods of one application that exclude each other, so that every pod needs a node of its own.
fn apart(cpu_millis: i64, zones: &[&str]) -> PodSpec {
    let mut spec = pod("apart", cpu_millis);
    spec.anti_affinity = vec![near(HOSTNAME, "apart")];
    spec.node_selector = all_of([wants(ZONE, zones)]);
    spec
}

/// Two nodes could use either of two slots; a third node fits only on a small instance type. Near the limit of the
/// NodePool, a node is limited to the instance types of the reservation that it is assigned to.
#[test]
fn slots_of_different_sizes_are_used_near_the_pool_limit() {
    let label = AWS_CAPACITY_RESERVATION_ID;
    let types = vec![
        on_demand_and("small", 4, 4.0, vec![slot(label, "a", "r1", 1)]),
        on_demand_and("large", 8, 8.0, vec![slot(label, "a", "r2", 1)]),
    ];
    let mut problem = problem(types, vec![(apart(3000, &["a"]), 2)]);
    problem.pools[0].limits.set("cpu", 12_000);
    for mode in MODES {
        let plan = plan(&problem, mode, ReservedMode::Exhaust);
        assert!(plan.unschedulable.is_empty(), "{mode:?}: {:?}", plan.unschedulable);
        assert_eq!(launched(&problem, &plan), (2, 0, 0), "{mode:?}");
    }
}

#[test]
fn two_reservations_with_one_slot_each_hold_two_nodes() {
    for label in [AWS_CAPACITY_RESERVATION_ID, OTHER_LABEL] {
        let slots = vec![slot(label, "a", "cr-1", 1), slot(label, "b", "cr-2", 1)];
        let types = vec![on_demand_and("small", 2, 0.41, vec![]), on_demand_and("large", 4, 0.42, slots)];
        let problem = problem(types, vec![(pod("web", 3000), 2), (pod("api", 1500), 1)]);
        for mode in MODES {
            let plan = plan(&problem, mode, ReservedMode::Exhaust);
            assert_eq!(launched(&problem, &plan), (2, 1, 41), "{label} {mode:?}");
            let mut ids: Vec<String> = plan
                .new_nodes
                .iter()
                .filter_map(|node| node.requirements.get(label)?.single_value().map(ToString::to_string))
                .collect();
            ids.sort();
            assert_eq!(ids, ["cr-1", "cr-2"], "{label} {mode:?}");
        }
    }
}

#[test]
fn every_slot_of_three_reservations_of_one_pool_is_used() {
    let label = AWS_CAPACITY_RESERVATION_ID;
    let of_zone = |(zone, id): (&&str, &str)| slot(label, zone, id, 1);
    let slots = ZONES.iter().zip(["cr-1", "cr-2", "cr-3"]).map(of_zone).collect();
    let types = vec![on_demand_and("two", 2, 0.1, slots)];
    let problem = problem(types, vec![(pod("web", 1500), 5)]);
    for mode in MODES {
        let plan_of = |reserved_mode| launched(&problem, &plan(&problem, mode, reserved_mode));
        assert_eq!(plan_of(ReservedMode::Exhaust), (3, 2, 20), "{mode:?}");
        assert_eq!(plan_of(ReservedMode::Fallback), (3, 2, 20), "{mode:?}");
        assert_eq!(plan_of(ReservedMode::Strict), (3, 0, 0), "{mode:?}: two pods wait");
    }
}

/// The larger pod is placed first and could use either reservation slot; the other pod can use only one of them.
#[test]
fn node_with_choice_leaves_slot_to_node_without() {
    let types = vec![
        on_demand_and("two", 2, 0.1, vec![slot(OTHER_LABEL, "a", "r-two", 1)]),
        on_demand_and("eight", 8, 0.4, vec![slot(OTHER_LABEL, "b", "r-eight", 1)]),
    ];
    let problem = problem(types, vec![(apart(1600, &["a", "b"]), 1), (apart(1500, &["a"]), 1)]);
    for mode in MODES {
        let plan = plan(&problem, mode, ReservedMode::Exhaust);
        assert_eq!(launched(&problem, &plan), (2, 0, 0), "{mode:?}");
    }
}

/// Pods are placed on reservation slots that are already paid for, even if a node launched for other pods has free
/// capacity.
#[test]
fn cost_mode_fills_reserved_slots_first() {
    let types = vec![
        on_demand_and("two", 2, 0.1, vec![]),
        on_demand_and("eight", 8, 0.4, vec![slot(OTHER_LABEL, "a", "r-1", 1)]),
    ];
    let mut bound = pod("bound", 1500);
    bound.node_selector = all_of([wants(CAPACITY_TYPE, &[CAPACITY_TYPE_ON_DEMAND])]);
    let problem = problem(types, vec![(bound, 1), (pod("free", 1000), 6)]);
    let plan = plan(&problem, Mode::Cost, ReservedMode::Exhaust);
    assert_eq!(launched(&problem, &plan), (1, 1, 10));
}

/// Free reservation slots are additional choices for launches; each is listed by one NodeClaim only.
#[test]
fn spare_slot_is_listed_by_one_claim() {
    let slots = vec![slot(OTHER_LABEL, "a", "r-1", 1), slot(OTHER_LABEL, "b", "r-2", 2)];
    let types = vec![on_demand_and("two", 2, 0.1, slots)];
    let problem = problem(types, vec![(pod("web", 1500), 2)]);
    for mode in MODES {
        let plan = plan(&problem, mode, ReservedMode::Strict);
        assert_eq!(launched(&problem, &plan).0, 2, "{mode:?}");
        let lists: Vec<_> =
            plan.new_nodes.iter().filter_map(|node| node.requirements.get(OTHER_LABEL)).collect();
        let listed = lists.iter().map(|list| list.values.len()).sum::<usize>();
        assert_eq!(listed, 3, "{mode:?}: {lists:?}");
    }
}

/// A reservation: instance type, zone, and number of slots.
type Held = (usize, usize, u32);
/// A pod: whether it is large, and the zones that it allows.
type Wanted = (bool, [bool; 3]);

/// The maximum number of reservation slots that the pods can use, one pod per node, and then the lowest price for the
/// pods without a slot. Tries all assignments.
fn best(pods: &[Wanted], held: &mut [Held]) -> (usize, i64) {
    let Some((pod, rest)) = pods.split_first() else { return (0, 0) };
    let (is_large, zones) = *pod;
    let (used, price) = best(rest, held);
    let mut found = (used, price + if is_large { 20 } else { 10 });
    for index in 0..held.len() {
        let (size, zone, slots) = held[index];
        if slots == 0 || !zones[zone] || (is_large && size == 0) {
            continue;
        }
        held[index].2 -= 1;
        let (used, price) = best(rest, held);
        held[index].2 += 1;
        found = (found.0.max(used + 1), found.1.min(price));
    }
    found
}

proptest! {
    #![proptest_config(Config {
        cases: 200,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(20261118),
        ..Config::default()
    })]

    #[test]
    fn used_slots_equal_maximum_matching(
        pods in prop::collection::vec((any::<bool>(), any::<[bool; 3]>()), 1..7),
        held in prop::collection::vec((0usize..2, 0usize..3, 0u32..3), 1..6),
    ) {
        let pods: Vec<Wanted> = pods.into_iter().filter(|(_, zones)| zones.contains(&true)).collect();
        let of_type = |size: usize| -> Vec<Offering> {
            let of_size = held.iter().enumerate().filter(|(_, (of, _, _))| *of == size);
            of_size
                .map(|(index, (_, zone, slots))| slot(OTHER_LABEL, ZONES[*zone], &format!("r-{index}"), *slots))
                .collect()
        };
        let types = vec![on_demand_and("two", 2, 0.1, of_type(0)), on_demand_and("four", 4, 0.2, of_type(1))];
        let specs = pods.iter().map(|(is_large, zones)| {
            let allowed: Vec<&str> =
                ZONES.iter().zip(zones).filter(|(_, is_allowed)| **is_allowed).map(|(zone, _)| *zone).collect();
            (apart(if *is_large { 3000 } else { 1500 }, &allowed), 1)
        });
        let problem = problem(types, specs.collect());
        let (used, price) = best(&pods, &mut held.clone());
        for mode in MODES {
            let end = launched(&problem, &plan(&problem, mode, ReservedMode::Exhaust));
            prop_assert_eq!(end, (used, pods.len() - used, price), "{:?}", mode);
            let strict = launched(&problem, &plan(&problem, mode, ReservedMode::Strict));
            prop_assert_eq!(strict.0, used, "{:?}", mode);
        }
    }
}
