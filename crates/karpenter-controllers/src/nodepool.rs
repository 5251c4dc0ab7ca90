//! What is kept up to date on a NodePool: its conditions, the count of what it owns, and the hash of its template.
//!
//! Nothing here creates, drains or deletes anything, and a pool whose node class is of another provider is never
//! written.

mod conditions;
pub mod counter;
pub mod hash;
pub mod readiness;
pub mod registration_health;
#[cfg(test)]
mod tests;

pub use conditions::{NodePoolConditions, VALIDATION_FAILED, decide_conditions};
pub use counter::NodePoolCounter;
pub use hash::NodePoolHash;
pub use registration_health::RegistrationHealth;
