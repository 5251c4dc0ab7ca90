//! An independent judge of plans: replays a [`Plan`] against its [`Problem`] and names everything that is wrong.
//!
//! Written from the rules of Kubernetes and Karpenter, not from the solver: it shares the model's requirement algebra
//! and nothing else, so that a mistake in the solver's feasibility code cannot hide itself here. It decides only
//! whether a plan is valid; it does not judge how good it is, except that the cost must be what the plan says, must
//! not be below the plan's own bound, and must not be above the compatible plan's.
//!
//! Preferences (preferred terms, `ScheduleAnyway`, `PreferNoSchedule`) are never a violation.

mod contents;
mod existing;
mod frames;
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

/// Every way in which the plan breaks a rule; empty for a valid plan.
pub fn validate(problem: &Problem, plan: &Plan) -> Vec<Violation> {
    let mut violations = Vec::new();
    let contents = contents::collect(problem, plan, &mut violations);
    order::check(problem, plan, &mut violations);
    let frames = frames::Frames::build(problem, plan);
    planned::check(problem, plan, &contents, &frames, &mut violations);
    existing::check(problem, &contents, &mut violations);
    totals::check(problem, plan, &mut violations);
    reserved::check(problem, plan, &frames, &mut violations);
    topology::check(problem, plan, &contents, &frames, &mut violations);
    violations
}
