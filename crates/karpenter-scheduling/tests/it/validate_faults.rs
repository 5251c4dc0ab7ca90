//! Tests that the validator reports every kind of violation: each test takes a valid plan and changes one thing.

use crate::support::builders;

use std::sync::Arc;

use builders::*;
use karpenter_model::instance_type::Offering;
use karpenter_model::labels::{
    AWS_CAPACITY_RESERVATION_ID, CAPACITY_TYPE, CAPACITY_TYPE_RESERVED, HOSTNAME, INSTANCE_TYPE, ZONE,
};
use karpenter_model::plan::{self, Plan, Unschedulable};
use karpenter_model::pod::PodSpec;
use karpenter_model::problem::{MinValuesPolicy, Problem};
use karpenter_model::reason::Reason;
use karpenter_model::requirements::{Operator, Requirement};
use karpenter_model::taints::Effect;
use karpenter_scheduling::validate::{Place, Violation, validate};

#[track_caller]
fn assert_valid(problem: &Problem, plan: &Plan) {
    let violations = validate(problem, plan);
    assert!(violations.is_empty(), "{}", listed(&violations));
}

fn listed(violations: &[Violation]) -> String {
    violations.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// The only violation.
#[track_caller]
fn only(problem: &Problem, plan: &Plan) -> Violation {
    let mut violations = validate(problem, plan);
    assert_eq!(violations.len(), 1, "{}", listed(&violations));
    let text = violations[0].to_string();
    assert!(!text.is_empty() && !text.contains('\n'), "{text}");
    violations.remove(0)
}

macro_rules! assert_only {
    ($problem:expr, $plan:expr, $pattern:pat $(if $guard:expr)?) => {
        let violation = only(&$problem, &$plan);
        assert!(matches!(&violation, $pattern $(if $guard)?), "{violation}");
    };
}

/// Three pods of one CPU on one medium node; the large instance type is another option.
fn web() -> (Problem, Plan) {
    web_like(|_| {})
}

fn web_like(change: impl FnOnce(&mut PodSpec)) -> (Problem, Plan) {
    let mut problem = world();
    let mut spec = pod("web", 1000);
    change(&mut spec);
    problem.pods = vec![group("web", spec, 3)];
    let node = launch(&problem, "zone-a", &[MEDIUM, LARGE], &[run(0, 0, 3)]);
    (problem, plan(vec![node]))
}

#[test]
fn valid_plan_passes() {
    let (problem, plan) = web();
    assert_valid(&problem, &plan);
}

#[test]
fn empty_plan_without_pods_passes() {
    assert_valid(&world(), &Plan::default());
}

// Coverage of pods.

#[test]
fn missing_pod_is_reported() {
    let (problem, mut plan) = web();
    plan.new_nodes[0] = launch(&problem, "zone-a", &[MEDIUM, LARGE], &[run(0, 0, 1), run(0, 2, 1)]);
    assert_only!(problem, plan, Violation::PodMissing { pod, count: 1 } if pod.as_str() == "default/web-1");
}

#[test]
fn missing_pods_at_the_end_are_reported() {
    let (problem, mut plan) = web();
    plan.new_nodes[0] = launch(&problem, "zone-a", &[MEDIUM, LARGE], &[run(0, 0, 1)]);
    assert_only!(problem, plan, Violation::PodMissing { pod, count: 2 } if pod.as_str() == "default/web-1");
}

#[test]
fn pod_placed_twice_is_reported() {
    let (problem, mut plan) = web();
    plan.new_nodes.push(launch(&problem, "zone-b", &[SMALL], &[run(0, 2, 1)]));
    let plan = builders::plan(plan.new_nodes);
    assert_only!(problem, plan, Violation::PodPlacedTwice { pod, count: 1 } if pod.as_str() == "default/web-2");
}

#[test]
fn run_past_the_end_is_reported() {
    let (problem, mut plan) = web();
    plan.unschedulable.push(Unschedulable { pods: run(0, 3, 1), reasons: vec![] });
    assert_only!(problem, plan, Violation::RunOutOfRange { place: Place::Unschedulable, start: 3, .. });
}

#[test]
fn unknown_group_is_reported() {
    let (problem, mut plan) = web();
    plan.unschedulable.push(Unschedulable { pods: run(7, 0, 1), reasons: vec![] });
    assert_only!(problem, plan, Violation::RunOutOfRange { group: 7, .. });
}

#[test]
fn placed_refused_pod_is_reported() {
    let (problem, placed) = web_like(|spec| spec.refusal = Some(Reason::OptedOut));
    assert_only!(problem, placed, Violation::RefusedPodPlaced { .. });
    let left_alone = Plan {
        unschedulable: vec![Unschedulable { pods: run(0, 0, 3), reasons: vec![] }],
        ..Plan::default()
    };
    assert_valid(&problem, &left_alone);
}

#[test]
fn node_without_pods_is_reported() {
    let (problem, mut plan) = web();
    plan.new_nodes.push(launch(&problem, "zone-b", &[SMALL], &[]));
    let plan = builders::plan(plan.new_nodes);
    assert_only!(problem, plan, Violation::NodeWithoutPods { node: 1 });
}

// The binding order.

/// Two pods on a planned node and one on an existing node, with a binding order.
fn ordered() -> (Problem, Plan) {
    let mut problem = world();
    problem.pods = vec![group("web", pod("web", 500), 3)];
    problem.nodes = vec![node("node-1", "zone-a", 1)];
    let mut plan = plan(vec![launch(&problem, "zone-a", &[SMALL], &[run(0, 0, 2)])]);
    onto_existing(&mut plan, 0, &[run(0, 2, 1)]);
    let (new, existing) = (plan::Place::New(0), plan::Place::Existing(0));
    plan.order = vec![(run(0, 1, 1), new), (run(0, 2, 1), existing), (run(0, 0, 1), new)];
    (problem, plan)
}

#[test]
fn order_may_split_runs_or_be_omitted() {
    let (problem, mut plan) = ordered();
    assert_valid(&problem, &plan);
    plan.order.clear();
    assert_valid(&problem, &plan);
}

#[test]
fn order_without_a_pod_is_reported() {
    let (problem, mut plan) = ordered();
    plan.order.remove(0);
    assert_only!(problem, plan, Violation::OrderLacksPods { place: Place::Planned(0), pod, count: 1 } if pod.as_str() == "default/web-1");
}

#[test]
fn order_with_repeated_pod_is_reported() {
    let (problem, mut plan) = ordered();
    plan.order.push((run(0, 0, 2), plan::Place::New(0)));
    let violations = validate(&problem, &plan);
    let repeated: u32 = violations
        .iter()
        .map(|violation| match violation {
            Violation::OrderRepeatsPods { count, .. } => *count,
            other => panic!("{other}"),
        })
        .sum();
    assert_eq!(repeated, 2, "{}", listed(&violations));
}

#[test]
fn order_with_wrong_node_is_reported() {
    let (problem, mut plan) = ordered();
    plan.order[1].1 = plan::Place::New(0);
    assert_only!(problem, plan, Violation::OrderOutOfPlace { place: Place::Planned(0), pod, count: 1 } if pod.as_str() == "default/web-2");
    plan.order[1].1 = plan::Place::Existing(7);
    assert_only!(problem, plan, Violation::OrderOutOfPlace { place: Place::Existing(_), count: 1, .. });
}

#[test]
fn order_with_unplaced_pod_is_reported() {
    let (problem, mut plan) = ordered();
    plan.order.push((run(0, 3, 2), plan::Place::New(0)));
    assert_only!(problem, plan, Violation::OrderOutOfPlace { count: 2, .. });
    plan.order[3].0 = run(9, 0, 4);
    assert_only!(problem, plan, Violation::OrderOutOfPlace { count: 4, .. });
}

#[test]
fn unknown_pool_is_reported() {
    let (problem, mut plan) = web();
    plan.new_nodes[0].pool = 4;
    plan.price_per_hour = 0.0;
    assert_only!(problem, plan, Violation::UnknownPool { node: 0, pool: 4 });
}

#[test]
fn unknown_type_is_reported() {
    let (problem, mut plan) = web();
    plan.new_nodes[0].instance_type = 9;
    plan.price_per_hour = 0.0;
    assert_only!(problem, plan, Violation::UnknownInstanceType { node: 0, index: 9 });
}

#[test]
fn unknown_option_is_reported() {
    let (problem, mut plan) = web();
    plan.new_nodes[0].instance_type_options.push(9);
    assert_only!(problem, plan, Violation::UnknownInstanceType { node: 0, index: 9 });
}

#[test]
fn unknown_offering_is_reported() {
    let (problem, mut plan) = web();
    plan.new_nodes[0].offering = 99;
    plan.price_per_hour = 0.0;
    assert_only!(problem, plan, Violation::UnknownOffering { index: 99, .. });
}

#[test]
fn unknown_existing_node_is_reported() {
    let (problem, mut plan) = web();
    onto_existing(&mut plan, 5, &[]);
    assert_only!(problem, plan, Violation::UnknownExistingNode { index: 5 });
}

#[test]
fn chosen_type_must_be_first_option() {
    let (problem, mut plan) = web();
    plan.new_nodes[0].instance_type_options = vec![LARGE];
    assert_only!(problem, plan, Violation::ChosenTypeNotFirst { .. });
}

#[test]
fn option_listed_twice_is_reported() {
    let (problem, mut plan) = web();
    plan.new_nodes[0].instance_type_options = vec![MEDIUM, LARGE, LARGE];
    assert_only!(problem, plan, Violation::OptionListedTwice { .. });
}

#[test]
fn options_must_be_sorted_by_price() {
    let (mut problem, _) = web();
    let mut catalog = (*problem.catalogs[0]).clone();
    catalog.push(instance_type("huge", 16, &ZONES, 0.8));
    problem.catalogs[0] = Arc::new(catalog);
    let node = launch(&problem, "zone-a", &[MEDIUM, 3, LARGE], &[run(0, 0, 3)]);
    assert_only!(problem, plan(vec![node]), Violation::OptionsOutOfOrder { instance_type, .. } if &**instance_type == "large");
}

#[test]
fn cheaper_offering_of_chosen_type_is_reported() {
    let (mut problem, _) = web();
    problem.pools[0].requirements = Default::default();
    let node = launch(&problem, "zone-a", &[MEDIUM], &[run(0, 0, 3)]);
    assert_only!(problem, plan(vec![node]), Violation::CheaperOfferingIgnored { .. });
}

#[test]
fn unavailable_offering_is_reported() {
    let (mut problem, mut plan) = web();
    let mut catalog = (*problem.catalogs[0]).clone();
    catalog[MEDIUM].offerings[0].available = false;
    problem.catalogs[0] = Arc::new(catalog);
    plan.new_nodes[0].requirements.remove(ZONE);
    assert_only!(problem, plan, Violation::OfferingUnavailable { .. });
}

#[test]
fn offering_outside_claim_zones_is_reported() {
    let (problem, mut plan) = web();
    plan.new_nodes[0].offering = 2;
    assert_only!(problem, plan, Violation::OfferingIncompatible { .. });
}

#[test]
fn claim_that_contradicts_pool_is_reported() {
    let (mut problem, mut plan) = web();
    problem.pools[0].labels.insert("team".into(), "red".into());
    plan.new_nodes[0].requirements.add(wants("team", &["blue"]));
    assert_only!(problem, plan, Violation::RequirementsOutsidePool { requirement, .. } if &*requirement.key == "team");
}

#[test]
fn option_outside_the_pool_is_reported() {
    let (mut problem, plan) = web();
    problem.pools[0].requirements.add(wants(INSTANCE_TYPE, &["small", "medium"]));
    assert_only!(problem, plan, Violation::OptionOutsideRequirements { instance_type, .. } if &**instance_type == "large");
}

#[test]
fn option_without_offering_in_zone_is_reported() {
    let (mut problem, plan) = web();
    let mut catalog = (*problem.catalogs[0]).clone();
    catalog[LARGE].offerings.retain(|offering| offering.zone().is_none_or(|zone| &**zone != "zone-a"));
    problem.catalogs[0] = Arc::new(catalog);
    assert_only!(problem, plan, Violation::OptionWithoutOffering { instance_type, .. } if &**instance_type == "large");
}

// Capacity.

#[test]
fn too_small_option_is_reported() {
    let (problem, _) = web();
    let node = launch(&problem, "zone-a", &[SMALL, MEDIUM], &[run(0, 0, 3)]);
    let violations = validate(&problem, &plan(vec![node]));
    assert!(
        violations.iter().all(|violation| matches!(violation, Violation::OptionTooSmall { instance_type, .. } if &**instance_type == "small"))
            && !violations.is_empty(),
        "{}",
        listed(&violations)
    );
}

#[test]
fn overhead_reduces_allocatable() {
    let mut problem = world();
    let mut spec = pod("web", 1000);
    spec.requests.set("memory", 1);
    problem.pods = vec![group("web", spec, 4)];
    let node = launch(&problem, "zone-a", &[MEDIUM], &[run(0, 0, 4)]);
    assert_only!(problem, plan(vec![node]), Violation::OptionTooSmall { resource, wanted: 4000, free: 3900, .. } if &**resource == "cpu");
}

#[test]
fn daemon_requests_count_on_new_nodes() {
    let (mut problem, _) = web();
    let mut agent = daemon("agent", 950);
    Arc::make_mut(&mut agent.spec).requests.set("memory", 1);
    problem.daemons = vec![agent];
    let node = launch(&problem, "zone-a", &[MEDIUM], &[run(0, 0, 3)]);
    assert_only!(problem, plan(vec![node]), Violation::OptionTooSmall { wanted: 3950, .. });
}

#[test]
fn daemons_that_do_not_match_the_node_are_ignored() {
    let (mut problem, plan) = web();
    let mut on_arm = daemon("agent", 950);
    Arc::make_mut(&mut on_arm.spec).node_selector = all_of([wants("kubernetes.io/arch", &["arm64"])]);
    problem.daemons = vec![on_arm];
    assert_valid(&problem, &plan);
}

#[test]
fn wrong_sum_of_requests_is_reported() {
    let (problem, mut plan) = web();
    plan.new_nodes[0].requests.set("cpu", 2000);
    assert_only!(problem, plan, Violation::RequestsWrong { stated: 2000, actual: 3000, .. });
}

#[test]
fn unmet_min_values_are_reported() {
    let (mut problem, mut plan) = web();
    problem.pools[0].requirements.add(Requirement::exists(INSTANCE_TYPE).with_min_values(Some(3)));
    assert_only!(problem, plan, Violation::MinValuesUnmet { wanted: 3, found: 2, .. });
    problem.options.min_values_policy = MinValuesPolicy::BestEffort;
    assert_only!(problem, plan, Violation::MinValuesUnmet { wanted: 3, found: 2, .. });
    plan.new_nodes[0].min_values_relaxed = true;
    let lowered = |to: u32| Requirement::exists(INSTANCE_TYPE).with_min_values(Some(to));
    for (to, is_valid) in [(2, true), (3, false)] {
        plan.new_nodes[0].requirements.remove(INSTANCE_TYPE);
        plan.new_nodes[0].requirements.add(lowered(to));
        if is_valid {
            assert_valid(&problem, &plan);
        } else {
            assert_only!(problem, plan, Violation::MinValuesUnmet { wanted: 3, found: 2, .. });
        }
    }
}

#[test]
fn exceeded_pool_limit_is_reported() {
    let (mut problem, plan) = web();
    problem.pools[0].limits = resources(&[("cpu", 5000)]);
    assert_valid(&problem, &plan);
    problem.pools[0].usage = resources(&[("cpu", 2000)]);
    assert_only!(problem, plan, Violation::LimitExceeded { used: 6000, limit: 5000, .. });
}

#[test]
fn exceeded_node_limit_is_reported() {
    let (mut problem, plan) = web();
    problem.pools[0].limits = resources(&[("nodes", 1)]);
    assert_valid(&problem, &plan);
    problem.pools[0].usage = resources(&[("nodes", 1)]);
    assert_only!(problem, plan, Violation::LimitExceeded { resource, .. } if &**resource == "nodes");
}

#[test]
fn exceeded_reservation_is_reported() {
    let mut problem = world();
    problem.pods = vec![group("web", pod("web", 1000), 2)];
    problem.pools[0].requirements = all_of([wants(CAPACITY_TYPE, &[CAPACITY_TYPE_RESERVED])]);
    let mut catalog = (*problem.catalogs[0]).clone();
    let mut reserved = offering("zone-a", CAPACITY_TYPE_RESERVED, 0.001);
    reserved.requirements.add(wants(AWS_CAPACITY_RESERVATION_ID, &["cr-1"]));
    reserved.reservation_capacity = Some(1);
    reserved.reservation_id_label = Some(AWS_CAPACITY_RESERVATION_ID.into());
    catalog[SMALL].offerings.push(reserved);
    catalog[SMALL].requirements.replace(wants(CAPACITY_TYPE, &[CAPACITY_TYPE_RESERVED]));
    problem.catalogs[0] = Arc::new(catalog);
    problem.well_known.insert(AWS_CAPACITY_RESERVATION_ID.into());
    let one = |start| launch(&problem, "zone-a", &[SMALL], &[run(0, start, 1)]);
    let both = plan(vec![one(0), one(1)]);
    assert_only!(problem, both, Violation::ReservationExceeded { capacity: 1, used: 2, .. });
}

/// Each of two nodes is planned into its own reservation, but both NodeClaims allow one of the reservations, so either
/// launch could take its slot.
#[test]
fn contested_reservation_is_reported() {
    let mut problem = world();
    problem.pods = vec![group("web", pod("web", 1000), 2)];
    problem.pools[0].requirements = all_of([wants(CAPACITY_TYPE, &[CAPACITY_TYPE_RESERVED])]);
    let mut catalog = (*problem.catalogs[0]).clone();
    for id in ["r-1", "r-2"] {
        let mut reserved = offering("zone-a", CAPACITY_TYPE_RESERVED, 0.001);
        reserved.requirements.add(wants("example.com/reservation", &[id]));
        reserved.reservation_capacity = Some(1);
        reserved.reservation_id_label = Some("example.com/reservation".into());
        catalog[SMALL].offerings.push(reserved);
    }
    catalog[SMALL].requirements.replace(wants(CAPACITY_TYPE, &[CAPACITY_TYPE_RESERVED]));
    problem.catalogs[0] = Arc::new(catalog);
    problem.well_known.insert("example.com/reservation".into());
    let one = |start, id: &str| {
        let mut node = launch(&problem, "zone-a", &[SMALL], &[run(0, start, 1)]);
        let offerings = &problem.catalogs[0][SMALL].offerings;
        let is_named = |one: &Offering| one.reservation().is_some_and(|(_, of)| &**of == id);
        node.offering = offerings.iter().position(is_named).expect("offered");
        node
    };
    let mut both = plan(vec![one(0, "r-1"), one(1, "r-2")]);
    let first = Violation::ReservationContested { reservation: "r-1".into(), capacity: 1, nodes: 2 };
    let second = Violation::ReservationContested { reservation: "r-2".into(), capacity: 1, nodes: 2 };
    assert_eq!(validate(&problem, &both), [first, second]);
    for (node, id) in both.new_nodes.iter_mut().zip(["r-1", "r-2"]) {
        node.requirements.add(wants("example.com/reservation", &[id]));
    }
    assert_eq!(validate(&problem, &both), []);
}

// Prices.

#[test]
fn wrong_node_price_is_reported() {
    let (problem, mut plan) = web();
    plan.new_nodes[0].price_per_hour = 0.19;
    assert_only!(problem, plan, Violation::NodePriceWrong { .. });
}

#[test]
fn wrong_plan_price_is_reported() {
    let (problem, mut plan) = web();
    plan.price_per_hour = 0.1;
    assert_only!(problem, plan, Violation::PlanPriceWrong { .. });
}

#[test]
fn lower_bound_above_price_is_reported() {
    let (problem, mut plan) = web();
    plan.lower_bound_per_hour = 0.2001;
    assert_only!(problem, plan, Violation::LowerBoundAbovePrice { .. });
}

#[test]
fn price_above_compat_mode_is_reported() {
    let (problem, mut plan) = web();
    plan.compat_price_per_hour = 0.15;
    assert_only!(problem, plan, Violation::CostAboveCompat { .. });
}

#[test]
fn price_that_is_not_finite_is_reported() {
    let (problem, mut plan) = web();
    plan.lower_bound_per_hour = f64::NAN;
    assert_only!(problem, plan, Violation::PriceNotFinite { .. });
}

#[test]
fn untolerated_taint_of_pool_is_reported() {
    let (mut problem, plan) = web();
    problem.pools[0].taints = vec![taint("dedicated", Effect::PreferNoSchedule)];
    problem.pools[0].startup_taints = vec![taint("starting", Effect::NoSchedule)];
    assert_valid(&problem, &plan);
    problem.pools[0].taints.push(taint("gpu", Effect::NoSchedule));
    assert_only!(problem, plan, Violation::UntoleratedTaint { taint, .. } if &*taint.key == "gpu");
}

#[test]
fn tolerated_taint_passes() {
    let (mut problem, plan) = web_like(|spec| spec.tolerations = vec![tolerates("gpu")]);
    problem.pools[0].taints = vec![taint("gpu", Effect::NoSchedule)];
    assert_valid(&problem, &plan);
}

#[test]
fn unmet_node_selector_is_reported() {
    let (problem, plan) = web_like(|spec| spec.node_selector = all_of([wants(ZONE, &["zone-a"])]));
    assert_valid(&problem, &plan);
    let (problem, plan) = web_like(|spec| spec.node_selector = all_of([wants(ZONE, &["zone-b"])]));
    assert_only!(problem, plan, Violation::NodeSelectorUnmet { .. });
}

#[test]
fn undecided_zone_does_not_meet_selector() {
    let (problem, mut plan) = web_like(|spec| spec.node_selector = all_of([wants(ZONE, &["zone-a"])]));
    plan.new_nodes[0].requirements.remove(ZONE);
    assert_only!(problem, plan, Violation::NodeSelectorUnmet { .. });
}

#[test]
fn option_outside_node_selector_is_reported() {
    let (problem, plan) =
        web_like(|spec| spec.node_selector = all_of([wants(INSTANCE_TYPE, &["small", "medium"])]));
    assert_only!(problem, plan, Violation::NodeSelectorUnmet { instance_type: Some(name), .. } if &**name == "large");
}

#[test]
fn undefined_custom_label_is_reported() {
    let team = |spec: &mut PodSpec| spec.node_selector = all_of([wants("team", &["red"])]);
    let (mut problem, mut plan) = web_like(team);
    assert_only!(problem, plan, Violation::NodeSelectorUnmet { .. });
    problem.pools[0].requirements.add(wants("team", &["red", "blue"]));
    assert_only!(problem, plan, Violation::NodeSelectorUnmet { .. });
    plan.new_nodes[0].requirements.add(wants("team", &["red"]));
    assert_valid(&problem, &plan);
}

#[test]
fn excluded_labels_are_checked() {
    let without = |key: &str| {
        let requirement = Requirement::new(key, Operator::DoesNotExist, [""; 0]);
        web_like(move |spec| spec.node_selector = all_of([requirement]))
    };
    let (problem, plan) = without("team");
    assert_valid(&problem, &plan);
    let (problem, plan) = without(ZONE);
    assert_only!(problem, plan, Violation::NodeSelectorUnmet { .. });
}

#[test]
fn hostname_selector_never_matches_new_node() {
    let (problem, plan) = web_like(|spec| spec.node_selector = all_of([wants(HOSTNAME, &["node-1"])]));
    assert_only!(problem, plan, Violation::NodeSelectorUnmet { .. });
}

#[test]
fn one_required_term_suffices() {
    let terms = |zones: &'static [&'static str]| {
        web_like(move |spec| {
            spec.required_terms = zones.iter().map(|zone| all_of([wants(ZONE, &[zone])])).collect()
        })
    };
    let (problem, plan) = terms(&["zone-c", "zone-a"]);
    assert_valid(&problem, &plan);
    let (problem, plan) = terms(&["zone-c", "zone-b"]);
    assert_only!(problem, plan, Violation::RequiredTermsUnmet { .. });
}

#[test]
fn volume_in_other_zone_is_reported() {
    let alternatives = |zones: &'static [&'static str]| {
        web_like(move |spec| {
            spec.volumes.alternatives = zones.iter().map(|zone| all_of([wants(ZONE, &[zone])])).collect();
        })
    };
    let (problem, plan) = alternatives(&["zone-b", "zone-a"]);
    assert_valid(&problem, &plan);
    let (problem, plan) = alternatives(&["zone-b", "zone-c"]);
    assert_only!(problem, plan, Violation::VolumeTopologyUnmet { .. });
}

#[test]
fn exceeded_volume_limit_of_option_is_reported() {
    let (mut problem, plan) = web_like(|spec| {
        spec.volumes.attachments = [("csi".into(), "a".into()), ("csi".into(), "b".into())].into();
    });
    let mut catalog = (*problem.catalogs[0]).clone();
    catalog[LARGE].volume_attachment_limits.insert("csi".into(), 2);
    problem.catalogs[0] = Arc::new(catalog.clone());
    assert_valid(&problem, &plan);
    catalog[LARGE].volume_attachment_limits.insert("csi".into(), 1);
    problem.catalogs[0] = Arc::new(catalog);
    assert_only!(problem, plan, Violation::VolumeLimitExceeded { limit: 1, wanted: 2, .. });
}

#[test]
fn host_port_conflict_is_reported() {
    let (problem, plan) = web_like(|spec| spec.host_ports = [port(80)].into());
    assert_only!(problem, plan, Violation::HostPortConflict { port: 80, .. });
}

#[test]
fn host_port_conflict_with_daemon_is_reported() {
    let mut problem = world();
    let mut spec = pod("web", 1000);
    spec.host_ports = [port(80)].into();
    problem.pods = vec![group("web", spec, 1)];
    let mut agent = daemon("agent", 100);
    problem.daemons = vec![agent.clone()];
    let node = launch(&problem, "zone-a", &[SMALL], &[run(0, 0, 1)]);
    assert_valid(&problem, &plan(vec![node.clone()]));
    Arc::make_mut(&mut agent.spec).host_ports = [port(80)].into();
    problem.daemons = vec![agent];
    assert_only!(problem, plan(vec![node]), Violation::HostPortConflict { port: 80, .. });
}

/// Three pods of one CPU on an existing node with four CPUs.
fn on_existing(change_pod: impl FnOnce(&mut PodSpec)) -> (Problem, Plan) {
    let mut problem = world();
    let mut spec = pod("web", 1000);
    change_pod(&mut spec);
    problem.pods = vec![group("web", spec, 3)];
    problem.nodes = vec![node("node-1", "zone-a", 4)];
    let mut plan = Plan::default();
    onto_existing(&mut plan, 0, &[run(0, 0, 3)]);
    (problem, plan)
}

#[test]
fn existing_node_with_free_capacity_passes() {
    let (problem, plan) = on_existing(|_| {});
    assert_valid(&problem, &plan);
}

#[test]
fn overcommitted_existing_node_is_reported() {
    let (mut problem, plan) = on_existing(|spec| spec.requests.set("memory", 1));
    let mut sidecar = pod("other", 1001);
    sidecar.requests.set("memory", 1);
    problem.nodes[0].pods = vec![bound(sidecar)];
    assert_only!(problem, plan, Violation::ExistingNodeOverfull { wanted: 3000, free: 2999, .. });
}

#[test]
fn expected_daemons_count_on_existing_nodes() {
    let (mut problem, plan) = on_existing(|spec| spec.requests.set("memory", 1));
    let mut agent = daemon("agent", 1100);
    Arc::make_mut(&mut agent.spec).requests.set("memory", 1);
    problem.daemons = vec![agent.clone()];
    assert_only!(problem, plan, Violation::ExistingNodeOverfull { free: 2900, .. });
    // The requests of a DaemonSet pod that is already bound are not counted a second time.
    let mut present = bound((*agent.spec).clone());
    Arc::make_mut(&mut present.spec).requests.set("cpu", 900);
    present.is_daemon = true;
    Arc::make_mut(&mut problem.daemons[0].spec).requests.set("cpu", 1000);
    problem.nodes[0].pods = vec![present];
    assert_valid(&problem, &plan);
}

#[test]
fn untolerated_taint_of_existing_node_is_reported() {
    let (mut problem, plan) = on_existing(|_| {});
    problem.nodes[0].taints = vec![taint("gpu", Effect::NoExecute)];
    assert_only!(problem, plan, Violation::UntoleratedTaint { place: Place::Existing(_), .. });
}

#[test]
fn labels_of_existing_node_are_fixed() {
    let (problem, plan) = on_existing(|spec| spec.node_selector = all_of([wants(HOSTNAME, &["node-1"])]));
    assert_valid(&problem, &plan);
    let (problem, plan) = on_existing(|spec| spec.node_selector = all_of([wants(INSTANCE_TYPE, &["small"])]));
    assert_only!(problem, plan, Violation::NodeSelectorUnmet { .. });
}

#[test]
fn required_terms_are_checked_on_existing_node() {
    let (problem, plan) = on_existing(|spec| spec.required_terms = vec![all_of([wants(ZONE, &["zone-b"])])]);
    assert_only!(problem, plan, Violation::RequiredTermsUnmet { .. });
}

#[test]
fn volume_topology_is_checked_on_existing_node() {
    let (problem, plan) =
        on_existing(|spec| spec.volumes.alternatives = vec![all_of([wants(ZONE, &["zone-b"])])]);
    assert_only!(problem, plan, Violation::VolumeTopologyUnmet { .. });
}

#[test]
fn volume_limits_of_existing_node_are_checked() {
    let (mut problem, plan) =
        on_existing(|spec| spec.volumes.attachments = [("csi".into(), "new".into())].into());
    let mut present = pod("db", 10);
    present.volumes.attachments = [("csi".into(), "old".into())].into();
    problem.nodes[0].pods = vec![bound(present)];
    problem.nodes[0].volume_limits.insert("csi".into(), 2);
    assert_valid(&problem, &plan);
    problem.nodes[0].volume_limits.insert("csi".into(), 1);
    assert_only!(problem, plan, Violation::VolumeLimitExceeded { limit: 1, wanted: 2, .. });
}

#[test]
fn host_port_in_use_on_existing_node_is_reported() {
    let mut problem = world();
    let mut spec = pod("web", 1000);
    spec.host_ports = [port(80)].into();
    problem.pods = vec![group("web", spec.clone(), 1)];
    problem.nodes = vec![node("node-1", "zone-a", 4)];
    problem.nodes[0].pods = vec![bound(spec)];
    let mut plan = Plan::default();
    onto_existing(&mut plan, 0, &[run(0, 0, 1)]);
    assert_only!(problem, plan, Violation::HostPortConflict { port: 80, .. });
}
