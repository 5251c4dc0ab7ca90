//! One node for none or one, as upstream, without its clock: every candidate has its turn.
//!
//! Upstream: pkg/controllers/disruption/singlenodeconsolidation.go.

use std::collections::BTreeMap;
use std::sync::Arc;

use rayon::prelude::*;

use crate::balanced::{approve, could_approve};
use crate::budgets::left;
use crate::command::{Candidate, Command, Method};
use crate::consolidation::consolidate;
use crate::controls::MovesLeft;
use crate::explain::Why;
use crate::fleet::Reason;
use crate::pass::{Found, Pass};

/// Candidates asked about at once. Fixed, so that the answer does not depend on the number of threads.
const ASKED_TOGETHER: usize = 32;

pub(crate) fn find(pass: &Pass<'_>, candidates: Vec<Candidate>) -> Found {
    let left = left(pass.fleet, Reason::Underutilized);
    let mut found = Found::default();
    let mut asked = Vec::new();
    for candidate in taking_turns(candidates) {
        if left.get(&candidate.pool).is_none_or(|left| *left == 0) {
            let pool = candidate.pool.clone();
            let why = Why::BudgetExhausted { pool, reason: Reason::Underutilized };
            found.refused.push((candidate.machine, why));
        } else if let Err(why) = could_approve(pass.pool(&candidate), &pass.totals, &candidate) {
            found.refused.push((candidate.machine, why));
        } else {
            asked.push(candidate);
        }
    }
    for chunk in asked.chunks(ASKED_TOGETHER) {
        if !found.commands.is_empty() {
            found.refused.extend(chunk.iter().map(|candidate| (candidate.machine, Why::NotNow)));
            continue;
        }
        let answers: Vec<_> = chunk.par_iter().map(|candidate| one(pass, candidate)).collect();
        for (candidate, answer) in chunk.iter().zip(answers) {
            match answer {
                Ok(_) if !found.commands.is_empty() => found.refused.push((candidate.machine, Why::NotNow)),
                Ok(command) => found.commands.push(command),
                Err(why) => found.refused.push((candidate.machine, why)),
            }
        }
    }
    found
}

/// The best that can be done with one candidate.
pub(crate) fn one(pass: &Pass<'_>, candidate: &Candidate) -> Result<Command, Why> {
    let candidates = std::slice::from_ref(candidate);
    let command = consolidate(pass, pass.simulator(), Method::SingleNodeConsolidation, candidates)?;
    approve(pass.fleet, &pass.totals, &command)?;
    MovesLeft::new(pass.fleet).admit(pass.fleet, &command)?;
    Ok(command)
}

/// One of each pool after the other, the order within a pool kept: no pool has to wait for a large one.
fn taking_turns(candidates: Vec<Candidate>) -> Vec<Candidate> {
    let mut turns: Vec<(usize, Arc<str>, Candidate)> = Vec::with_capacity(candidates.len());
    let mut seen: BTreeMap<Arc<str>, usize> = BTreeMap::new();
    for candidate in candidates {
        let turn = seen.entry(candidate.pool.clone()).or_insert(0);
        turns.push((*turn, candidate.pool.clone(), candidate));
        *turn += 1;
    }
    turns.sort_by(|one, other| (one.0, &one.1).cmp(&(other.0, &other.1)));
    turns.into_iter().map(|(_, _, candidate)| candidate).collect()
}
