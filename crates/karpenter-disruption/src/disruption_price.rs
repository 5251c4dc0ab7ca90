//! The price of moving pods: the saving ratio times what the pods of the NodePool cost on average, weighted by
//! disruption cost.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::balanced::Totals;
use crate::candidate::NODE_COST;
use crate::cluster::{Cluster, ConsolidationPolicy};
use crate::command::Candidate;

/// Prices of disruption, by NodePool.
pub(crate) struct DisruptionPrices {
    /// Dollars per hour and unit of disruption cost, and whether the disruption cost of the node itself counts.
    by_pool: BTreeMap<Arc<str>, (f64, bool)>,
}

impl DisruptionPrices {
    /// `saving_ratio` is the share of a NodePool's price that moving all its pods has to save, unless the NodePool says
    /// otherwise.
    pub(crate) fn new(cluster: &Cluster, totals: &BTreeMap<Arc<str>, Totals>, saving_ratio: f64) -> Self {
        let mut nodes: BTreeMap<&Arc<str>, f64> = BTreeMap::new();
        for pool in cluster.state_nodes.iter().filter_map(|state_node| state_node.pool.as_ref()) {
            *nodes.entry(pool).or_default() += NODE_COST;
        }
        let of_pool = |(name, totals): (&Arc<str>, &Totals)| {
            let pool = cluster.pools.get(name)?;
            let (ratio, counts_nodes) = match pool.policy {
                // Upstream's test: the share of the price that is saved is at least 1/k of the share of the disruption cost.
                ConsolidationPolicy::Balanced => (1.0 / pool.pool_policy.balanced_k, true),
                _ => (pool.pool_policy.saving_ratio.unwrap_or(saving_ratio), false),
            };
            let of_nodes = if counts_nodes { 0.0 } else { nodes.get(name).copied().unwrap_or(0.0) };
            let weight = totals.reschedule_cost - of_nodes;
            let price = if weight > 0.0 { ratio * totals.price_per_hour / weight } else { 0.0 };
            Some((name.clone(), (price, counts_nodes)))
        };
        Self { by_pool: totals.iter().filter_map(of_pool).collect() }
    }

    /// The price of moving the pods of a candidate.
    pub(crate) fn of(&self, candidate: &Candidate) -> f64 {
        let (price, counts_nodes) = self.by_pool.get(&candidate.pool).copied().unwrap_or_default();
        let of_node = if counts_nodes { 0.0 } else { NODE_COST };
        price * (candidate.reschedule_cost - of_node).max(0.0)
    }
}
