//! How many nodes of each NodePool may still be disrupted for a reason.
//!
//! Upstream: pkg/controllers/disruption/helpers.go (NodePoolStatsFromNodes, BuildDisruptionBudgetMapping).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::cluster::{Cluster, Reason};

/// The budget of one NodePool for one reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Remaining {
    /// The number of nodes that the budgets still allow to be disrupted.
    pub allowed: u32,
    /// The number of nodes that the budgets count.
    pub nodes: u32,
    /// The number of counted nodes that are being disrupted or are not ready.
    pub disrupting: u32,
    /// The number of counted nodes in commands that await their validation.
    pub proposed: u32,
}

impl Remaining {
    pub fn left(self) -> u32 {
        self.allowed.saturating_sub(self.disrupting).saturating_sub(self.proposed)
    }

    /// Whether budgets allow no disruption in a NodePool that has nodes; this is published as an event.
    pub fn is_blocking(self) -> bool {
        self.nodes > 0 && self.allowed == 0
    }
}

/// The budgets of all NodePools, by name.
pub fn remaining(cluster: &Cluster, reason: Reason) -> BTreeMap<Arc<str>, Remaining> {
    remaining_excluding(cluster, reason, &BTreeSet::new())
}

/// Like [`remaining`], but nodes with these claims do not count as proposed.
pub(crate) fn remaining_excluding(
    cluster: &Cluster,
    reason: Reason,
    own: &BTreeSet<Arc<str>>,
) -> BTreeMap<Arc<str>, Remaining> {
    let mut pools: BTreeMap<Arc<str>, Remaining> = cluster
        .pools
        .iter()
        .map(|(name, pool)| {
            let allowed = pool.allowed.get(&reason).copied().unwrap_or(0);
            (name.clone(), Remaining { allowed, ..Remaining::default() })
        })
        .collect();
    for state_node in &cluster.state_nodes {
        let Some(pool) = state_node.pool.as_ref().and_then(|name| pools.get_mut(name)) else { continue };
        // A node counts if it is initialized or rebooting.
        if state_node.is_instance_terminating || !(state_node.is_initialized || state_node.is_rebooting) {
            continue;
        }
        pool.nodes += 1;
        // An unhealthy node counts as disrupted, except for the reason Unhealthy: it must not use up the budget for its
        // own repair.
        let is_unhealthy = !state_node.is_ready && reason != Reason::Unhealthy;
        if state_node.is_marked_for_deletion || state_node.is_rebooting || is_unhealthy {
            pool.disrupting += 1;
        } else if !own.contains(&state_node.claim) && cluster.has_budget_share(&state_node.claim) {
            pool.proposed += 1;
        }
    }
    pools
}

/// The number of nodes that budgets still allow to be disrupted, by NodePool.
pub fn left(cluster: &Cluster, reason: Reason) -> BTreeMap<Arc<str>, u32> {
    remaining(cluster, reason).into_iter().map(|(name, remaining)| (name, remaining.left())).collect()
}

/// The number of nodes that budgets allow to be disrupted if none is disrupted yet, by NodePool.
pub(crate) fn allowed(cluster: &Cluster, reason: Reason) -> BTreeMap<Arc<str>, u32> {
    remaining(cluster, reason).into_iter().map(|(name, remaining)| (name, remaining.allowed)).collect()
}

/// Reduces the budget of a NodePool by one node; returns whether there was any left.
pub(crate) fn take(left: &mut BTreeMap<Arc<str>, u32>, pool: &str) -> bool {
    match left.get_mut(pool) {
        Some(left) if *left > 0 => {
            *left -= 1;
            true
        }
        Some(_) | None => false,
    }
}
