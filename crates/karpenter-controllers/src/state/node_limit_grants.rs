//! Nodes under `limits.nodes` of NodePools that are granted for NodeClaims that are about to be created.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The number of granted nodes by NodePool. Clones share the state.
#[derive(Debug, Clone, Default)]
pub struct NodeLimitGrants {
    shared: Arc<Mutex<BTreeMap<String, u32>>>,
}

/// A number of nodes granted under `limits.nodes` of a NodePool until this value is dropped. Drop it after the
/// NodeClaims were created. In between, they count twice towards the limit, which is safe.
#[derive(Debug)]
pub struct NodeLimitGrant {
    from: NodeLimitGrants,
    pool: String,
    granted: u32,
}

impl NodeLimitGrant {
    /// The number of nodes that may be created.
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
    /// Grants up to `wanted` nodes, as far as existing nodes and other grants leave room under the limit. `existing`
    /// returns the number of existing nodes; it is called while the grants are locked.
    pub(crate) fn reserve(
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
        // The NodeClaims of the first grant exist already, and the limit is lower now, so nothing is granted.
        assert_eq!(grants.reserve("a", Some(10), 9, || 9).granted(), 0);
        assert_eq!(grants.reserve("a", Some(3), 9, || 9).granted(), 0);
        assert_eq!(grants.reserve("a", None, 9, || 9).granted(), 9);
        drop((second, other, third));
        assert!(grants.granted_by_pool().is_empty());
    }
}
