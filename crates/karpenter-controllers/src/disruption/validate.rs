//! Validates the commands that are due, one after the other, on one snapshot. The validation of a command assumes that
//! the commands validated before it have started. Nothing is written here.
//!
//! Upstream: pkg/controllers/disruption/validation.go.

#[cfg(test)]
mod tests;

use karpenter_disruption::apply::with_launched_node;
use karpenter_disruption::cluster::{Cluster, ProposedCommand, Reason};
use karpenter_disruption::command::{Command, Destination};
use karpenter_disruption::prices::catalog_of;
use karpenter_disruption::settings::Settings as Rules;
use karpenter_disruption::validate::{Rejection, revalidate};
use karpenter_model::plan::PlannedNode;
use karpenter_model::resources::ResourceList;

use super::command_queue::ActiveCommand;

/// A command and the result of its validation; `None` if the command was not validated in this pass.
pub(super) type ValidationResult = (ActiveCommand, Option<Result<Command, Rejection>>);

/// Validates the commands `due` in this order. `proposed_commands` contains all proposed commands by number, also those
/// in `due`.
pub(super) fn validate_commands(
    cluster: &Cluster,
    mut proposed_commands: Vec<(u64, ProposedCommand)>,
    due: Vec<ActiveCommand>,
    rules: &Rules,
) -> Vec<ValidationResult> {
    let mut cluster = cluster.clone();
    let mut methods_without_budget = Vec::new();
    let mut is_enough = false;
    let mut verdicts = Vec::new();
    for active in due {
        let awaits_budget = active.budget_deadline().is_some();
        let is_short = awaits_budget && methods_without_budget.contains(&active.resolved.method);
        let Some(proposed) = active.proposed.clone().filter(|_| !is_short && !is_enough) else {
            verdicts.push((active, None));
            continue;
        };
        let others = proposed_commands.iter().filter(|(number, _)| *number != active.number);
        cluster.proposed_commands = others.map(|(_, one)| one.clone()).collect();
        let verdict = revalidate(&proposed, &cluster, rules);
        match &verdict {
            Ok(command) => {
                leave_out(&mut proposed_commands, active.number, command);
                is_enough = command.replacements.iter().any(|planned| is_reserved(&cluster, planned));
                cluster = with_command_started(cluster, command);
            }
            // No budget is free: this command and all others of its method that await a budget continue to wait.
            Err(Rejection::Budget { .. }) if awaits_budget => {
                methods_without_budget.push(active.resolved.method)
            }
            Err(_) => proposed_commands.retain(|(number, _)| *number != active.number),
        }
        verdicts.push((active, Some(verdict)));
    }
    verdicts
}

/// Removes the candidates of a command that starts from the proposed commands.
fn leave_out(proposed_commands: &mut Vec<(u64, ProposedCommand)>, number: u64, command: &Command) {
    for (_, one) in proposed_commands.iter_mut().filter(|(of, _)| *of == number) {
        for candidate in &command.candidates {
            one.claims.remove(&candidate.claim);
        }
    }
    proposed_commands.retain(|(of, one)| *of != number || !one.claims.is_empty());
}

/// Whether the replacement may be launched into a capacity reservation. If so, no further commands are validated in
/// this pass, because the remaining capacity of the reservation is unknown until the launch is observed.
fn is_reserved(cluster: &Cluster, planned: &PlannedNode) -> bool {
    let catalog = catalog_of(&cluster.problem, planned);
    let types = planned.instance_type_options.iter().filter_map(|option| catalog.get(*option));
    types.flat_map(|one| &one.offerings).any(|offering| {
        offering.reservation_capacity.is_some() && planned.requirements.intersects(&offering.requirements)
    })
}

/// The cluster as it is after the start of a command: the candidates are marked for deletion and receive no pods, the
/// moved pods are on their planned nodes, and the replacements exist but are not initialized. Indexes of nodes do not
/// change.
fn with_command_started(mut cluster: Cluster, command: &Command) -> Cluster {
    let first = cluster.problem.nodes.len();
    for planned in &command.replacements {
        cluster = with_launched_node(&cluster, planned);
        if let (Some(node), Some(state_node)) =
            (cluster.problem.nodes.last_mut(), cluster.state_nodes.last_mut())
        {
            node.initialized = false;
            state_node.is_initialized = false;
            state_node.is_nominated = true;
            state_node.last_pod_event_secs = None;
        }
    }
    let mut state_node_of = vec![None; cluster.problem.nodes.len()];
    for (index, state_node) in cluster.state_nodes.iter().enumerate() {
        if let Some(slot) = state_node.at.and_then(|at| state_node_of.get_mut(at)) {
            *slot = Some(index);
        }
    }
    let now_secs = cluster.now_secs;
    for (from, to) in &command.moves {
        let to = match to {
            Destination::Existing(node) => *node,
            Destination::New(number) => first + number,
        };
        let (node, pod) = (from.node as usize, from.pod as usize);
        let Some(bound) = cluster.problem.nodes.get(node).and_then(|node| node.pods.get(pod)).cloned() else {
            continue;
        };
        let source = state_node_of.get(node).copied().flatten();
        let node_pod = source.and_then(|index| cluster.state_nodes[index].pods.get(pod)).cloned();
        if let Some(host_node) = cluster.problem.nodes.get_mut(to) {
            host_node.pods.push(bound);
        }
        if let Some(host) = state_node_of.get(to).copied().flatten() {
            let host = &mut cluster.state_nodes[host];
            host.is_nominated = true;
            host.moved_onto_at_secs = Some(now_secs);
            host.pods.extend(node_pod.map(|mut one| {
                one.moved_at_secs = Some(now_secs);
                one
            }));
        }
    }
    for candidate in &command.candidates {
        let Some(state_node) = cluster.state_nodes.get_mut(candidate.state_node) else { continue };
        state_node.is_marked_for_deletion = true;
        if command.method.reason() == Reason::Underutilized {
            let pods = state_node.pods.iter().filter(|one| one.is_reschedulable).count();
            let pool = state_node.pool.as_ref().and_then(|pool| cluster.pools.get_mut(pool));
            if let Some(pool) = pool {
                let pods = u32::try_from(pods).unwrap_or(u32::MAX);
                pool.pool_policy.moved_last_hour = pool.pool_policy.moved_last_hour.saturating_add(pods);
            }
        }
        if let Some(node) = state_node.at.take().and_then(|at| cluster.problem.nodes.get_mut(at)) {
            node.pods.clear();
            node.labels.clear();
            node.allocatable = ResourceList::new();
            node.initialized = false;
            node.is_settling = true;
        }
    }
    cluster
}

/// Proposed commands without their numbers.
pub(super) fn without_numbers(proposed_commands: &[(u64, ProposedCommand)]) -> Vec<ProposedCommand> {
    proposed_commands.iter().map(|(_, one)| one.clone()).collect()
}
