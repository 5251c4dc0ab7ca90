//! The blocker chain of a pending pod: for each NodePool, removes the first blocker from a copy of the problem and
//! plans again, until the pods of the group are placed. The NodePool with the least changes is used.

use std::sync::Arc;

use karpenter_model::plan::Plan;
use karpenter_model::problem::{Mode, Problem};
use karpenter_model::reason::{Refusal, Scope};
use karpenter_model::resources::{CPU, EPHEMERAL_STORAGE, MEMORY, NODES, ResourceList};
use karpenter_scheduling::schedule;

use super::lift::{Lift, lift_for};
use crate::input::{Excluded, ExplainInput};

const STEPS_MAX: usize = 6;
/// The maximum number of NodePools for which a blocker chain is computed.
const POOLS_MAX: usize = 8;
/// The factors by which planned nodes are counted in a limit. A run of the planner may count a node with its largest
/// instance type option, so a limit that is exactly the capacity of the planned nodes may be too low.
const LIMIT_FACTORS: [i64; 3] = [1, 2, 4];

const MILLIS_PER_CORE: i64 = 1_000;
const BYTES_PER_GIB: i64 = 1 << 30;

/// A blocker, and the change that removes it.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub(crate) cause: StepCause,
    pub(crate) lift: Lift,
}

#[derive(Debug, Clone)]
pub(crate) enum StepCause {
    Refusal(Refusal),
    NotReady,
}

/// The chain of one NodePool.
#[derive(Debug, Clone)]
pub(crate) struct PodChain {
    pub(crate) pool: Arc<str>,
    pub(crate) steps: Vec<Step>,
    /// The problem with all fixes applied, and its plan; `None` if the pods are not placed.
    pub(crate) solved: Option<(Problem, Plan)>,
    /// The reason at which the chain ends if the pods are not placed.
    pub(crate) remaining: Option<Refusal>,
}

/// The order of chains: those that end with a placement first, then by the sum of weights, the number of steps, and the
/// name.
type Rank = (bool, u32, usize, Arc<str>);

/// The best blocker chain for the pods of a group. `refusals` are the planner's reasons without any change.
pub(crate) fn chain(input: &ExplainInput, group: usize, refusals: &[Refusal]) -> Option<PodChain> {
    let mut pools: Vec<(Arc<str>, bool)> = refusals
        .iter()
        .filter_map(|refusal| match &refusal.scope {
            Scope::NodePool(name) => Some((name.clone(), false)),
            Scope::Pod | Scope::Cluster | Scope::ExistingNodes { .. } => None,
        })
        .take(POOLS_MAX)
        .collect();
    let excluded = input.facts.excluded_pools.iter().filter(|one| one.why == Excluded::NotReady);
    pools.extend(excluded.map(|one| (one.pool.name.clone(), true)).take(POOLS_MAX));
    let mut best: Option<(Rank, Vec<Step>, Option<Refusal>)> = None;
    for (pool, is_excluded) in pools {
        let (steps, remaining) = steps(input, group, &pool, is_excluded);
        if steps.is_empty() {
            continue;
        }
        let weight = steps.iter().map(|step| step.lift.weight()).sum();
        let rank: Rank = (remaining.is_some(), weight, steps.len(), pool);
        if best.as_ref().is_none_or(|(other, _, _)| rank < *other) {
            best = Some((rank, steps, remaining));
        }
    }
    let ((_, _, _, pool), steps, remaining) = best?;
    if remaining.is_some() {
        return Some(PodChain { pool, steps, solved: None, remaining });
    }
    Some(solve(input, group, pool, steps))
}

/// The steps of a NodePool until the pods are placed, or until the returned reason cannot be removed.
fn steps(input: &ExplainInput, group: usize, pool: &str, is_excluded: bool) -> (Vec<Step>, Option<Refusal>) {
    let mut problem = input.problem.clone();
    // Compat mode places the same pods as cost mode, and takes less time.
    problem.options.mode = Mode::Compat;
    let mut steps: Vec<Step> = Vec::new();
    if is_excluded {
        let lift = Lift::NodePoolReady { pool: pool.into() };
        lift.apply(input, &mut problem, group);
        steps.push(Step { cause: StepCause::NotReady, lift });
    }
    loop {
        let plan = schedule(&problem);
        let Some(left) = left_over(&plan, group) else { return (steps, None) };
        let of_pool = left.iter().find(|one| matches!(&one.scope, Scope::NodePool(name) if **name == *pool));
        let Some(refusal) = of_pool.or(left.first()).cloned() else { return (steps, None) };
        let model = problem.pools.iter().find(|one| &*one.name == pool).filter(|_| of_pool.is_some());
        let lift = model.and_then(|model| lift_for(&problem, group, model, &refusal.reason));
        let is_new = |lift: &Lift| steps.len() < STEPS_MAX && !steps.iter().any(|step| step.lift == *lift);
        let Some(lift) = lift.filter(is_new) else { return (steps, Some(refusal)) };
        if !lift.apply(input, &mut problem, group) {
            return (steps, Some(refusal));
        }
        steps.push(Step { cause: StepCause::Refusal(refusal), lift });
    }
}

/// The reasons of the pods of a group that are not placed.
pub(crate) fn left_over(plan: &Plan, group: usize) -> Option<&[Refusal]> {
    plan.unschedulable.iter().find(|one| one.pods.group as usize == group).map(|one| one.reasons.as_slice())
}

/// Replaces removed limits by amounts that suffice, and plans again with exactly the changes of the fixes.
fn solve(input: &ExplainInput, group: usize, pool: Arc<str>, steps: Vec<Step>) -> PodChain {
    let without_limits = applied(input, group, &steps);
    let plan = schedule(&without_limits);
    for factor in LIMIT_FACTORS {
        let mut steps = steps.clone();
        for step in &mut steps {
            if let Lift::Limit { pool, resource, amount } = &mut step.lift {
                *amount = required_limit(&without_limits, &plan, pool, resource, factor);
            }
        }
        let problem = applied(input, group, &steps);
        let plan = schedule(&problem);
        if left_over(&plan, group).is_none() {
            return PodChain { pool, steps, solved: Some((problem, plan)), remaining: None };
        }
    }
    PodChain { pool, steps, solved: None, remaining: None }
}

fn applied(input: &ExplainInput, group: usize, steps: &[Step]) -> Problem {
    let mut problem = input.problem.clone();
    for step in steps {
        step.lift.apply(input, &mut problem, group);
    }
    problem
}

/// The usage of the NodePool's limit after the plan, with its new nodes counted `factor` times.
fn required_limit(problem: &Problem, plan: &Plan, pool: &str, resource: &str, factor: i64) -> Option<i64> {
    let index = problem.pools.iter().position(|one| &*one.name == pool)?;
    let used = problem.pools[index].usage.get(resource);
    let added: i64 = plan
        .new_nodes
        .iter()
        .filter(|node| node.pool == index)
        .map(|node| match resource {
            NODES => 1,
            resource => capacity(problem, node.pool, node.instance_type).get(resource),
        })
        .sum();
    Some(round_up(resource, used.saturating_add(added.saturating_mul(factor))))
}

pub(crate) fn capacity(problem: &Problem, pool: usize, instance_type: usize) -> ResourceList {
    let catalog = problem.pools.get(pool).and_then(|pool| problem.catalogs.get(pool.catalog));
    let instance_type = catalog.and_then(|types| types.get(instance_type));
    instance_type.map(|one| one.capacity.clone()).unwrap_or_default()
}

/// Rounds up to whole CPUs or GiB, as limits are usually written.
pub(crate) fn round_up(resource: &str, amount: i64) -> i64 {
    let unit = match resource {
        CPU => MILLIS_PER_CORE,
        MEMORY | EPHEMERAL_STORAGE => BYTES_PER_GIB,
        _ => 1,
    };
    amount.div_euclid(unit).saturating_add(i64::from(amount.rem_euclid(unit) > 0)).saturating_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_rounded_up_to_whole_units() {
        assert_eq!(round_up(CPU, 16_001), 17_000);
        assert_eq!(round_up(CPU, 16_000), 16_000);
        assert_eq!(round_up(MEMORY, 1), BYTES_PER_GIB);
        assert_eq!(round_up(NODES, 3), 3);
    }
}
