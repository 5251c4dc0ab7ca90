//! Counts the NodeClaims of a NodePool, and grants node limit to NodeClaims that are about to be created.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use karpenter_api::types::{NodeClaim, NodePool};
use karpenter_model::resources::NODES;
use karpenter_runtime::object::{is_deleting, name_of};

use crate::context::Context;
use crate::nodeclaim::{REBOOTING, is_true};
use crate::stores::BY_POOL;

const DISRUPTION_REASON: &str = "DisruptionReason";

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

    /// Counts NodeClaims; `is_marked` says whether one is marked for deletion in memory.
    pub fn of<'a>(claims: impl IntoIterator<Item = &'a NodeClaim>, is_marked: impl Fn(&str) -> bool) -> Self {
        let mut counts = Self::default();
        for claim in claims {
            // A NodeClaim whose instance is rebooted stays, although it has the condition DisruptionReason.
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
pub fn counts(context: &Context, pool: &str) -> Counts {
    let claims = context.stores.node_claims.by(BY_POOL, pool);
    Counts::of(claims.iter().map(|claim| &**claim), |name| context.state.is_marked_for_deletion(name))
}

/// Granted node limit by NodePool. Clones share the state.
#[derive(Debug, Clone, Default)]
pub struct NodeLimitGrants {
    shared: Arc<Mutex<BTreeMap<String, u32>>>,
}

/// Nodes granted under `limits.nodes` of a NodePool, until this value is dropped. It may be dropped after the
/// NodeClaims were created; meanwhile they count twice, which is safe.
#[derive(Debug)]
pub struct NodeLimitGrant {
    from: NodeLimitGrants,
    pool: String,
    granted: u32,
}

impl NodeLimitGrant {
    /// How many nodes may be created.
    pub fn granted(&self) -> u32 {
        self.granted
    }
}

impl Drop for NodeLimitGrant {
    fn drop(&mut self) {
        let mut granted_by_pool = self.from.granted_by_pool();
        if let Some(count) = granted_by_pool.get_mut(&self.pool) {
            *count = count.saturating_sub(self.granted);
            if *count == 0 {
                granted_by_pool.remove(&self.pool);
            }
        }
    }
}

impl NodeLimitGrants {
    /// Grants up to `wanted` nodes, as far as the limit allows beside existing nodes and other grants. `existing` is
    /// called under the lock.
    fn reserve(
        &self,
        pool: &str,
        limit: Option<u32>,
        wanted: u32,
        existing: impl FnOnce() -> u32,
    ) -> NodeLimitGrant {
        let mut granted_by_pool = self.granted_by_pool();
        let before = granted_by_pool.get(pool).copied().unwrap_or(0);
        let left = limit.map_or(u32::MAX, |limit| limit.saturating_sub(existing()).saturating_sub(before));
        let granted = wanted.min(left);
        if granted > 0 {
            granted_by_pool.insert(pool.to_owned(), before.saturating_add(granted));
        }
        NodeLimitGrant { from: self.clone(), pool: pool.to_owned(), granted }
    }

    fn granted_by_pool(&self) -> MutexGuard<'_, BTreeMap<String, u32>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Requests up to `wanted` more nodes under `limits.nodes` of a NodePool. Terminating nodes count until they are
/// gone.
pub fn reserve_nodes(context: &Context, pool: &NodePool, wanted: u32) -> NodeLimitGrant {
    let name = name_of(pool);
    let limit = pool.spec.limits.as_ref().and_then(|limits| limits.get(NODES));
    let limit = limit.map(|limit| u32::try_from(limit.value_floor().max(0)).unwrap_or(u32::MAX));
    context.node_limit_grants.reserve(name, limit, wanted, || counts(context, name).all())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_limit_is_granted_once_and_returned_on_drop() {
        let grants = NodeLimitGrants::default();
        let first = grants.reserve("a", Some(10), 4, || 5);
        let second = grants.reserve("a", Some(10), 4, || 5);
        let other = grants.reserve("b", Some(1), 4, || 0);
        let third = grants.reserve("a", Some(10), 4, || 5);
        assert_eq!(
            [first.granted(), second.granted(), other.granted(), third.granted()],
            [4, 1, 1, 0],
            "five are left of ten"
        );
        drop(first);
        assert_eq!(grants.reserve("a", Some(10), 9, || 5).granted(), 4);
        // The NodeClaims of the first grant exist now, and the limit was lowered, so nothing can be granted.
        assert_eq!(grants.reserve("a", Some(10), 9, || 9).granted(), 0);
        assert_eq!(grants.reserve("a", Some(3), 9, || 9).granted(), 0);
        assert_eq!(grants.reserve("a", None, 9, || 9).granted(), 9);
        drop((second, other, third));
        assert!(grants.granted_by_pool().is_empty());
    }
}
