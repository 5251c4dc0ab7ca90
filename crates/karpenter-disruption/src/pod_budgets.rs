//! Joint evictions: whether the pods of several nodes can be evicted together under their PodDisruptionBudgets.
//!
//! Whether a single pod may be evicted is decided per node, see [`crate::candidate`].

use std::collections::BTreeMap;

use crate::cluster::{Cluster, StateNode};
use crate::command::Candidate;
use crate::verdict::Verdict;

/// The number of evictions counted so far, by index of the PodDisruptionBudget.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodBudgetUse {
    used: BTreeMap<u32, u32>,
}

/// How evictions of several nodes are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JointEvictions {
    /// PodDisruptionBudgets must allow all evictions at once.
    AllNow,
    /// The first node that a PodDisruptionBudget affects may evict its pods one after the other; for further nodes, the
    /// PodDisruptionBudget must allow all evictions at once.
    FirstMayWait,
}

/// The number of evictions that the drain of the node needs, by PodDisruptionBudget.
fn needs(cluster: &Cluster, state_node: &StateNode) -> BTreeMap<u32, u32> {
    let mut needs = BTreeMap::new();
    for node_pod in state_node.pods.iter().filter(|one| one.is_active && one.is_evictable) {
        for index in &node_pod.budgets {
            let Some(budget) = cluster.pod_budgets.get(*index as usize) else { continue };
            if !(budget.always_allows_unready && node_pod.is_unready) {
                *needs.entry(*index).or_insert(0) += 1;
            }
        }
    }
    needs
}

/// The number of evictions that the drains of several nodes need, by PodDisruptionBudget.
fn together<'m>(
    cluster: &Cluster,
    state_nodes: impl IntoIterator<Item = &'m StateNode>,
) -> BTreeMap<u32, u32> {
    let mut all = BTreeMap::new();
    for (index, count) in state_nodes.into_iter().flat_map(|state_node| needs(cluster, state_node)) {
        *all.entry(index).or_insert(0) += count;
    }
    all
}

impl PodBudgetUse {
    /// Starts with the evictions that nodes which are being deleted still need.
    pub fn new(cluster: &Cluster) -> Self {
        let going = cluster
            .state_nodes
            .iter()
            .filter(|state_node| state_node.is_marked_for_deletion || state_node.is_rebooting);
        Self { used: together(cluster, going) }
    }

    /// Counts a node whose pods are evicted in any case, because it has a termination grace period.
    pub fn count(&mut self, cluster: &Cluster, candidate: &Candidate) {
        for (index, count) in together(cluster, cluster.state_nodes.get(candidate.state_node)) {
            *self.used.entry(index).or_insert(0) += count;
        }
    }

    /// Counts the evictions of these nodes if they are allowed, or returns the PodDisruptionBudget that does not allow them.
    pub fn admit<'c>(
        &mut self,
        cluster: &Cluster,
        candidates: impl IntoIterator<Item = &'c Candidate>,
        jointly: JointEvictions,
    ) -> Result<(), Verdict> {
        let state_nodes = candidates.into_iter().filter_map(|one| cluster.state_nodes.get(one.state_node));
        let more = together(cluster, state_nodes);
        for (index, count) in &more {
            let Some(budget) = cluster.pod_budgets.get(*index as usize) else { continue };
            let used = self.used.get(index).copied().unwrap_or(0);
            let wanted = used.saturating_add(*count);
            let may_queue = jointly == JointEvictions::FirstMayWait && used == 0;
            if wanted > budget.disruptions_allowed && !may_queue {
                let allowed = budget.disruptions_allowed;
                return Err(Verdict::PodBudgetJoint { name: budget.name.clone(), wanted, allowed });
            }
        }
        for (index, count) in more {
            *self.used.entry(index).or_insert(0) += count;
        }
        Ok(())
    }
}
