//! The controllers of NodePools: conditions, the sum of the resources of its nodes, and the hash of its template.
//!
//! The controllers write NodePools and annotations of NodeClaims; they create and delete nothing. A NodePool whose node
//! class is of another provider is never written.
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
