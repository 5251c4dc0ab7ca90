//! The vocabulary of Karpenter as plain values: quantities, requirements, instance types, pods, the planning
//! [`problem::Problem`] and the [`plan::Plan`] that answers it.
//!
//! Pure: no I/O, no clock, no randomness, no logging; malformed input is turned away before it gets here.

pub mod cron;
pub mod duration;
pub mod instance_type;
pub mod labels;
pub mod plan;
pub mod pod;
pub mod problem;
pub mod quantity;
pub mod reason;
pub mod requirements;
pub mod resources;
pub mod selector;
pub mod taints;
