//! Tests of simulations whose outcomes were worked out by hand.

use crate::support::builders;

use std::collections::BTreeMap;
use std::sync::Arc;

use builders::{bound, node, offering, pod, spread, wants, world};
use karpenter_model::labels::{
    AWS_CAPACITY_RESERVATION_ID, CAPACITY_TYPE, CAPACITY_TYPE_RESERVED, HOSTNAME, ZONE,
};
use karpenter_model::pod::PodSpec;
use karpenter_model::problem::{Mobility, Mode, Problem, ReservedMode};
use karpenter_scheduling::schedule;
use karpenter_scheduling::simulate::{SimulationRequest, Simulator, dual_prices};

fn moving(app: &str, cpu_millis: i64) -> karpenter_model::problem::BoundPod {
    karpenter_model::problem::BoundPod { mobility: Mobility::Moves, ..bound(pod(app, cpu_millis)) }
}

fn request<'a>(
    removed_nodes: &'a [usize],
    reservation_credits: &'a BTreeMap<Arc<str>, u32>,
) -> SimulationRequest<'a> {
    SimulationRequest {
        removed_nodes,
        moves_blocked_pods: false,
        mode: Mode::Compat,
        effort: 100,
        prefers_vacated_domains: false,
        reserved_mode: ReservedMode::Strict,
        reservation_credits,
    }
}

/// Two nodes of 4 CPUs, each with a pod of 3 CPUs; one of these pods may move, the other may not.
fn two_nodes() -> Problem {
    let mut problem = world();
    problem.nodes = vec![node("a", "zone-a", 4), node("b", "zone-a", 4)];
    problem.nodes[0].pods = vec![moving("web", 3000)];
    problem.nodes[1].pods = vec![bound(pod("web", 3000))];
    problem
}

#[test]
fn simulators_are_shared_by_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Simulator<'_>>();
}

#[test]
fn credited_slot_of_full_reservation_is_used() {
    let mut problem = two_nodes();
    let mut types = (*problem.catalogs[0]).clone();
    for instance_type in &mut types {
        let mut reserved = offering("zone-a", CAPACITY_TYPE_RESERVED, 0.001);
        reserved.requirements.add(wants(AWS_CAPACITY_RESERVATION_ID, &["cr-1"]));
        reserved.reservation_capacity = Some(0);
        reserved.reservation_id_label = Some(AWS_CAPACITY_RESERVATION_ID.into());
        instance_type.offerings = vec![reserved];
        instance_type.requirements.replace(wants(CAPACITY_TYPE, &[CAPACITY_TYPE_RESERVED]));
    }
    problem.catalogs = vec![Arc::new(types)];
    problem.pools[0].requirements.replace(wants(CAPACITY_TYPE, &[CAPACITY_TYPE_RESERVED]));
    problem.well_known.insert(AWS_CAPACITY_RESERVATION_ID.into());
    let simulator = Simulator::new(&problem);
    let stranded = |reservation_credits: &[(&str, u32)]| {
        let reservation_credits =
            reservation_credits.iter().map(|(id, count)| (Arc::from(*id), *count)).collect();
        let outcome = simulator.simulate(&request(&[0], &reservation_credits));
        (outcome.unschedulable_movers(0), outcome.plan.new_nodes.len())
    };
    assert_eq!(stranded(&[]), (1, 0));
    assert_eq!(stranded(&[("cr-other", 3)]), (1, 0));
    assert_eq!(stranded(&[("cr-1", 1)]), (0, 1));
    assert_eq!(stranded(&[]), (1, 0), "a credit is for one request");
}

#[test]
fn committed_node_accepts_moves_and_keeps_its_pods() {
    let mut problem = two_nodes();
    problem.nodes[1].pods.push(moving("small", 500));
    let (mut simulator, nothing) = (Simulator::new(&problem), BTreeMap::new());
    let first = request(&[0], &nothing);
    let outcome = simulator.simulate(&first);
    assert_eq!(simulator.commit(&first, &outcome), 2..3);
    assert!(simulator.node(0).is_none());
    let arrived = simulator.node(2).map(|node| (node.pods.len(), node.pods[0].mobility, node.price_per_hour));
    assert_eq!(arrived, Some((1, Mobility::Blocked, Some(0.2))));
    // The new node has 900m left: 4 CPUs minus 0.1 overhead and the pod's 3 CPUs.
    assert_eq!(simulator.free(2).map(|free| free.get("cpu")), Some(900));
    let outcome = simulator.simulate(&request(&[1], &nothing));
    assert_eq!(outcome.plan.existing.iter().map(|placed| placed.node).collect::<Vec<_>>(), [2]);
    let outcome = simulator.simulate(&request(&[2], &nothing));
    assert!(outcome.movers.is_empty(), "no pod moves twice");
}

#[test]
fn no_column_is_worth_more_than_its_node_at_dual_prices() {
    let mut problem = world();
    let specs = [(Arc::new(pod("big", 1800)), 4), (Arc::new(pod("small", 300)), 20)];
    problem.pods =
        specs.iter().map(|(spec, count)| builders::group("pods", (**spec).clone(), *count)).collect();
    let value = dual_prices(&problem, &specs, 1_000);
    let total: f64 = value
        .dual_price_per_spec
        .iter()
        .zip(&specs)
        .map(|(price, (_, count))| price * f64::from(*count))
        .sum();
    let price = schedule(&problem).price_per_hour;
    assert!(value.lower_bound_per_hour > 0.0 && value.lower_bound_per_hour <= price + 1e-9);
    assert!(total <= price + 1e-9, "{total} {price}");
    // A small node (1.9 CPUs for 0.1 an hour) holds one large pod or six small ones.
    assert!(value.dual_price_per_spec[0] <= 0.1 + 1e-9 && value.dual_price_per_spec[1] * 6.0 <= 0.1 + 1e-9);
    let huge = [(Arc::new(pod("huge", 900_000)), 1)];
    assert_eq!(dual_prices(&problem, &huge, 1_000).dual_price_per_spec, [0.0]);
}

#[test]
fn dual_bound_includes_hostname_spread() {
    let mut problem = world();
    // A node with one or two large pods has no capacity for a small one, so by the spread no node may hold two small
    // ones.
    let spread = PodSpec { spread: vec![builders::spread(HOSTNAME, "small", 1)], ..pod("small", 300) };
    let big = Arc::new(pod("big", 1850));
    let bound = |small: PodSpec| {
        let specs = [(Arc::new(small), 12), (big.clone(), 12)];
        dual_prices(&problem, &specs, 1_000).lower_bound_per_hour
    };
    let (bound, free) = (bound(spread.clone()), bound(pod("small", 300)));
    problem.pods = vec![builders::group("small", spread, 12), builders::group("big", (*big).clone(), 12)];
    let price = schedule(&problem).price_per_hour;
    assert!(bound > free * 1.05 && bound <= price + 1e-9, "{free} {bound} {price}");
}

#[test]
fn dual_bound_includes_spread_share_and_nodes_above_it() {
    let mut problem = world();
    let spread = PodSpec { spread: vec![builders::spread(HOSTNAME, "web", 1)], ..pod("web", 300) };
    let spec = Arc::new(spread);
    let bound_of_three =
        |problem: &Problem| dual_prices(problem, &[(spec.clone(), 3)], 1_000).lower_bound_per_hour;
    let three = 3.0 * 0.1;
    assert!((bound_of_three(&problem) - three).abs() < 1e-3, "{}", bound_of_three(&problem));
    // kube-scheduler bound all pods of the spread to one node, which may stay.
    problem.nodes = vec![node("crowded", "zone-a", 2)];
    problem.nodes[0].pods = vec![builders::bound((*spec).clone()); 3];
    assert!(bound_of_three(&problem) <= 0.1 + 1e-9, "{}", bound_of_three(&problem));
    // If the spread counts thirty pods, three may share a node; pending pods are counted as well.
    problem.nodes.clear();
    problem.pods = vec![builders::group("web", (*spec).clone(), 27 + 3)];
    assert!(bound_of_three(&problem) <= 0.1 + 1e-9, "{}", bound_of_three(&problem));
}

#[test]
fn spread_pods_prefer_vacated_zones() {
    let mut problem = world();
    let mut spec = pod("web", 1000);
    spec.spread = vec![spread(ZONE, "web", 1)];
    let web = || karpenter_model::problem::BoundPod { mobility: Mobility::Moves, ..bound(spec.clone()) };
    // The last zone has one pod more than the others, and its node is removed.
    let per_zone = [("zone-a", 1), ("zone-b", 1), ("zone-c", 2)];
    problem.nodes = per_zone.map(|(zone, _)| node(zone, zone, 2)).to_vec();
    for (node, (_, count)) in problem.nodes.iter_mut().zip(per_zone) {
        node.pods = std::iter::repeat_with(web).take(count).collect();
    }
    let (simulator, nothing) = (Simulator::new(&problem), BTreeMap::new());
    let arrivals = |prefers_vacated_domains: bool| -> Vec<String> {
        let request =
            SimulationRequest { mode: Mode::Cost, prefers_vacated_domains, ..request(&[2], &nothing) };
        let plan = simulator.simulate(&request).plan;
        assert!(plan.unschedulable.is_empty());
        let existing = plan.existing.iter().map(|one| (problem.nodes[one.node].labels.get(ZONE), &one.pods));
        let new = plan.new_nodes.iter().map(|one| {
            (one.requirements.get(ZONE).and_then(|requirement| requirement.single_value()), &one.pods)
        });
        let mut zones: Vec<String> = Vec::new();
        for (zone, pods) in existing.chain(new) {
            let count: u32 = pods.iter().map(|run| run.count).sum();
            let zone = zone.map_or_else(String::new, ToString::to_string);
            zones.extend(std::iter::repeat_n(zone, count as usize));
        }
        zones.sort();
        zones
    };
    // One of the two pods has to return to its zone, which would otherwise have none. For the other pod all zones are
    // equal, and the first zone has capacity.
    assert_eq!(arrivals(false), ["zone-a", "zone-c"]);
    assert_eq!(arrivals(true), ["zone-c", "zone-c"]);
}
