//! Nodes on which nothing runs that would have to run elsewhere.
//!
//! Upstream: pkg/controllers/disruption/emptiness.go.

use crate::budgets::{left, take};
use crate::candidate::Class;
use crate::command::{Candidate, Command, Decision, Method};
use crate::explain::Why;
use crate::fleet::{Fleet, Machine, Pool, Reason};
use crate::pass::{Eligible, Found, Pass, by_savings_ratio};
use crate::prices::total_per_hour;

pub(crate) fn eligible(pass: &Pass<'_>) -> Eligible {
    let mut eligible = Eligible::default();
    for (index, machine, pool) in pass.machines() {
        match pass.candidate(index, Class::Graceful) {
            Ok(candidate) if candidate.is_empty => {
                match pool.map(|pool| refusal(pass.fleet, machine, pool)) {
                    Some(None) => eligible.candidates.push(candidate),
                    Some(Some(why)) => eligible.refused.push((index, why)),
                    None => {}
                }
            }
            Ok(_) => {}
            Err(why) => eligible.refused.push((index, why)),
        }
    }
    by_savings_ratio(&mut eligible.candidates);
    eligible
}

/// What keeps an empty node.
fn refusal(fleet: &Fleet, machine: &Machine, pool: &Pool) -> Option<Why> {
    if pool.replicas.is_some() {
        return Some(Why::NotDrifted);
    }
    if pool.consolidate_after_secs.is_none() {
        return Some(Why::NeverConsolidated { pool: pool.name.clone() });
    }
    // Provisioning put that capacity here on purpose and would put it back at once.
    if machine.occupants.iter().any(|occupant| occupant.is_virtual) {
        return Some(Why::HasBufferPods { node: machine.node.clone().unwrap_or_default() });
    }
    settling(fleet, machine, pool)
}

/// Whether pods came or went too recently for the pool's taste.
pub(crate) fn settling(fleet: &Fleet, machine: &Machine, pool: &Pool) -> Option<Why> {
    let after = pool.consolidate_after_secs?;
    let Some(since) = machine.quiet_since_secs else { return Some(Why::Settling { until_secs: None }) };
    let until = since.saturating_add(after);
    (until > fleet.now_secs).then_some(Why::Settling { until_secs: Some(until) })
}

/// One command for all of them, as far as budgets go.
pub(crate) fn find(pass: &Pass<'_>, candidates: Vec<Candidate>) -> Found {
    let mut left = left(pass.fleet, Reason::Empty);
    let mut found = Found::default();
    let mut chosen = Vec::new();
    for candidate in candidates {
        if take(&mut left, &candidate.pool) {
            chosen.push(candidate);
        } else {
            let pool = candidate.pool.clone();
            found.refused.push((candidate.machine, Why::BudgetExhausted { pool, reason: Reason::Empty }));
        }
    }
    if !chosen.is_empty() {
        found.commands.push(command(chosen));
    }
    found
}

pub(crate) fn command(candidates: Vec<Candidate>) -> Command {
    Command {
        method: Method::Emptiness,
        decision: Decision::Delete,
        price_before_per_hour: total_per_hour(candidates.iter().map(|candidate| candidate.price_per_hour)),
        price_after_per_hour: 0.0,
        candidates,
        replacements: Vec::new(),
        static_pool: None,
        moves: Vec::new(),
        termination_grace_period_secs: None,
    }
}
