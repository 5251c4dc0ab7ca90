//! Settings of NodePools beyond upstream's API: minimum saving, cool-down after moves, maximum moves per hour.
//!
//! These settings apply to consolidation only, not to repair, drift and expiration.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cluster::{Cluster, NodePoolView, StateNode};
use crate::command::{Candidate, Command, Decision};
use crate::verdict::Verdict;

/// A saving below this counts as zero, because sums of prices have rounding errors.
const NO_SAVING_PER_HOUR: f64 = 1e-9;

/// Checks that the command saves money, and at least the minimum saving that each NodePool of its candidates demands.
pub(crate) fn check_saving(cluster: &Cluster, command: &Command) -> Result<(), Verdict> {
    let saving = command.saving_per_hour();
    let pools = command.candidates.iter().filter_map(|candidate| cluster.pools.get(&candidate.pool));
    let wanted = pools
        .map(|pool| {
            let of_price = pool.pool_policy.min_saving_ratio * command.price_before_per_hour;
            of_price.max(pool.pool_policy.min_saving_per_hour)
        })
        .fold(0.0, f64::max);
    // If the price of a candidate is unknown, the saving is zero. A command that only deletes nodes is allowed
    // nevertheless, because it launches nothing.
    if command.decision != Decision::Delete && saving < NO_SAVING_PER_HOUR {
        return Err(Verdict::NotCheaper {
            price_now_per_hour: command.price_before_per_hour,
            cheapest_replacement_per_hour: Some(command.price_after_per_hour),
        });
    }
    if saving + NO_SAVING_PER_HOUR < wanted {
        return Err(Verdict::BelowThreshold { saving_per_hour: saving, wanted_per_hour: wanted });
    }
    Ok(())
}

/// The end of the cool-down of a node to which pods were moved, or whose pods were moved before; `None` if there is no
/// cool-down.
pub fn cool_down_until(state_node: &StateNode, pool: &NodePoolView, now_secs: i64) -> Option<i64> {
    let moved = state_node.pods.iter().filter_map(|node_pod| node_pod.moved_at_secs);
    let last = moved.chain(state_node.moved_onto_at_secs).max()?;
    let until = last.saturating_add(pool.pool_policy.cool_down_secs);
    (until > now_secs).then_some(until)
}

/// How many more pods consolidation may move, by NodePool; without an entry there is no limit.
#[derive(Debug, Clone, Default)]
pub(crate) struct MoveAllowance {
    left: BTreeMap<Arc<str>, u32>,
}

impl MoveAllowance {
    pub(crate) fn new(cluster: &Cluster) -> Self {
        let limited = cluster.pools.iter().filter_map(|(name, pool)| {
            let left = pool.pool_policy.max_moves_per_hour?.saturating_sub(pool.pool_policy.moved_last_hour);
            Some((name.clone(), left))
        });
        Self { left: limited.collect() }
    }

    pub(crate) fn admit(&mut self, cluster: &Cluster, command: &Command) -> Result<(), Verdict> {
        let mut more: BTreeMap<&Arc<str>, u32> = BTreeMap::new();
        let pool_at: BTreeMap<u32, &Arc<str>> = command
            .candidates
            .iter()
            .filter_map(|candidate| Some((node_of(cluster, candidate)?, &candidate.pool)))
            .collect();
        for (pod, _) in &command.moves {
            if let Some(pool) = pool_at.get(&pod.node) {
                *more.entry(pool).or_insert(0) += 1;
            }
        }
        for (pool, wanted) in &more {
            let Some(left) = self.left.get(*pool).copied().filter(|left| wanted > left) else { continue };
            let per_hour = cluster.pools.get(*pool).and_then(|pool| pool.pool_policy.max_moves_per_hour);
            let (pool, per_hour) = ((*pool).clone(), per_hour.unwrap_or(0));
            return Err(Verdict::MovesExhausted { pool, per_hour, left, wanted: *wanted });
        }
        for (pool, count) in more {
            if let Some(left) = self.left.get_mut(pool) {
                *left -= count;
            }
        }
        Ok(())
    }
}

fn node_of(cluster: &Cluster, candidate: &Candidate) -> Option<u32> {
    cluster.state_nodes.get(candidate.state_node)?.at.map(|at| at as u32)
}
