//! Facts that a Node object states about its node.

use k8s_openapi::api::core::v1::Node;
use karpenter_api::labels;

/// Whether the node's condition `Ready` is `True`.
pub fn is_node_ready(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Whether provisioning, disruption and limits take a node into account. A node of a NodePool is ignored until it has a
/// provider id, because without it the node cannot be matched with its NodeClaim. Upstream: `StateNode` in
/// pkg/controllers/state.
pub fn is_tracked(node: &Node) -> bool {
    let pool = node.metadata.labels.as_ref().and_then(|labels| labels.get(labels::NODEPOOL));
    let is_managed = pool.is_some_and(|pool| !pool.is_empty());
    let provider_id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
    !is_managed || provider_id.is_some_and(|id| !id.is_empty())
}
