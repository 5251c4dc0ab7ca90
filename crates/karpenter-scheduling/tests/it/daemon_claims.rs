//! Tests of DaemonSet pods with resource claims: no node reserves capacity for them, and the validator agrees with the
//! planner.

use crate::support::builders;

use std::sync::Arc;

use builders::{ZONES, daemon, group, node, pod, port, world};
use karpenter_model::pod::PodSpec;
use karpenter_model::problem::{Mode, Problem};
use karpenter_model::reason::Reason;
use karpenter_scheduling::schedule;
use karpenter_scheduling::validate::validate;

/// Adds a DaemonSet whose pod would fill every node if its requests were counted.
fn with_claim(problem: &mut Problem) {
    let mut devices = daemon("devices", 1500);
    let spec = Arc::make_mut(&mut devices.spec);
    spec.refusal = Some(Reason::DynamicResources);
    spec.host_ports.insert(port(9100));
    problem.daemons = vec![daemon("agent", 100), devices];
}

#[test]
fn daemon_with_resource_claim_reserves_nothing_on_new_nodes() {
    for mode in [Mode::Cost, Mode::Compat] {
        let mut problem = world();
        problem.options.mode = mode;
        with_claim(&mut problem);
        let web = PodSpec { host_ports: [port(9100)].into(), ..pod("web", 1700) };
        problem.pods = vec![group("web", web, 2)];
        let plan = schedule(&problem);
        assert_eq!(validate(&problem, &plan), []);
        // On the node, 1800m are left: 2000m minus 100m of overhead and 100m of the other DaemonSet pod.
        let types: Vec<usize> = plan.new_nodes.iter().map(|node| node.instance_type).collect();
        assert_eq!(types, [builders::SMALL; 2], "{mode:?}");
        assert!(plan.new_nodes.iter().all(|node| node.requests.get("cpu") == 1800), "{mode:?}");
    }
}

#[test]
fn daemon_with_resource_claim_reserves_nothing_on_existing_nodes() {
    for mode in [Mode::Cost, Mode::Compat] {
        let mut problem = world();
        problem.options.mode = mode;
        with_claim(&mut problem);
        problem.nodes = vec![node("here", ZONES[0], 2)];
        problem.pods = vec![group("web", pod("web", 1900), 1)];
        let plan = schedule(&problem);
        assert_eq!(validate(&problem, &plan), []);
        assert_eq!((plan.existing.len(), plan.new_nodes.len()), (1, 0), "{mode:?}");
    }
}
