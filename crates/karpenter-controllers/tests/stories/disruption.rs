//! Nodes are taken away on purpose: from the first thought to the last pod that runs elsewhere, and when the process
//! that does it ends on the way.

mod budgets;
mod consolidation;
mod crashes;
mod drift;
mod fixed_pools;
mod repair;
mod world;
