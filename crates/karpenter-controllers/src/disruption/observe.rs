//! Reads what the command loop and the evaluation loop need from the stores. Decides nothing.

use std::sync::Arc;

use karpenter_api::labels;
use karpenter_api::types::NodePool;
use karpenter_runtime::object::{is_deleting, label, name_of, uid_of};
use karpenter_state::claim::{INITIALIZED, is_true};

use super::command_state::{ClaimId, ClaimObservation};
use crate::inputs::Reads;
use crate::stores::BY_POOL;

/// Names of a NodePool's claims.
pub(super) fn claims_of(reads: &Reads, pool: &str) -> Vec<String> {
    let claims = reads.stores.node_claims.by(BY_POOL, pool);
    claims.iter().map(|claim| name_of(&**claim).to_owned()).collect()
}

/// The state of a claim for a command.
pub(super) fn observe_claim(reads: &Reads, id: &ClaimId) -> ClaimObservation {
    let claim = reads.stores.node_claims.get("", &id.name).filter(|claim| uid_of(&**claim) == id.uid);
    match claim {
        None => ClaimObservation::Gone,
        Some(claim) if is_deleting(&*claim) => ClaimObservation::Deleting,
        Some(claim) if is_true(&claim, INITIALIZED) || reads.state.is_held_for_moved_pods(&id.name) => {
            ClaimObservation::Ready
        }
        Some(_) => ClaimObservation::NotReady,
    }
}

/// The NodePool from the store.
pub(super) fn find_pool(reads: &Reads, name: &str) -> Option<Arc<NodePool>> {
    reads.stores.node_pools.get("", name)
}

/// The NodePool of a claim, by its label.
pub(super) fn pool_label(claim: &karpenter_api::types::NodeClaim) -> &str {
    label(claim, labels::NODEPOOL).unwrap_or_default()
}
