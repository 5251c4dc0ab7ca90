//! Node repair: unhealthy nodes are rebooted or replaced, the worst first, and none while too many nodes of the NodePool
//! are unhealthy.
//!
//! The caller matches repair policies with nodes; a match is a [`crate::cluster::Repair`].
//!
//! Upstream: pkg/controllers/disruption/repair.go.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use karpenter_scheduling::simulate::Simulator;

use crate::budgets::left;
use crate::candidate::{Blocked, DisruptionClass, blocking_pod};
use crate::cluster::{Cluster, Reason, StateNode};
use crate::command::{Candidate, Command, Decision, Method};
use crate::context::{EvaluationContext, MethodCandidates, MethodResult};
use crate::drift;
use crate::simulation::replace;
use crate::static_drift;
use crate::verdict::Verdict;

/// Repair stops if more than this percentage of a NodePool's nodes is unhealthy, because then the cause is probably not
/// the nodes.
const SICK_PERCENT_MAX: usize = 20;

pub(crate) fn eligible(context: &EvaluationContext<'_>) -> MethodCandidates {
    let mut eligible = MethodCandidates::default();
    for (index, state_node, _) in context.state_nodes() {
        let Some(repair) = &state_node.repair else { continue };
        let is_bounded =
            repair.termination_grace_period_secs.or(state_node.termination_grace_period_secs).is_some();
        match context.candidate(index, DisruptionClass::Repair, Reason::Unhealthy) {
            Ok(_) if repair.is_vetoed => {
                eligible.rejected.push((index, Verdict::Blocked(Blocked::RepairVetoed)));
            }
            Ok(_)
                if !is_bounded
                    && blocking_pod(context.cluster, state_node, DisruptionClass::Repair).is_some() =>
            {
                eligible.rejected.push((index, Verdict::Blocked(Blocked::RepairUnbounded)));
            }
            Ok(candidate) => eligible.candidates.push(candidate),
            Err(verdict) => eligible.rejected.push((index, verdict)),
        }
    }
    eligible.candidates.sort_by(|one, other| {
        let (a, b) = (context.state_node(one), context.state_node(other));
        score(b)
            .total_cmp(&score(a))
            .then_with(|| disruption_cost(context.cluster, a).total_cmp(&disruption_cost(context.cluster, b)))
            .then_with(|| one.node.cmp(&other.node))
    });
    eligible
}

fn score(state_node: &StateNode) -> f64 {
    state_node.repair.as_ref().map_or(0.0, |repair| repair.score)
}

/// The eviction cost of all pods, scaled by the remaining share of the node's lifetime.
fn disruption_cost(cluster: &Cluster, state_node: &StateNode) -> f64 {
    let pods: f64 = state_node.pods.iter().map(|node_pod| node_pod.eviction_cost).sum();
    pods * lifetime_remaining(cluster, state_node)
}

fn lifetime_remaining(cluster: &Cluster, state_node: &StateNode) -> f64 {
    match state_node.expire_after_secs {
        Some(total) if total > 0 => {
            let age = cluster.now_secs.saturating_sub(state_node.created_at_secs);
            (total.saturating_sub(age) as f64 / total as f64).clamp(0.0, 1.0)
        }
        Some(_) => 0.0,
        None => 1.0,
    }
}

/// NodePools with too many unhealthy nodes. The threshold is rounded up, so that a single unhealthy node never stops
/// repair.
fn halted_pools(cluster: &Cluster) -> BTreeSet<Arc<str>> {
    let mut counts: BTreeMap<&Arc<str>, (usize, usize)> = BTreeMap::new();
    for state_node in cluster.state_nodes.iter().filter(|state_node| state_node.node.is_some()) {
        let Some(pool) = &state_node.pool else { continue };
        let (nodes, sick) = counts.entry(pool).or_default();
        *nodes += 1;
        *sick += usize::from(state_node.is_unhealthy || state_node.repair.is_some());
    }
    let is_halted = |(nodes, sick): (usize, usize)| sick > (nodes * SICK_PERCENT_MAX).div_ceil(100);
    counts.into_iter().filter(|(_, counts)| is_halted(*counts)).map(|(pool, _)| pool.clone()).collect()
}

/// Returns at most one command per evaluation.
pub(crate) fn find(context: &EvaluationContext<'_>, candidates: Vec<Candidate>) -> MethodResult {
    let left = left(context.cluster, Reason::Unhealthy);
    let halted = halted_pools(context.cluster);
    let mut found = MethodResult::default();
    let simulator = OnceCell::new();
    for candidate in candidates {
        let index = candidate.state_node;
        let pool = candidate.pool.clone();
        if halted.contains(&pool) {
            found.rejected.push((index, Verdict::RepairHalted { pool }));
            continue;
        }
        // Budgets do not count a node that was never initialized.
        let needs_budget = context.state_node(&candidate).is_initialized;
        if needs_budget && left.get(&pool).is_none_or(|left| *left == 0) {
            found.rejected.push((index, Verdict::BudgetExhausted { pool, reason: Reason::Unhealthy }));
            continue;
        }
        if !found.commands.is_empty() {
            found.rejected.push((index, Verdict::NotNow));
            continue;
        }
        match repaired(context, &simulator, candidate) {
            Ok(command) => found.commands.push(command),
            Err(verdict) => found.rejected.push((index, verdict)),
        }
    }
    found
}

fn repaired<'p>(
    context: &'p EvaluationContext<'_>,
    simulator: &OnceCell<Simulator<'p>>,
    candidate: Candidate,
) -> Result<Command, Verdict> {
    let state_node = context.state_node(&candidate);
    let pool = context.pool(&candidate);
    let may_terminate_first = context.settings.terminate_first_repair;
    let mut command = if state_node.repair.as_ref().is_some_and(|repair| repair.is_reboot) {
        static_drift::command(Method::Repair, candidate, Decision::Reboot)
    } else if pool.replicas.is_some() {
        // In every mode nodes are repaired one at a time: until a node is being deleted, it counts as present even if a
        // command has selected it.
        if let Some(verdict) =
            static_drift::scaling_down(context.cluster, pool, |state_node| state_node.is_deleting)
        {
            return Err(verdict);
        }
        let mut room = pool.nodes_left.unwrap_or(u32::MAX);
        let decision = static_drift::replacement(state_node, pool, may_terminate_first, &mut room)?;
        static_drift::command(Method::Repair, candidate, decision)
    } else {
        // The drain decides later when blocked pods are evicted. The simulation finds a target for them in any case.
        let simulator = simulator.get_or_init(|| context.unrestricted_simulator());
        let (answer, _) = replace(context, simulator, &candidate, true, may_terminate_first);
        drift::command(Method::Repair, &candidate, answer)?
    };
    command.termination_grace_period_secs = drain_bound_secs(state_node);
    Ok(command)
}

/// The termination grace period that the repair sets: that of the policies, or the claim's if it is shorter. `None` if
/// the policies have none.
fn drain_bound_secs(state_node: &StateNode) -> Option<i64> {
    let of_policy = state_node.repair.as_ref()?.termination_grace_period_secs?;
    Some(state_node.termination_grace_period_secs.map_or(of_policy, |of_claim| of_claim.min(of_policy)))
}
