//! m nodes for none or one, as upstream: the longest beginning of the list that a binary search comes across.
//!
//! Upstream: pkg/controllers/disruption/multinodeconsolidation.go.

use std::collections::BTreeMap;

use karpenter_model::plan::PlannedNode;

use crate::balanced::approve;
use crate::budgets::{left, take};
use crate::command::{Candidate, Command, Decision, Method};
use crate::consolidation::{consolidate, too_few};
use crate::controls::{MovesLeft, is_worth_it};
use crate::explain::Why;
use crate::fleet::Reason;
use crate::pass::{Found, Pass};
use crate::prices::{catalog_of, keep_cheaper_than, refresh, total_per_hour};

/// Upstream looks no further down the list.
const CANDIDATES_MAX: usize = 100;

pub(crate) fn find(pass: &Pass<'_>, candidates: Vec<Candidate>) -> Found {
    let mut left = left(pass.fleet, Reason::Underutilized);
    let mut found = Found::default();
    let mut within = Vec::new();
    for candidate in candidates {
        if take(&mut left, &candidate.pool) {
            within.push(candidate);
        } else {
            let why = Why::BudgetExhausted { pool: candidate.pool.clone(), reason: Reason::Underutilized };
            found.refused.push((candidate.machine, why));
        }
    }
    found.commands.extend(longest(pass, &within));
    found
}

fn longest(pass: &Pass<'_>, candidates: &[Candidate]) -> Option<Command> {
    // For one node there is another method.
    if candidates.len() < 2 {
        return None;
    }
    let mut low = 1;
    let mut high = CANDIDATES_MAX.min(candidates.len() - 1);
    let mut best = None;
    while low <= high {
        let middle = (low + high) / 2;
        match together(pass, &candidates[..=middle]) {
            Ok(command) => {
                best = Some(command);
                low = middle + 1;
            }
            Err(_) => high = middle - 1,
        }
    }
    best
}

/// All of these for none or one.
pub(crate) fn together(pass: &Pass<'_>, candidates: &[Candidate]) -> Result<Command, Why> {
    let mut command = consolidate(pass, pass.simulator(), Method::MultiNodeConsolidation, candidates)?;
    if command.decision == Decision::Replace {
        for node in &mut command.replacements {
            leave_out_same_types(pass, candidates, node)?;
        }
        command.price_after_per_hour =
            total_per_hour(command.replacements.iter().map(|node| node.price_per_hour));
        is_worth_it(pass.fleet, &command)?;
    }
    approve(pass.fleet, &pass.totals, &command)?;
    MovesLeft::new(pass.fleet).admit(pass.fleet, &command)?;
    Ok(command)
}

/// A replacement of a type that goes is only worth it if it is cheaper than the one that goes: otherwise that one
/// could have stayed.
fn leave_out_same_types(
    pass: &Pass<'_>,
    candidates: &[Candidate],
    node: &mut PlannedNode,
) -> Result<(), Why> {
    let problem = &pass.fleet.problem;
    let mut going: BTreeMap<&str, f64> = BTreeMap::new();
    for candidate in candidates {
        if let Some(name) = &pass.machine(candidate).instance_type {
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
        return Err(Why::NotCheaper { price_now_per_hour: limit, cheapest_replacement_per_hour: None });
    }
    refresh(problem, node);
    Ok(())
}
