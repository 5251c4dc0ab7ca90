//! Checks totals of the whole plan: the limits of NodePools, and prices.

use karpenter_model::plan::Plan;
use karpenter_model::problem::{Mode, Problem};
use karpenter_model::resources::{NODES, ResourceList};

use super::violation::Violation;

/// Prices are sums of decimal fractions, so two prices count as equal within this relative difference.
const RELATIVE_TOLERANCE: f64 = 1e-6;

pub(super) fn clearly_above(left: f64, right: f64) -> bool {
    left - right > RELATIVE_TOLERANCE * right.abs().max(left.abs()).max(1e-9)
}

pub(super) fn check(problem: &Problem, plan: &Plan, violations: &mut Vec<Violation>) {
    limits(problem, plan, violations);
    prices(problem, plan, violations);
}

fn limits(problem: &Problem, plan: &Plan, violations: &mut Vec<Violation>) {
    let mut launched: Vec<Option<ResourceList>> = vec![None; problem.pools.len()];
    for node in &plan.new_nodes {
        let Some(pool) = problem.pools.get(node.pool) else { continue };
        let Some(instance_type) =
            problem.catalogs.get(pool.catalog).and_then(|catalog| catalog.get(node.instance_type))
        else {
            continue;
        };
        if pool.limits.is_empty() {
            continue;
        }
        let used = launched[node.pool].get_or_insert_with(|| pool.usage.clone());
        for (resource, _) in pool.limits.iter() {
            let more = if &**resource == NODES { 1 } else { instance_type.capacity.get(resource) };
            used.set(resource.clone(), used.get(resource).saturating_add(more));
        }
    }
    for (pool, used) in problem.pools.iter().zip(launched) {
        let Some(used) = used else { continue };
        for (resource, limit) in pool.limits.iter() {
            if used.get(resource) > limit {
                violations.push(Violation::LimitExceeded {
                    pool: pool.name.clone(),
                    resource: resource.clone(),
                    limit,
                    used: used.get(resource),
                });
            }
        }
    }
}

fn prices(problem: &Problem, plan: &Plan, violations: &mut Vec<Violation>) {
    let mut actual = 0.0;
    for (index, node) in plan.new_nodes.iter().enumerate() {
        let offering = problem
            .pools
            .get(node.pool)
            .and_then(|pool| problem.catalogs.get(pool.catalog))
            .and_then(|catalog| catalog.get(node.instance_type))
            .and_then(|instance_type| instance_type.offerings.get(node.offering));
        let Some(offering) = offering else { continue };
        actual += offering.price_per_hour;
        if differ(node.price_per_hour, offering.price_per_hour) {
            violations.push(Violation::NodePriceWrong {
                node: index,
                stated: node.price_per_hour,
                actual: offering.price_per_hour,
            });
        }
    }
    let named = [
        ("the plan's price", plan.price_per_hour),
        ("the lower bound", plan.lower_bound_per_hour),
        ("the price of compat mode", plan.compat_price_per_hour),
    ];
    let before = violations.len();
    for (what, value) in named {
        if !value.is_finite() {
            violations.push(Violation::PriceNotFinite { what });
        }
    }
    if violations.len() > before {
        return;
    }
    if differ(plan.price_per_hour, actual) {
        violations.push(Violation::PlanPriceWrong { stated: plan.price_per_hour, actual });
    }
    if clearly_above(plan.lower_bound_per_hour, plan.price_per_hour) {
        violations.push(Violation::LowerBoundAbovePrice {
            bound: plan.lower_bound_per_hour,
            price: plan.price_per_hour,
        });
    }
    if problem.options.mode == Mode::Cost && clearly_above(plan.price_per_hour, plan.compat_price_per_hour) {
        violations.push(Violation::CostAboveCompat {
            price: plan.price_per_hour,
            compat: plan.compat_price_per_hour,
        });
    }
}

/// Whether two values differ by more than the tolerance; true if either is NaN.
fn differ(left: f64, right: f64) -> bool {
    !(left.is_finite() && right.is_finite()) || clearly_above(left, right) || clearly_above(right, left)
}
