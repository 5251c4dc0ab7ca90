//! Drift in static NodePools: each drifted node is replaced by one from the template, within the node limit.
//!
//! Upstream: pkg/controllers/disruption/staticdrift.go, helpers.go (staticReservations).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use karpenter_model::instance_type::InstanceType;
use karpenter_model::labels::CAPACITY_TYPE_RESERVED;
use karpenter_model::requirements::Requirements;

use crate::budgets::left;
use crate::candidate::DisruptionClass;
use crate::cluster::{Cluster, NodePoolView, Reason, StateNode};
use crate::command::{Candidate, Command, Decision, Method};
use crate::context::{EvaluationContext, MethodCandidates, MethodResult};
use crate::settings::Mode;
use crate::verdict::Verdict;

pub(crate) fn eligible(context: &EvaluationContext<'_>) -> MethodCandidates {
    let mut eligible = MethodCandidates::default();
    for (index, state_node, pool) in context.state_nodes() {
        if pool.is_none_or(|pool| pool.replicas.is_none()) {
            continue;
        }
        if state_node.drifted_since_secs.is_none() {
            eligible.rejected.push((index, Verdict::NotDrifted));
            continue;
        }
        match context.candidate(index, DisruptionClass::Eventual, Reason::Drifted) {
            Ok(candidate) => eligible.candidates.push(candidate),
            Err(verdict) => eligible.rejected.push((index, verdict)),
        }
    }
    eligible.candidates.sort_by(|one, other| {
        let since = |candidate: &Candidate| context.state_node(candidate).drifted_since_secs;
        since(one).cmp(&since(other)).then_with(|| one.claim.cmp(&other.claim))
    });
    eligible
}

pub(crate) fn find(context: &EvaluationContext<'_>, candidates: Vec<Candidate>) -> MethodResult {
    let left = left(context.cluster, Reason::Drifted);
    let mut found = MethodResult::default();
    let mut by_pool: BTreeMap<Arc<str>, Vec<Candidate>> = BTreeMap::new();
    for candidate in candidates {
        by_pool.entry(candidate.pool.clone()).or_default().push(candidate);
    }
    for (name, mut candidates) in by_pool {
        let Some(pool) = context.cluster.pools.get(&name) else { continue };
        let is_going = |state_node: &StateNode| match context.settings.mode {
            Mode::Compat => state_node.is_deleting,
            Mode::Cost => state_node.is_marked_for_deletion,
        };
        if let Some(verdict) = scaling_down(context.cluster, pool, is_going) {
            found.rejected.extend(candidates.iter().map(|candidate| (candidate.state_node, verdict.clone())));
            continue;
        }
        let is_first = |candidate: &Candidate| may_terminate_first(context.state_node(candidate), pool);
        if context.settings.terminate_first_drift && pool.full_reservations.is_some() {
            // Candidates whose reservation slot a replacement could use come first.
            candidates.sort_by_key(|candidate| !is_first(candidate));
        }
        let allowed = left.get(&name).copied().unwrap_or(0) as usize;
        let beyond = candidates.split_off(allowed.min(candidates.len()));
        let exhausted = Verdict::BudgetExhausted { pool: name.clone(), reason: Reason::Drifted };
        found.rejected.extend(beyond.into_iter().map(|candidate| (candidate.state_node, exhausted.clone())));
        let mut room = pool.nodes_left.unwrap_or(u32::MAX);
        let had_room = room > 0;
        for candidate in candidates {
            let may_terminate_first = context.settings.terminate_first_drift;
            match replacement(context.state_node(&candidate), pool, may_terminate_first, &mut room) {
                Ok(decision) => found.commands.push(command(Method::StaticDrift, candidate, decision)),
                // Earlier candidates of this evaluation used up the node limit.
                Err(Verdict::StaticAtLimit) if had_room => {
                    found.rejected.push((candidate.state_node, Verdict::NotNow))
                }
                Err(verdict) => found.rejected.push((candidate.state_node, verdict)),
            }
        }
    }
    found
}

/// A static NodePool with more nodes than replicas is being scaled down, and a replacement would be one more node to
/// delete. In mode Compat, as in upstream, nodes selected by a command count as present until they are being deleted.
pub(crate) fn scaling_down(
    cluster: &Cluster,
    pool: &NodePoolView,
    is_going: impl Fn(&StateNode) -> bool,
) -> Option<Verdict> {
    let staying = cluster.state_nodes.iter().filter(|state_node| {
        state_node.pool.as_ref() == Some(&pool.name)
            && !is_going(state_node)
            && !state_node.is_instance_terminating
    });
    (staying.count() > pool.replicas.unwrap_or(0) as usize).then_some(Verdict::StaticScalingDown)
}

/// How a node of a static NodePool is replaced. If the replacement needs one of the nodes that the node limit still
/// allows, that node is reserved.
pub(crate) fn replacement(
    state_node: &StateNode,
    pool: &NodePoolView,
    is_terminate_first_on: bool,
    room: &mut u32,
) -> Result<Decision, Verdict> {
    if pool.is_in_launch_backoff {
        return Err(Verdict::LaunchesFail { pool: pool.name.clone() });
    }
    // With terminate-first, provisioning launches the missing node, so the NodePool must be able to launch.
    let is_refilled = is_terminate_first_on && pool.is_ready;
    if is_terminate_first_on && pool.full_reservations.is_some() {
        let is_first = is_refilled && may_terminate_first(state_node, pool);
        return if is_first { Ok(Decision::TerminateFirst) } else { Err(Verdict::StaticReservationsFull) };
    }
    if *room > 0 {
        *room -= 1;
        return Ok(Decision::Replace);
    }
    // True only if the node limit was reached before this evaluation.
    let was_full = pool.nodes_left == Some(0);
    if is_refilled && was_full { Ok(Decision::TerminateFirst) } else { Err(Verdict::StaticAtLimit) }
}

/// Whether the node uses a slot of a reservation that its replacement could be launched into.
fn may_terminate_first(state_node: &StateNode, pool: &NodePoolView) -> bool {
    let is_reserved = state_node.capacity_type.as_deref() == Some(CAPACITY_TYPE_RESERVED);
    let offered = pool.full_reservations.as_ref();
    let id = state_node.reservation_id.as_ref();
    is_reserved && offered.zip(id).is_some_and(|(offered, id)| offered.contains(id))
}

pub(crate) fn command(method: Method, candidate: Candidate, decision: Decision) -> Command {
    let price = candidate.price_per_hour;
    Command {
        method,
        decision,
        static_pool: (decision == Decision::Replace).then(|| candidate.pool.clone()),
        candidates: vec![candidate],
        replacements: Vec::new(),
        moves: Vec::new(),
        price_before_per_hour: price,
        // The price of the replacement is assumed to equal the price of the node.
        price_after_per_hour: price,
        disruption_price_per_hour: 0.0,
        termination_grace_period_secs: None,
    }
}

/// The ids of the capacity reservations if the template of a static NodePool allows only reserved offerings that are
/// all full.
///
/// `None` if the template allows any other offering, even one that is unavailable now: a launch may succeed later.
pub fn full_reservations(
    types: &[InstanceType],
    template: &Requirements,
    open: &BTreeSet<Arc<str>>,
) -> Option<BTreeSet<Arc<str>>> {
    let mut offered = BTreeSet::new();
    for instance_type in types {
        if template.compatible(&instance_type.requirements, open).is_err() {
            continue;
        }
        for offering in &instance_type.offerings {
            if template.compatible(&offering.requirements, open).is_err() {
                continue;
            }
            if !offering.is_reserved() || offering.is_launchable() {
                return None;
            }
            if let Some((_, id)) = offering.reservation().filter(|_| offering.available) {
                offered.insert(id.clone());
            }
        }
    }
    Some(offered)
}

/// Why the node is deleted before its replacement is launched, as a label of a metric.
pub fn terminate_first_reason(cluster: &Cluster, command: &Command) -> &'static str {
    let pools = command.candidates.iter().filter_map(|candidate| cluster.pools.get(&candidate.pool));
    let mut at_limit = pools.filter(|pool| pool.replicas.is_some() && pool.full_reservations.is_none());
    if at_limit.next().is_some() { "static-at-limit" } else { "no-reserved-capacity" }
}
