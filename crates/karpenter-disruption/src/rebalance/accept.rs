//! Decides which moves save enough to become commands.
//!
//! Budgets are not considered: a move that exceeds them is still part of the plan.

use std::collections::BTreeMap;
use std::sync::Arc;

use karpenter_model::plan::PlannedNode;

use super::command;
use super::deletes::deletion;
use super::draft::{Draft, Move};
use crate::balanced::{self, Totals};
use crate::cluster::Cluster;
use crate::command::{Candidate, Command};
use crate::pod_budgets::{JointEvictions, PodBudgetUse};
use crate::pool_policy::{MoveAllowance, check_saving};
use crate::verdict::Verdict;

/// The minimum saving of a command that launches nodes, as a share of the price of its candidates. Smaller savings are
/// within the usual changes of prices.
const SAVING_SHARE_MIN: f64 = 0.005;
/// If a command launches more nodes than it deletes, the minimum share increases by this factor times the number of
/// additional nodes per candidate, because each node also runs DaemonSet pods.
const SAVING_SHARE_PER_NODE_MORE: f64 = 0.08;

/// The share of the fleet's price that a move has to save, per share of the disruption cost of all pods.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Yield(f64);

impl Yield {
    pub(crate) const fn of(share: f64) -> Self {
        Self(share)
    }

    /// Moving 10 % of the pods has to save 4 % of the price.
    pub(crate) const GREAT: Self = Self(0.4);
    /// Moving 10 % of the pods has to save 1 % of the price.
    pub(crate) const GOOD: Self = Self(0.1);
    /// Moving 10 % of the pods has to save 0.5 % of the price. For fleets above the target price for which no command with the
    /// full saving per disruption is left.
    pub(crate) const MEDIUM_YIELD: Self = Self(0.05);
    /// Moving 10 % of the pods has to save 0.1 % of the price. For fleets that are above the target price even after that.
    pub(crate) const POOR: Self = Self(0.01);
}

pub(crate) struct Rules<'a> {
    cluster: &'a Cluster,
    totals: BTreeMap<Arc<str>, Totals>,
    /// The price of the fleet, and the disruption cost of all its pods.
    whole: Totals,
    /// The evictions of nodes that are already being deleted.
    evicted_anyway: PodBudgetUse,
    moves_left: MoveAllowance,
}

impl<'a> Rules<'a> {
    pub(crate) fn new(cluster: &'a Cluster) -> Self {
        let totals = balanced::totals(cluster);
        let whole = totals.values().fold(Totals::default(), |sum, one| Totals {
            price_per_hour: sum.price_per_hour + one.price_per_hour,
            reschedule_cost: sum.reschedule_cost + one.reschedule_cost,
        });
        Self {
            cluster,
            totals,
            whole,
            evicted_anyway: PodBudgetUse::new(cluster),
            moves_left: MoveAllowance::new(cluster),
        }
    }

    pub(crate) fn is_many_to_many(&self, pool: &Arc<str>) -> bool {
        self.cluster.pools.get(pool).is_none_or(|pool| pool.pool_policy.is_many_to_many_enabled)
    }

    /// Checks that the move saves enough. The error has a verdict if a setting of a NodePool demands more.
    pub(crate) fn accepts(&self, draft: &Draft<'_>, one: &Move, least: Yield) -> Result<(), Option<Verdict>> {
        if one.replacements.len() > 1
            && !one.sources.iter().all(|source| self.is_many_to_many(&draft.candidates[*source].pool))
        {
            return Err(Some(Verdict::NeedsSeveralNodes { count: one.replacements.len() }));
        }
        if !one.replacements.is_empty() {
            let share = saving_share_min(one.sources.len(), one.replacements.len());
            if one.saving_per_hour() <= share * one.price_before_per_hour {
                return Err(None);
            }
            if one.saving_per_hour() < self.least_saving_per_hour(one.disruption_cost, least) {
                return Err(None);
            }
            // The replacements have the same instance types as the candidates, perhaps at another price.
            if self.launched_again(draft, one).len() == one.sources.len() {
                return Err(None);
            }
        }
        self.is_agreed(draft, one)
            .map_err(|why| Some(why).filter(|why| !matches!(why, Verdict::NotCheaper { .. })))
    }

    /// Whether the settings of the NodePool allow the deletion of the node.
    pub(crate) fn may_be_deleted(&self, draft: &Draft<'_>, source: usize) -> Result<(), Verdict> {
        self.is_agreed(draft, &deletion(draft, source, Vec::new()))
    }

    /// Whether PodDisruptionBudgets allow all evictions of the move together, and the moves per hour of the NodePools
    /// allow all of its pods.
    pub(crate) fn may_go_together(&self, draft: &Draft<'_>, one: &Move) -> bool {
        let command = command(draft.candidates, one.clone(), false);
        let mut evicted = self.evicted_anyway.clone();
        evicted.admit(self.cluster, &command.candidates, JointEvictions::AllNow).is_ok()
            && self.moves_left.clone().admit(self.cluster, &command).is_ok()
    }

    /// Checks the move against the settings of the NodePools of its candidates.
    fn is_agreed(&self, draft: &Draft<'_>, one: &Move) -> Result<(), Verdict> {
        let command = command(draft.candidates, one.clone(), false);
        check_saving(self.cluster, &command)?;
        balanced::approve(self.cluster, &self.totals, &command)
    }

    /// The minimum saving of a move with this disruption cost.
    pub(crate) fn least_saving_per_hour(&self, disruption_cost: f64, least: Yield) -> f64 {
        let disruption_share = disruption_cost / self.whole.reschedule_cost.max(f64::MIN_POSITIVE);
        least.0 * disruption_share * self.whole.price_per_hour
    }

    /// Candidates that the move would launch again with the same type, one per launched node, those with most pods first.
    pub(crate) fn launched_again(&self, draft: &Draft<'_>, one: &Move) -> Vec<usize> {
        let removed: Vec<&Candidate> = one.sources.iter().map(|source| &draft.candidates[*source]).collect();
        let again = launched_again(self.cluster, &removed, &one.replacements);
        again.into_iter().map(|position| one.sources[position]).collect()
    }
}

/// Candidates, by position, that would be launched again: same NodePool, instance type and capacity type. One for each
/// launched node, those with most pods first.
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

/// Whether a command that launches nodes saves enough for that.
pub(crate) fn pays_for_launches(command: &Command) -> bool {
    let share = saving_share_min(command.candidates.len(), command.replacements.len());
    command.replacements.is_empty() || command.saving_per_hour() > share * command.price_before_per_hour
}

fn saving_share_min(sources: usize, replacements: usize) -> f64 {
    let more = replacements.saturating_sub(sources);
    SAVING_SHARE_MIN + SAVING_SHARE_PER_NODE_MORE * more as f64 / sources.max(1) as f64
}
