//! Nodes that could go because their pods fit elsewhere or on one cheaper node: what single and multi share.
//!
//! Upstream: pkg/controllers/disruption/consolidation.go.

use karpenter_model::labels::{CAPACITY_TYPE, CAPACITY_TYPE_ON_DEMAND, CAPACITY_TYPE_SPOT, ZONE};
use karpenter_model::plan::PlannedNode;
use karpenter_scheduling::simulate::Simulator;

use crate::candidate::{Blocked, Class};
use crate::command::{Candidate, Command, Decision, Method};
use crate::controls::{cool_down_until, is_worth_it};
use crate::emptiness::settling;
use crate::explain::Why;
use crate::fleet::{ConsolidationPolicy, Machine, Pool, Reason};
use crate::pass::{Eligible, Pass, by_savings_ratio};
use crate::prices::{
    TooFew, allows_capacity_type, catalog_of, cheapest, force_capacity_type, keep_cheaper_than,
    needed_for_min_values, refresh, total_per_hour,
};
use crate::simulation::{Manner, Placement, read, simulation_request};

/// A spot node is replaced by spot only with this many cheaper types to choose from, and by no more than these: a
/// launch that picks any of them is then among the cheapest, and not replaced again at once.
pub(crate) const SPOT_TO_SPOT_TYPES: usize = 15;

pub(crate) fn eligible(pass: &Pass<'_>) -> Eligible {
    let mut eligible = Eligible::default();
    for (index, machine, pool) in pass.machines() {
        let candidate = match pass.candidate(index, Class::Graceful, Reason::Underutilized) {
            Ok(candidate) => candidate,
            Err(why) => {
                eligible.refused.push((index, why));
                continue;
            }
        };
        // Static pools do not consolidate, and empty nodes are the business of another method.
        let Some(pool) = pool.filter(|pool| pool.replicas.is_none() && !candidate.is_empty) else { continue };
        match refusal(pass, machine, pool) {
            Some(why) => eligible.refused.push((index, why)),
            None => eligible.candidates.push(candidate),
        }
    }
    by_savings_ratio(&mut eligible.candidates);
    eligible
}

fn refusal(pass: &Pass<'_>, machine: &Machine, pool: &Pool) -> Option<Why> {
    if machine.is_instance_type_unknown || !pass.knows_type_of(machine, pool) {
        return Some(Why::UnknownInstanceType { name: machine.instance_type.clone().unwrap_or_default() });
    }
    if machine.capacity_type.is_none() {
        return Some(Why::MissingLabel { key: CAPACITY_TYPE });
    }
    if machine.zone.is_none() {
        return Some(Why::MissingLabel { key: ZONE });
    }
    let is_kept = machine.old_marks.is_kept_from_consolidation.filter(|_| pool.old_rules.is_some());
    match is_kept {
        Some(true) => return Some(Why::Blocked(Blocked::Unconsolidated)),
        // Offered by its own annotation, whatever its pool says.
        Some(false) => return None,
        None => {}
    }
    if pool.consolidate_after_secs.is_none() {
        return Some(Why::NeverConsolidated { pool: pool.name.clone() });
    }
    if pool.policy == ConsolidationPolicy::WhenEmpty {
        return Some(Why::OnlyWhenEmpty { pool: pool.name.clone() });
    }
    settling(pass.fleet, machine, pool).or_else(|| {
        let until_secs = cool_down_until(machine, pool, pass.fleet.now_secs)?;
        Some(Why::CoolDown { until_secs })
    })
}

/// The candidates gone together, for none or one new node, if that is cheaper.
pub(crate) fn consolidate(
    pass: &Pass<'_>,
    simulator: &Simulator<'_>,
    method: Method,
    candidates: &[Candidate],
) -> Result<Command, Why> {
    let removed_nodes = pass.nodes_of(candidates);
    let outcome = pass.ask(simulator, &simulation_request(pass, &removed_nodes, Manner::ORDINARY, None));
    let placement = read(pass, simulator, &outcome).map_err(|unplaced| Why::WouldNotFit { unplaced })?;
    let price_now = price_of(candidates);
    let Placement { moves, mut replacements } = placement;
    match replacements.as_mut_slice() {
        [] => {}
        [only] => make_cheaper(pass, candidates, only, price_now)?,
        several => return Err(Why::NeedsSeveralNodes { count: several.len() }),
    }
    let command = Command {
        method,
        decision: if replacements.is_empty() { Decision::Delete } else { Decision::Replace },
        candidates: candidates.to_vec(),
        price_before_per_hour: price_now,
        price_after_per_hour: total_per_hour(replacements.iter().map(|node| node.price_per_hour)),
        replacements,
        static_pool: None,
        moves,
        termination_grace_period_secs: None,
        is_thorough: false,
    };
    is_worth_it(pass.fleet, &command)?;
    Ok(command)
}

pub(crate) fn price_of(candidates: &[Candidate]) -> f64 {
    total_per_hour(candidates.iter().map(|candidate| candidate.price_per_hour))
}

/// Leaves only options that are cheaper than what goes.
fn make_cheaper(
    pass: &Pass<'_>,
    candidates: &[Candidate],
    node: &mut PlannedNode,
    price_now: f64,
) -> Result<(), Why> {
    let problem = &pass.fleet.problem;
    let cheapest_replacement = cheapest_price(pass, node);
    let is_spot =
        |candidate: &Candidate| pass.machine(candidate).capacity_type.as_deref() == Some(CAPACITY_TYPE_SPOT);
    let is_spot_to_spot = candidates.iter().all(is_spot) && allows_capacity_type(node, CAPACITY_TYPE_SPOT);
    if is_spot_to_spot {
        if !pass.settings.spot_to_spot {
            return Err(Why::SpotToSpotOff);
        }
        force_capacity_type(node, CAPACITY_TYPE_SPOT);
    }
    refresh(problem, node);
    keep_cheaper_than(problem, node, price_now).map_err(too_few)?;
    if node.instance_type_options.is_empty() {
        return Err(Why::NotCheaper {
            price_now_per_hour: price_now,
            cheapest_replacement_per_hour: cheapest_replacement,
        });
    }
    if is_spot_to_spot && candidates.len() == 1 {
        let found = node.instance_type_options.len();
        if found < SPOT_TO_SPOT_TYPES {
            return Err(Why::SpotToSpotInflexible { wanted: SPOT_TO_SPOT_TYPES, found });
        }
        let needed = needed_for_min_values(problem, node).map_err(too_few)?;
        node.instance_type_options.truncate(SPOT_TO_SPOT_TYPES.max(needed));
    }
    // Options were judged by their spot price; a launch on demand instead would undo the saving.
    if allows_capacity_type(node, CAPACITY_TYPE_SPOT) && allows_capacity_type(node, CAPACITY_TYPE_ON_DEMAND) {
        force_spot_if_offered(pass, node);
    }
    refresh(problem, node);
    Ok(())
}

/// A requirement that says nothing about capacity types is no promise that spot exists.
pub(crate) fn force_spot_if_offered(pass: &Pass<'_>, node: &mut PlannedNode) {
    let problem = &pass.fleet.problem;
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

fn cheapest_price(pass: &Pass<'_>, node: &PlannedNode) -> Option<f64> {
    let problem = &pass.fleet.problem;
    let catalog = catalog_of(problem, node);
    let types = node.instance_type_options.iter().filter_map(|option| catalog.get(*option));
    types
        .filter_map(|one| cheapest(one, &node.requirements, &problem.well_known))
        .map(|(_, price)| price)
        .min_by(f64::total_cmp)
}

pub(crate) fn too_few(short: TooFew) -> Why {
    Why::TooFewTypes { key: short.key, wanted: short.wanted, found: short.found }
}
