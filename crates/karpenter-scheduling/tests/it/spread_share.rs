//! Tests of the maximum number of pods of a hard hostname spread on one node: `maxSkew`, or a share of all pods that
//! the spread counts, whichever is more.

use crate::support::builders;

use std::collections::BTreeMap;

use builders::*;
use karpenter_model::labels::HOSTNAME;
use karpenter_model::plan::Plan;
use karpenter_model::problem::{Mobility, Mode, PodGroup, Problem, ReservedMode};
use karpenter_model::spread_share::SpreadShare;
use karpenter_scheduling::schedule;
use karpenter_scheduling::simulate::{SimulationRequest, Simulator};
use karpenter_scheduling::validate::{Violation, validate};

fn share(percent: u8) -> SpreadShare {
    SpreadShare::from_percent(percent).expect("a share")
}

fn spreading(app: &str, count: u32, max_skew: u32) -> PodGroup {
    let mut spec = pod(app, 50);
    spec.spread = vec![spread(HOSTNAME, app, max_skew)];
    group(app, spec, count)
}

fn problem(pods: Vec<PodGroup>) -> Problem {
    Problem { pods, ..world() }
}

fn with_share(mut problem: Problem, percent: u8) -> Problem {
    problem.options.hostname_spread_share = share(percent);
    problem
}

/// Plans the problem and checks the plan: it is valid, places all pods, and does not cost less than its lower bound.
#[track_caller]
fn planned(problem: &Problem) -> Plan {
    let plan = schedule(problem);
    let faults: Vec<String> = validate(problem, &plan).iter().map(ToString::to_string).collect();
    assert_eq!(faults, Vec::<String>::new());
    assert!(plan.unschedulable.is_empty());
    assert!(plan.lower_bound_per_hour <= plan.price_per_hour);
    plan
}

/// The number of pods of the first group on each new node, highest first.
fn per_node(plan: &Plan) -> Vec<u32> {
    let of_first = |node: &karpenter_model::plan::PlannedNode| {
        node.pods.iter().filter(|run| run.group == 0).map(|run| run.count).sum()
    };
    let mut counts: Vec<u32> = plan.new_nodes.iter().map(of_first).collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    counts
}

#[test]
fn three_replicas_get_three_nodes() {
    assert_eq!(per_node(&planned(&problem(vec![spreading("web", 3, 1)]))), [1, 1, 1]);
}

#[test]
fn five_hundred_replicas_use_at_least_ten_nodes() {
    let counts = per_node(&planned(&problem(vec![spreading("web", 500, 1)])));
    assert!(counts.len() >= 10 && counts[0] <= 50, "{counts:?}");
    // All nodes have the same price, whatever number of pods they hold, so the plan has the minimum of ten nodes.
    let mut large = problem(vec![spreading("web", 500, 1)]);
    large.catalogs = vec![vec![instance_type("large", 8, &ZONES, 0.4)].into()];
    let plan = planned(&large);
    assert_eq!(per_node(&plan), [50; 10]);
    assert!((plan.lower_bound_per_hour - 4.0).abs() < 0.001, "{}", plan.lower_bound_per_hour);
    let free = planned(&with_share(large, 100));
    assert!(per_node(&free).len() < 10, "{:?}", per_node(&free));
}

#[test]
fn share_is_rounded_up_to_whole_pods() {
    let plan = planned(&problem(vec![spreading("web", 15, 1)]));
    assert_eq!(per_node(&plan), [2, 2, 2, 2, 2, 2, 2, 1]);
}

#[test]
fn share_is_never_less_than_max_skew() {
    let plan = planned(&problem(vec![spreading("web", 9, 3)]));
    assert_eq!(per_node(&plan), [3, 3, 3]);
}

#[test]
fn share_0_equals_compat_mode_and_100_equals_scheduler() {
    for (count, max_skew) in [(3, 1), (30, 1), (30, 4)] {
        let problem = problem(vec![spreading("web", count, max_skew)]);
        let strict = planned(&with_share(problem.clone(), 0));
        let mut compat = problem.clone();
        compat.options.mode = Mode::Compat;
        assert_eq!(per_node(&strict), per_node(&planned(&compat)), "{count} pods, maxSkew {max_skew}");
        let free = planned(&with_share(problem, 100));
        assert_eq!(per_node(&free), [count], "{count} pods, maxSkew {max_skew}");
    }
}

#[test]
fn share_of_pool_overrides_option() {
    let mut free = problem(vec![spreading("web", 3, 1)]);
    free.pools[0].hostname_spread_share = Some(share(100));
    assert_eq!(per_node(&planned(&free)), [3]);
    let mut strict = with_share(problem(vec![spreading("web", 40, 1)]), 100);
    strict.pools[0].hostname_spread_share = Some(share(0));
    assert_eq!(per_node(&planned(&strict)).len(), 40);
    // If both NodePools are allowed, the planner uses the one that lets pods share nodes, because that is cheaper.
    let mut either = strict;
    either.pools.push(karpenter_model::problem::NodePool {
        hostname_spread_share: Some(share(50)),
        requirements: either.pools[0].requirements.clone(),
        ..pool("shared")
    });
    let plan = planned(&either);
    assert_eq!(per_node(&plan), [20, 20]);
    assert!(plan.new_nodes.iter().all(|node| node.pool == 1));
}

#[test]
fn bound_pods_count_towards_the_share_and_the_limit_of_their_node() {
    // Two replicas are bound to one node. Two more are placed on other nodes, one per node, because 10 % of four pods,
    // rounded up, is one.
    let group = spreading("web", 2, 1);
    let mut crowded = problem(vec![group.clone()]);
    crowded.nodes = vec![node("crowded", "zone-a", 4)];
    crowded.nodes[0].pods = vec![bound((*group.spec).clone()), bound((*group.spec).clone())];
    let plan = planned(&crowded);
    assert_eq!((plan.existing.len(), per_node(&plan)), (0, vec![1, 1]));
    // The spread counts twenty pods (18 of them pending), so two may share a node.
    let mut many = problem(vec![spreading("web", 18, 1)]);
    many.nodes = crowded.nodes.clone();
    assert_eq!(per_node(&planned(&many)), [2; 9]);
}

#[test]
fn consolidation_respects_spread_share() {
    let mut fleet = problem(Vec::new());
    let spec = spreading("web", 1, 1).spec;
    for name in ["a", "b", "c"] {
        let mut node = node(name, "zone-a", 2);
        node.pods = vec![bound((*spec).clone())];
        node.pods[0].mobility = Mobility::Moves;
        fleet.nodes.push(node);
    }
    let simulated = |percent: u8| {
        let fleet = with_share(fleet.clone(), percent);
        let request = SimulationRequest {
            removed_nodes: &[0, 1],
            moves_blocked_pods: false,
            mode: Mode::Cost,
            effort: 1_000,
            prefers_vacated_domains: false,
            reserved_mode: ReservedMode::Fallback,
            reservation_credits: &BTreeMap::new(),
        };
        Simulator::new(&fleet).simulate(&request).plan.new_nodes.len()
    };
    assert_eq!((simulated(0), simulated(10)), (2, 2));
    assert_eq!(simulated(100), 1, "beside the third on its node two are within maxSkew");
}

#[test]
fn validator_rejects_plans_above_the_share() {
    let of = |count: u32, nodes: &[u32], max_skew: u32| {
        let problem = problem(vec![spreading("web", count, max_skew)]);
        let mut start = 0;
        let launched = nodes.iter().map(|pods| {
            start += pods;
            launch(&problem, "zone-a", &[LARGE], &[run(0, start - pods, *pods)])
        });
        let plan = plan(launched.collect());
        (problem, plan)
    };
    let exceeded = |problem: &Problem, plan: &Plan| {
        let violations = validate(problem, plan);
        let of_share = |one: &Violation| match one {
            Violation::SpreadShareExceeded { limit, left, .. } => Some((*limit, *left)),
            _ => None,
        };
        assert!(violations.iter().all(|one| of_share(one).is_some()), "{violations:?}");
        violations.iter().filter_map(of_share).collect::<Vec<_>>()
    };
    let (three, together) = of(3, &[3], 1);
    assert_eq!(exceeded(&three, &together), [(1, 2)]);
    assert_eq!(
        validate(&three, &together)[0].to_string(),
        "planned node 0: 2 pods like default/web-0 exceed the share of their hostname spread: the node has 1, the limit is 1"
    );
    assert_eq!(exceeded(&with_share(three.clone(), 100), &together), []);
    assert_eq!(exceeded(&with_share(three.clone(), 66), &together), [(2, 1)]);
    let mut of_pool = three;
    of_pool.pools[0].hostname_spread_share = Some(share(100));
    assert_eq!(exceeded(&of_pool, &together), []);
    let (thirty, uneven) = of(30, &[4, 4, 4, 3, 3, 3, 3, 3, 3], 1);
    assert_eq!(exceeded(&thirty, &uneven), [(3, 1), (3, 1), (3, 1)]);
    let (nine, even) = of(9, &[3, 3, 3], 3);
    assert_eq!(exceeded(&nine, &even), []);
    assert_eq!(exceeded(&with_share(nine, 0), &even), []);
}

#[test]
fn existing_node_above_the_share_is_no_violation() {
    // Bound pods may exceed the maximum, but the plan must not add pods to their node.
    let group = spreading("web", 1, 1);
    let mut problem = problem(vec![group.clone()]);
    problem.nodes = vec![node("crowded", "zone-a", 8)];
    problem.nodes[0].pods = vec![bound((*group.spec).clone()); 3];
    let elsewhere = plan(vec![launch(&problem, "zone-a", &[SMALL], &[run(0, 0, 1)])]);
    assert_eq!(validate(&problem, &elsewhere), []);
    let mut onto = plan(Vec::new());
    onto_existing(&mut onto, 0, &[run(0, 0, 1)]);
    let violations = validate(&problem, &onto);
    assert!(
        matches!(violations[..], [Violation::SpreadShareExceeded { limit: 1, node_count: 3, left: 1, .. }]),
        "{violations:?}"
    );
}

#[test]
fn preferred_spreads_have_no_limit() {
    let mut group = spreading("web", 3, 1);
    let mut spec = (*group.spec).clone();
    spec.spread[0].hard = false;
    group.spec = spec.into();
    let problem = problem(vec![group]);
    assert_eq!(
        per_node(&planned(&with_share(problem.clone(), 0))),
        per_node(&planned(&with_share(problem, 100)))
    );
}
