//! Nodes of pools with the rules before v1 that are older than those allow: replaced gracefully, one at a time.
//!
//! v1 expires claims by force and elsewhere. Here a node waits for its turn, for budgets of pods and for pods that are
//! held, and goes only once its replacement is there. Pods without a place do not keep it: time is up for all of it.
//! Budgets of pools do not count; there were none.

use std::sync::Arc;

use crate::candidate::Class;
use crate::command::{Candidate, Command, Decision, Method};
use crate::explain::Why;
use crate::fleet::{Machine, Pool, Reason};
use crate::pass::{Eligible, Found, Pass};
use crate::simulation::{Manner, read_in_part, simulation_request};

pub(crate) fn eligible(pass: &Pass<'_>) -> Eligible {
    let mut due: Vec<(i64, Arc<str>, Candidate)> = Vec::new();
    let mut eligible = Eligible::default();
    for (index, machine, pool) in pass.machines() {
        let Some(at) = pool.and_then(|pool| expires_at(machine, pool)) else { continue };
        if at > pass.fleet.now_secs || machine.is_leaving {
            continue;
        }
        match pass.candidate(index, Class::Graceful, Reason::Expired) {
            Ok(candidate) => due.push((at, candidate.claim.clone(), candidate)),
            Err(why) => eligible.refused.push((index, why)),
        }
    }
    due.sort_by(|one, other| (one.0, &one.1).cmp(&(other.0, &other.1)));
    eligible.candidates = due.into_iter().map(|(_, _, candidate)| candidate).collect();
    eligible
}

/// When a node's time is up.
fn expires_at(machine: &Machine, pool: &Pool) -> Option<i64> {
    let after = pool.old_rules?.expires_after_secs?;
    machine.old_marks.node_created_at_secs.map(|created| created.saturating_add(after))
}

/// The oldest of them, unless one is on its way out already.
pub(crate) fn find(pass: &Pass<'_>, candidates: Vec<Candidate>) -> Found {
    let mut found = Found::default();
    let mut candidates = candidates.into_iter();
    let is_going = |(_, machine, pool): (usize, &Machine, Option<&Pool>)| {
        let at = pool.and_then(|pool| expires_at(machine, pool));
        machine.is_leaving && at.is_some_and(|at| at <= pass.fleet.now_secs)
    };
    if !pass.machines().any(is_going)
        && let Some(first) = candidates.next()
    {
        found.commands.push(command(pass, first));
    }
    found.refused.extend(candidates.map(|candidate| (candidate.machine, Why::NotNow)));
    found
}

fn command(pass: &Pass<'_>, candidate: Candidate) -> Command {
    let simulator = pass.forceful_simulator();
    let removed_nodes = pass.nodes_of([&candidate]);
    let outcome = pass.ask(&simulator, &simulation_request(pass, &removed_nodes, Manner::ORDINARY, None));
    let (placement, _) = read_in_part(pass, &simulator, &outcome);
    let is_replaced = !placement.replacements.is_empty();
    Command {
        method: Method::Expiration,
        decision: if is_replaced { Decision::Replace } else { Decision::Delete },
        price_before_per_hour: candidate.price_per_hour,
        price_after_per_hour: placement.price_per_hour(),
        candidates: vec![candidate],
        replacements: placement.replacements,
        static_pool: None,
        moves: placement.moves,
        termination_grace_period_secs: None,
        is_thorough: false,
    }
}
