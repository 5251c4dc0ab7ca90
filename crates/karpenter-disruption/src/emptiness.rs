//! Nodes on which nothing runs that would have to run elsewhere.
//!
//! Upstream: pkg/controllers/disruption/emptiness.go.

use crate::budgets::{allowed, left, take};
use crate::candidate::{Blocked, Class};
use crate::command::{Candidate, Command, Decision, Method};
use crate::explain::Why;
use crate::fleet::{ConsolidationPolicy, Fleet, Machine, OldRules, Pool, Reason};
use crate::pass::{Eligible, Found, Pass, by_savings_ratio};
use crate::prices::total_per_hour;

pub(crate) fn eligible(pass: &Pass<'_>) -> Eligible {
    let mut eligible = Eligible::default();
    for (index, machine, pool) in pass.machines() {
        let old_rules = pool.and_then(|pool| pool.old_rules);
        let class = match old_rules.and_then(|rules| rules.empty_after_secs) {
            Some(_) => Class::Emptied,
            None => Class::Graceful,
        };
        match pass.candidate(index, class, Reason::Empty) {
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
    if let Some(rules) = pool.old_rules {
        return old_refusal(fleet, machine, pool, rules);
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

/// What keeps an empty node by the rules before v1: either its time is not over, or emptiness is consolidation.
fn old_refusal(fleet: &Fleet, machine: &Machine, pool: &Pool, rules: OldRules) -> Option<Why> {
    let marks = machine.old_marks;
    match (rules.empty_after_secs, marks.is_kept_from_consolidation) {
        (_, Some(false)) => None,
        (Some(after), _) => {
            let Some(since) = marks.empty_since_secs else {
                return Some(Why::Settling { until_secs: None });
            };
            // The whole time has to be over, not just begun to be.
            let until = since.saturating_add(after).saturating_add(1);
            (until > fleet.now_secs).then_some(Why::Settling { until_secs: Some(until) })
        }
        (None, Some(true)) => Some(Why::Blocked(Blocked::Unconsolidated)),
        (None, None) if pool.policy == ConsolidationPolicy::WhenEmpty => {
            Some(Why::NeverConsolidated { pool: pool.name.clone() })
        }
        (None, None) => settling(fleet, machine, pool),
    }
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
    let allowed = allowed(pass.fleet, Reason::Empty);
    let (mut chosen, mut later) = (Vec::new(), Vec::new());
    for candidate in candidates {
        if take(&mut left, &candidate.pool) {
            chosen.push(candidate);
        } else {
            let pool = candidate.pool.clone();
            found.refused.push((candidate.machine, Why::BudgetExhausted { pool, reason: Reason::Empty }));
            if pass.fleet.plans_ahead && allowed.get(&candidate.pool).is_some_and(|allowed| *allowed > 0) {
                later.push(candidate);
            }
        }
    }
    if !later.is_empty() {
        found.standby.push(command(later));
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
        is_thorough: false,
    }
}
