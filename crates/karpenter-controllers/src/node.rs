//! The controllers of Nodes: drain and termination of deleted nodes, the label of the node class, node repair.
//!
//! Nodes that have neither this label nor a managed NodeClaim are never written. Which nodes are disrupted is decided in
//! [`crate::disruption`].
//!
//! Upstream: pkg/controllers/node.

pub mod eviction;
pub mod hydration;
pub mod legacy_repair;
pub mod termination;

pub use eviction::Evictions;
pub use hydration::NodeHydration;
pub use legacy_repair::LegacyRepair;
pub use termination::NodeTermination;
