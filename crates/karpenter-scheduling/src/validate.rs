//! The validator: checks a [`Plan`] against its [`Problem`] independently of the planner and reports every
//! violated rule.
//!
//! The rules of Kubernetes and Karpenter are implemented here a second time: only the requirement algebra of the model
//! is shared with the planner, so that an error in the planner's checks is found. The validator does not judge how good
//! a plan is, with three exceptions: the price must be the one that the plan states, must not be below the plan's own
//! lower bound, and must not exceed the price of compat mode.
//!
//! An unmet preference (preferred terms, `ScheduleAnyway`, `PreferNoSchedule`) is never a violation.

mod claim_groups;
mod contents;
mod existing;
mod label_view;
mod order;
mod planned;
mod reserved;
mod scope;
mod topology;
mod totals;
mod violation;

pub use scope::ViolationScope;
pub use violation::{Place, Violation};

use karpenter_model::plan::Plan;
use karpenter_model::problem::Problem;

/// All rules that the plan violates; empty for a valid plan.
pub fn validate(problem: &Problem, plan: &Plan) -> Vec<Violation> {
    let mut violations = Vec::new();
    let contents = contents::collect(problem, plan, &mut violations);
    order::check(problem, plan, &mut violations);
    let claim_groups = claim_groups::ClaimGroups::build(problem, plan);
    planned::check(problem, plan, &contents, &claim_groups, &mut violations);
    existing::check(problem, &contents, &mut violations);
    totals::check(problem, plan, &mut violations);
    reserved::check(problem, plan, &claim_groups, &mut violations);
    topology::check(problem, plan, &contents, &claim_groups, &mut violations);
    violations
}
