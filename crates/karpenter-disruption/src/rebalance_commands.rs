//! The method Rebalance in mode Cost. Restricts the commands that were planned for the whole cluster to those that
//! budgets and settings of NodePools allow now, and their instance type options to those that are always cheaper than
//! the candidates.

use karpenter_model::labels::{CAPACITY_TYPE_ON_DEMAND, CAPACITY_TYPE_SPOT};
use karpenter_model::problem::Mode as EngineMode;
use karpenter_scheduling::simulate::{SimulationRequest, Simulator};

use crate::admission::Admission;
use crate::budgets::{allowed, left};
use crate::cluster::Reason;
use crate::command::{Candidate, Command, Decision, Method};
use crate::consolidation::{SPOT_TO_SPOT_TYPES, force_spot_if_offered, price_of, too_few};
use crate::context::{EvaluationContext, MethodResult};
use crate::pool_policy::check_saving;
use crate::prices::{
    allows_capacity_type, catalog_of, force_capacity_type, keep_cheaper_than, needed_for_min_values, refresh,
    total_per_hour,
};
use crate::rebalance;
use crate::simulation::{Placement, SimulationOptions, read, simulation_request};
use crate::verdict::Verdict;

pub(crate) fn find(context: &EvaluationContext<'_>, candidates: Vec<Candidate>) -> MethodResult {
    let left = left(context.cluster, Reason::Underutilized);
    // With `plan_beyond_budgets`, nodes that are already being disrupted do not reduce what budgets allow.
    let plannable = if context.cluster.plan_beyond_budgets {
        allowed(context.cluster, Reason::Underutilized)
    } else {
        left.clone()
    };
    let mut found = MethodResult::default();
    let is_open = |candidate: &Candidate| plannable.get(&candidate.pool).is_some_and(|left| *left > 0);
    let (within, beyond): (Vec<_>, Vec<_>) = candidates.into_iter().partition(is_open);
    found.rejected.extend(beyond.into_iter().map(|candidate| {
        let verdict = Verdict::BudgetExhausted { pool: candidate.pool, reason: Reason::Underutilized };
        (candidate.state_node, verdict)
    }));
    let plan = rebalance::plan(context.cluster, context.simulator(), &within, &plannable, context.settings);
    found.lower_bound_per_hour = Some(plan.lower_bound_per_hour).filter(|bound| *bound > 0.0);
    let of_owners =
        plan.refused.iter().map(|(position, verdict)| (within[*position].state_node, verdict.clone()));
    found.rejected.extend(of_owners);
    let mut admission = Admission::new(context, left);
    for mut command in plan.commands {
        match restrict_to_cheaper_options(context, &mut command).and_then(|()| admission.admit(&command)) {
            Ok(()) => found.commands.push(command),
            Err(verdict) => {
                if context.cluster.plan_beyond_budgets && matches!(verdict, Verdict::BudgetExhausted { .. }) {
                    found.awaiting_budget.push(command.clone());
                }
                let state_nodes = command.candidates.iter().map(|candidate| candidate.state_node);
                found.rejected.extend(state_nodes.map(|state_node| (state_node, verdict.clone())));
            }
        }
    }
    found
}

/// Plans replacements for the same candidates again, in the given mode.
pub(crate) fn replan(
    context: &EvaluationContext<'_>,
    simulator: &Simulator<'_>,
    candidates: &[Candidate],
    mode: EngineMode,
) -> Result<Command, Verdict> {
    let removed_nodes = context.nodes_of(candidates);
    let simulation_request = SimulationRequest {
        mode,
        prefers_vacated_domains: true,
        ..simulation_request(context, &removed_nodes, SimulationOptions::ORDINARY, None)
    };
    let outcome = context.ask(simulator, &simulation_request);
    let placement =
        read(context, simulator, &outcome).map_err(|unschedulable| Verdict::WouldNotFit { unschedulable })?;
    let price_after_per_hour = placement.price_per_hour();
    let Placement { moves, replacements } = placement;
    let mut command = Command {
        method: Method::Rebalance,
        decision: if replacements.is_empty() { Decision::Delete } else { Decision::Replace },
        candidates: candidates.to_vec(),
        replacements,
        static_pool: None,
        moves,
        price_before_per_hour: price_of(candidates),
        price_after_per_hour,
        disruption_price_per_hour: 0.0,
        termination_grace_period_secs: None,
    };
    restrict_to_cheaper_options(context, &mut command)?;
    check_saving(context.cluster, &command)?;
    Ok(command)
}

/// Removes instance type options whose launch could make the command more expensive than its candidates.
pub(crate) fn restrict_to_cheaper_options(
    context: &EvaluationContext<'_>,
    command: &mut Command,
) -> Result<(), Verdict> {
    if command.replacements.is_empty() {
        return Ok(());
    }
    let problem = &context.cluster.problem;
    let not_cheaper = Verdict::NotCheaper {
        price_now_per_hour: command.price_before_per_hour,
        cheapest_replacement_per_hour: Some(command.price_after_per_hour),
    };
    let is_spot = |candidate: &Candidate| {
        context.state_node(candidate).capacity_type.as_deref() == Some(CAPACITY_TYPE_SPOT)
    };
    let is_all_spot = command.candidates.iter().all(is_spot);
    let is_one_for_one = command.candidates.len() == 1 && command.replacements.len() == 1;
    // The factor by which the price of every replacement may exceed its planned price before the command costs more
    // than its candidates.
    let slack = command.price_before_per_hour / command.price_after_per_hour.max(f64::MIN_POSITIVE);
    for node in &mut command.replacements {
        let is_spot_to_spot = is_all_spot && allows_capacity_type(node, CAPACITY_TYPE_SPOT);
        if is_spot_to_spot {
            if !context.settings.spot_to_spot {
                return Err(Verdict::SpotToSpotOff);
            }
            force_capacity_type(node, CAPACITY_TYPE_SPOT);
        } else if allows_capacity_type(node, CAPACITY_TYPE_SPOT)
            && allows_capacity_type(node, CAPACITY_TYPE_ON_DEMAND)
        {
            force_spot_if_offered(context, node);
        }
        let limit = node.price_per_hour * slack;
        keep_cheaper_than(problem, node, limit).map_err(too_few)?;
        refresh(problem, node);
        if is_one_for_one {
            let removed_type =
                command.candidates.first().and_then(|one| context.state_node(one).instance_type.clone());
            let catalog = catalog_of(problem, node);
            let is_other = |option: &usize| {
                catalog
                    .get(*option)
                    .is_some_and(|instance_type| Some(&instance_type.name) != removed_type.as_ref())
            };
            // A replacement of the same instance type is cheaper only with another capacity type.
            if is_spot_to_spot || !is_all_spot && !is_cheaper_kind(context, &command.candidates, node) {
                node.instance_type_options.retain(is_other);
                needed_for_min_values(problem, node).map_err(too_few)?;
            }
            if is_spot_to_spot {
                let found = node.instance_type_options.len();
                if found < SPOT_TO_SPOT_TYPES {
                    return Err(Verdict::SpotToSpotInflexible { wanted: SPOT_TO_SPOT_TYPES, found });
                }
                let needed = needed_for_min_values(problem, node).map_err(too_few)?;
                node.instance_type_options.truncate(SPOT_TO_SPOT_TYPES.max(needed));
            }
            refresh(problem, node);
        }
        if node.instance_type_options.is_empty() {
            return Err(not_cheaper);
        }
    }
    command.price_after_per_hour =
        total_per_hour(command.replacements.iter().map(|node| node.price_per_hour));
    Ok(())
}

/// Whether the replacement has another capacity type than all candidates.
fn is_cheaper_kind(
    context: &EvaluationContext<'_>,
    candidates: &[Candidate],
    node: &karpenter_model::plan::PlannedNode,
) -> bool {
    let catalog = catalog_of(&context.cluster.problem, node);
    let offering = catalog.get(node.instance_type).and_then(|one| one.offerings.get(node.offering));
    let kind = offering.and_then(|offering| offering.capacity_type());
    candidates.iter().all(|candidate| context.state_node(candidate).capacity_type.as_ref() != kind)
}
