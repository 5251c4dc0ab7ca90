//! The validator: checks a [`Plan`] against its [`Problem`] independently of the planner and reports every
//! violated rule.
//!
//! The validator is written from the rules of Kubernetes and Karpenter. It shares only the requirement algebra of the
//! model with the planner, so that an error in the planner's feasibility checks is found here. It checks whether a plan
//! is valid, not how good it is, with three exceptions: the price must be what the plan states, not below the plan's
//! own lower bound, and not above the price of compat mode.
//!
//! Preferences (preferred terms, `ScheduleAnyway`, `PreferNoSchedule`) are never a violation.

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

/// Every violation of a rule; empty for a valid plan.
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
