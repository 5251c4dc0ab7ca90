//! Which nodes are looked at together: sets in which much could be saved for little trouble.
//!
//! Only a choice of questions; whether anything is saved is for the answers to say.

use std::collections::BTreeMap;
use std::sync::Arc;

use karpenter_model::problem::Problem;

use super::fluid::{Amount, Fluid};
use crate::command::Candidate;
use crate::fleet::Fleet;
use crate::pod_budgets::{Jointly, PodBudgetUse};

/// How sets are put together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    /// Nodes that complement each other.
    Complementary,
    /// The most wasteful ones, as they come.
    Wasteful,
}

/// No packing is without waste: where less than this share of the price could be saved at best, none will be.
const PROMISED_SHARE_MIN: f64 = 0.01;

pub(crate) struct Windows<'a> {
    fleet: &'a Fleet,
    candidates: &'a [Candidate],
    /// What could be saved at most by packing a candidate's pods elsewhere.
    waste: Vec<f64>,
    amounts: Vec<Amount>,
    /// What a candidate by itself promises to save per trouble.
    alone: Vec<f64>,
    /// What each pool may launch, and its candidates.
    pools: BTreeMap<Arc<str>, (Fluid, Vec<usize>)>,
}

impl<'a> Windows<'a> {
    pub(crate) fn new(
        fleet: &'a Fleet,
        problem: &Problem,
        candidates: &'a [Candidate],
        node_of: &[usize],
        waste: Vec<f64>,
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
        Self { fleet, candidates, waste, amounts, alone, pools }
    }

    /// Sets of open candidates of one pool each, of at most as many as `size` says for the pool; most promising first.
    /// `least` says what a move of so much trouble has to save.
    pub(crate) fn choose(
        &self,
        choice: Choice,
        is_open: &[bool],
        size: impl Fn(&Arc<str>) -> usize,
        least: impl Fn(f64) -> f64,
    ) -> Vec<Vec<usize>> {
        let mut sets = Vec::new();
        let least: &dyn Fn(f64) -> f64 = &least;
        for (pool, (fluid, members)) in &self.pools {
            let open: Vec<usize> = members.iter().copied().filter(|candidate| is_open[*candidate]).collect();
            match choice {
                Choice::Complementary => self.complementary(open, fluid, size(pool), least, &mut sets),
                Choice::Wasteful => self.wasteful(open, fluid, size(pool), least, &mut sets),
            }
        }
        sets
    }

    fn complementary(
        &self,
        mut open: Vec<usize>,
        fluid: &Fluid,
        size: usize,
        least: &dyn Fn(f64) -> f64,
        sets: &mut Vec<Vec<usize>>,
    ) {
        let evicted_anyway = PodBudgetUse::new(self.fleet);
        while !open.is_empty() {
            let mut set: Vec<usize> = Vec::new();
            let mut evicted = evicted_anyway.clone();
            let mut amount: Option<Amount> = None;
            let mut refused: Vec<usize> = Vec::new();
            while set.len() < size.max(1) && !open.is_empty() {
                let Some((at, gain)) = self.most_gain(&open, fluid, amount) else { break };
                if set.is_empty() && gain <= 0.0 {
                    return;
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
                return;
            }
            if self.is_promising(&set, fluid, least) {
                set.sort_unstable();
                sets.push(set);
            }
            open.extend(refused);
            open.sort_unstable();
        }
    }

    /// The one of the open candidates that adds most, per trouble, to what a set of this amount promises.
    fn most_gain(&self, open: &[usize], fluid: &Fluid, amount: Option<Amount>) -> Option<(usize, f64)> {
        let Some(amount) = amount else {
            let alone = open.iter().enumerate().map(|(at, candidate)| (at, self.alone[*candidate]));
            return alone.reduce(|best, next| if next.1 > best.1 { next } else { best });
        };
        let (cost_now, prices_now) = fluid.price_and_prices(amount);
        let mut best: Option<(usize, f64)> = None;
        for (at, candidate) in open.iter().enumerate() {
            let data = &self.candidates[*candidate];
            let trouble = data.reschedule_cost.max(1e-9);
            // At the prices of the set as it is a candidate costs no more than it would at its own: few have to be
            // looked at closely.
            let at_most = (data.price_per_hour - prices_now.of(self.amounts[*candidate])) / trouble;
            if best.is_some_and(|(_, gain)| at_most + 1e-12 <= gain) {
                continue;
            }
            let cost = fluid.price(amount.plus(self.amounts[*candidate]));
            let gain = (data.price_per_hour - (cost - cost_now)) / trouble;
            if best.is_none_or(|(_, known)| gain > known) {
                best = Some((at, gain));
            }
        }
        best
    }

    fn wasteful(
        &self,
        mut open: Vec<usize>,
        fluid: &Fluid,
        size: usize,
        least: &dyn Fn(f64) -> f64,
        sets: &mut Vec<Vec<usize>>,
    ) {
        open.retain(|candidate| self.waste[*candidate] > 0.0);
        let per_trouble =
            |candidate: usize| self.waste[candidate] / self.candidates[candidate].reschedule_cost.max(1e-9);
        open.sort_by(|a, b| per_trouble(*b).total_cmp(&per_trouble(*a)).then(a.cmp(b)));
        let evicted_anyway = PodBudgetUse::new(self.fleet);
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
                return;
            }
            if self.is_promising(&set, fluid, least) {
                set.sort_unstable();
                sets.push(set);
            }
        }
    }

    /// Whether enough could be saved for a question to be worth asking.
    fn is_promising(&self, set: &[usize], fluid: &Fluid, least: &dyn Fn(f64) -> f64) -> bool {
        let price: f64 = set.iter().map(|candidate| self.candidates[*candidate].price_per_hour).sum();
        let waste: f64 = set.iter().map(|candidate| self.waste[*candidate]).sum();
        let trouble: f64 = set.iter().map(|candidate| self.candidates[*candidate].reschedule_cost).sum();
        let amount = set.iter().fold(Amount::default(), |sum, candidate| sum.plus(self.amounts[*candidate]));
        waste.min(price - fluid.price(amount)) > (PROMISED_SHARE_MIN * price).max(least(trouble))
    }

    /// Whether its pods can be evicted together with those of the set.
    fn may_join(&self, candidate: usize, evicted: &mut PodBudgetUse) -> bool {
        self.fleet.pod_budgets.is_empty()
            || evicted.admit(self.fleet, [&self.candidates[candidate]], Jointly::Strictly).is_ok()
    }
}
