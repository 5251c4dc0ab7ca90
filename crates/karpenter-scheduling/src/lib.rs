//! The planner: turns a [`karpenter_model::problem::Problem`] into a plan with the cheapest valid fleet that
//! it finds.
//!
//! The planner is pure and total: it has no I/O, clock, logging or randomness. An unschedulable pod is part of the plan
//! with its reasons, never an error. The same problem gives the same plan, in whatever order its parts are listed.
//!
//! Upstream: pkg/controllers/provisioning/scheduling.

mod bits;
mod classes;
mod compat;
mod cost;
mod explain;
mod finalize;
mod ledger;
mod pin;
mod relax;
mod reservations;
mod sequence;
pub mod simulate;
mod states;
mod templates;
mod topology;
pub mod validate;
pub mod validated;

use karpenter_model::plan::Plan;
use karpenter_model::problem::Problem;

/// Plans the pods of a problem onto existing and new nodes.
pub fn schedule(problem: &Problem) -> Plan {
    cost::schedule(problem)
}
