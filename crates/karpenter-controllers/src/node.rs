//! What is done with the Nodes of claims: a deleted one is emptied and its machine ended before the object may go, and
//! every one carries the label of its node class.
//!
//! Nodes without that label and without a claim of ours are somebody else's and are never written. Deciding that a
//! node should go is not done here.

pub mod eviction;
pub mod hydration;
pub mod legacy_repair;
pub mod repair;
pub mod termination;

use k8s_openapi::api::core::v1::Node;
use karpenter_api::labels;
use karpenter_cluster::controllers::context::label;

pub(crate) use eviction::annotation_notice;
pub use eviction::{EvictionQueue, Evictions};
pub use hydration::NodeHydration;
pub use legacy_repair::LegacyRepair;
pub use termination::NodeTermination;
pub(crate) use termination::claim_of;

/// Whether planning, disruption and limits take notice of a node. Without a provider id a node of a NodePool cannot be
/// matched with its NodeClaim, so it is ignored until it has one; pods on it are left alone.
pub(crate) fn is_tracked(node: &Node) -> bool {
    let is_managed = label(node, labels::NODEPOOL).is_some_and(|pool| !pool.is_empty());
    let provider_id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
    !is_managed || provider_id.is_some_and(|id| !id.is_empty())
}
