//! Drift: a node whose NodeClaim differs from its NodePool or node class is replaced.
//!
//! Upstream: pkg/controllers/disruption/drift.go, which replaces one node per evaluation.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rayon::prelude::*;

use crate::budgets::{left, take};
use crate::candidate::DisruptionClass;
use crate::cluster::Reason;
use crate::command::{Candidate, Command, Decision, Destination, Method};
use crate::context::{EvaluationContext, MethodCandidates, MethodResult};
use crate::pod_budgets::{JointEvictions, PodBudgetUse};
use crate::settings::Mode;
use crate::simulation::{NodeReplacement, Placement, SimulationOptions, replace, simulation_request};
use crate::verdict::Verdict;

pub(crate) fn eligible(context: &EvaluationContext<'_>) -> MethodCandidates {
    let mut eligible = MethodCandidates::default();
    for (index, state_node, pool) in context.state_nodes() {
        if state_node.drifted_since_secs.is_none() || pool.is_some_and(|pool| pool.replicas.is_some()) {
            continue;
        }
        match context.candidate(index, DisruptionClass::Eventual, Reason::Drifted) {
            Ok(candidate) => eligible.candidates.push(candidate),
            Err(verdict) => eligible.rejected.push((index, verdict)),
        }
    }
    // Empty nodes are replaced first. Otherwise pods of another candidate could be moved to an empty node, and would be
    // moved again when that node is replaced.
    eligible.candidates.sort_by_key(|candidate| {
        let state_node = context.state_node(candidate);
        let has_pods = state_node.pods.iter().any(|node_pod| node_pod.is_reschedulable);
        (has_pods, state_node.drifted_since_secs, candidate.claim.clone())
    });
    eligible
}

pub(crate) fn find(context: &EvaluationContext<'_>, candidates: Vec<Candidate>) -> MethodResult {
    let left = left(context.cluster, Reason::Drifted);
    let mut found = MethodResult::default();
    let (within, beyond): (Vec<_>, Vec<_>) =
        candidates.into_iter().partition(|candidate| left.get(&candidate.pool).is_some_and(|left| *left > 0));
    found.rejected.extend(beyond.into_iter().map(exhausted));
    if within.is_empty() {
        return found;
    }
    match context.settings.mode {
        Mode::Compat => first(context, within, &mut found),
        Mode::Cost => several(context, within, left, &mut found),
    }
    found
}

fn exhausted(candidate: Candidate) -> (usize, Verdict) {
    let verdict = Verdict::BudgetExhausted { pool: candidate.pool, reason: Reason::Drifted };
    (candidate.state_node, verdict)
}

/// The number of candidates that are simulated in parallel. It is constant, so that the result does not depend on the
/// number of threads.
const ASKED_TOGETHER: usize = 16;

/// The first candidate that can be replaced.
fn first(context: &EvaluationContext<'_>, candidates: Vec<Candidate>, found: &mut MethodResult) {
    let simulator = context.unrestricted_simulator();
    let may_terminate_first = context.settings.terminate_first_drift;
    for chunk in candidates.chunks(ASKED_TOGETHER) {
        if !found.commands.is_empty() {
            found.rejected.extend(chunk.iter().map(|candidate| (candidate.state_node, Verdict::NotNow)));
            continue;
        }
        let answers: Vec<NodeReplacement> = chunk
            .par_iter()
            .map(|candidate| replace(context, &simulator, candidate, false, may_terminate_first).0)
            .collect();
        for (candidate, answer) in chunk.iter().zip(answers) {
            match command(Method::Drift, candidate, answer) {
                Ok(_) if !found.commands.is_empty() => {
                    found.rejected.push((candidate.state_node, Verdict::NotNow))
                }
                Ok(command) => found.commands.push(command),
                Err(verdict) => found.rejected.push((candidate.state_node, verdict)),
            }
        }
    }
}

/// Finds as many replaceable candidates as budgets allow. Each is simulated on the cluster in which the candidates
/// before it are already replaced.
fn several(
    context: &EvaluationContext<'_>,
    candidates: Vec<Candidate>,
    mut left: BTreeMap<Arc<str>, u32>,
    found: &mut MethodResult,
) {
    let mut simulator = context.unrestricted_simulator();
    let mut pod_budgets = PodBudgetUse::new(context.cluster);
    let may_terminate_first = context.settings.terminate_first_drift;
    let mut receivers = BTreeSet::new();
    for candidate in candidates {
        let removed_nodes = context.nodes_of([&candidate]);
        // The node receives pods of an earlier command. If this node were replaced, these pods would be moved twice.
        if removed_nodes.iter().any(|node| receivers.contains(node)) {
            found.rejected.push((candidate.state_node, Verdict::NotNow));
            continue;
        }
        if left.get(&candidate.pool).is_none_or(|left| *left == 0) {
            found.rejected.push(exhausted(candidate));
            continue;
        }
        let mut with_it = pod_budgets.clone();
        // A drain with a termination grace period does not wait for PodDisruptionBudgets.
        if context.state_node(&candidate).termination_grace_period_secs.is_some() {
            with_it.count(context.cluster, &candidate);
        } else if let Err(verdict) =
            with_it.admit(context.cluster, [&candidate], JointEvictions::FirstMayWait)
        {
            found.rejected.push((candidate.state_node, verdict));
            continue;
        }
        let (answer, outcome) = replace(context, &simulator, &candidate, false, may_terminate_first);
        match command(Method::Drift, &candidate, answer) {
            Ok(command) => {
                take(&mut left, &candidate.pool);
                pod_budgets = with_it;
                receivers.extend(command.moves.iter().filter_map(|(_, to)| match to {
                    Destination::Existing(node) => Some(*node),
                    Destination::New(_) => None,
                }));
                if let Some(outcome) = outcome {
                    simulator.commit(
                        &simulation_request(context, &removed_nodes, SimulationOptions::ORDINARY, None),
                        &outcome,
                    );
                }
                found.commands.push(command);
            }
            Err(verdict) => found.rejected.push((candidate.state_node, verdict)),
        }
    }
}

/// The command that replaces one node.
pub(crate) fn command(
    method: Method,
    candidate: &Candidate,
    answer: NodeReplacement,
) -> Result<Command, Verdict> {
    let (decision, placement) = match answer {
        NodeReplacement::Not(unschedulable) => return Err(Verdict::WouldNotFit { unschedulable }),
        NodeReplacement::Ordinary(placement) if placement.replacements.is_empty() => {
            (Decision::Delete, placement)
        }
        NodeReplacement::Ordinary(placement) => (Decision::Replace, placement),
        NodeReplacement::TerminateFirst(placement) => (Decision::TerminateFirst, placement),
    };
    let price_after_per_hour = placement.price_per_hour();
    let Placement { mut moves, mut replacements } = placement;
    if decision == Decision::TerminateFirst {
        // The command launches no replacement: when the node is deleted, provisioning can use its share of the node
        // limit.
        replacements.clear();
        moves.retain(|(_, to)| matches!(to, Destination::Existing(_)));
    }
    Ok(Command {
        method,
        decision,
        candidates: vec![candidate.clone()],
        replacements,
        static_pool: None,
        moves,
        price_before_per_hour: candidate.price_per_hour,
        price_after_per_hour,
        disruption_price_per_hour: 0.0,
        termination_grace_period_secs: None,
    })
}
