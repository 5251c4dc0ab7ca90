//! The condition `NodeRegistrationHealthy` of NodePools, computed from the outcomes of their last four launches.
//!
//! The condition only informs users: it does not affect scheduling. Outcomes are kept in memory; after a restart they
//! are estimated from the condition.
//!
//! Upstream: pkg/controllers/nodepool/registrationhealth, pkg/state/nodepoolhealth.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use karpenter_api::conditions::{ConditionSet, NODE_POOL_CONDITIONS};
use karpenter_api::labels;
use karpenter_api::types::{Condition, ConditionStatus, NodeClaim, NodePool, NodePoolStatus};
use karpenter_runtime::object::{label, uid_of};

use crate::inputs::{Reads, Writes};
use crate::writes;

pub const NODE_REGISTRATION_HEALTHY: &str = "NodeRegistrationHealthy";
/// How many outcomes are kept for each NodePool, and in the next constant how many of them must be failures for it to
/// be unhealthy.
const OUTCOMES_MAX: usize = 4;
const FAILURES_MAX: usize = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    Unknown,
    Healthy,
    Unhealthy,
}

/// The last outcomes of one NodePool, oldest first; `true` if the node registered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcomes {
    registered: VecDeque<bool>,
}

impl Outcomes {
    /// The outcomes that are assumed after a restart, given the status of the condition.
    pub fn of_condition(status: Option<ConditionStatus>) -> Self {
        let registered = match status {
            Some(ConditionStatus::True) => vec![true],
            Some(ConditionStatus::False) => vec![false; FAILURES_MAX],
            Some(ConditionStatus::Unknown) | None => Vec::new(),
        };
        Self { registered: registered.into() }
    }

    pub fn health(&self) -> Health {
        let failures = self.registered.iter().filter(|registered| !**registered).count();
        match (self.registered.is_empty(), failures) {
            (true, _) => Health::Unknown,
            (false, FAILURES_MAX..) => Health::Unhealthy,
            (false, _) => Health::Healthy,
        }
    }

    #[must_use]
    pub fn with(&self, registered: bool) -> Self {
        let mut next = self.clone();
        if next.registered.len() >= OUTCOMES_MAX {
            next.registered.pop_front();
        }
        next.registered.push_back(registered);
        next
    }
}

/// The outcomes of each NodePool, by its uid. Clones share them: the NodeClaim lifecycle records outcomes, and the
/// NodePool controller resets them.
#[derive(Debug, Clone, Default)]
pub struct RegistrationHealth {
    pools: Arc<Mutex<BTreeMap<String, Outcomes>>>,
}

impl RegistrationHealth {
    /// Records that the node of a claim registered. A claim that its NodePool does not own is ignored.
    pub async fn record_success(
        &self,
        reads: &Reads,
        writes: &Writes,
        claim: &NodeClaim,
    ) -> kube::Result<()> {
        self.record(reads, writes, claim, true).await
    }

    /// Records that a claim failed: it was not launched or its node did not register in time.
    pub async fn record_failure(
        &self,
        reads: &Reads,
        writes: &Writes,
        claim: &NodeClaim,
    ) -> kube::Result<()> {
        self.record(reads, writes, claim, false).await
    }

    async fn record(
        &self,
        reads: &Reads,
        writes: &Writes,
        claim: &NodeClaim,
        registered: bool,
    ) -> kube::Result<()> {
        let store = &reads.stores.node_pools;
        let pool = label(claim, labels::NODEPOOL).and_then(|name| store.get("", name));
        let Some(pool) = pool.filter(|pool| is_owned_by(claim, pool)) else { return Ok(()) };
        let next = self.outcomes_of(&pool).with(registered);
        let old = pool.status.clone().unwrap_or_default();
        let mut new = old.clone();
        apply_outcome(&pool, &mut new, &next, registered, claim, reads.clock.now());
        writes::status_unchanged(&writes.client, store, &*pool, &old, &new).await?;
        self.pools().insert(uid_of(&*pool).to_owned(), next);
        Ok(())
    }

    pub(super) fn reset(&self, pool: &NodePool) {
        self.pools().insert(uid_of(pool).to_owned(), Outcomes::default());
    }

    /// Removes the outcomes of a NodePool that was deleted.
    pub(super) fn drop_pool(&self, pool: &NodePool) {
        self.pools().remove(uid_of(pool));
    }

    fn outcomes_of(&self, pool: &NodePool) -> Outcomes {
        let known = self.pools().get(uid_of(pool)).cloned();
        known.unwrap_or_else(|| Outcomes::of_condition(condition(pool).map(|condition| condition.status)))
    }

    fn pools(&self) -> MutexGuard<'_, BTreeMap<String, Outcomes>> {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_owned_by(claim: &NodeClaim, pool: &NodePool) -> bool {
    let owners = claim.metadata.owner_references.iter().flatten();
    owners.into_iter().any(|owner| owner.kind == "NodePool" && owner.uid == uid_of(pool))
}

fn condition(pool: &NodePool) -> Option<&Condition> {
    let conditions = &pool.status.as_ref()?.conditions;
    conditions.iter().find(|condition| condition.type_ == NODE_REGISTRATION_HEALTHY)
}

/// Updates the condition after an outcome: it becomes true after a success if the last outcomes are healthy, and false
/// after a failure if they are unhealthy.
pub fn apply_outcome(
    pool: &NodePool,
    status: &mut NodePoolStatus,
    outcomes: &Outcomes,
    registered: bool,
    claim: &NodeClaim,
    now: Timestamp,
) {
    let was_unhealthy = status.conditions.iter().any(|condition| {
        condition.type_ == NODE_REGISTRATION_HEALTHY && condition.status == ConditionStatus::False
    });
    let mut set = ConditionSet::open(NODE_POOL_CONDITIONS, &pool.metadata, &mut status.conditions, now);
    match (registered, outcomes.health()) {
        (true, Health::Healthy) => {
            set.set_true(NODE_REGISTRATION_HEALTHY);
        }
        (false, Health::Unhealthy) if !was_unhealthy => {
            let (reason, message) = failure_of(claim);
            set.set_false(NODE_REGISTRATION_HEALTHY, &reason, &message);
        }
        (true | false, _) => {}
    }
}

/// The reason and message of the failure: those of the condition `Launched` if the launch failed.
fn failure_of(claim: &NodeClaim) -> (String, String) {
    let conditions = claim.status.iter().flat_map(|status| &status.conditions);
    let launched = conditions.into_iter().find(|condition| condition.type_ == "Launched");
    match launched {
        Some(launched) if launched.status != ConditionStatus::True => {
            (launched.reason.clone(), launched.message.clone())
        }
        Some(_) | None => ("RegistrationFailed".to_owned(), "Failed to register node".to_owned()),
    }
}

/// Whether the NodePool or its node class has changed since the condition was set.
pub fn is_outdated(pool: &NodePool, node_class_generation: i64) -> bool {
    let observed = pool.status.as_ref().and_then(|status| status.node_class_observed_generation);
    let Some(condition) = condition(pool) else { return true };
    observed != Some(node_class_generation) || condition.observed_generation != pool.metadata.generation
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deleted_nodepool_is_removed() {
        let health = RegistrationHealth::default();
        let mut pool = NodePool::default();
        pool.metadata.uid = Some("u".to_owned());
        health.reset(&pool);
        assert_eq!(health.pools().len(), 1);
        health.drop_pool(&pool);
        assert!(health.pools().is_empty());
    }
}
