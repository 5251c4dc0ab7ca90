//! Which candidates are simulated together: sets with a high possible saving per disruption.
//!
//! This module only selects sets; the simulation shows whether replacing them saves anything.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use karpenter_model::problem::Problem;

use super::fluid::{Amount, Fluid};
use crate::cluster::Cluster;
use crate::command::Candidate;
use crate::pod_budgets::{JointEvictions, PodBudgetUse};

/// How sets are formed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Choice {
    /// Nodes whose pods need cpu and memory in different ratios, so that they are cheaper together.
    Complementary,
    /// Nodes whose price exceeds the dual price of their pods the most.
    Wasteful,
}

/// Sets in which at most this share of the price could be saved are skipped, because every packing leaves about as much
/// capacity unused.
const PROMISED_SHARE_MIN: f64 = 0.01;

/// The number of whole nodes in the relaxation of a single candidate.
const WHOLE_NODES: usize = 2;

/// A list of sets, and which candidates could still be removed when the sets were formed.
struct Known {
    is_open: Vec<bool>,
    sets: Vec<(Arc<str>, Vec<usize>)>,
}

pub(crate) struct Windows<'a> {
    cluster: &'a Cluster,
    candidates: &'a [Candidate],
    /// The maximum saving from packing a candidate's pods elsewhere.
    waste: Vec<f64>,
    amounts: Vec<Amount>,
    /// The possible saving per disruption of a single candidate.
    alone: Vec<f64>,
    /// The instance types of each NodePool, and its candidates.
    pools: BTreeMap<Arc<str>, (Fluid, Vec<usize>)>,
    /// Whether pods have zonal spreads: then simulations take long, and fewer sets are simulated.
    is_spread: bool,
    /// Sets by kind and maximum size. They are kept, because the same sets are requested for several minimum savings.
    known: Mutex<BTreeMap<(Choice, usize), Known>>,
}

impl<'a> Windows<'a> {
    pub(crate) fn new(
        cluster: &'a Cluster,
        problem: &Problem,
        candidates: &'a [Candidate],
        node_of: &[usize],
        waste: Vec<f64>,
        is_spread: bool,
    ) -> Self {
        let mut pools: BTreeMap<Arc<str>, (Fluid, Vec<usize>)> = BTreeMap::new();
        for (index, pool) in problem.pools.iter().enumerate() {
            pools.insert(pool.name.clone(), (Fluid::of_pool(problem, index), Vec::new()));
        }
        for (number, candidate) in candidates.iter().enumerate() {
            if let Some((_, members)) = pools.get_mut(&candidate.pool) {
                members.push(number);
            }
        }
        let amounts: Vec<Amount> = node_of.iter().map(|node| Amount::of_node(problem, *node)).collect();
        let mut alone = vec![0.0; candidates.len()];
        for (fluid, members) in pools.values() {
            for number in members {
                let data = &candidates[*number];
                let gain = data.price_per_hour - fluid.price(amounts[*number]);
                alone[*number] = gain / data.reschedule_cost.max(1e-9);
            }
        }
        let known = Mutex::default();
        Self { cluster, candidates, waste, amounts, alone, pools, is_spread, known }
    }

    /// Sets of candidates that can still be removed, each of one NodePool, with at most `most` candidates or the number
    /// that `size` returns for the NodePool; highest possible saving first. `least` returns the minimum saving for a
    /// disruption cost.
    pub(crate) fn choose(
        &self,
        (choice, most): (Choice, usize),
        is_open: &[bool],
        size: impl Fn(&Arc<str>) -> usize,
        least: impl Fn(f64) -> f64,
    ) -> Vec<Vec<usize>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known = known.get(&(choice, most)).is_some_and(|known| known.is_open == is_open);
        if !is_known {
            let sets = self.put_together(choice, is_open, size);
            known.insert((choice, most), Known { is_open: is_open.to_vec(), sets });
        }
        let sets = known[&(choice, most)].sets.iter();
        let promising = sets.filter(|(pool, set)| self.is_promising(set, &self.pools[pool].0, &least));
        promising.map(|(_, set)| set.clone()).collect()
    }

    fn put_together(
        &self,
        choice: Choice,
        is_open: &[bool],
        size: impl Fn(&Arc<str>) -> usize,
    ) -> Vec<(Arc<str>, Vec<usize>)> {
        let mut all = Vec::new();
        for (pool, (fluid, members)) in &self.pools {
            let open: Vec<usize> = members.iter().copied().filter(|candidate| is_open[*candidate]).collect();
            let mut sets = match choice {
                Choice::Complementary => self.complementary(open, fluid, size(pool)),
                Choice::Wasteful => self.wasteful(open, size(pool)),
            };
            sets.iter_mut().for_each(|set| set.sort_unstable());
            all.extend(sets.into_iter().map(|set| (pool.clone(), set)));
        }
        all
    }

    fn complementary(&self, mut open: Vec<usize>, fluid: &Fluid, size: usize) -> Vec<Vec<usize>> {
        let mut sets = Vec::new();
        let evicted_anyway = PodBudgetUse::new(self.cluster);
        while !open.is_empty() {
            let mut set: Vec<usize> = Vec::new();
            let mut evicted = evicted_anyway.clone();
            let mut amount: Option<Amount> = None;
            let mut refused: Vec<usize> = Vec::new();
            while set.len() < size.max(1) && !open.is_empty() {
                let Some((at, gain)) = self.most_gain(&open, fluid, amount) else { break };
                if set.is_empty() && gain <= 0.0 {
                    return sets;
                }
                let candidate = open.remove(at);
                if !self.may_join(candidate, &mut evicted) {
                    refused.push(candidate);
                    continue;
                }
                amount = Some(amount.unwrap_or_default().plus(self.amounts[candidate]));
                set.push(candidate);
            }
            if set.is_empty() {
                break;
            }
            sets.push(set);
            open.extend(refused);
            open.sort_unstable();
        }
        sets
    }

    /// The candidate that adds the most possible saving per disruption to a set whose pods have these total requests.
    fn most_gain(&self, open: &[usize], fluid: &Fluid, amount: Option<Amount>) -> Option<(usize, f64)> {
        let Some(amount) = amount else {
            let alone = open.iter().enumerate().map(|(at, candidate)| (at, self.alone[*candidate]));
            return alone.reduce(|best, next| if next.1 > best.1 { next } else { best });
        };
        let (cost_now, prices_now) = fluid.price_and_prices(amount);
        let mut best: Option<(usize, f64)> = None;
        for (at, candidate) in open.iter().enumerate() {
            let data = &self.candidates[*candidate];
            let disruption_cost = data.reschedule_cost.max(1e-9);
            // The dual prices of the set give an upper bound for the saving of adding a candidate, so few candidates
            // need an exact evaluation.
            let at_most = (data.price_per_hour - prices_now.of(self.amounts[*candidate])) / disruption_cost;
            if best.is_some_and(|(_, gain)| at_most + 1e-12 <= gain) {
                continue;
            }
            let cost = fluid.price(amount.plus(self.amounts[*candidate]));
            let gain = (data.price_per_hour - (cost - cost_now)) / disruption_cost;
            if best.is_none_or(|(_, known)| gain > known) {
                best = Some((at, gain));
            }
        }
        best
    }

    fn wasteful(&self, mut open: Vec<usize>, size: usize) -> Vec<Vec<usize>> {
        let mut sets = Vec::new();
        open.retain(|candidate| self.waste[*candidate] > 0.0);
        let per_disruption_cost =
            |candidate: usize| self.waste[candidate] / self.candidates[candidate].reschedule_cost.max(1e-9);
        open.sort_by(|a, b| per_disruption_cost(*b).total_cmp(&per_disruption_cost(*a)).then(a.cmp(b)));
        let evicted_anyway = PodBudgetUse::new(self.cluster);
        while !open.is_empty() {
            let mut evicted = evicted_anyway.clone();
            let mut set: Vec<usize> = Vec::new();
            open.retain(|candidate| {
                let joins = set.len() < size.max(1) && self.may_join(*candidate, &mut evicted);
                if joins {
                    set.push(*candidate);
                }
                !joins
            });
            if set.is_empty() {
                break;
            }
            sets.push(set);
        }
        sets
    }

    /// Whether the possible saving justifies a simulation.
    fn is_promising(&self, set: &[usize], fluid: &Fluid, least: impl Fn(f64) -> f64) -> bool {
        let price: f64 = set.iter().map(|candidate| self.candidates[*candidate].price_per_hour).sum();
        let waste: f64 = set.iter().map(|candidate| self.waste[*candidate]).sum();
        let disruption_cost: f64 =
            set.iter().map(|candidate| self.candidates[*candidate].reschedule_cost).sum();
        let amount = set.iter().fold(Amount::default(), |sum, candidate| sum.plus(self.amounts[*candidate]));
        let least_price = match set {
            [_] if self.is_spread => fluid.price_of_nodes(amount, WHOLE_NODES),
            _ => fluid.price(amount),
        };
        waste.min(price - least_price) > (PROMISED_SHARE_MIN * price).max(least(disruption_cost))
    }

    /// Whether PodDisruptionBudgets allow the evictions of the candidate together with those of the set.
    fn may_join(&self, candidate: usize, evicted: &mut PodBudgetUse) -> bool {
        self.cluster.pod_budgets.is_empty()
            || evicted.admit(self.cluster, [&self.candidates[candidate]], JointEvictions::AllNow).is_ok()
    }
}
