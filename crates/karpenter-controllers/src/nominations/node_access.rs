//! Determines what still keeps planned pods from being bound to a new node. Pure functions.
//!
//! Taints of the NodePool's template are ignored, because the pods that are planned for the node tolerate them.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Taint};
use karpenter_api::labels;
use karpenter_api::types::NodeClaim;
use karpenter_state::node::is_node_ready;

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// How long the unregistered taint is kept on a new node that is not ready. It is not kept longer, because the pods
/// that make a node ready may have to run on it first.
const NOT_READY_HOLD_MAX: Duration = Duration::from_secs(10);
/// How long the unregistered taint is kept on a node that is ready and still has the taint
/// `node.kubernetes.io/not-ready`.
const READY_TAINT_HOLD_MAX: Duration = Duration::from_secs(30);

/// Whether planned pods can be bound to a node, and if not, what prevents it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NodeAccess {
    /// The node is cordoned, disrupted or has a startup taint. Another process removes this obstacle at an unknown
    /// time.
    Blocked,
    /// The node is not ready, or still has the not-ready taint.
    NotReady,
    /// Only the taint `karpenter.sh/unregistered` is left.
    OnlyOurTaint,
    Open,
}

/// Determines the obstacles on the node. The startup taints are those in the claim; a node without a claim has none.
pub(crate) fn node_access(node: &Node, claim: Option<&NodeClaim>) -> NodeAccess {
    let startup = claim.and_then(|claim| claim.spec.startup_taints.as_deref()).unwrap_or_default();
    let is_startup =
        |taint: &Taint| startup.iter().any(|one| one.key == taint.key && one.effect == taint.effect);
    let mut is_ours = false;
    let mut is_unready = !is_node_ready(node);
    for taint in node.spec.iter().flat_map(|spec| spec.taints.iter().flatten()) {
        match (taint.key.as_str(), taint.effect.as_str()) {
            (_, "PreferNoSchedule") => {}
            (labels::TAINT_UNREGISTERED, _) => is_ours = true,
            // Every pod tolerates these two taints with the effect NoExecute, because an admission plugin adds the
            // toleration.
            (NOT_READY | UNREACHABLE, "NoExecute") => {}
            (NOT_READY | UNREACHABLE, _) => is_unready = true,
            (UNSCHEDULABLE | labels::TAINT_DISRUPTED, _) => return NodeAccess::Blocked,
            (key, effect) if is_startup(taint) || labels::is_ephemeral_taint(key, effect) => {
                return NodeAccess::Blocked;
            }
            _ => {}
        }
    }
    match (is_unready, is_ours) {
        (true, _) => NodeAccess::NotReady,
        (false, true) => NodeAccess::OnlyOurTaint,
        (false, false) => NodeAccess::Open,
    }
}

/// Whether to nominate the node now: pods can be bound to it, or can be bound after its next change.
pub(crate) fn is_nomination_due(node: &Node, claim: Option<&NodeClaim>) -> bool {
    match node_access(node, claim) {
        NodeAccess::Blocked => false,
        // Kubernetes' node lifecycle controller removes the taint right after the condition `Ready` has changed, and
        // nothing can delay that.
        NodeAccess::NotReady => is_node_ready(node),
        NodeAccess::OnlyOurTaint | NodeAccess::Open => true,
    }
}

/// How much longer to keep the unregistered taint on a node that was first seen `seen` ago; `None` if it should be
/// removed now. The taint is kept until it is the last obstacle, so that pods can be nominated right before it is
/// removed.
pub(crate) fn hold(node: &Node, claim: &NodeClaim, seen: Duration) -> Option<Duration> {
    if node_access(node, Some(claim)) != NodeAccess::NotReady {
        return None;
    }
    let hold_max = if is_node_ready(node) { READY_TAINT_HOLD_MAX } else { NOT_READY_HOLD_MAX };
    hold_max.checked_sub(seen).filter(|left| !left.is_zero())
}
