//! Nodes that are no longer what their pool asks for: replaced by as many nodes as their pods need.
//!
//! Upstream: pkg/controllers/disruption/drift.go; there one node per pass.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rayon::prelude::*;

use crate::budgets::{left, take};
use crate::candidate::Class;
use crate::command::{Candidate, Command, Decision, Destination, Method};
use crate::explain::Why;
use crate::fleet::Reason;
use crate::pass::{Eligible, Found, Pass};
use crate::pod_budgets::{Jointly, PodBudgetUse};
use crate::settings::Mode;
use crate::simulation::{Manner, Placement, Replaced, replace, simulation_request};

pub(crate) fn eligible(pass: &Pass<'_>) -> Eligible {
    let mut eligible = Eligible::default();
    for (index, machine, pool) in pass.machines() {
        if machine.drifted_since_secs.is_none() || pool.is_some_and(|pool| pool.replicas.is_some()) {
            continue;
        }
        match pass.candidate(index, Class::Eventual, Reason::Drifted) {
            Ok(candidate) => eligible.candidates.push(candidate),
            Err(why) => eligible.refused.push((index, why)),
        }
    }
    // Empty ones first: pods of the others could move to them only to move again.
    eligible.candidates.sort_by_key(|candidate| {
        let machine = pass.machine(candidate);
        let has_pods = machine.occupants.iter().any(|occupant| occupant.is_reschedulable);
        (has_pods, machine.drifted_since_secs, candidate.claim.clone())
    });
    eligible
}

pub(crate) fn find(pass: &Pass<'_>, candidates: Vec<Candidate>) -> Found {
    let left = left(pass.fleet, Reason::Drifted);
    let mut found = Found::default();
    let (within, beyond): (Vec<_>, Vec<_>) =
        candidates.into_iter().partition(|candidate| left.get(&candidate.pool).is_some_and(|left| *left > 0));
    found.refused.extend(beyond.into_iter().map(exhausted));
    if within.is_empty() {
        return found;
    }
    match pass.settings.mode {
        Mode::Compat => first(pass, within, &mut found),
        Mode::Cost => several(pass, within, left, &mut found),
    }
    found
}

fn exhausted(candidate: Candidate) -> (usize, Why) {
    let why = Why::BudgetExhausted { pool: candidate.pool, reason: Reason::Drifted };
    (candidate.machine, why)
}

/// Candidates asked about at once. Fixed, so that the answer does not depend on the number of threads.
const ASKED_TOGETHER: usize = 16;

/// The first candidate that can be replaced.
fn first(pass: &Pass<'_>, candidates: Vec<Candidate>, found: &mut Found) {
    let simulator = pass.forceful_simulator();
    let may = pass.settings.terminate_first_drift;
    for chunk in candidates.chunks(ASKED_TOGETHER) {
        if !found.commands.is_empty() {
            found.refused.extend(chunk.iter().map(|candidate| (candidate.machine, Why::NotNow)));
            continue;
        }
        let answers: Vec<Replaced> =
            chunk.par_iter().map(|candidate| replace(pass, &simulator, candidate, false, may).0).collect();
        for (candidate, answer) in chunk.iter().zip(answers) {
            match command(Method::Drift, candidate, answer) {
                Ok(_) if !found.commands.is_empty() => found.refused.push((candidate.machine, Why::NotNow)),
                Ok(command) => found.commands.push(command),
                Err(why) => found.refused.push((candidate.machine, why)),
            }
        }
    }
}

/// As many as budgets allow, each seeing what those before it take.
fn several(
    pass: &Pass<'_>,
    candidates: Vec<Candidate>,
    mut left: BTreeMap<Arc<str>, u32>,
    found: &mut Found,
) {
    let mut simulator = pass.forceful_simulator();
    let mut pod_budgets = PodBudgetUse::new(pass.fleet);
    let may = pass.settings.terminate_first_drift;
    let mut receivers = BTreeSet::new();
    for candidate in candidates {
        let removed_nodes = pass.nodes_of([&candidate]);
        // Pods of an earlier command go there; they shall not move twice.
        if removed_nodes.iter().any(|node| receivers.contains(node)) {
            found.refused.push((candidate.machine, Why::NotNow));
            continue;
        }
        if left.get(&candidate.pool).is_none_or(|left| *left == 0) {
            found.refused.push(exhausted(candidate));
            continue;
        }
        let mut with_it = pod_budgets.clone();
        // A drain that is bounded waits for nobody's budget, so neither does its turn.
        if pass.machine(&candidate).termination_grace_period_secs.is_some() {
            with_it.count(pass.fleet, &candidate);
        } else if let Err(why) = with_it.admit(pass.fleet, [&candidate], Jointly::FirstMayQueue) {
            found.refused.push((candidate.machine, why));
            continue;
        }
        let (answer, outcome) = replace(pass, &simulator, &candidate, false, may);
        match command(Method::Drift, &candidate, answer) {
            Ok(command) => {
                take(&mut left, &candidate.pool);
                pod_budgets = with_it;
                receivers.extend(command.moves.iter().filter_map(|(_, to)| match to {
                    Destination::Existing(node) => Some(*node),
                    Destination::New(_) => None,
                }));
                if let Some(outcome) = outcome {
                    simulator
                        .commit(&simulation_request(pass, &removed_nodes, Manner::ORDINARY, None), &outcome);
                }
                found.commands.push(command);
            }
            Err(why) => found.refused.push((candidate.machine, why)),
        }
    }
}

/// One node's replacement as a command.
pub(crate) fn command(method: Method, candidate: &Candidate, answer: Replaced) -> Result<Command, Why> {
    let (decision, placement) = match answer {
        Replaced::Not(unplaced) => return Err(Why::WouldNotFit { unplaced }),
        Replaced::Ordinary(placement) if placement.replacements.is_empty() => (Decision::Delete, placement),
        Replaced::Ordinary(placement) => (Decision::Replace, placement),
        Replaced::TerminateFirst(placement) => (Decision::TerminateFirst, placement),
    };
    let price_after_per_hour = placement.price_per_hour();
    let Placement { mut moves, mut replacements } = placement;
    if decision == Decision::TerminateFirst {
        // Nothing is launched ahead: provisioning fills the freed slot.
        replacements.clear();
        moves.retain(|(_, to)| matches!(to, Destination::Existing(_)));
    }
    Ok(Command {
        method,
        decision,
        candidates: vec![candidate.clone()],
        replacements,
        static_pool: None,
        moves,
        price_before_per_hour: candidate.price_per_hour,
        price_after_per_hour,
        termination_grace_period_secs: None,
        is_thorough: false,
    })
}
