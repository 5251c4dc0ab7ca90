//! What still keeps planned pods from a new node, and whose it is to go; a pure reading of the node.
//!
//! Decides nothing about pods. Taints of the pool are no obstacle: the pods planned there tolerate them.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Taint};
use karpenter_api::labels;
use karpenter_api::types::NodeClaim;

use crate::nodeclaim::is_node_ready;

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// A node that has just appeared is kept closed this long for it to become ready: machines that take longer are not
/// held up, because what makes them ready may have to run on them first.
const HOLD_UNREADY: Duration = Duration::from_secs(10);
/// One that is ready is kept closed this long for the taint that says otherwise to go.
const HOLD_READY: Duration = Duration::from_secs(30);

/// How far a node is open to the pods planned for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Door {
    /// Somebody will have to do something, nobody knows when.
    Shut,
    /// The node is not ready, or the taint that says so has not followed yet.
    Unready,
    /// Nothing but our own taint keeps pods away.
    Ours,
    Open,
}

/// `claim`: what it says of start-up taints; a node without a claim has none.
pub(super) fn door(node: &Node, claim: Option<&NodeClaim>) -> Door {
    let startup = claim.and_then(|claim| claim.spec.startup_taints.as_deref()).unwrap_or_default();
    let is_startup =
        |taint: &Taint| startup.iter().any(|one| one.key == taint.key && one.effect == taint.effect);
    let mut is_ours = false;
    let mut is_unready = !is_node_ready(node);
    for taint in node.spec.iter().flat_map(|spec| spec.taints.iter().flatten()) {
        match (taint.key.as_str(), taint.effect.as_str()) {
            (_, "PreferNoSchedule") => {}
            (labels::TAINT_UNREGISTERED, _) => is_ours = true,
            // Every pod tolerates these two for a while, by what the API server adds to it.
            (NOT_READY | UNREACHABLE, "NoExecute") => {}
            (NOT_READY | UNREACHABLE, _) => is_unready = true,
            (UNSCHEDULABLE | labels::TAINT_DISRUPTED, _) => return Door::Shut,
            (key, effect) if is_startup(taint) || labels::is_ephemeral_taint(key, effect) => {
                return Door::Shut;
            }
            _ => {}
        }
    }
    match (is_unready, is_ours) {
        (true, _) => Door::Unready,
        (false, true) => Door::Ours,
        (false, false) => Door::Open,
    }
}

/// Whether pods should be told now: the next thing that happens to the node opens it.
pub(super) fn is_about_to_open(node: &Node, claim: Option<&NodeClaim>) -> bool {
    match door(node, claim) {
        Door::Shut => false,
        // The taint follows the condition at once, and that is not ours to wait for.
        Door::Unready => is_node_ready(node),
        Door::Ours | Door::Open => true,
    }
}

/// How much longer our own taint should stay on a node that has been seen for `seen`, so that ours is the last obstacle
/// and pods can be told right before it goes; `None` if it should go now.
pub(super) fn hold(node: &Node, claim: &NodeClaim, seen: Duration) -> Option<Duration> {
    if door(node, Some(claim)) != Door::Unready {
        return None;
    }
    let patience = if is_node_ready(node) { HOLD_READY } else { HOLD_UNREADY };
    patience.checked_sub(seen).filter(|left| !left.is_zero())
}
