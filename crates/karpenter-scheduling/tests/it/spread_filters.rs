//! Tests of pods that a spread counts although they do not state it, on nodes for which it is undecided at first
//! whether the spread counts them. A plan must not rely on a count that the launch, another pod or a repacking can
//! change.

use crate::support::builders;

use std::sync::Arc;

use builders::{ZONES, all_of, group, instance_type, near, node, pod, pool, spread, wants, world};
use karpenter_model::labels::{ARCH, CAPACITY_TYPE, CAPACITY_TYPE_ON_DEMAND, CAPACITY_TYPE_SPOT, ZONE};
use karpenter_model::pod::PodSpec;
use karpenter_model::problem::{Mode, Node, NodePool, Problem};
use karpenter_scheduling::schedule;
use karpenter_scheduling::validate::validate;

fn pool_of(name: &str, capacity_types: &[&str]) -> NodePool {
    let requirements = all_of([wants(CAPACITY_TYPE, capacity_types)]);
    NodePool { requirements, ..pool(name) }
}

/// Adds an existing node without free capacity, so that its domain counts in every plan.
fn full_spot_node(zone: &str, arch: &str) -> Node {
    let mut full = node("full", zone, 0);
    full.labels.insert(CAPACITY_TYPE.into(), CAPACITY_TYPE_SPOT.into());
    full.labels.insert(ARCH.into(), arch.into());
    full
}

fn small(app: &str, cpu_millis: i64) -> PodSpec {
    let mut spec = pod(app, cpu_millis);
    spec.requests.set("memory", 0);
    spec
}

#[track_caller]
fn assert_all_planned(problem: &Problem) {
    for mode in [Mode::Compat, Mode::Cost] {
        let mut problem = problem.clone();
        problem.options.mode = mode;
        let plan = schedule(&problem);
        let violations: Vec<String> = validate(&problem, &plan).iter().map(ToString::to_string).collect();
        assert_eq!(violations, Vec::<String>::new(), "{mode:?}: {:#?}", plan.new_nodes);
        assert!(plan.unschedulable.is_empty(), "{mode:?}: {:?}", plan.unschedulable);
    }
}

#[test]
fn node_with_undecided_architecture_does_not_count() {
    let mut problem = world();
    let mut arm = instance_type("arm", 4, &ZONES[..1], 0.2);
    arm.requirements.replace(wants(ARCH, &["arm64"]));
    problem.catalogs = vec![Arc::new(vec![instance_type("amd", 4, &ZONES[..1], 0.1), arm])];
    problem.pools = vec![
        pool_of("first-spot", &[CAPACITY_TYPE_SPOT]),
        NodePool { weight: -1, ..pool_of("on-demand", &[CAPACITY_TYPE_ON_DEMAND]) },
    ];
    problem.nodes = vec![full_spot_node(ZONES[0], "arm64")];
    problem.pods = vec![
        // This pod fills its node, so no pod with the spread can decide the node's architecture.
        group("plain", small("web", 3900), 1),
        group(
            "spread",
            PodSpec {
                node_selector: all_of([wants(ARCH, &["arm64"])]),
                spread: vec![spread(CAPACITY_TYPE, "web", 1)],
                ..small("web", 1000)
            },
            2,
        ),
    ];
    assert_all_planned(&problem);
}

#[test]
fn counted_node_stays_eligible() {
    let mut problem = world();
    problem.catalogs = vec![Arc::new(vec![instance_type("only", 8, &ZONES[..2], 0.1)])];
    problem.pools = vec![pool_of("flexible", &[CAPACITY_TYPE_SPOT, CAPACITY_TYPE_ON_DEMAND])];
    problem.nodes = vec![full_spot_node(ZONES[0], "amd64")];
    let only = |capacity_type: &str| all_of([wants(CAPACITY_TYPE, &[capacity_type])]);
    problem.pods = vec![
        group("plain", small("web", 2000), 2),
        group("other", PodSpec { node_selector: only(CAPACITY_TYPE_ON_DEMAND), ..small("other", 1000) }, 1),
        group(
            "spread",
            PodSpec {
                node_selector: only(CAPACITY_TYPE_SPOT),
                spread: vec![spread(ZONE, "web", 1)],
                ..small("web", 500)
            },
            2,
        ),
    ];
    assert_all_planned(&problem);
}

#[test]
fn repacking_does_not_move_pods_to_eligible_nodes() {
    let mut problem = world();
    problem.catalogs = vec![Arc::new(vec![instance_type("only", 1, &ZONES[..2], 0.1)])];
    problem.pools = vec![
        pool_of("z-on-demand", &[CAPACITY_TYPE_ON_DEMAND]),
        pool_of("a-flexible", &[CAPACITY_TYPE_SPOT, CAPACITY_TYPE_ON_DEMAND]),
    ];
    problem.pods = vec![
        group("near", PodSpec { affinity: vec![near(ZONE, "web")], ..small("web", 200) }, 1),
        group(
            "spread",
            PodSpec {
                node_selector: all_of([wants(CAPACITY_TYPE, &[CAPACITY_TYPE_SPOT])]),
                spread: vec![spread(ZONE, "web", 1)],
                ..small("web", 100)
            },
            3,
        ),
    ];
    assert_all_planned(&problem);
}
