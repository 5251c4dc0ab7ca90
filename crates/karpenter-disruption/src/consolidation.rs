//! The common part of multi-node and single-node consolidation: deletes candidates whose pods fit on other nodes or on
//! one cheaper node.
//!
//! Upstream: pkg/controllers/disruption/consolidation.go.

use karpenter_model::labels::{CAPACITY_TYPE, CAPACITY_TYPE_ON_DEMAND, CAPACITY_TYPE_SPOT, ZONE};
use karpenter_model::plan::PlannedNode;
use karpenter_scheduling::simulate::Simulator;

use crate::candidate::{Blocked, DisruptionClass};
use crate::cluster::{ConsolidationPolicy, NodePoolView, Reason, StateNode};
use crate::command::{Candidate, Command, Decision, Method};
use crate::context::{EvaluationContext, MethodCandidates, by_savings_ratio};
use crate::emptiness::settling;
use crate::pool_policy::{check_saving, cool_down_until};
use crate::prices::{
    MinValuesUnmet, allows_capacity_type, catalog_of, cheapest, force_capacity_type, keep_cheaper_than,
    needed_for_min_values, refresh, total_per_hour,
};
use crate::simulation::{Placement, SimulationOptions, read, simulation_request};
use crate::verdict::Verdict;

/// A spot node is replaced by a spot node only if there are at least this many cheaper instance types, and the launch
/// is limited to them. Then the launched type is among the cheapest, and the new node is not replaced again at once.
pub(crate) const SPOT_TO_SPOT_TYPES: usize = 15;

pub(crate) fn eligible(context: &EvaluationContext<'_>) -> MethodCandidates {
    let mut eligible = MethodCandidates::default();
    for (index, state_node, pool) in context.state_nodes() {
        let candidate = match context.candidate(index, DisruptionClass::Graceful, Reason::Underutilized) {
            Ok(candidate) => candidate,
            Err(verdict) => {
                eligible.rejected.push((index, verdict));
                continue;
            }
        };
        // Static NodePools are not consolidated, and the method Emptiness handles empty nodes.
        let Some(pool) = pool.filter(|pool| pool.replicas.is_none() && !candidate.is_empty) else { continue };
        match verdict_of(context, state_node, pool) {
            Some(verdict) => eligible.rejected.push((index, verdict)),
            None => eligible.candidates.push(candidate),
        }
    }
    by_savings_ratio(&mut eligible.candidates);
    eligible
}

fn verdict_of(
    context: &EvaluationContext<'_>,
    state_node: &StateNode,
    pool: &NodePoolView,
) -> Option<Verdict> {
    if state_node.is_instance_type_unknown || !context.knows_type_of(state_node, pool) {
        return Some(Verdict::UnknownInstanceType {
            name: state_node.instance_type.clone().unwrap_or_default(),
        });
    }
    if state_node.capacity_type.is_none() {
        return Some(Verdict::MissingLabel { key: CAPACITY_TYPE });
    }
    if state_node.zone.is_none() {
        return Some(Verdict::MissingLabel { key: ZONE });
    }
    let is_do_not_disrupt =
        state_node.legacy_marks.do_not_consolidate.filter(|_| pool.legacy_rules.is_some());
    match is_do_not_disrupt {
        Some(true) => return Some(Verdict::Blocked(Blocked::Unconsolidated)),
        // `do-not-consolidate: "false"` allows consolidation even if the NodePool does not.
        Some(false) => return None,
        None => {}
    }
    if pool.consolidate_after_secs.is_none() {
        return Some(Verdict::NeverConsolidated { pool: pool.name.clone() });
    }
    if pool.policy == ConsolidationPolicy::WhenEmpty {
        return Some(Verdict::OnlyWhenEmpty { pool: pool.name.clone() });
    }
    settling(context.cluster, state_node, pool).or_else(|| {
        let until_secs = cool_down_until(state_node, pool, context.cluster.now_secs)?;
        Some(Verdict::CoolDown { until_secs })
    })
}

/// The command that deletes the candidates or replaces them by one node, if that is cheaper.
pub(crate) fn consolidate(
    context: &EvaluationContext<'_>,
    simulator: &Simulator<'_>,
    method: Method,
    candidates: &[Candidate],
) -> Result<Command, Verdict> {
    let removed_nodes = context.nodes_of(candidates);
    let outcome = context
        .ask(simulator, &simulation_request(context, &removed_nodes, SimulationOptions::ORDINARY, None));
    let placement =
        read(context, simulator, &outcome).map_err(|unschedulable| Verdict::WouldNotFit { unschedulable })?;
    let price_now = price_of(candidates);
    let Placement { moves, mut replacements } = placement;
    match replacements.as_mut_slice() {
        [] => {}
        [only] => make_cheaper(context, candidates, only, price_now)?,
        several => return Err(Verdict::NeedsSeveralNodes { count: several.len() }),
    }
    let command = Command {
        method,
        decision: if replacements.is_empty() { Decision::Delete } else { Decision::Replace },
        candidates: candidates.to_vec(),
        price_before_per_hour: price_now,
        price_after_per_hour: total_per_hour(replacements.iter().map(|node| node.price_per_hour)),
        disruption_price_per_hour: 0.0,
        replacements,
        static_pool: None,
        moves,
        termination_grace_period_secs: None,
    };
    check_saving(context.cluster, &command)?;
    Ok(command)
}

pub(crate) fn price_of(candidates: &[Candidate]) -> f64 {
    total_per_hour(candidates.iter().map(|candidate| candidate.price_per_hour))
}

/// Removes the instance type options that are not cheaper than the candidates.
fn make_cheaper(
    context: &EvaluationContext<'_>,
    candidates: &[Candidate],
    node: &mut PlannedNode,
    price_now: f64,
) -> Result<(), Verdict> {
    let problem = &context.cluster.problem;
    let cheapest_replacement = cheapest_price(context, node);
    let is_spot = |candidate: &Candidate| {
        context.state_node(candidate).capacity_type.as_deref() == Some(CAPACITY_TYPE_SPOT)
    };
    let is_spot_to_spot = candidates.iter().all(is_spot) && allows_capacity_type(node, CAPACITY_TYPE_SPOT);
    if is_spot_to_spot {
        if !context.settings.spot_to_spot {
            return Err(Verdict::SpotToSpotOff);
        }
        force_capacity_type(node, CAPACITY_TYPE_SPOT);
    }
    refresh(problem, node);
    keep_cheaper_than(problem, node, price_now).map_err(too_few)?;
    if node.instance_type_options.is_empty() {
        return Err(Verdict::NotCheaper {
            price_now_per_hour: price_now,
            cheapest_replacement_per_hour: cheapest_replacement,
        });
    }
    if is_spot_to_spot && candidates.len() == 1 {
        let found = node.instance_type_options.len();
        if found < SPOT_TO_SPOT_TYPES {
            return Err(Verdict::SpotToSpotInflexible { wanted: SPOT_TO_SPOT_TYPES, found });
        }
        let needed = needed_for_min_values(problem, node).map_err(too_few)?;
        node.instance_type_options.truncate(SPOT_TO_SPOT_TYPES.max(needed));
    }
    // The options were compared by their spot prices, but an on-demand launch could cost more than the candidates.
    if allows_capacity_type(node, CAPACITY_TYPE_SPOT) && allows_capacity_type(node, CAPACITY_TYPE_ON_DEMAND) {
        force_spot_if_offered(context, node);
    }
    refresh(problem, node);
    Ok(())
}

/// Restricts the node to spot if any option has a spot offering. The requirements may allow spot even if no option has
/// one.
pub(crate) fn force_spot_if_offered(context: &EvaluationContext<'_>, node: &mut PlannedNode) {
    let problem = &context.cluster.problem;
    let mut forced = node.clone();
    force_capacity_type(&mut forced, CAPACITY_TYPE_SPOT);
    let catalog = catalog_of(problem, node);
    let has_spot = |option: &usize| {
        let instance_type = catalog.get(*option);
        instance_type.is_some_and(|one| cheapest(one, &forced.requirements, &problem.well_known).is_some())
    };
    if node.instance_type_options.iter().any(has_spot) {
        *node = forced;
    }
}

fn cheapest_price(context: &EvaluationContext<'_>, node: &PlannedNode) -> Option<f64> {
    let problem = &context.cluster.problem;
    let catalog = catalog_of(problem, node);
    let types = node.instance_type_options.iter().filter_map(|option| catalog.get(*option));
    types
        .filter_map(|one| cheapest(one, &node.requirements, &problem.well_known))
        .map(|(_, price)| price)
        .min_by(f64::total_cmp)
}

pub(crate) fn too_few(short: MinValuesUnmet) -> Verdict {
    Verdict::TooFewTypes { key: short.key, wanted: short.wanted, found: short.found }
}
