//! The policy Balanced: the share of the pool's price that a command saves, divided by its share of the pool's
//! disruption cost, has to reach the threshold 1/k.
//!
//! Upstream: pkg/controllers/disruption/balanced.go; there k is always 2.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::candidate::reschedule_cost;
use crate::cluster::{Cluster, ConsolidationPolicy, NodePoolView};
use crate::command::{Candidate, Command};
use crate::verdict::Verdict;

/// Price and disruption cost of all nodes of a NodePool.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Totals {
    pub price_per_hour: f64,
    pub reschedule_cost: f64,
}

/// The score of a command for one NodePool.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Score {
    pub savings_share: f64,
    pub disruption_share: f64,
    pub k: f64,
}

impl Score {
    fn new(saving_per_hour: f64, cost: f64, totals: Totals, k: f64) -> Self {
        // Without price or disruption cost there are no shares to compare, so the command is rejected.
        if totals.price_per_hour <= 0.0 || totals.reschedule_cost <= 0.0 {
            return Self { savings_share: 0.0, disruption_share: 0.0, k };
        }
        Self {
            savings_share: saving_per_hour / totals.price_per_hour,
            disruption_share: cost / totals.reschedule_cost,
            k,
        }
    }

    pub fn value(self) -> f64 {
        if self.savings_share <= 0.0 {
            0.0
        } else if self.disruption_share == 0.0 {
            f64::INFINITY
        } else {
            self.savings_share / self.disruption_share
        }
    }

    pub fn threshold(self) -> f64 {
        1.0 / self.k
    }

    pub fn is_approved(self) -> bool {
        self.value() >= self.threshold()
    }
}

/// The totals of each NodePool over all its nodes, including nodes that are not candidates.
pub fn totals(cluster: &Cluster) -> BTreeMap<Arc<str>, Totals> {
    let mut by_pool: BTreeMap<Arc<str>, Totals> = BTreeMap::new();
    for state_node in &cluster.state_nodes {
        let Some(pool) = &state_node.pool else { continue };
        let totals = by_pool.entry(pool.clone()).or_default();
        totals.price_per_hour += state_node.price_per_hour;
        totals.reschedule_cost += reschedule_cost(state_node);
    }
    by_pool
}

fn is_balanced(pool: &NodePoolView) -> bool {
    pool.policy == ConsolidationPolicy::Balanced
}

/// The score of the command for each NodePool with the policy Balanced of which a node is a candidate.
pub fn scores(
    cluster: &Cluster,
    totals: &BTreeMap<Arc<str>, Totals>,
    command: &Command,
) -> BTreeMap<Arc<str>, Score> {
    let mut by_pool: BTreeMap<&Arc<str>, (f64, f64)> = BTreeMap::new();
    for candidate in &command.candidates {
        let (price, cost) = by_pool.entry(&candidate.pool).or_default();
        *price += candidate.price_per_hour;
        *cost += candidate.reschedule_cost;
    }
    let is_shared = by_pool.len() > 1 && command.price_before_per_hour > 0.0;
    let mut scores = BTreeMap::new();
    for (name, (price, cost)) in by_pool {
        let Some(pool) = cluster.pools.get(name).filter(|pool| is_balanced(pool)) else { continue };
        let share = if is_shared { price / command.price_before_per_hour } else { 1.0 };
        let saving = command.saving_per_hour() * share;
        let totals = totals.get(name).copied().unwrap_or_default();
        scores.insert(name.clone(), Score::new(saving, cost, totals, pool.pool_policy.balanced_k));
    }
    scores
}

/// Checks that the score reaches the threshold of every NodePool concerned; otherwise returns the lowest score.
pub(crate) fn approve(
    cluster: &Cluster,
    totals: &BTreeMap<Arc<str>, Totals>,
    command: &Command,
) -> Result<(), Verdict> {
    let rejected = scores(cluster, totals, command).into_values().filter(|score| !score.is_approved());
    match rejected.min_by(|a, b| a.value().total_cmp(&b.value())) {
        Some(score) => Err(Verdict::Unbalanced { score: score.value(), threshold: score.threshold() }),
        None => Ok(()),
    }
}

/// Checks whether the cheapest case, deletion of the candidate without a replacement, would be approved.
pub(crate) fn check_best_case(
    pool: &NodePoolView,
    totals: &BTreeMap<Arc<str>, Totals>,
    candidate: &Candidate,
) -> Result<(), Verdict> {
    let of_pool = totals.get(&candidate.pool).copied().unwrap_or_default();
    if !is_balanced(pool) || of_pool.price_per_hour <= 0.0 {
        return Ok(());
    }
    let (saving, cost) = (candidate.price_per_hour, candidate.reschedule_cost);
    let score = Score::new(saving, cost, of_pool, pool.pool_policy.balanced_k);
    if score.is_approved() {
        return Ok(());
    }
    Err(Verdict::Unbalanced { score: score.value(), threshold: score.threshold() })
}
