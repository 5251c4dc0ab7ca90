//! The disruption budgets of a NodePool: which entries block, and when they change.

use karpenter_disruption::budgets::remaining;
use karpenter_disruption::cluster::Reason;
use karpenter_model::cron::CronSchedule;
use karpenter_view::BudgetView;
use serde_json::{Value, json};

use crate::format::{duration, time};
use crate::input::{BudgetFacts, ExplainInput};

/// The entries of the NodePool's budgets that apply to the reason.
pub(crate) fn entries(input: &ExplainInput, pool: &str, reason: Reason) -> Vec<BudgetView> {
    let facts = input.facts.pools.get(pool);
    let budgets = facts.map_or(&[][..], |facts| facts.budgets.as_slice());
    let of_reason = budgets.iter().filter(|one| applies(one, reason));
    of_reason
        .map(|one| BudgetView {
            entry: described(one),
            is_active: one.allowed.is_some(),
            allowed: one.allowed,
            next_change: input.now_secs.and_then(|now| next_change(one, now)).map(time),
        })
        .collect()
}

fn applies(budget: &BudgetFacts, reason: Reason) -> bool {
    budget.reasons.as_ref().is_none_or(|reasons| reasons.iter().any(|one| one == reason.as_str()))
}

fn described(budget: &BudgetFacts) -> String {
    let mut text = format!("nodes: \"{}\"", budget.nodes);
    if let Some(schedule) = &budget.schedule {
        text = format!("{text}, schedule \"{schedule}\"");
    }
    if let Some(secs) = budget.duration_secs {
        text = format!("{text} for {}", duration(secs));
    }
    text
}

/// The end of the entry's active period, or the start of the next period.
fn next_change(budget: &BudgetFacts, now_secs: i64) -> Option<i64> {
    let schedule: CronSchedule = budget.schedule.as_ref()?.parse().ok()?;
    let length = budget.duration_secs?;
    match budget.allowed {
        Some(_) => Some(schedule.next_after(now_secs - length)? + length),
        None => schedule.next_after(now_secs),
    }
}

/// When the budgets allow a further node without an intervention. `None`: never. `Some(None)`: when a running
/// disruption ends.
pub(crate) fn opens(input: &ExplainInput, pool: &str, reason: Reason) -> Option<Option<i64>> {
    let counts = remaining(&input.cluster, reason).get(pool).copied().unwrap_or_default();
    let in_use = u64::from(counts.disrupting) + u64::from(counts.proposed);
    let facts = input.facts.pools.get(pool)?;
    let mut opens: Option<i64> = None;
    for budget in facts.budgets.iter().filter(|one| applies(one, reason)) {
        if budget.allowed == Some(0) {
            let at = next_change(budget, input.now_secs?)?;
            opens = Some(opens.map_or(at, |other| other.max(at)));
        }
    }
    match opens {
        Some(at) => Some(Some(at)),
        None => (in_use > 0).then_some(None),
    }
}

/// The change that allows one more node: every entry that blocks is set to the number of nodes that are being
/// disrupted, plus one.
pub(crate) fn fix(input: &ExplainInput, pool: &str, reason: Reason) -> Option<(String, Value)> {
    let counts = remaining(&input.cluster, reason).get(pool).copied().unwrap_or_default();
    let in_use = u64::from(counts.disrupting) + u64::from(counts.proposed);
    let facts = input.facts.pools.get(pool)?;
    let mut changed = Vec::new();
    let budgets: Vec<Value> = facts
        .budgets
        .iter()
        .map(|one| {
            let mut raw = one.raw.clone();
            if applies(one, reason) && one.allowed.is_some_and(|allowed| allowed <= in_use) {
                raw["nodes"] = json!((in_use + 1).to_string());
                changed.push(described(one));
            }
            raw
        })
        .collect();
    if changed.is_empty() {
        return None;
    }
    let text = format!(
        "allow {} or more in spec.disruption.budgets of NodePool {pool} ({})",
        in_use + 1,
        changed.join("; ")
    );
    Some((text, json!({"spec": {"disruption": {"budgets": budgets}}})))
}
