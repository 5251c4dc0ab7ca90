//! Disruption budgets: how many nodes of a NodePool may be disrupted for a reason at a given time.
//!
//! If any budget of the NodePool is invalid, no node may be disrupted for any reason. The caller subtracts nodes that
//! are already being disrupted.
//!
//! Upstream: `GetAllowedDisruptionsByReason` in `pkg/apis/v1/nodepool.go`.

#[cfg(test)]
mod tests;

use karpenter_model::cron::{CronError, CronSchedule, budget_is_active};

use crate::types::{Budget, DisruptionReason};

/// The number of allowed disruptions if the NodePool has no active budget.
pub const UNLIMITED: i32 = i32::MAX;

/// Why a budget cannot be evaluated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BudgetError {
    #[error(
        "budget {index}: nodes {nodes:?} is not valid; write a count such as 5 or a percentage such as 10%"
    )]
    Nodes { index: usize, nodes: String },
    #[error("budget {index}: {source}")]
    Schedule { index: usize, source: CronError },
    #[error("budget {index}: schedule and duration must be set together")]
    ScheduleWithoutDuration { index: usize },
}

/// How many nodes may be disrupted for `reason`; zero if any budget is invalid.
pub fn allowed_disruptions(
    budgets: &[Budget],
    reason: &DisruptionReason,
    now_unix_seconds: i64,
    node_count: usize,
) -> i32 {
    try_allowed_disruptions(budgets, reason, now_unix_seconds, node_count).unwrap_or(0)
}

/// Like [`allowed_disruptions`], but returns the error if a budget is invalid.
pub fn try_allowed_disruptions(
    budgets: &[Budget],
    reason: &DisruptionReason,
    now_unix_seconds: i64,
    node_count: usize,
) -> Result<i32, BudgetError> {
    let mut allowed = UNLIMITED;
    for (index, budget) in budgets.iter().enumerate() {
        let value = budget_value(index, budget, now_unix_seconds, node_count)?;
        if budget.reasons.as_ref().is_none_or(|reasons| reasons.contains(reason)) {
            allowed = allowed.min(value);
        }
    }
    Ok(allowed)
}

fn budget_value(
    index: usize,
    budget: &Budget,
    now_unix_seconds: i64,
    node_count: usize,
) -> Result<i32, BudgetError> {
    let is_active = match (&budget.schedule, budget.duration) {
        (None, None) => true,
        (Some(schedule), Some(duration)) => {
            let schedule: CronSchedule =
                schedule.parse().map_err(|source| BudgetError::Schedule { index, source })?;
            budget_is_active(&schedule, duration.nanos, now_unix_seconds)
        }
        _ => return Err(BudgetError::ScheduleWithoutDuration { index }),
    };
    let value = parse_nodes(&budget.nodes, node_count)
        .ok_or_else(|| BudgetError::Nodes { index, nodes: budget.nodes.clone() })?;
    Ok(if is_active { value } else { UNLIMITED })
}

/// Parses a count of nodes, or a percentage of `node_count`, rounded up.
fn parse_nodes(text: &str, node_count: usize) -> Option<i32> {
    let (digits, is_percentage) = match text.strip_suffix('%') {
        Some(digits) => (digits, true),
        None => (text, false),
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    // A count too large for i32 exceeds any number of nodes, so it is capped.
    let number: u128 = digits.parse().unwrap_or(u128::MAX);
    if !is_percentage {
        return Some(i32::try_from(number).unwrap_or(UNLIMITED));
    }
    (number <= 100).then(|| {
        let nodes = (number * node_count as u128).div_ceil(100);
        i32::try_from(nodes).unwrap_or(UNLIMITED)
    })
}
