//! Tests that the validator checks topology like kube-scheduler: there must be an order of the pods in which each is
//! accepted.

use crate::support::builders;

use std::sync::Arc;

use builders::*;
use karpenter_model::labels::{HOSTNAME, ZONE};
use karpenter_model::plan::{Place, Plan, PlannedNode, PodRun};
use karpenter_model::pod::PodSpec;
use karpenter_model::problem::Problem;
use karpenter_model::spread_share::SpreadShare;
use karpenter_model::taints::Effect;
use karpenter_scheduling::validate::{Violation, validate};

#[track_caller]
fn assert_valid(problem: &Problem, plan: &Plan) {
    let violations = validate(problem, plan);
    assert!(violations.is_empty(), "{}", listed(&violations));
}

fn listed(violations: &[Violation]) -> String {
    violations.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

macro_rules! assert_all {
    ($problem:expr, $plan:expr, $pattern:pat $(if $guard:expr)?) => {
        let violations = validate(&$problem, &$plan);
        assert!(!violations.is_empty(), "nothing found");
        assert!(
            violations.iter().all(|violation| matches!(violation, $pattern $(if $guard)?)),
            "{}",
            listed(&violations)
        );
    };
}

/// One class of pods, placed on large nodes. Each entry of `per_node` is a node: its zone and its number of pods.
fn placed(change: impl FnOnce(&mut PodSpec), per_node: &[(&str, u32)]) -> (Problem, Plan) {
    let mut problem = world();
    // One node may have 100 % of the pods of a hostname spread, so only kube-scheduler's rules limit the pods per node.
    problem.options.hostname_spread_share = SpreadShare::from_percent(100).expect("a share");
    let mut spec = pod("web", 500);
    change(&mut spec);
    let total = per_node.iter().map(|(_, count)| count).sum();
    problem.pods = vec![group("web", spec, total)];
    let nodes = nodes(&problem, 0, per_node);
    (problem, plan(nodes))
}

fn nodes(problem: &Problem, group: u32, per_node: &[(&str, u32)]) -> Vec<PlannedNode> {
    let mut start = 0;
    per_node
        .iter()
        .map(|(zone, count)| {
            let node = launch(problem, zone, &[LARGE], &[run(group, start, *count)]);
            start += count;
            node
        })
        .collect()
}

fn zonal(skew: u32) -> impl FnOnce(&mut PodSpec) {
    move |spec| spec.spread = vec![spread(ZONE, "web", skew)]
}

#[test]
fn balanced_zones_pass_and_unbalanced_ones_do_not() {
    let (problem, plan) = placed(zonal(1), &[("zone-a", 3), ("zone-b", 2), ("zone-c", 3)]);
    assert_valid(&problem, &plan);
    let (problem, plan) = placed(zonal(1), &[("zone-a", 4), ("zone-b", 2), ("zone-c", 3)]);
    assert_all!(problem, plan, Violation::SpreadBroken { left: 1, .. });
    let (problem, plan) = placed(zonal(2), &[("zone-a", 4), ("zone-b", 2), ("zone-c", 3)]);
    assert_valid(&problem, &plan);
}

#[test]
fn only_zones_with_nodes_count_for_the_minimum() {
    let (problem, plan) = placed(zonal(1), &[("zone-a", 3), ("zone-b", 3)]);
    assert_valid(&problem, &plan);
    let (mut problem, plan) = placed(zonal(1), &[("zone-a", 3), ("zone-b", 3)]);
    problem.nodes = vec![node("node-1", "zone-c", 1)];
    assert_all!(problem, plan, Violation::SpreadBroken { minimum: 0, .. });
}

#[test]
fn zones_that_the_pod_cannot_use_do_not_count() {
    let (mut problem, plan) = placed(
        |spec| {
            spec.spread = vec![spread(ZONE, "web", 1)];
            spec.node_selector = all_of([wants(ZONE, &["zone-a", "zone-b"])]);
        },
        &[("zone-a", 3), ("zone-b", 3)],
    );
    problem.nodes = vec![node("node-1", "zone-c", 1)];
    assert_valid(&problem, &plan);
}

#[test]
fn tainted_nodes_count_unless_policy_honors_taints() {
    let with_policy = |honor: bool| {
        let (mut problem, plan) = placed(
            |spec| {
                spec.spread = vec![spread(ZONE, "web", 1)];
                spec.spread[0].honor_taints = honor;
            },
            &[("zone-a", 3), ("zone-b", 3)],
        );
        problem.nodes = vec![node("node-1", "zone-c", 1)];
        problem.nodes[0].taints = vec![taint("gpu", Effect::NoSchedule)];
        (problem, plan)
    };
    let (problem, plan) = with_policy(true);
    assert_valid(&problem, &plan);
    let (problem, plan) = with_policy(false);
    assert_all!(problem, plan, Violation::SpreadBroken { .. });
}

#[test]
fn unmet_min_domains_sets_the_minimum_to_zero() {
    let min_domains = |spec: &mut PodSpec| {
        spec.spread = vec![spread(ZONE, "web", 1)];
        spec.spread[0].min_domains = Some(3);
    };
    let (problem, plan) = placed(min_domains, &[("zone-a", 1), ("zone-b", 1)]);
    assert_valid(&problem, &plan);
    let (problem, plan) = placed(min_domains, &[("zone-a", 2), ("zone-b", 2)]);
    assert_all!(problem, plan, Violation::SpreadBroken { .. });
    let (problem, plan) = placed(min_domains, &[("zone-a", 2), ("zone-b", 2), ("zone-c", 2)]);
    assert_valid(&problem, &plan);
}

#[test]
fn bound_pods_count_unless_terminating() {
    let (mut problem, plan) = placed(zonal(1), &[("zone-a", 1), ("zone-b", 2)]);
    problem.nodes = vec![node("node-1", "zone-a", 4)];
    problem.nodes[0].pods = vec![bound(pod("web", 100)), bound(pod("other", 100))];
    assert_valid(&problem, &plan);
    problem.nodes[0].pods = (0..3).map(|_| bound(pod("web", 100))).collect();
    assert_all!(problem, plan, Violation::SpreadBroken { domain_count: 3, .. });
    problem.nodes[0].pods.iter_mut().for_each(|pod| pod.is_terminating = true);
    assert_valid(&problem, &plan);
}

#[test]
fn hostname_spread_uses_minimum_of_existing_hosts() {
    let per_host = |spec: &mut PodSpec| spec.spread = vec![spread(HOSTNAME, "web", 1)];
    let (problem, plan) = placed(per_host, &[("zone-a", 5), ("zone-a", 5), ("zone-b", 4)]);
    assert_valid(&problem, &plan);
    let (problem, plan) = placed(per_host, &[("zone-a", 5), ("zone-a", 5), ("zone-b", 3)]);
    assert_all!(problem, plan, Violation::SpreadBroken { .. });
}

#[test]
fn zone_and_host_spread_are_checked_together() {
    let both = |spec: &mut PodSpec| spec.spread = vec![spread(ZONE, "web", 1), spread(HOSTNAME, "web", 1)];
    let (problem, plan) = placed(both, &[("zone-a", 2), ("zone-a", 2), ("zone-b", 2), ("zone-b", 2)]);
    assert_valid(&problem, &plan);
    let (problem, plan) = placed(both, &[("zone-a", 2), ("zone-a", 2), ("zone-b", 2), ("zone-c", 2)]);
    assert_all!(problem, plan, Violation::SpreadBroken { .. });
}

#[test]
fn soft_spread_is_never_violated() {
    let (problem, plan) = placed(
        |spec| {
            spec.spread = vec![spread(ZONE, "web", 1)];
            spec.spread[0].hard = false;
        },
        &[("zone-a", 5), ("zone-b", 1)],
    );
    assert_valid(&problem, &plan);
}

#[test]
fn claim_must_pin_the_zone_of_a_spread() {
    let (problem, mut plan) = placed(zonal(1), &[("zone-a", 1), ("zone-b", 1)]);
    plan.new_nodes[1].requirements.remove(ZONE);
    plan.new_nodes[1].requirements.add(wants(ZONE, &["zone-b", "zone-c"]));
    assert_all!(problem, plan, Violation::DomainOpen { domains, .. } if domains.len() == 2);
}

#[test]
fn node_without_topology_label_is_reported() {
    let (problem, plan) = placed(|spec| spec.spread = vec![spread("rack", "web", 1)], &[("zone-a", 1)]);
    assert_all!(problem, plan, Violation::TopologyKeyMissing { key, .. } if &**key == "rack");
    let (mut problem, plan) = placed(|spec| spec.spread = vec![spread("rack", "web", 1)], &[("zone-a", 1)]);
    problem.pools[0].labels.insert("rack".into(), "r1".into());
    assert_valid(&problem, &plan);
}

#[test]
fn self_affinity_uses_one_domain_only() {
    let together = |spec: &mut PodSpec| spec.affinity = vec![near(ZONE, "web")];
    let (problem, plan) = placed(together, &[("zone-a", 3), ("zone-a", 2)]);
    assert_valid(&problem, &plan);
    let (problem, plan) = placed(together, &[("zone-a", 3), ("zone-b", 2)]);
    assert_all!(problem, plan, Violation::AffinityUnmet { .. });
}

#[test]
fn matching_pod_elsewhere_forbids_another_domain() {
    let (mut problem, plan) = placed(|spec| spec.affinity = vec![near(ZONE, "web")], &[("zone-a", 3)]);
    problem.nodes = vec![node("node-1", "zone-b", 4)];
    problem.nodes[0].pods = vec![bound(pod("web", 100))];
    assert_all!(problem, plan, Violation::AffinityUnmet { left: 3, .. });
    problem.nodes[0].pods[0].is_terminating = true;
    assert_valid(&problem, &plan);
}

#[test]
fn affinity_needs_a_matching_pod() {
    let world = |db_zone: &str| {
        let (mut problem, mut plan) =
            placed(|spec| spec.affinity = vec![near(ZONE, "db")], &[("zone-a", 2), ("zone-b", 1)]);
        problem.pods.push(group("db", pod("db", 100), 2));
        problem.pods.push(group("cache", pod("cache", 100), 1));
        plan.new_nodes.push(launch(&problem, "zone-a", &[SMALL], &[run(1, 0, 1)]));
        plan.new_nodes.push(launch(&problem, db_zone, &[SMALL], &[run(1, 1, 1), run(2, 0, 1)]));
        (problem, builders::plan(plan.new_nodes))
    };
    let (problem, plan) = world("zone-b");
    assert_valid(&problem, &plan);
    let (problem, plan) = world("zone-c");
    assert_all!(problem, plan, Violation::AffinityUnmet { domain, left: 1, .. } if &**domain == "zone-b");
}

#[test]
fn affinity_counts_only_its_namespaces() {
    let (mut problem, mut plan) = placed(|spec| spec.affinity = vec![near(ZONE, "db")], &[("zone-a", 2)]);
    let mut db = pod("db", 100);
    db.namespace = "storage".into();
    problem.pods.push(group("db", db, 1));
    plan.new_nodes.push(launch(&problem, "zone-a", &[SMALL], &[run(1, 0, 1)]));
    let plan = builders::plan(plan.new_nodes);
    assert_all!(problem, plan, Violation::AffinityUnmet { .. });
    let spec = Arc::make_mut(&mut problem.pods[0].spec);
    spec.affinity[0].namespaces = ["storage".into()].into();
    assert_valid(&problem, &plan);
}

#[test]
fn unconstrained_pods_may_come_last() {
    // The spread counts `extra` but does not constrain it, so its pods may accumulate after the others are placed.
    let (mut problem, mut plan) = placed(zonal(1), &[("zone-a", 2), ("zone-b", 2)]);
    problem.pods.push(group("extra", pod("web", 100), 5));
    plan.new_nodes.push(launch(&problem, "zone-a", &[MEDIUM], &[run(1, 0, 5)]));
    assert_valid(&problem, &builders::plan(plan.new_nodes));
}

#[test]
fn unconstrained_pods_may_come_first() {
    // Without the two unconstrained pods in zone-b, the third pod in zone-a would violate the skew.
    let (mut problem, mut plan) = placed(zonal(1), &[("zone-a", 3)]);
    problem.pods.push(group("extra", pod("web", 100), 2));
    plan.new_nodes.push(launch(&problem, "zone-b", &[MEDIUM], &[run(1, 0, 2)]));
    assert_valid(&problem, &builders::plan(plan.new_nodes));
}

/// Two groups whose spreads select each other's pods, and one group that the spreads count but that states none. In
/// zone-b there are too many pods of `left` for the spread of `right`, in zone-a too many of `right` for the spread of
/// `left`, so neither group can be bound completely before the other.
fn crossed_spreads() -> (Problem, Plan, Vec<(PodRun, Place)>) {
    let spreading = |own: &str, over: &str| {
        let mut spec = pod(own, 100);
        spec.spread = vec![spread(ZONE, over, 1)];
        spec
    };
    let mut problem = world();
    problem.pods = vec![
        group("left", spreading("left", "right"), 4),
        group("right", spreading("right", "left"), 4),
        group("plain", pod("left", 50), 1),
    ];
    let nodes = vec![
        launch(&problem, "zone-a", &[SMALL], &[run(0, 0, 1), run(1, 0, 3)]),
        launch(&problem, "zone-b", &[SMALL], &[run(0, 1, 3), run(1, 3, 1), run(2, 0, 1)]),
    ];
    let (zone_a, zone_b) = (Place::New(0), Place::New(1));
    let order = vec![
        (run(0, 1, 1), zone_b),
        (run(1, 0, 1), zone_a),
        // If the next pod in zone-b came first, no pod of `right` could be placed there afterwards.
        (run(1, 3, 1), zone_b),
        (run(2, 0, 1), zone_b),
        // If the next pod in zone-a came first, no pod of `left` could be placed there afterwards.
        (run(0, 0, 1), zone_a),
        (run(1, 1, 1), zone_a),
        (run(0, 2, 2), zone_b),
        (run(1, 2, 1), zone_a),
    ];
    (problem, plan(nodes), order)
}

#[test]
fn order_of_the_plan_is_tried() {
    let (problem, mut plan, order) = crossed_spreads();
    plan.order = order;
    assert_valid(&problem, &plan);
}

#[test]
fn crossed_spreads_need_a_valid_order() {
    let (problem, mut plan, order) = crossed_spreads();
    assert_all!(problem, plan, Violation::SpreadBroken { .. });
    // In this order, all pods of `left` come before all pods of `right`.
    plan.order = order;
    plan.order.sort_by_key(|(run, _)| run.group);
    assert_all!(problem, plan, Violation::SpreadBroken { .. });
}

#[test]
fn order_is_checked_pod_by_pod() {
    // The skew forbids the fourth pod in zone-a at every position in the order.
    let (problem, mut plan) = placed(zonal(1), &[("zone-a", 4), ("zone-b", 2)]);
    plan.order =
        vec![(run(0, 0, 2), Place::New(0)), (run(0, 4, 2), Place::New(1)), (run(0, 2, 2), Place::New(0))];
    assert_all!(problem, plan, Violation::SpreadBroken { left: 1, .. });
}

#[test]
fn pod_too_early_in_the_order_is_placed_later() {
    let (problem, mut plan) = placed(zonal(1), &[("zone-a", 3), ("zone-b", 3)]);
    plan.order = vec![(run(0, 0, 3), Place::New(0)), (run(0, 3, 3), Place::New(1))];
    assert_valid(&problem, &plan);
    // The plan of the previous case, with an existing node.
    let (mut problem, mut plan) = placed(zonal(1), &[("zone-a", 3), ("zone-b", 3)]);
    problem.nodes = vec![node("node-1", "zone-a", 4)];
    plan.new_nodes.remove(0);
    let mut plan = builders::plan(plan.new_nodes);
    onto_existing(&mut plan, 0, &[run(0, 0, 3)]);
    plan.order = vec![(run(0, 0, 3), Place::Existing(0)), (run(0, 3, 3), Place::New(0))];
    assert_valid(&problem, &plan);
}

#[test]
fn anti_affinity_between_equal_pods_is_checked() {
    let apart = |key: &'static str| move |spec: &mut PodSpec| spec.anti_affinity = vec![near(key, "web")];
    let (problem, plan) = placed(apart(HOSTNAME), &[("zone-a", 1), ("zone-a", 1)]);
    assert_valid(&problem, &plan);
    let (problem, plan) = placed(apart(HOSTNAME), &[("zone-a", 2)]);
    assert_all!(problem, plan, Violation::AntiAffinityBroken { .. });
    let (problem, plan) = placed(apart(ZONE), &[("zone-a", 1), ("zone-b", 1)]);
    assert_valid(&problem, &plan);
    let (problem, plan) = placed(apart(ZONE), &[("zone-a", 1), ("zone-a", 1)]);
    assert_all!(problem, plan, Violation::AntiAffinityBroken { .. });
}

#[test]
fn anti_affinity_of_bound_pods_is_checked() {
    let (mut problem, mut plan) = placed(|_| {}, &[("zone-a", 1)]);
    let mut hermit = pod("hermit", 100);
    hermit.anti_affinity = vec![near(ZONE, "web")];
    problem.nodes = vec![node("node-1", "zone-a", 4)];
    problem.nodes[0].pods = vec![bound(hermit.clone())];
    assert_all!(problem, plan, Violation::AntiAffinityBroken { .. });
    problem.nodes[0].pods[0].is_terminating = true;
    assert_valid(&problem, &plan);
    // The plan of the previous case, with two planned pods.
    problem.nodes.clear();
    problem.pods.push(group("hermit", hermit, 1));
    plan.new_nodes.push(launch(&problem, "zone-a", &[SMALL], &[run(1, 0, 1)]));
    assert_all!(problem, builders::plan(plan.new_nodes.clone()), Violation::AntiAffinityBroken { .. });
    plan.new_nodes[1] = launch(&problem, "zone-b", &[SMALL], &[run(1, 0, 1)]);
    assert_valid(&problem, &builders::plan(plan.new_nodes));
}

#[test]
fn violation_between_bound_pods_is_ignored() {
    let (mut problem, plan) = placed(|_| {}, &[("zone-b", 1)]);
    let mut hermit = pod("hermit", 100);
    hermit.anti_affinity = vec![near(ZONE, "hermit")];
    problem.nodes = vec![node("node-1", "zone-a", 4)];
    problem.nodes[0].pods = vec![bound(hermit.clone()), bound(hermit)];
    assert_valid(&problem, &plan);
}

#[test]
fn undecided_zone_counts_as_every_zone_for_anti_affinity() {
    let (problem, mut plan) =
        placed(|spec| spec.anti_affinity = vec![near(ZONE, "web")], &[("zone-a", 1), ("zone-b", 1)]);
    plan.new_nodes[0].requirements.remove(ZONE);
    plan.new_nodes[0].requirements.add(wants(ZONE, &["zone-a", "zone-b"]));
    assert_all!(problem, plan, Violation::AntiAffinityBroken { domain, .. } if &**domain == "zone-b");
}

#[test]
fn ninety_thousand_pods_are_replayed_in_single_steps() {
    // Every pod depends on pods of the other zones and of every other node. A search with one step per pod and node
    // would take minutes.
    let per_node: Vec<(&str, u32)> = (0..6000).map(|index| (ZONES[index % 3], 15)).collect();
    let (problem, mut plan) = placed(
        |spec| {
            spec.requests.set("cpu", 100);
            spec.spread = vec![spread(ZONE, "web", 1), spread(HOSTNAME, "web", 1)];
            spec.anti_affinity = vec![near(HOSTNAME, "other")];
        },
        &per_node,
    );
    assert_valid(&problem, &plan);
    // The same plan with two binding orders: one alternates between the nodes pod by pod, the other fills node after
    // node.
    let runs = || plan.new_nodes.iter().enumerate().map(|(index, node)| (node.pods[0], Place::New(index)));
    let around: Vec<(PodRun, Place)> =
        (0..15).flat_map(|turn| runs().map(move |(of, at)| (run(0, of.start + turn, 1), at))).collect();
    let in_rows: Vec<(PodRun, Place)> = runs().collect();
    for order in [around, in_rows] {
        plan.order = order;
        assert_valid(&problem, &plan);
    }
    plan.order.clear();
    let moved = plan.new_nodes[0].pods.pop().expect("every node has a run");
    plan.new_nodes[1].pods.push(moved);
    assert!(validate(&problem, &plan).iter().any(|v| matches!(v, Violation::SpreadBroken { .. })));
}
