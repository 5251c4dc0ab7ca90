//! Tests of reserved capacity in plans: reservations have a limited number of slots, and pods without a slot wait
//! (strict mode) or use other capacity (fallback mode).

use crate::support::builders;

use std::collections::BTreeMap;
use std::sync::Arc;

use builders::{all_of, group, instance_type, offering, pod, pool, wants};
use karpenter_model::instance_type::{InstanceType, Offering};
use karpenter_model::labels::{
    AWS_CAPACITY_RESERVATION_ID, CAPACITY_TYPE, CAPACITY_TYPE_ON_DEMAND, CAPACITY_TYPE_RESERVED, WELL_KNOWN,
    ZONE,
};
use karpenter_model::plan::{Plan, PlannedNode};
use karpenter_model::pod::PodSpec;
use karpenter_model::problem::{Mode, NodePool, Problem, ReservedMode};
use karpenter_model::reason::{Reason, Scope};
use karpenter_model::requirements::Requirement;
use karpenter_scheduling::schedule;
use karpenter_scheduling::validate::validate;

const MODES: [Mode; 2] = [Mode::Compat, Mode::Cost];
const RESERVED_PRICE_PER_HOUR: f64 = 0.000_000_01;

fn reserved(zone: &str, id: Option<&str>, slots: u32) -> Offering {
    let mut offering = offering(zone, CAPACITY_TYPE_RESERVED, RESERVED_PRICE_PER_HOUR);
    if let Some(id) = id {
        offering.requirements.add(wants(AWS_CAPACITY_RESERVATION_ID, &[id]));
        offering.reservation_id_label = Some(AWS_CAPACITY_RESERVATION_ID.into());
    }
    offering.reservation_capacity = Some(slots);
    offering
}

/// An instance type with on-demand offerings in every zone and, in addition, the given reserved offerings.
fn with_reserved(name: &str, cpus: i64, zones: &[&str], price: f64, more: Vec<Offering>) -> InstanceType {
    let mut made = instance_type(name, cpus, zones, price);
    made.offerings
        .retain(|offering| offering.capacity_type().is_some_and(|of| &**of == CAPACITY_TYPE_ON_DEMAND));
    for offering in &mut made.offerings {
        offering.requirements.add(Requirement::does_not_exist(AWS_CAPACITY_RESERVATION_ID));
    }
    made.offerings.extend(more);
    made.requirements.replace(wants(CAPACITY_TYPE, &[CAPACITY_TYPE_ON_DEMAND, CAPACITY_TYPE_RESERVED]));
    made
}

fn problem(types: Vec<InstanceType>, pods: Vec<(PodSpec, u32)>) -> Problem {
    Problem {
        catalogs: vec![Arc::new(types)],
        pools: vec![pool("default")],
        pods: pods
            .into_iter()
            .enumerate()
            .map(|(index, (spec, count))| group(&format!("pod-{index}"), spec, count))
            .collect(),
        well_known: WELL_KNOWN
            .iter()
            .chain([&AWS_CAPACITY_RESERVATION_ID])
            .map(|key| Arc::from(*key))
            .collect(),
        ..Problem::default()
    }
}

/// Five pods, one per node, and a single instance type with a reservation.
fn one_per_node(slots: u32, id: Option<&str>) -> Problem {
    let types = vec![with_reserved("two", 2, &["a"], 0.1, vec![reserved("a", id, slots)])];
    problem(types, vec![(pod("web", 1500), 5)])
}

fn only_for(capacity_types: &[&str]) -> NodePool {
    let mut only = pool("default");
    only.requirements = all_of([wants(CAPACITY_TYPE, capacity_types)]);
    only
}

fn plan(problem: &Problem, mode: Mode, reserved_mode: ReservedMode) -> Plan {
    let mut problem = problem.clone();
    problem.options.mode = mode;
    problem.options.reserved_mode = reserved_mode;
    let plan = schedule(&problem);
    let faults: Vec<String> = validate(&problem, &plan).iter().map(ToString::to_string).collect();
    assert_eq!(faults, Vec::<String>::new(), "{mode:?} {reserved_mode:?}");
    assert!(plan.lower_bound_per_hour <= plan.price_per_hour + 1e-12);
    plan
}

fn offering_of<'a>(problem: &'a Problem, node: &PlannedNode) -> &'a Offering {
    let catalog = &problem.catalogs[problem.pools[node.pool].catalog];
    &catalog[node.instance_type].offerings[node.offering]
}

/// The number of planned nodes on reserved capacity, and on other capacity.
fn split(problem: &Problem, plan: &Plan) -> (usize, usize) {
    let reserved = plan.new_nodes.iter().filter(|node| offering_of(problem, node).is_reserved()).count();
    for node in &plan.new_nodes {
        let is_reserved = offering_of(problem, node).is_reserved();
        let allowed = node.requirements.get(CAPACITY_TYPE).expect("the capacity type is always stated here");
        assert_eq!(allowed.has(CAPACITY_TYPE_RESERVED), is_reserved, "{allowed}");
        assert_eq!(allowed.has(CAPACITY_TYPE_ON_DEMAND), !is_reserved, "{allowed}");
    }
    (reserved, plan.new_nodes.len() - reserved)
}

fn unschedulable(plan: &Plan) -> BTreeMap<u32, Vec<Reason>> {
    let mut left: BTreeMap<u32, Vec<Reason>> = BTreeMap::new();
    for pods in &plan.unschedulable {
        for _ in 0..pods.pods.count {
            left.entry(pods.pods.group)
                .or_default()
                .extend(pods.reasons.iter().map(|refusal| refusal.reason.clone()));
        }
    }
    left
}

#[test]
fn reservation_has_limited_slots() {
    use ReservedMode::{Exhaust, Fallback, Strict};
    let both: &[&str] = &[CAPACITY_TYPE_ON_DEMAND, CAPACITY_TYPE_RESERVED];
    let alone: &[&str] = &[CAPACITY_TYPE_RESERVED];
    // Columns: slots, capacity types of the NodePool, mode, expected (reserved, other) nodes, unschedulable pods.
    let cases = [
        (2, both, Fallback, (2, 3), 0),
        (2, both, Exhaust, (2, 3), 0),
        (2, both, Strict, (2, 0), 3),
        (5, both, Strict, (5, 0), 0),
        (9, both, Fallback, (5, 0), 0),
        // If other capacity is allowed, pods do not wait for a reservation that has no free slot from the start.
        (0, both, Fallback, (0, 5), 0),
        (0, both, Strict, (0, 5), 0),
        (0, alone, Fallback, (0, 0), 5),
        (0, alone, Strict, (0, 0), 5),
        (2, alone, Fallback, (2, 0), 3),
        (2, alone, Strict, (2, 0), 3),
        (2, alone, Exhaust, (2, 0), 3),
    ];
    for (slots, capacity_types, reserved_mode, expected, left) in cases {
        for id in [Some("cr-1"), None] {
            for mode in MODES {
                let mut problem = one_per_node(slots, id);
                problem.pools = vec![only_for(capacity_types)];
                let plan = plan(&problem, mode, reserved_mode);
                let case =
                    format!("{slots} slots for {capacity_types:?}, {reserved_mode:?}, {id:?}, {mode:?}");
                assert_eq!(split(&problem, &plan), expected, "{case}");
                let reasons = unschedulable(&plan).remove(&0).unwrap_or_default();
                assert_eq!(reasons, vec![Reason::ReservationFull; left], "{case}");
                for node in plan.new_nodes.iter().filter(|node| offering_of(&problem, node).is_reserved()) {
                    let stated = node.requirements.get(AWS_CAPACITY_RESERVATION_ID);
                    assert_eq!(stated.and_then(|ids| ids.single_value()).map(|id| &**id), id, "{case}");
                    assert_eq!(node.price_per_hour, RESERVED_PRICE_PER_HOUR, "{case}");
                }
            }
        }
    }
}

#[test]
fn smallest_capacity_of_a_reservation_counts() {
    let shared = |slots| vec![reserved("a", Some("cr-1"), slots)];
    let types = vec![
        with_reserved("two", 2, &["a"], 0.1, shared(4)),
        with_reserved("three", 3, &["a"], 0.2, shared(1)),
    ];
    let problem = problem(types, vec![(pod("web", 1500), 5)]);
    for mode in MODES {
        assert_eq!(split(&problem, &plan(&problem, mode, ReservedMode::Fallback)).0, 1, "{mode:?}");
    }
}

/// Two NodePools can use the same reservation: the one with the higher weight uses it first, and in strict mode it
/// alone.
#[test]
fn pools_share_a_reservation() {
    let mut problem = one_per_node(2, Some("cr-1"));
    let mut heavy = only_for(&[CAPACITY_TYPE_RESERVED]);
    heavy.name = "heavy".into();
    heavy.labels = builders::label_map(&[(karpenter_model::labels::NODEPOOL, "heavy")]);
    heavy.weight = 10;
    problem.pools.push(heavy);
    for mode in MODES {
        let strict = plan(&problem, mode, ReservedMode::Strict);
        assert_eq!(split(&problem, &strict), (2, 0), "{mode:?}");
        assert!(strict.new_nodes.iter().all(|node| &*problem.pools[node.pool].name == "heavy"));
        for left in &strict.unschedulable {
            let simulated: Vec<_> =
                left.reasons.iter().map(|refusal| (&refusal.scope, &refusal.reason)).collect();
            let scope = Scope::NodePool("heavy".into());
            assert_eq!(simulated, [(&scope, &Reason::ReservationFull)], "the lighter pool is not simulated");
        }
        let fallback = plan(&problem, mode, ReservedMode::Fallback);
        assert_eq!(split(&problem, &fallback), (2, 3), "{mode:?}");
        assert!(fallback.unschedulable.is_empty());
    }
}

/// The node that holds a reservation slot has capacity for a pod that requires on-demand capacity, but the pod must not
/// be placed there.
#[test]
fn pod_that_requires_on_demand_does_not_join_reserved_node() {
    let types = vec![with_reserved("four", 4, &["a"], 0.2, vec![reserved("a", Some("cr-1"), 1)])];
    let mut picky = pod("picky", 500);
    picky.node_selector = all_of([wants(CAPACITY_TYPE, &[CAPACITY_TYPE_ON_DEMAND])]);
    let problem = problem(types, vec![(pod("web", 1500), 1), (picky, 1)]);
    for mode in MODES {
        assert_eq!(split(&problem, &plan(&problem, mode, ReservedMode::Strict)), (1, 1), "{mode:?}");
    }
    // In compat mode, a simulation gives up the reservation slot for a fuller node, like upstream; in cost mode, the
    // slot is kept.
    assert_eq!(split(&problem, &plan(&problem, Mode::Compat, ReservedMode::Fallback)), (0, 1));
    assert_eq!(split(&problem, &plan(&problem, Mode::Cost, ReservedMode::Fallback)), (1, 1));
}

/// The same problem as in the previous test, with a NodePool that allows only one node: scheduling the pod has priority
/// over keeping the reservation slot.
#[test]
fn reservation_is_dropped_before_pod_is_unschedulable() {
    let types = vec![with_reserved("four", 4, &["a"], 0.2, vec![reserved("a", Some("cr-1"), 1)])];
    let mut picky = pod("picky", 500);
    picky.node_selector = all_of([wants(CAPACITY_TYPE, &[CAPACITY_TYPE_ON_DEMAND])]);
    let mut problem = problem(types, vec![(pod("web", 1500), 1), (picky, 1)]);
    problem.pools[0].limits = builders::resources(&[("nodes", 1)]);
    for mode in MODES {
        let fallback = plan(&problem, mode, ReservedMode::Fallback);
        assert_eq!((split(&problem, &fallback), fallback.unschedulable.len()), ((0, 1), 0), "{mode:?}");
        let strict = plan(&problem, mode, ReservedMode::Strict);
        assert_eq!((split(&problem, &strict), strict.unschedulable.len()), ((1, 0), 1), "{mode:?}");
    }
}

/// With more pods, the node would need a larger instance type, which has no reservation. So the reserved node is
/// filled, then another node is opened.
#[test]
fn reserved_node_stays_within_its_reservation() {
    let types = vec![
        with_reserved("two", 2, &["a"], 0.1, vec![reserved("a", Some("cr-1"), 1)]),
        with_reserved("eight", 8, &["a"], 0.4, vec![]),
    ];
    let problem = problem(types, vec![(pod("web", 900), 6)]);
    let strict = plan(&problem, Mode::Compat, ReservedMode::Strict);
    // Two pods fill the reserved node. The other pods could use another small node with a reservation, so they wait.
    assert_eq!(split(&problem, &strict), (1, 0));
    assert_eq!(unschedulable(&strict)[&0], vec![Reason::ReservationFull; 4]);
    // When no slot is left, provisioning launches unreserved nodes for the remaining pods.
    let ended = plan(&problem, Mode::Compat, ReservedMode::Exhaust);
    assert_eq!(split(&problem, &ended), (1, 1));
    let simulated = plan(&problem, Mode::Compat, ReservedMode::Fallback);
    assert_eq!(split(&problem, &simulated), (0, 1));
    let priced = plan(&problem, Mode::Cost, ReservedMode::Fallback);
    assert_eq!(split(&problem, &priced).0, 1);
    assert!(priced.price_per_hour < simulated.price_per_hour);
}

/// Nodes that may launch in several zones can use the reservation slots of each zone, whether their pods require a zone
/// or not.
#[test]
fn nodes_use_reservations_of_all_zones() {
    let zones = ["a", "b"];
    let make = || {
        let both = vec![reserved("a", Some("cr-a"), 1), reserved("b", Some("cr-b"), 1)];
        vec![with_reserved("two", 2, &zones, 0.1, both)]
    };
    let in_zone = |zone: &str| {
        let mut spec = pod("web", 1500);
        spec.node_selector = all_of([wants(ZONE, &[zone])]);
        spec
    };
    let alone = problem(make(), vec![(pod("web", 1500), 1)]);
    let undecided = problem(make(), vec![(pod("web", 1500), 2)]);
    // Each node has a decided zone, so each holds its own reservation slot.
    let decided = problem(make(), vec![(in_zone("a"), 1), (in_zone("b"), 1)]);
    // The first node can use either of two reservation slots, the second node only one of them.
    let half_decided = problem(make(), vec![(pod("web", 1600), 1), (in_zone("a"), 1)]);
    // Two nodes need the only reservation slot of their zone.
    let crowded = problem(make(), vec![(in_zone("a"), 2)]);
    for mode in MODES {
        let plan_of = |problem: &Problem, reserved_mode| plan(problem, mode, reserved_mode);
        for reserved_mode in [ReservedMode::Fallback, ReservedMode::Strict, ReservedMode::Exhaust] {
            let only = plan_of(&alone, reserved_mode);
            let ids = only.new_nodes[0].requirements.get(AWS_CAPACITY_RESERVATION_ID).expect("ids");
            assert!(ids.has("cr-a") && ids.has("cr-b"), "{ids}");
            for shared in [&undecided, &decided, &half_decided] {
                assert_eq!(split(shared, &plan_of(shared, reserved_mode)), (2, 0), "{mode:?}");
            }
        }
        assert_eq!(split(&crowded, &plan_of(&crowded, ReservedMode::Fallback)), (1, 1), "{mode:?}");
    }
}

/// A pod that requires a zone joins a node; the reservation slot of the other zone becomes free for the next node.
#[test]
fn released_slot_is_used() {
    let both = vec![reserved("a", Some("cr-a"), 1), reserved("b", Some("cr-b"), 1)];
    let types = vec![with_reserved("four", 4, &["a", "b"], 0.2, both)];
    let mut decides = pod("decides", 1000);
    decides.node_selector = all_of([wants(ZONE, &["a"])]);
    let problem = problem(types, vec![(pod("first", 2500), 1), (decides, 1), (pod("small", 800), 2)]);
    let strict = plan(&problem, Mode::Compat, ReservedMode::Strict);
    assert_eq!(split(&problem, &strict), (2, 0));
    assert!(strict.unschedulable.is_empty());
}

/// A pod that waits for a reservation keeps its preferences.
#[test]
fn pods_that_wait_for_reservation_keep_preferences() {
    let types = vec![
        with_reserved("two", 2, &["a"], 0.1, vec![reserved("a", Some("cr-1"), 1)]),
        with_reserved("other", 2, &["b"], 0.1, vec![]),
    ];
    let mut spec = pod("web", 1500);
    spec.preferred_terms = vec![(1, all_of([wants(CAPACITY_TYPE, &[CAPACITY_TYPE_RESERVED])]))];
    let problem = problem(types, vec![(spec, 2)]);
    for mode in MODES {
        let strict = plan(&problem, mode, ReservedMode::Strict);
        assert_eq!(split(&problem, &strict), (1, 0), "{mode:?}");
        assert_eq!(unschedulable(&strict)[&0], [Reason::ReservationFull], "{mode:?}");
        let fallback = plan(&problem, mode, ReservedMode::Fallback);
        assert_eq!(split(&problem, &fallback), (1, 1), "{mode:?}");
    }
}
