//! Compares compat mode with upstream: each case is a recorded problem with the results of several upstream runs.
//!
//! If upstream breaks ties randomly, our result must be within the range of the recorded ones; otherwise it must be
//! equal to them. Cases with a `deviation` are listed in docs/deviations.md, and our result must equal the one that the
//! case records.

use crate::support::cases;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

use cases::Case;
use karpenter_model::labels;
use karpenter_model::plan::{Plan, PodRun};
use karpenter_model::problem::Problem;
use karpenter_scheduling::schedule;

const TOLERANCE_PER_HOUR: f64 = 1e-6;

#[test]
fn compat_plans_equal_upstream_plans() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/differential");
    let cases = cases::load_all(&folder);
    assert!(cases.len() >= 60, "only {} cases in {}", cases.len(), folder.display());
    let mut report = String::new();
    for case in &cases {
        let problem = case.problem(&folder);
        let plan = schedule(&problem);
        let differences = differences(case, &problem, &plan);
        if !differences.is_empty() {
            let _ = writeln!(report, "{}\n{differences}{}", case.name, describe(&problem, &plan));
        }
    }
    assert!(report.is_empty(), "answers differ:\n{report}");
}

fn differences(case: &Case, problem: &Problem, plan: &Plan) -> String {
    let mut text = String::new();
    let left: BTreeSet<String> =
        plan.unschedulable.iter().flat_map(|left| names(problem, std::slice::from_ref(&left.pods))).collect();
    let on_existing: u32 = plan.existing.iter().flat_map(|node| &node.pods).map(|run| run.count).sum();
    let nodes = plan.new_nodes.len();
    let price = plan.price_per_hour;
    let expected = &case.expected;
    let (hourly, node_range, existing_range, unschedulable) = match &case.deviation {
        Some(ours) => (
            (ours.hourly, ours.hourly),
            ours.nodes..=ours.nodes,
            ours.existing..=ours.existing,
            vec![ours.unschedulable.clone()],
        ),
        None => (
            (expected.hourly_min, expected.hourly_max),
            expected.nodes_min..=expected.nodes_max,
            expected.existing_min..=expected.existing_max,
            expected.unschedulable.clone(),
        ),
    };
    if price < hourly.0 - TOLERANCE_PER_HOUR || price > hourly.1 + TOLERANCE_PER_HOUR {
        let _ = writeln!(text, "  costs {price} per hour, expected {} to {}", hourly.0, hourly.1);
    }
    if !node_range.contains(&nodes) {
        let _ = writeln!(text, "  launches {nodes} nodes, expected {node_range:?}");
    }
    if !existing_range.contains(&on_existing) {
        let _ = writeln!(text, "  puts {on_existing} pods on existing nodes, expected {existing_range:?}");
    }
    if !unschedulable.contains(&left) {
        let _ = writeln!(text, "  leaves over {left:?}, expected {unschedulable:?}");
    }
    text
}

fn names(problem: &Problem, runs: &[PodRun]) -> Vec<String> {
    runs.iter()
        .flat_map(|run| {
            let group = &problem.pods[run.group as usize];
            (run.start..run.start + run.count).map(|position| group.names.name(position))
        })
        .collect()
}

/// The plan in a form that can be compared with upstream's result.
fn describe(problem: &Problem, plan: &Plan) -> String {
    let mut text = String::new();
    for node in &plan.new_nodes {
        let pool = &problem.pools[node.pool];
        let chosen = &problem.catalogs[pool.catalog][node.instance_type];
        let zone = node.requirements.get(labels::ZONE).map(ToString::to_string).unwrap_or_default();
        let _ = writeln!(
            text,
            "    {} {} {} of {} options [{zone}]: {}",
            pool.name,
            chosen.name,
            node.price_per_hour,
            node.instance_type_options.len(),
            names(problem, &node.pods).join(" ")
        );
    }
    for placement in &plan.existing {
        let name = &problem.nodes[placement.node].name;
        let _ = writeln!(text, "    on {name}: {}", names(problem, &placement.pods).join(" "));
    }
    text
}
