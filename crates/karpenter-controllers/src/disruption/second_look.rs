//! The second look at proposals whose rest is over: one after the other on one snapshot, each with those before it that
//! are to begin as if they had. Nothing is written here.

#[cfg(test)]
mod tests;

use karpenter_disruption::carried_out::with_launched;
use karpenter_disruption::command::{Command, Destination};
use karpenter_disruption::fleet::{Fleet, Reason, Waiting};
use karpenter_disruption::prices::catalog_of;
use karpenter_disruption::settings::Settings as Rules;
use karpenter_disruption::validate::{Rejection, revalidate};
use karpenter_model::plan::PlannedNode;
use karpenter_model::resources::ResourceList;

use super::flights::Flight;

/// A proposal and what a second look says. `None`: it was not looked at, and is the next time.
pub(super) type Verdict = (Flight, Option<Result<Command, Rejection>>);

/// Looks at `due` in their order. `waiting` are all proposals by number, those included.
pub(super) fn look_again(
    fleet: &Fleet,
    mut waiting: Vec<(u64, Waiting)>,
    due: Vec<Flight>,
    rules: &Rules,
) -> Vec<Verdict> {
    let mut fleet = fleet.clone();
    let mut short_of_budget = Vec::new();
    let mut is_enough = false;
    let mut verdicts = Vec::new();
    for flight in due {
        let is_standby = flight.standby_until().is_some();
        let is_short = is_standby && short_of_budget.contains(&flight.order.method);
        let Some(proposed) = flight.proposed.clone().filter(|_| !is_short && !is_enough) else {
            verdicts.push((flight, None));
            continue;
        };
        let others = waiting.iter().filter(|(number, _)| *number != flight.number);
        fleet.waiting = others.map(|(_, one)| one.clone()).collect();
        let verdict = revalidate(&proposed, &fleet, rules);
        match &verdict {
            Ok(command) => {
                leave_out(&mut waiting, flight.number, command);
                is_enough = command.replacements.iter().any(|planned| is_reserved(&fleet, planned));
                fleet = begun(fleet, command);
            }
            // It waits on, and so do those that want the same budgets.
            Err(Rejection::Budget { .. }) if is_standby => short_of_budget.push(flight.order.method),
            Err(_) => waiting.retain(|(number, _)| *number != flight.number),
        }
        verdicts.push((flight, Some(verdict)));
    }
    verdicts
}

/// What begins waits no longer; of empty nodes some may be left.
fn leave_out(waiting: &mut Vec<(u64, Waiting)>, number: u64, command: &Command) {
    for (_, one) in waiting.iter_mut().filter(|(of, _)| *of == number) {
        for candidate in &command.candidates {
            one.claims.remove(&candidate.claim);
        }
    }
    waiting.retain(|(of, one)| *of != number || !one.claims.is_empty());
}

/// How much is left of a reservation is known again only when its launch is seen.
fn is_reserved(fleet: &Fleet, planned: &PlannedNode) -> bool {
    let catalog = catalog_of(&fleet.problem, planned);
    let types = planned.instance_type_options.iter().filter_map(|option| catalog.get(*option));
    types.flat_map(|one| &one.offerings).any(|offering| {
        offering.reservation_capacity.is_some() && planned.requirements.intersects(&offering.requirements)
    })
}

/// The fleet when the command has begun, as those see it that come after: its nodes are leaving and no place for anybody,
/// its pods are where they were planned, and what it launches is coming up. Indexes stay what they are.
fn begun(mut fleet: Fleet, command: &Command) -> Fleet {
    let first = fleet.problem.nodes.len();
    for planned in &command.replacements {
        fleet = with_launched(&fleet, planned);
        if let (Some(node), Some(machine)) = (fleet.problem.nodes.last_mut(), fleet.machines.last_mut()) {
            node.initialized = false;
            machine.is_initialized = false;
            machine.is_nominated = true;
            machine.quiet_since_secs = None;
        }
    }
    let mut machine_at = vec![None; fleet.problem.nodes.len()];
    for (index, machine) in fleet.machines.iter().enumerate() {
        if let Some(slot) = machine.at.and_then(|at| machine_at.get_mut(at)) {
            *slot = Some(index);
        }
    }
    let now_secs = fleet.now_secs;
    for (from, to) in &command.moves {
        let to = match to {
            Destination::Existing(node) => *node,
            Destination::New(number) => first + number,
        };
        let (node, pod) = (from.node as usize, from.pod as usize);
        let Some(bound) = fleet.problem.nodes.get(node).and_then(|node| node.pods.get(pod)).cloned() else {
            continue;
        };
        let source = machine_at.get(node).copied().flatten();
        let occupant = source.and_then(|index| fleet.machines[index].occupants.get(pod)).cloned();
        if let Some(target) = fleet.problem.nodes.get_mut(to) {
            target.pods.push(bound);
        }
        if let Some(host) = machine_at.get(to).copied().flatten() {
            let host = &mut fleet.machines[host];
            host.is_nominated = true;
            host.moved_onto_at_secs = Some(now_secs);
            host.occupants.extend(occupant.map(|mut one| {
                one.moved_at_secs = Some(now_secs);
                one
            }));
        }
    }
    for candidate in &command.candidates {
        let Some(machine) = fleet.machines.get_mut(candidate.machine) else { continue };
        machine.is_leaving = true;
        if command.method.reason() == Reason::Underutilized {
            let pods = machine.occupants.iter().filter(|one| one.is_reschedulable).count();
            let pool = machine.pool.as_ref().and_then(|pool| fleet.pools.get_mut(pool));
            if let Some(pool) = pool {
                let pods = u32::try_from(pods).unwrap_or(u32::MAX);
                pool.controls.moved_last_hour = pool.controls.moved_last_hour.saturating_add(pods);
            }
        }
        if let Some(node) = machine.at.take().and_then(|at| fleet.problem.nodes.get_mut(at)) {
            node.pods.clear();
            node.labels.clear();
            node.allocatable = ResourceList::new();
            node.initialized = false;
            node.is_settling = true;
        }
    }
    fleet
}

/// The proposals as the rules see them.
pub(super) fn plain(waiting: &[(u64, Waiting)]) -> Vec<Waiting> {
    waiting.iter().map(|(_, one)| one.clone()).collect()
}
