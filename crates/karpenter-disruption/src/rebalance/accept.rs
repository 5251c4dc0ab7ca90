//! Which moves are worth being made.
//!
//! Budgets are not looked at here: a move that has to wait for them is still part of the plan.

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

/// Less than this share of the price is not worth a launch, whatever the pool's owner says: prices change as well.
const SAVING_SHARE_MIN: f64 = 0.005;
/// And so much more for every node by which each node that goes makes the fleet larger: nodes have to be looked after,
/// and every one of them runs its own daemons.
const SAVING_SHARE_PER_NODE_MORE: f64 = 0.08;

/// How much of what the fleet costs a move has to save for its share of the trouble of moving all pods.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Yield(f64);

impl Yield {
    pub(crate) const fn of(share: f64) -> Self {
        Self(share)
    }

    /// Moving every tenth pod has to save four hundredths.
    pub(crate) const GREAT: Self = Self(0.4);
    /// A tenth: moving every tenth pod has to save a hundredth.
    pub(crate) const GOOD: Self = Self(0.1);
    /// For fleets that are still dear when nothing of good yield is left.
    pub(crate) const FAIR: Self = Self(0.05);
    /// For those that are dear even then.
    pub(crate) const POOR: Self = Self(0.01);
}

pub(crate) struct Rules<'a> {
    cluster: &'a Cluster,
    totals: BTreeMap<Arc<str>, Totals>,
    /// What the whole fleet costs, and what it would be to move all of it.
    whole: Totals,
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

    /// Whether the move is worth it; the reason if it is the owner of a pool who asks for more.
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
            if one.saving_per_hour() < self.least_saving_per_hour(one.trouble, least) {
                return Err(None);
            }
            // The same nodes again, at another price perhaps: that is no improvement to last.
            if self.launched_again(draft, one).len() == one.sources.len() {
                return Err(None);
            }
        }
        self.is_agreed(draft, one)
            .map_err(|why| Some(why).filter(|why| !matches!(why, Verdict::NotCheaper { .. })))
    }

    /// Whether owners let the node go if its pods find room elsewhere.
    pub(crate) fn may_be_deleted(&self, draft: &Draft<'_>, source: usize) -> Result<(), Verdict> {
        self.is_agreed(draft, &deletion(draft, source, Vec::new()))
    }

    /// Whether all pods of the move may be evicted together, and are not more than their pools' owners let move.
    pub(crate) fn may_go_together(&self, draft: &Draft<'_>, one: &Move) -> bool {
        let command = command(draft.candidates, one.clone(), false);
        let mut evicted = self.evicted_anyway.clone();
        evicted.admit(self.cluster, &command.candidates, JointEvictions::AllNow).is_ok()
            && self.moves_left.clone().admit(self.cluster, &command).is_ok()
    }

    /// What owners of pools ask for.
    fn is_agreed(&self, draft: &Draft<'_>, one: &Move) -> Result<(), Verdict> {
        let command = command(draft.candidates, one.clone(), false);
        check_saving(self.cluster, &command)?;
        balanced::approve(self.cluster, &self.totals, &command)
    }

    /// What a move of so much trouble has to save at least.
    pub(crate) fn least_saving_per_hour(&self, trouble: f64, least: Yield) -> f64 {
        let trouble_share = trouble / self.whole.reschedule_cost.max(f64::MIN_POSITIVE);
        least.0 * trouble_share * self.whole.price_per_hour
    }

    /// Sources of which the move would launch the like again, one for each of those, the fullest first.
    pub(crate) fn launched_again(&self, draft: &Draft<'_>, one: &Move) -> Vec<usize> {
        let going: Vec<&Candidate> = one.sources.iter().map(|source| &draft.candidates[*source]).collect();
        let again = launched_again(self.cluster, &going, &one.replacements);
        again.into_iter().map(|position| one.sources[position]).collect()
    }
}

/// Nodes that go, by position, of which the like would be launched: same pool, same type, bought the same way. One for
/// each that is launched, the fullest first.
pub(crate) fn launched_again(
    cluster: &Cluster,
    going: &[&Candidate],
    replacements: &[PlannedNode],
) -> Vec<usize> {
    let mut left: Vec<usize> = (0..going.len()).collect();
    let pods = |position: usize| going[position].reschedule_cost;
    left.sort_by(|a, b| pods(*b).total_cmp(&pods(*a)).then(a.cmp(b)));
    let mut again = Vec::new();
    for planned in replacements {
        let Some(pool) = cluster.problem.pools.get(planned.pool) else { continue };
        let Some(instance_type) = cluster.problem.catalogs[pool.catalog].get(planned.instance_type) else {
            continue;
        };
        let capacity_type = instance_type.offerings.get(planned.offering).and_then(|one| one.capacity_type());
        let is_like = |position: &usize| {
            let candidate = going[*position];
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
