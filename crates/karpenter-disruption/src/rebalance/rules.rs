//! Whether NodePools' settings, PodDisruptionBudgets and move limits allow a move.
//!
//! Budgets of NodePools are not checked here: a move that awaits a budget is still part of the plan.

use std::collections::BTreeMap;
use std::sync::Arc;

use karpenter_model::plan::PlannedNode;

use super::command;
use super::draft::{Draft, Move};
use crate::balanced::{self, Totals};
use crate::cluster::Cluster;
use crate::command::Candidate;
use crate::pod_budgets::{JointEvictions, PodBudgetUse};
use crate::pool_policy::{MoveAllowance, check_saving};
use crate::verdict::Verdict;

pub(crate) struct Rules<'a> {
    cluster: &'a Cluster,
    totals: BTreeMap<Arc<str>, Totals>,
    evicted_anyway: PodBudgetUse,
    moves_left: MoveAllowance,
}

impl<'a> Rules<'a> {
    pub(crate) fn new(cluster: &'a Cluster) -> Self {
        let totals = balanced::totals(cluster);
        Self {
            cluster,
            totals,
            evicted_anyway: PodBudgetUse::new(cluster),
            moves_left: MoveAllowance::new(cluster),
        }
    }

    /// Whether the NodePools' settings allow the command.
    pub(crate) fn accepts(&self, draft: &Draft<'_>, one: &Move) -> Result<(), Verdict> {
        let allows_several = |source: &usize| {
            let pool = self.cluster.pools.get(&draft.candidates[*source].pool);
            pool.is_none_or(|pool| pool.pool_policy.is_many_to_many_enabled)
        };
        if one.replacements.len() > 1 && !one.sources.iter().all(allows_several) {
            return Err(Verdict::NeedsSeveralNodes { count: one.replacements.len() });
        }
        self.check_pool_settings(draft, one)
    }

    /// Whether the NodePool's settings allow the deletion of the node if its pods fit elsewhere.
    pub(crate) fn may_be_deleted(&self, draft: &Draft<'_>, source: usize) -> Result<(), Verdict> {
        self.check_pool_settings(draft, &Move::deletion(draft, source, Vec::new()))
    }

    /// Whether PodDisruptionBudgets allow the eviction of all pods of the move at once, and `max-moves-per-hour` allows
    /// that many.
    pub(crate) fn may_go_together(&self, draft: &Draft<'_>, one: &Move) -> bool {
        let command = command(draft.candidates, one.clone());
        let mut evicted = self.evicted_anyway.clone();
        evicted.admit(self.cluster, &command.candidates, JointEvictions::AllNow).is_ok()
            && self.moves_left.clone().admit(self.cluster, &command).is_ok()
    }

    /// Checks the minimum savings of the NodePools, and `Balanced`.
    fn check_pool_settings(&self, draft: &Draft<'_>, one: &Move) -> Result<(), Verdict> {
        let command = command(draft.candidates, one.clone());
        check_saving(self.cluster, &command)?;
        balanced::approve(self.cluster, &self.totals, &command)
    }

    /// Whether the move launches all of its own nodes again.
    pub(crate) fn launches_same_nodes(&self, draft: &Draft<'_>, one: &Move) -> bool {
        let removed: Vec<&Candidate> = one.sources.iter().map(|source| &draft.candidates[*source]).collect();
        launched_again(self.cluster, &removed, &one.replacements).len() == removed.len()
    }
}

/// Removed nodes that a replacement equals in NodePool, instance type and capacity type, by position. Each replacement
/// matches at most one node, that with the highest disruption cost first.
pub(crate) fn launched_again(
    cluster: &Cluster,
    removed: &[&Candidate],
    replacements: &[PlannedNode],
) -> Vec<usize> {
    let mut left: Vec<usize> = (0..removed.len()).collect();
    let pods = |position: usize| removed[position].reschedule_cost;
    left.sort_by(|a, b| pods(*b).total_cmp(&pods(*a)).then(a.cmp(b)));
    let mut again = Vec::new();
    for planned in replacements {
        let Some(pool) = cluster.problem.pools.get(planned.pool) else { continue };
        let Some(instance_type) = cluster.problem.catalogs[pool.catalog].get(planned.instance_type) else {
            continue;
        };
        let capacity_type = instance_type.offerings.get(planned.offering).and_then(|one| one.capacity_type());
        let is_like = |position: &usize| {
            let candidate = removed[*position];
            let state_node = &cluster.state_nodes[candidate.state_node];
            candidate.pool == pool.name
                && state_node.instance_type.as_ref() == Some(&instance_type.name)
                && state_node.capacity_type.as_ref() == capacity_type
        };
        if let Some(at) = left.iter().position(is_like) {
            again.push(left.remove(at));
        }
    }
    again.sort_unstable();
    again
}
