//! Selects nodes for disruption and plans their replacements: pure functions over one snapshot of a cluster.
//!
//! The caller assembles a [`cluster::Cluster`] and executes the [`command::Command`]s. No I/O, no clock, no logging: the
//! same cluster gives the same commands, independent of the number of threads.
//!
//! Upstream: pkg/controllers/disruption.

mod admission;
pub mod apply;
pub mod balanced;
pub mod budgets;
pub mod candidate;
pub mod cluster;
pub mod command;
mod consolidation;
mod context;
mod disruption_price;
mod drift;
mod emptiness;
pub mod evaluate;
mod expiration;
pub mod lower_bound;
mod multi_node;
pub mod pod_budgets;
pub mod pool_policy;
pub mod prices;
pub mod rebalance;
mod rebalance_commands;
mod repair;
pub mod settings;
mod simulation;
mod single_node;
pub mod static_drift;
pub mod validate;
pub mod verdict;
