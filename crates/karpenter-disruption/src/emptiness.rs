//! Emptiness: deletes nodes without pods that would have to be rescheduled.
//!
//! Upstream: pkg/controllers/disruption/emptiness.go.

use crate::budgets::{allowed, left, take};
use crate::candidate::{Blocked, DisruptionClass};
use crate::cluster::{Cluster, ConsolidationPolicy, LegacyRules, NodePoolView, Reason, StateNode};
use crate::command::{Candidate, Command, Decision, Method};
use crate::context::{EvaluationContext, MethodCandidates, MethodResult, by_savings_ratio};
use crate::prices::total_per_hour;
use crate::verdict::Verdict;

pub(crate) fn eligible(context: &EvaluationContext<'_>) -> MethodCandidates {
    let mut eligible = MethodCandidates::default();
    for (index, state_node, pool) in context.state_nodes() {
        let legacy_rules = pool.and_then(|pool| pool.legacy_rules);
        let class = match legacy_rules.and_then(|rules| rules.empty_after_secs) {
            Some(_) => DisruptionClass::Emptied,
            None => DisruptionClass::Graceful,
        };
        match context.candidate(index, class, Reason::Empty) {
            Ok(candidate) if candidate.is_empty => {
                match pool.map(|pool| verdict_of(context.cluster, state_node, pool)) {
                    Some(None) => eligible.candidates.push(candidate),
                    Some(Some(verdict)) => eligible.rejected.push((index, verdict)),
                    None => {}
                }
            }
            Ok(_) => {}
            Err(verdict) => eligible.rejected.push((index, verdict)),
        }
    }
    by_savings_ratio(&mut eligible.candidates);
    eligible
}

/// Why an empty node is not deleted.
fn verdict_of(cluster: &Cluster, state_node: &StateNode, pool: &NodePoolView) -> Option<Verdict> {
    if pool.replicas.is_some() {
        return Some(Verdict::NotDrifted);
    }
    if let Some(rules) = pool.legacy_rules {
        return legacy_verdict(cluster, state_node, pool, rules);
    }
    if pool.consolidate_after_secs.is_none() {
        return Some(Verdict::NeverConsolidated { pool: pool.name.clone() });
    }
    // The virtual pod of a CapacityBuffer is on the node: if the node were deleted, provisioning would launch it again.
    if state_node.pods.iter().any(|node_pod| node_pod.is_virtual) {
        return Some(Verdict::HasBufferPods { node: state_node.node.clone().unwrap_or_default() });
    }
    settling(cluster, state_node, pool)
}

/// Why an empty node is not deleted under the rules of the v1alpha5 API: `ttlSecondsAfterEmpty` has not elapsed, or
/// consolidation is enabled and deletes empty nodes instead.
fn legacy_verdict(
    cluster: &Cluster,
    state_node: &StateNode,
    pool: &NodePoolView,
    rules: LegacyRules,
) -> Option<Verdict> {
    let marks = state_node.legacy_marks;
    match (rules.empty_after_secs, marks.do_not_consolidate) {
        (_, Some(false)) => None,
        (Some(after), _) => {
            let Some(since) = marks.empty_since_secs else {
                return Some(Verdict::Settling { until_secs: None });
            };
            // Times are truncated to whole seconds; the full TTL has to have elapsed.
            let until = since.saturating_add(after).saturating_add(1);
            (until > cluster.now_secs).then_some(Verdict::Settling { until_secs: Some(until) })
        }
        (None, Some(true)) => Some(Verdict::Blocked(Blocked::Unconsolidated)),
        (None, None) if pool.policy == ConsolidationPolicy::WhenEmpty => {
            Some(Verdict::NeverConsolidated { pool: pool.name.clone() })
        }
        (None, None) => settling(cluster, state_node, pool),
    }
}

/// The verdict if `consolidateAfter` has not elapsed since the last pod event.
pub(crate) fn settling(cluster: &Cluster, state_node: &StateNode, pool: &NodePoolView) -> Option<Verdict> {
    let after = pool.consolidate_after_secs?;
    let Some(since) = state_node.last_pod_event_secs else {
        return Some(Verdict::Settling { until_secs: None });
    };
    let until = since.saturating_add(after);
    (until > cluster.now_secs).then_some(Verdict::Settling { until_secs: Some(until) })
}

/// One command that deletes as many of the empty candidates as budgets allow.
pub(crate) fn find(context: &EvaluationContext<'_>, candidates: Vec<Candidate>) -> MethodResult {
    let mut left = left(context.cluster, Reason::Empty);
    let mut found = MethodResult::default();
    let allowed = allowed(context.cluster, Reason::Empty);
    let (mut chosen, mut later) = (Vec::new(), Vec::new());
    for candidate in candidates {
        if take(&mut left, &candidate.pool) {
            chosen.push(candidate);
        } else {
            let pool = candidate.pool.clone();
            found
                .rejected
                .push((candidate.state_node, Verdict::BudgetExhausted { pool, reason: Reason::Empty }));
            if context.cluster.plan_beyond_budgets
                && allowed.get(&candidate.pool).is_some_and(|allowed| *allowed > 0)
            {
                later.push(candidate);
            }
        }
    }
    if !later.is_empty() {
        found.awaiting_budget.push(command(later));
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
        disruption_price_per_hour: 0.0,
        candidates,
        replacements: Vec::new(),
        static_pool: None,
        moves: Vec::new(),
        termination_grace_period_secs: None,
    }
}
