//! Multi-node consolidation as upstream does it: a binary search for the longest prefix of the sorted candidates that can
//! be deleted or replaced by one cheaper node.
//!
//! Upstream: pkg/controllers/disruption/multinodeconsolidation.go.

use std::collections::BTreeMap;

use karpenter_model::plan::PlannedNode;

use crate::balanced::approve;
use crate::budgets::{left, take};
use crate::cluster::Reason;
use crate::command::{Candidate, Command, Decision, Method};
use crate::consolidation::{consolidate, too_few};
use crate::context::{EvaluationContext, MethodResult};
use crate::pool_policy::{MoveAllowance, check_saving};
use crate::prices::{catalog_of, keep_cheaper_than, refresh, total_per_hour};
use crate::verdict::Verdict;

/// The maximum number of candidates, as in upstream.
const CANDIDATES_MAX: usize = 100;

pub(crate) fn find(context: &EvaluationContext<'_>, candidates: Vec<Candidate>) -> MethodResult {
    let mut left = left(context.cluster, Reason::Underutilized);
    let mut found = MethodResult::default();
    let mut within = Vec::new();
    for candidate in candidates {
        if take(&mut left, &candidate.pool) {
            within.push(candidate);
        } else {
            let verdict =
                Verdict::BudgetExhausted { pool: candidate.pool.clone(), reason: Reason::Underutilized };
            found.rejected.push((candidate.state_node, verdict));
        }
    }
    found.commands.extend(longest(context, &within));
    found
}

fn longest(context: &EvaluationContext<'_>, candidates: &[Candidate]) -> Option<Command> {
    // Single-node consolidation handles single candidates.
    if candidates.len() < 2 {
        return None;
    }
    let mut low = 1;
    let mut high = CANDIDATES_MAX.min(candidates.len() - 1);
    let mut best = None;
    while low <= high {
        let middle = (low + high) / 2;
        match together(context, &candidates[..=middle]) {
            Ok(command) => {
                best = Some(command);
                low = middle + 1;
            }
            Err(_) => high = middle - 1,
        }
    }
    best
}

/// The command that deletes all of these candidates, or replaces them by one node.
pub(crate) fn together(
    context: &EvaluationContext<'_>,
    candidates: &[Candidate],
) -> Result<Command, Verdict> {
    let mut command = consolidate(context, context.simulator(), Method::MultiNodeConsolidation, candidates)?;
    if command.decision == Decision::Replace {
        for node in &mut command.replacements {
            leave_out_same_types(context, candidates, node)?;
        }
        command.price_after_per_hour =
            total_per_hour(command.replacements.iter().map(|node| node.price_per_hour));
        check_saving(context.cluster, &command)?;
    }
    approve(context.cluster, &context.totals, &command)?;
    MoveAllowance::new(context.cluster).admit(context.cluster, &command)?;
    Ok(command)
}

/// If the replacement may have the instance type of a candidate, it must be cheaper than that candidate. Otherwise it
/// would be as good to keep the candidate.
fn leave_out_same_types(
    context: &EvaluationContext<'_>,
    candidates: &[Candidate],
    node: &mut PlannedNode,
) -> Result<(), Verdict> {
    let problem = &context.cluster.problem;
    let mut going: BTreeMap<&str, f64> = BTreeMap::new();
    for candidate in candidates {
        if let Some(name) = &context.state_node(candidate).instance_type {
            let price = going.entry(&**name).or_insert(f64::INFINITY);
            *price = price.min(candidate.price_per_hour);
        }
    }
    let catalog = catalog_of(problem, node);
    let names = node.instance_type_options.iter().filter_map(|option| catalog.get(*option));
    let limit = names
        .filter_map(|instance_type| going.get(&*instance_type.name).copied())
        .min_by(f64::total_cmp)
        .unwrap_or(f64::INFINITY);
    keep_cheaper_than(problem, node, limit).map_err(too_few)?;
    if node.instance_type_options.is_empty() {
        return Err(Verdict::NotCheaper { price_now_per_hour: limit, cheapest_replacement_per_hour: None });
    }
    refresh(problem, node);
    Ok(())
}
