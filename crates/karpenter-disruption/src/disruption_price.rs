//! The price of moving pods: the saving ratio times the average price of a pod of the NodePool in the cheapest fleet,
//! weighted by disruption cost.
//!
//! The average is taken from the lower bound, which depends on the pods and not on their nodes. So the price of moving a
//! pod stays the same while consolidation lowers the price of the nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::balanced::Totals;
use crate::candidate::NODE_COST;
use crate::cluster::{Cluster, ConsolidationPolicy};
use crate::command::Candidate;
use crate::lower_bound::LowerBound;

/// Prices of disruption, by NodePool.
pub(crate) struct DisruptionPrices {
    /// Dollars per hour and unit of disruption cost, and whether the disruption cost of the node itself counts.
    by_pool: BTreeMap<Arc<str>, (f64, bool)>,
}

impl DisruptionPrices {
    /// `saving_ratio` applies to NodePools that do not set their own.
    pub(crate) fn new(
        cluster: &Cluster,
        totals: &BTreeMap<Arc<str>, Totals>,
        bound: &LowerBound,
        saving_ratio: f64,
    ) -> Self {
        let mut nodes: BTreeMap<&Arc<str>, f64> = BTreeMap::new();
        for pool in cluster.state_nodes.iter().filter_map(|state_node| state_node.pool.as_ref()) {
            *nodes.entry(pool).or_default() += NODE_COST;
        }
        let of_pool = |(name, totals): (&Arc<str>, &Totals)| {
            let pool = cluster.pools.get(name)?;
            // Upstream's test of `Balanced`: the share of the NodePool's price that is saved is at least 1/k of the share
            // of its disruption cost.
            let is_balanced = pool.policy == ConsolidationPolicy::Balanced;
            let price = if is_balanced {
                totals.price_per_hour / pool.pool_policy.balanced_k
            } else {
                pool.pool_policy.saving_ratio.unwrap_or(saving_ratio)
                    * bound.by_pool.get(name).copied().unwrap_or(0.0)
            };
            let of_nodes = if is_balanced { 0.0 } else { nodes.get(name).copied().unwrap_or(0.0) };
            let weight = totals.reschedule_cost - of_nodes;
            let price = if weight > 0.0 { price / weight } else { 0.0 };
            Some((name.clone(), (price, is_balanced)))
        };
        Self { by_pool: totals.iter().filter_map(of_pool).collect() }
    }

    /// The price of moving the pods of a candidate.
    pub(crate) fn of(&self, candidate: &Candidate) -> f64 {
        let (price, counts_node) = self.by_pool.get(&candidate.pool).copied().unwrap_or_default();
        let of_node = if counts_node { 0.0 } else { NODE_COST };
        price * (candidate.reschedule_cost - of_node).max(0.0)
    }
}
