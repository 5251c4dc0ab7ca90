//! Expiration in the v1alpha5 API: nodes older than `ttlSecondsUntilExpired` are replaced gracefully, one at a time.
//!
//! In v1 another controller deletes expired claims. Under the v1alpha5 API a node is deleted only after its replacement
//! is initialized, and not while a PodDisruptionBudget or a pod with `karpenter.sh/do-not-evict` blocks the drain. Pods
//! that cannot be scheduled elsewhere do not block the deletion. Budgets of the NodePool do not apply, because the
//! v1alpha5 API has none.

use std::sync::Arc;

use crate::candidate::DisruptionClass;
use crate::cluster::{NodePoolView, Reason, StateNode};
use crate::command::{Candidate, Command, Decision, Method};
use crate::context::{EvaluationContext, MethodCandidates, MethodResult};
use crate::simulation::{SimulationOptions, partial_placement, simulation_request};
use crate::verdict::Verdict;

pub(crate) fn eligible(context: &EvaluationContext<'_>) -> MethodCandidates {
    let mut due: Vec<(i64, Arc<str>, Candidate)> = Vec::new();
    let mut eligible = MethodCandidates::default();
    for (index, state_node, pool) in context.state_nodes() {
        let Some(at) = pool.and_then(|pool| expires_at(state_node, pool)) else { continue };
        if at > context.cluster.now_secs || state_node.is_marked_for_deletion {
            continue;
        }
        match context.candidate(index, DisruptionClass::Graceful, Reason::Expired) {
            Ok(candidate) => due.push((at, candidate.claim.clone(), candidate)),
            Err(verdict) => eligible.rejected.push((index, verdict)),
        }
    }
    due.sort_by(|one, other| (one.0, &one.1).cmp(&(other.0, &other.1)));
    eligible.candidates = due.into_iter().map(|(_, _, candidate)| candidate).collect();
    eligible
}

/// When the node expires.
fn expires_at(state_node: &StateNode, pool: &NodePoolView) -> Option<i64> {
    let after = pool.legacy_rules?.expires_after_secs?;
    state_node.legacy_marks.node_created_at_secs.map(|created| created.saturating_add(after))
}

/// The command for the oldest expired node. None if an expired node is being deleted already.
pub(crate) fn find(context: &EvaluationContext<'_>, candidates: Vec<Candidate>) -> MethodResult {
    let mut found = MethodResult::default();
    let mut candidates = candidates.into_iter();
    let is_going = |(_, state_node, pool): (usize, &StateNode, Option<&NodePoolView>)| {
        let at = pool.and_then(|pool| expires_at(state_node, pool));
        state_node.is_marked_for_deletion && at.is_some_and(|at| at <= context.cluster.now_secs)
    };
    if !context.state_nodes().any(is_going)
        && let Some(first) = candidates.next()
    {
        found.commands.push(command(context, first));
    }
    found.rejected.extend(candidates.map(|candidate| (candidate.state_node, Verdict::NotNow)));
    found
}

fn command(context: &EvaluationContext<'_>, candidate: Candidate) -> Command {
    let simulator = context.unrestricted_simulator();
    let removed_nodes = context.nodes_of([&candidate]);
    let outcome = context
        .ask(&simulator, &simulation_request(context, &removed_nodes, SimulationOptions::ORDINARY, None));
    let (placement, _) = partial_placement(context, &simulator, &outcome);
    let is_replaced = !placement.replacements.is_empty();
    Command {
        method: Method::Expiration,
        decision: if is_replaced { Decision::Replace } else { Decision::Delete },
        price_before_per_hour: candidate.price_per_hour,
        price_after_per_hour: placement.price_per_hour(),
        disruption_price_per_hour: 0.0,
        candidates: vec![candidate],
        replacements: placement.replacements,
        static_pool: None,
        moves: placement.moves,
        termination_grace_period_secs: None,
    }
}
