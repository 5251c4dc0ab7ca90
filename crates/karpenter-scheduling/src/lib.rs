//! The packing engine: from a [`karpenter_model::problem::Problem`] to the cheapest valid fleet found.
//!
//! Pure and total: no I/O, no clock, no logging, no randomness; an unschedulable pod is an answer with reasons, never
//! an error. The same input gives the same plan, whatever the order of the input.

mod bits;
mod classes;
mod compat;
mod cost;
mod explain;
mod finalize;
mod ledger;
mod relax;
mod reservations;
mod sequence;
mod settle;
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
