//! How many nodes of each pool may still be disrupted for a reason.

use std::collections::BTreeMap;

use jiff::Timestamp;
use karpenter_api::budget::allowed_disruptions;
use karpenter_api::types::DisruptionReason;

use super::candidate::Candidate;
use super::snapshot::Snapshot;

/// One pool's budget at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Remaining {
    /// What the pool's budgets allow at all.
    pub allowed: usize,
    /// Nodes that count.
    pub nodes: usize,
    /// Nodes of these that are going or not working already.
    pub disrupting: usize,
}

impl Remaining {
    pub fn left(self) -> usize {
        self.allowed.saturating_sub(self.disrupting)
    }
}

/// The budgets of all pools, by name.
pub fn remaining(
    snapshot: &Snapshot,
    reason: &DisruptionReason,
    now: Timestamp,
) -> BTreeMap<String, Remaining> {
    let mut pools: BTreeMap<String, Remaining> =
        snapshot.pools.keys().map(|name| (name.clone(), Remaining::default())).collect();
    for machine in &snapshot.machines {
        let Some(pool) = machine.pool().and_then(|name| pools.get_mut(name)) else { continue };
        if !machine.is_initialized() || machine.is_true("InstanceTerminating") {
            continue;
        }
        pool.nodes += 1;
        // A sick machine does not use up the budget that pays for its own repair.
        let is_sick = !machine.is_ready() && *reason != DisruptionReason::Unhealthy;
        pool.disrupting += usize::from(is_sick || machine.is_leaving);
    }
    for (name, remaining) in &mut pools {
        let disruption = snapshot.pools.get(name).and_then(|pool| pool.pool.spec.disruption.as_ref());
        let budgets = disruption.and_then(|disruption| disruption.budgets.as_deref()).unwrap_or_default();
        let allowed = allowed_disruptions(budgets, reason, now.as_second(), remaining.nodes);
        remaining.allowed = usize::try_from(allowed).unwrap_or(0);
    }
    pools
}

/// Takes as many as the budgets allow, in the given order.
pub fn within(candidates: Vec<Candidate>, budgets: &BTreeMap<String, Remaining>) -> Vec<Candidate> {
    let mut left: BTreeMap<&str, usize> =
        budgets.iter().map(|(name, remaining)| (name.as_str(), remaining.left())).collect();
    let mut take = |candidate: &Candidate| match left.get_mut(candidate.pool.as_str()) {
        Some(left) if *left > 0 => {
            *left -= 1;
            true
        }
        Some(_) | None => false,
    };
    candidates.into_iter().filter(|candidate| take(candidate)).collect()
}
