//! Simulated results as values of the view.

use std::collections::BTreeMap;

use karpenter_disruption::cluster::Cluster;
use karpenter_disruption::command::{Command, Destination};
use karpenter_model::plan::{Plan, PlannedNode};
use karpenter_model::problem::Problem;
use karpenter_view::{Decision, Launch, Outcome};

use crate::format::money;

/// The nodes on which a plan places the pods of a group, with the price of the new nodes among them.
pub(crate) fn of_plan(problem: &Problem, plan: &Plan, group: usize) -> Outcome {
    let of_group = |node: &&PlannedNode| node.pods.iter().any(|run| run.group as usize == group);
    let nodes: Vec<&PlannedNode> = plan.new_nodes.iter().filter(of_group).collect();
    let existing = plan.existing.iter().filter(|one| one.pods.iter().any(|run| run.group as usize == group));
    let on_existing = plan.existing.iter().flat_map(|one| &one.pods);
    let placed = plan.new_nodes.iter().flat_map(|node| &node.pods).chain(on_existing);
    let placed = placed.filter(|run| run.group as usize == group);
    let names: Vec<String> =
        existing.filter_map(|one| problem.nodes.get(one.node)).map(|node| node.name.to_string()).collect();
    Outcome {
        decision: Decision::Place,
        launches: launches(problem, nodes.iter().copied()),
        existing_nodes: names,
        pods: placed.map(|run| u64::from(run.count)).sum(),
        added_per_hour: money(nodes.iter().map(|node| node.price_per_hour).sum()),
        saving_per_hour: 0.0,
    }
}

/// The effects of a command.
pub(crate) fn of_command(cluster: &Cluster, command: &Command) -> Outcome {
    let problem = &cluster.problem;
    let mut targets: Vec<String> = command
        .moves
        .iter()
        .filter_map(|(_, to)| match to {
            Destination::Existing(node) => problem.nodes.get(*node).map(|node| node.name.to_string()),
            Destination::New(_) => None,
        })
        .collect();
    targets.sort();
    targets.dedup();
    let is_replaced = !command.replacements.is_empty() || command.static_pool.is_some();
    Outcome {
        decision: if is_replaced { Decision::Replace } else { Decision::Delete },
        launches: launches(problem, command.replacements.iter()),
        existing_nodes: targets,
        pods: command.pods_moved() as u64,
        added_per_hour: money(command.price_after_per_hour),
        saving_per_hour: money(command.saving_per_hour()),
    }
}

fn launches<'a>(problem: &Problem, nodes: impl Iterator<Item = &'a PlannedNode>) -> Vec<Launch> {
    let mut counted: BTreeMap<(String, String, Option<String>, Option<String>), Launch> = BTreeMap::new();
    for node in nodes {
        let Some(pool) = problem.pools.get(node.pool) else { continue };
        let catalog = problem.catalogs.get(pool.catalog);
        let instance_type = catalog.and_then(|types| types.get(node.instance_type));
        let offering = instance_type.and_then(|one| one.offerings.get(node.offering));
        let launch = Launch {
            count: 0,
            node_pool: pool.name.to_string(),
            instance_type: instance_type.map(|one| one.name.to_string()).unwrap_or_default(),
            zone: offering.and_then(|one| one.zone()).map(ToString::to_string),
            capacity_type: offering.and_then(|one| one.capacity_type()).map(ToString::to_string),
            price_per_hour: money(node.price_per_hour),
        };
        let key = (
            launch.node_pool.clone(),
            launch.instance_type.clone(),
            launch.zone.clone(),
            launch.capacity_type.clone(),
        );
        counted.entry(key).or_insert(launch).count += 1;
    }
    counted.into_values().collect()
}
