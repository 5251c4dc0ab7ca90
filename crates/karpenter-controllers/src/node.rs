//! The controllers of Nodes: drain and termination of deleted nodes, the node class label, and node repair.
//!
//! These controllers never modify a Node that has neither the node class label nor a managed NodeClaim.
//! [`crate::disruption`] decides which nodes are disrupted.
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
