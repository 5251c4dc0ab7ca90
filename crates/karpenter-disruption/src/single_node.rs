//! Single-node consolidation as upstream does it, without a time limit: every candidate is simulated.
//!
//! Upstream: pkg/controllers/disruption/singlenodeconsolidation.go.

use std::collections::BTreeMap;
use std::sync::Arc;

use rayon::prelude::*;

use crate::balanced::{approve, check_best_case};
use crate::budgets::left;
use crate::cluster::Reason;
use crate::command::{Candidate, Command, Method};
use crate::consolidation::consolidate;
use crate::context::{EvaluationContext, MethodResult};
use crate::pool_policy::MoveAllowance;
use crate::verdict::Verdict;

/// The number of candidates that are simulated in parallel. It is constant, so that the result does not depend on the
/// number of threads.
const ASKED_TOGETHER: usize = 32;

pub(crate) fn find(context: &EvaluationContext<'_>, candidates: Vec<Candidate>) -> MethodResult {
    let left = left(context.cluster, Reason::Underutilized);
    let mut found = MethodResult::default();
    let mut asked = Vec::new();
    for candidate in interleave_pools(candidates) {
        if left.get(&candidate.pool).is_none_or(|left| *left == 0) {
            let pool = candidate.pool.clone();
            let verdict = Verdict::BudgetExhausted { pool, reason: Reason::Underutilized };
            found.rejected.push((candidate.state_node, verdict));
        } else if let Err(verdict) = check_best_case(context.pool(&candidate), &context.totals, &candidate) {
            found.rejected.push((candidate.state_node, verdict));
        } else {
            asked.push(candidate);
        }
    }
    for chunk in asked.chunks(ASKED_TOGETHER) {
        if !found.commands.is_empty() {
            found.rejected.extend(chunk.iter().map(|candidate| (candidate.state_node, Verdict::NotNow)));
            continue;
        }
        let answers: Vec<_> = chunk.par_iter().map(|candidate| one(context, candidate)).collect();
        for (candidate, answer) in chunk.iter().zip(answers) {
            match answer {
                Ok(_) if !found.commands.is_empty() => {
                    found.rejected.push((candidate.state_node, Verdict::NotNow))
                }
                Ok(command) => found.commands.push(command),
                Err(verdict) => found.rejected.push((candidate.state_node, verdict)),
            }
        }
    }
    found
}

/// The command that deletes or replaces one candidate.
pub(crate) fn one(context: &EvaluationContext<'_>, candidate: &Candidate) -> Result<Command, Verdict> {
    let candidates = std::slice::from_ref(candidate);
    let command = consolidate(context, context.simulator(), Method::SingleNodeConsolidation, candidates)?;
    approve(context.cluster, &context.totals, &command)?;
    MoveAllowance::new(context.cluster).admit(context.cluster, &command)?;
    Ok(command)
}

/// Interleaves NodePools and keeps the order within each, so that a large NodePool does not delay the others.
fn interleave_pools(candidates: Vec<Candidate>) -> Vec<Candidate> {
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
