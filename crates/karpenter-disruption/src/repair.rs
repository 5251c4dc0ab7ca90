//! Sick nodes: rebooted, or replaced, the worst first, and none while too much of a pool is sick.
//!
//! Which policies apply to a node is found out elsewhere and arrives as [`crate::fleet::Repair`].
//!
//! Upstream: pkg/controllers/disruption/repair.go.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use karpenter_scheduling::simulate::Simulator;

use crate::budgets::left;
use crate::candidate::{Blocked, Class, blocking_pod};
use crate::command::{Candidate, Command, Decision, Method};
use crate::drift;
use crate::explain::Why;
use crate::fleet::{Fleet, Machine, Reason};
use crate::pass::{Eligible, Found, Pass};
use crate::simulation::replace;
use crate::static_drift;

/// A pool with more than this share of its nodes sick has another problem than its nodes.
const SICK_PERCENT_MAX: usize = 20;

pub(crate) fn eligible(pass: &Pass<'_>) -> Eligible {
    let mut eligible = Eligible::default();
    for (index, machine, _) in pass.machines() {
        let Some(repair) = &machine.repair else { continue };
        let is_bounded =
            repair.termination_grace_period_secs.or(machine.termination_grace_period_secs).is_some();
        match pass.candidate(index, Class::Repair, Reason::Unhealthy) {
            Ok(_) if repair.is_vetoed => {
                eligible.refused.push((index, Why::Blocked(Blocked::RepairVetoed)));
            }
            Ok(_) if !is_bounded && blocking_pod(pass.fleet, machine, Class::Repair).is_some() => {
                eligible.refused.push((index, Why::Blocked(Blocked::RepairUnbounded)));
            }
            Ok(candidate) => eligible.candidates.push(candidate),
            Err(why) => eligible.refused.push((index, why)),
        }
    }
    eligible.candidates.sort_by(|one, other| {
        let (a, b) = (pass.machine(one), pass.machine(other));
        score(b)
            .total_cmp(&score(a))
            .then_with(|| disruption_cost(pass.fleet, a).total_cmp(&disruption_cost(pass.fleet, b)))
            .then_with(|| one.node.cmp(&other.node))
    });
    eligible
}

fn score(machine: &Machine) -> f64 {
    machine.repair.as_ref().map_or(0.0, |repair| repair.score)
}

/// What all pods of the node cost, scaled by how much of its life is left.
fn disruption_cost(fleet: &Fleet, machine: &Machine) -> f64 {
    let pods: f64 = machine.occupants.iter().map(|occupant| occupant.eviction_cost).sum();
    pods * lifetime_remaining(fleet, machine)
}

fn lifetime_remaining(fleet: &Fleet, machine: &Machine) -> f64 {
    match machine.expire_after_secs {
        Some(total) if total > 0 => {
            let age = fleet.now_secs.saturating_sub(machine.created_at_secs);
            (total.saturating_sub(age) as f64 / total as f64).clamp(0.0, 1.0)
        }
        Some(_) => 0.0,
        None => 1.0,
    }
}

/// Pools in which so many nodes are sick that repair would do harm. Rounded up, so that one node never stops it.
fn halted_pools(fleet: &Fleet) -> BTreeSet<Arc<str>> {
    let mut counts: BTreeMap<&Arc<str>, (usize, usize)> = BTreeMap::new();
    for machine in fleet.machines.iter().filter(|machine| machine.node.is_some()) {
        let Some(pool) = &machine.pool else { continue };
        let (nodes, sick) = counts.entry(pool).or_default();
        *nodes += 1;
        *sick += usize::from(machine.is_unhealthy || machine.repair.is_some());
    }
    let is_halted = |(nodes, sick): (usize, usize)| sick > (nodes * SICK_PERCENT_MAX).div_ceil(100);
    counts.into_iter().filter(|(_, counts)| is_halted(*counts)).map(|(pool, _)| pool.clone()).collect()
}

/// One command per pass.
pub(crate) fn find(pass: &Pass<'_>, candidates: Vec<Candidate>) -> Found {
    let left = left(pass.fleet, Reason::Unhealthy);
    let halted = halted_pools(pass.fleet);
    let mut found = Found::default();
    let simulator = OnceCell::new();
    for candidate in candidates {
        let index = candidate.machine;
        let pool = candidate.pool.clone();
        if halted.contains(&pool) {
            found.refused.push((index, Why::RepairHalted { pool }));
            continue;
        }
        // A node that never came up runs nothing that a budget protects.
        let needs_budget = pass.machine(&candidate).is_initialized;
        if needs_budget && left.get(&pool).is_none_or(|left| *left == 0) {
            found.refused.push((index, Why::BudgetExhausted { pool, reason: Reason::Unhealthy }));
            continue;
        }
        if !found.commands.is_empty() {
            found.refused.push((index, Why::NotNow));
            continue;
        }
        match repaired(pass, &simulator, candidate) {
            Ok(command) => found.commands.push(command),
            Err(why) => found.refused.push((index, why)),
        }
    }
    found
}

fn repaired<'p>(
    pass: &'p Pass<'_>,
    simulator: &OnceCell<Simulator<'p>>,
    candidate: Candidate,
) -> Result<Command, Why> {
    let machine = pass.machine(&candidate);
    let pool = pass.pool(&candidate);
    let gate = pass.settings.terminate_first_repair;
    let mut command = if machine.repair.as_ref().is_some_and(|repair| repair.is_reboot) {
        static_drift::command(Method::Repair, candidate, Decision::Reboot)
    } else if pool.replicas.is_some() {
        // One at a time in every mode: a node that is marked counts until it is being deleted.
        if let Some(why) = static_drift::scaling_down(pass.fleet, pool, |machine| machine.is_deleting) {
            return Err(why);
        }
        let mut room = pool.nodes_left.unwrap_or(u32::MAX);
        let decision = static_drift::replacement(machine, pool, gate, &mut room)?;
        static_drift::command(Method::Repair, candidate, decision)
    } else {
        // Its drain decides when blocked pods leave; a place for them is needed all the same.
        let simulator = simulator.get_or_init(|| pass.forceful_simulator());
        let (answer, _) = replace(pass, simulator, &candidate, true, gate);
        drift::command(Method::Repair, &candidate, answer)?
    };
    command.termination_grace_period_secs = drain_bound_secs(machine);
    Ok(command)
}

/// The policies' bound, or the claim's if that is shorter; `None`: only the claim's own counts.
fn drain_bound_secs(machine: &Machine) -> Option<i64> {
    let of_policy = machine.repair.as_ref()?.termination_grace_period_secs?;
    Some(machine.termination_grace_period_secs.map_or(of_policy, |of_claim| of_claim.min(of_policy)))
}
