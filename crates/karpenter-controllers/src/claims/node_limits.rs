//! Counts the NodeClaims of a NodePool, and reserves nodes under its `limits.nodes` for NodeClaims that are about to be
//! created.

use karpenter_api::types::{NodeClaim, NodePool};
use karpenter_model::resources::NODES;
use karpenter_runtime::object::{is_deleting, name_of};
use karpenter_state::claim::{DISRUPTION_REASON, REBOOTING, is_true};

use crate::inputs::Reads;
use crate::state::node_limit_grants::{NodeLimitGrant, NodeLimitGrants};
use crate::stores::BY_POOL;

/// The NodeClaims of a NodePool by state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// NodeClaims that are neither deleted nor selected by a command.
    pub active: u32,
    /// NodeClaims that are candidates of a command; their replacements count as active.
    pub pending_disruption: u32,
    pub deleting: u32,
}

impl Counts {
    pub fn all(self) -> u32 {
        self.active.saturating_add(self.pending_disruption).saturating_add(self.deleting)
    }

    /// Counts NodeClaims. `is_marked` returns whether a NodeClaim with this name is marked for deletion in memory.
    pub fn of<'a>(claims: impl IntoIterator<Item = &'a NodeClaim>, is_marked: impl Fn(&str) -> bool) -> Self {
        let mut counts = Self::default();
        for claim in claims {
            // During a reboot the NodeClaim has the condition `DisruptionReason`, but it is not replaced, so it counts
            // as active.
            let is_marked =
                is_marked(name_of(claim)) || is_true(claim, DISRUPTION_REASON) && !is_true(claim, REBOOTING);
            let count = match (is_deleting(claim), is_marked) {
                (true, _) => &mut counts.deleting,
                (false, true) => &mut counts.pending_disruption,
                (false, false) => &mut counts.active,
            };
            *count = count.saturating_add(1);
        }
        counts
    }
}

/// Counts the NodeClaims of a NodePool.
pub fn counts(reads: &Reads, pool: &str) -> Counts {
    let claims = reads.stores.node_claims.by(BY_POOL, pool);
    Counts::of(claims.iter().map(|claim| &**claim), |name| reads.state.is_marked_for_deletion(name))
}

/// Reserves up to `wanted` more nodes under `limits.nodes` of a NodePool. Terminating nodes count towards the limit
/// until they are gone.
pub fn reserve_nodes(
    reads: &Reads,
    grants: &NodeLimitGrants,
    pool: &NodePool,
    wanted: u32,
) -> NodeLimitGrant {
    let name = name_of(pool);
    let limit = pool.spec.limits.as_ref().and_then(|limits| limits.get(NODES));
    let limit = limit.map(|limit| u32::try_from(limit.value_floor().max(0)).unwrap_or(u32::MAX));
    grants.reserve(name, limit, wanted, || counts(reads, name).all())
}
