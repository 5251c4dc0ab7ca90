//! The controllers of Nodes: drain and termination of deleted nodes, the label of the node class, node repair.
//!
//! Nodes that have neither this label nor a managed NodeClaim are never written. Which nodes are disrupted is decided in
//! [`crate::disruption`].
//!
//! Upstream: pkg/controllers/node.

pub mod eviction;
pub mod hydration;
pub mod legacy_repair;
pub mod repair;
pub mod termination;

use k8s_openapi::api::core::v1::Node;
use karpenter_api::labels;
use karpenter_runtime::object::label;

pub(crate) use eviction::annotation_event;
pub use eviction::{EvictionQueue, Evictions};
pub use hydration::NodeHydration;
pub use legacy_repair::LegacyRepair;
pub use termination::NodeTermination;
pub(crate) use termination::claim_of;

/// Whether provisioning, disruption and limits take a node into account. A node of a NodePool is ignored until it has a
/// provider id, because it cannot be matched with its NodeClaim before. Upstream: `StateNode` in pkg/controllers/state.
pub(crate) fn is_tracked(node: &Node) -> bool {
    let is_managed = label(node, labels::NODEPOOL).is_some_and(|pool| !pool.is_empty());
    let provider_id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
    !is_managed || provider_id.is_some_and(|id| !id.is_empty())
}
