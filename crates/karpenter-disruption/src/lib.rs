//! Which nodes may go, which should, and what would take their place: pure functions over one snapshot of a cluster.
//!
//! Observe, decide, act: somebody else builds a [`fleet::Fleet`], somebody else carries a [`command::Command`] out. No
//! I/O, no clock, no logging; the same fleet gives the same commands, on however many threads.
//!
//! Upstream: pkg/controllers/disruption.

pub mod budgets;
pub mod candidate;
pub mod command;
pub mod explain;
pub mod fleet;
pub mod propose;
pub mod settings;
pub mod validate;
