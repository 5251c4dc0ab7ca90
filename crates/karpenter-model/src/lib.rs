//! The data model of the planner: quantities, requirements, instance types, pods, the input of a planning run
//! ([`problem::Problem`]) and its result ([`plan::Plan`]).
//!
//! The crate is pure: it has no I/O, clock, randomness or logging. Callers validate values before they build the model.

pub mod cron;
pub mod duration;
pub mod instance_type;
pub mod labels;
pub mod node_count_tolerance;
pub mod plan;
pub mod pod;
pub mod problem;
pub mod quantity;
pub mod reason;
pub mod requirements;
pub mod resources;
pub mod selector;
pub mod spread_share;
pub mod stdx;
pub mod taints;
