//! The controllers of NodePools: conditions, the sum of the resources of their nodes, and the hash of their template.
//!
//! These controllers write only NodePools and annotations of NodeClaims, and create and delete nothing. They never
//! write a NodePool whose node class belongs to another provider.
//!
//! Upstream: pkg/controllers/nodepool.

mod conditions;
pub mod counter;
pub mod hash;
#[cfg(test)]
mod tests;

pub use conditions::{NodePoolConditions, VALIDATION_FAILED, decide_conditions};
pub use counter::NodePoolCounter;
pub use hash::NodePoolHash;
