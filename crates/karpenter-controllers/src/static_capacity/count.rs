//! How many nodes a pool has, and places under its limit that are promised to nodes which do not exist yet.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use karpenter_api::types::{NodeClaim, NodePool};
use karpenter_cluster::controllers::context::{is_deleting, name_of};
use karpenter_model::resources::NODES;

use crate::context::Context;
use crate::nodeclaim::{REBOOTING, is_true};
use crate::stores::BY_POOL;

const DISRUPTION_REASON: &str = "DisruptionReason";

/// A pool's claims by what becomes of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// There to stay.
    pub active: u32,
    /// Part of a command, with a replacement that is counted as active.
    pub pending_disruption: u32,
    pub deleting: u32,
}

impl Counts {
    pub fn all(self) -> u32 {
        self.active.saturating_add(self.pending_disruption).saturating_add(self.deleting)
    }

    /// Counts claims; `is_marked` says of which this process knows that a command has them.
    pub fn of<'a>(claims: impl IntoIterator<Item = &'a NodeClaim>, is_marked: impl Fn(&str) -> bool) -> Self {
        let mut counts = Self::default();
        for claim in claims {
            // A machine that is restarted stays, although the reason for it is written on its claim.
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

/// The claims of a pool, counted now.
pub fn counts(context: &Context, pool: &str) -> Counts {
    let claims = context.stores.node_claims.by(BY_POOL, pool);
    Counts::of(claims.iter().map(|claim| &**claim), |name| context.state.is_marked_for_deletion(name))
}

/// Promised places by pool. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct NodeLimitGrants {
    shared: Arc<Mutex<BTreeMap<String, u32>>>,
}

/// Places under a pool's limit, held until this is dropped. A claim that was created meanwhile holds its own, so this
/// may outlive it by a moment without harm.
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
        let mut promised = self.from.promised();
        if let Some(count) = promised.get_mut(&self.pool) {
            *count = count.saturating_sub(self.granted);
            if *count == 0 {
                promised.remove(&self.pool);
            }
        }
    }
}

impl NodeLimitGrants {
    /// Promises up to `wanted` places, as many as the limit leaves besides those that exist and those promised before.
    /// `existing` is asked while nobody else can be promised anything.
    fn reserve(
        &self,
        pool: &str,
        limit: Option<u32>,
        wanted: u32,
        existing: impl FnOnce() -> u32,
    ) -> NodeLimitGrant {
        let mut promised = self.promised();
        let before = promised.get(pool).copied().unwrap_or(0);
        let left = limit.map_or(u32::MAX, |limit| limit.saturating_sub(existing()).saturating_sub(before));
        let granted = wanted.min(left);
        if granted > 0 {
            promised.insert(pool.to_owned(), before.saturating_add(granted));
        }
        NodeLimitGrant { from: self.clone(), pool: pool.to_owned(), granted }
    }

    fn promised(&self) -> MutexGuard<'_, BTreeMap<String, u32>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks for room for `wanted` more nodes under `limits.nodes` of a pool. Nodes on their way out hold their place until
/// they are gone.
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
    fn places_are_promised_once_and_come_back() {
        let reservations = NodeLimitGrants::default();
        let first = reservations.reserve("a", Some(10), 4, || 5);
        let second = reservations.reserve("a", Some(10), 4, || 5);
        let other = reservations.reserve("b", Some(1), 4, || 0);
        let third = reservations.reserve("a", Some(10), 4, || 5);
        assert_eq!(
            [first.granted(), second.granted(), other.granted(), third.granted()],
            [4, 1, 1, 0],
            "five are left of ten"
        );
        drop(first);
        assert_eq!(reservations.reserve("a", Some(10), 9, || 5).granted(), 4);
        // The claims of the first were created, and a limit that was lowered leaves nothing.
        assert_eq!(reservations.reserve("a", Some(10), 9, || 9).granted(), 0);
        assert_eq!(reservations.reserve("a", Some(3), 9, || 9).granted(), 0);
        assert_eq!(reservations.reserve("a", None, 9, || 9).granted(), 9);
        drop((second, other, third));
        assert!(reservations.promised().is_empty());
    }
}
