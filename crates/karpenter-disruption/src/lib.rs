//! Which nodes may go, which should, and what would take their place: pure functions over one snapshot of a cluster.
//!
//! Observe, decide, act: somebody else builds a [`fleet::Fleet`], somebody else carries a [`command::Command`] out. No
//! I/O, no clock, no logging; the same fleet gives the same commands, on however many threads.
//!
//! Upstream: pkg/controllers/disruption.

pub mod balanced;
pub mod bound;
pub mod budgets;
pub mod candidate;
pub mod carried_out;
pub mod command;
mod consolidation;
pub mod controls;
mod disruption_price;
mod drift;
mod emptiness;
mod expiration;
pub mod explain;
pub mod fleet;
mod gate;
mod multi;
mod pass;
pub mod pod_budgets;
pub mod prices;
pub mod propose;
pub mod rebalance;
mod repair;
mod savings;
pub mod settings;
mod simulation;
mod single;
pub mod static_drift;
pub mod validate;
mod whole_fleet;
