//! Sets the conditions `Drifted` and `Consolidatable` of NodeClaims.
//!
//! [`crate::disruption`] decides whether a node is disrupted because of these conditions. Claims without a NodePool
//! have neither of them.
//!
//! Upstream: pkg/controllers/nodeclaim/disruption.

mod consolidatable;
mod drift;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use karpenter_api::labels;
use karpenter_api::types::{NodeClaim, NodePool};
use karpenter_cloud::{CloudError, CloudProvider};
use karpenter_runtime::clock::since;
use karpenter_runtime::object::{ObjectKey, is_deleting, label, name_of, uid_of};
use karpenter_runtime::queue::Queue;
use karpenter_runtime::store::Change;
use karpenter_runtime::worker::{Reconcile, Requeue};
use karpenter_state::claim::{LAUNCHED, change_conditions, is_true};

use self::consolidatable::Consolidatable;
use crate::inputs::{Reads, Writes};
use crate::recent::RecentSet;
use crate::stores::BY_POOL;
use crate::writes;

pub const DRIFTED: &str = "Drifted";
pub const CONSOLIDATABLE: &str = "Consolidatable";

const DRIFT_PERIOD: Duration = Duration::from_secs(5 * 60);
/// How long to wait after a failed call of the provider.
const RETRY: Duration = Duration::from_secs(10);
/// The age of a claim from which on its instance type is checked, and in the next constant the interval of these
/// checks.
const TYPE_CHECK_AGE: Duration = Duration::from_secs(60 * 60);
const TYPE_CHECK_PERIOD: Duration = Duration::from_secs(30 * 60);

pub struct DisruptionConditions {
    pub reads: Reads,
    pub writes: Writes,
    pub cloud: Arc<dyn CloudProvider>,
    /// When the instance type of a claim was last found in the catalog, by uid.
    types_checked: RecentSet,
}

impl DisruptionConditions {
    pub fn new(reads: Reads, writes: Writes, cloud: Arc<dyn CloudProvider>) -> Self {
        Self { reads, writes, cloud, types_checked: RecentSet::within(TYPE_CHECK_PERIOD) }
    }

    pub fn watch(&self, queue: &Queue) {
        self.reads.stores.enqueue_claims(queue);
        let stores = &self.reads.stores;
        let (to, claims) = (queue.clone(), stores.node_claims.clone());
        stores.node_pools.observe(move |change: &Change<NodePool>| {
            // Changes of the status are ignored, because it changes with every node of the NodePool.
            let Change::Applied { old, new } = change else { return };
            let parts = |pool: &NodePool| (pool.metadata.generation, pool.metadata.annotations.clone());
            if old.as_ref().is_some_and(|old| parts(old) == parts(new)) {
                return;
            }
            for claim in claims.by(BY_POOL, name_of(&**new)) {
                to.add(ObjectKey::of(&claim.metadata));
            }
        });
        for (kind, classes) in &stores.node_classes {
            let (to, claims, kind) = (queue.clone(), stores.node_claims.clone(), kind.clone());
            classes.observe(move |change| {
                let name = change.object().metadata.name.as_deref().unwrap_or_default();
                for claim in claims.list() {
                    let class = &claim.spec.node_class_ref;
                    if class.group == kind.group && class.kind == kind.kind && class.name == name {
                        to.add(ObjectKey::of(&claim.metadata));
                    }
                }
            });
        }
    }

    async fn drift_reason(&self, claim: &NodeClaim, pool: &NodePool) -> Result<Option<String>, CloudError> {
        if let Some(reason) = drift::from_pool(claim, pool) {
            return Ok(Some(reason.to_owned()));
        }
        let now = self.reads.clock.now();
        if self.is_type_check_due(claim, now) {
            let types = self.cloud.instance_types(pool).await?;
            if !drift::is_offered(claim, &types, &self.cloud.well_known_labels()) {
                return Ok(Some(drift::INSTANCE_TYPE_NOT_FOUND.to_owned()));
            }
            self.types_checked.record(uid_of(claim), now);
        }
        self.cloud.drift_reason(claim).await
    }

    fn is_type_check_due(&self, claim: &NodeClaim, now: Timestamp) -> bool {
        let created = claim.metadata.creation_timestamp.as_ref().map_or(now, |time| time.0);
        let is_fresh = self.types_checked.ago(uid_of(claim), now).is_some();
        since(now, created) > TYPE_CHECK_AGE && !is_fresh
    }

    async fn set_drifted(&self, claim: &mut NodeClaim, pool: &NodePool) -> Requeue {
        let now = self.reads.clock.now();
        if !is_true(claim, LAUNCHED) {
            clear(claim, DRIFTED, now);
            return Requeue::No;
        }
        match self.drift_reason(claim, pool).await {
            Ok(Some(reason)) => {
                change_conditions(claim, now, |set| set.set_true_with_reason(DRIFTED, &reason, &reason));
                Requeue::After(DRIFT_PERIOD)
            }
            Ok(None) => {
                clear(claim, DRIFTED, now);
                Requeue::After(DRIFT_PERIOD)
            }
            // The instance no longer exists; garbage collection deletes the claim.
            Err(CloudError::NotFound { .. }) => Requeue::No,
            Err(error) => {
                if self.writes.log_throttle.is_due("checking drift", name_of(pool), now) {
                    tracing::error!(nodepool = name_of(pool), %error, "failed checking drift");
                }
                Requeue::After(RETRY)
            }
        }
    }
}

fn clear(claim: &mut NodeClaim, kind: &str, now: Timestamp) {
    if karpenter_state::claim::condition(claim, kind).is_some() {
        let _ = change_conditions(claim, now, |set| set.clear(kind));
    }
}

fn set_consolidatable(claim: &mut NodeClaim, pool: &NodePool, now: Timestamp) -> Requeue {
    match consolidatable::decide(claim, pool, now) {
        Consolidatable::No => {
            clear(claim, CONSOLIDATABLE, now);
            Requeue::No
        }
        Consolidatable::After(wait) => {
            clear(claim, CONSOLIDATABLE, now);
            Requeue::After(wait)
        }
        Consolidatable::Yes => {
            change_conditions(claim, now, |set| set.set_true(CONSOLIDATABLE));
            Requeue::No
        }
    }
}

impl Reconcile for DisruptionConditions {
    async fn reconcile(&self, key: &ObjectKey) -> kube::Result<Requeue> {
        let Some(claim) = self.reads.managed_claim(key).filter(|claim| !is_deleting(&**claim)) else {
            return Ok(Requeue::No);
        };
        let Reads { stores, clock, .. } = &self.reads;
        let Writes { client, .. } = &self.writes;
        let pool: Option<Arc<NodePool>> =
            label(&*claim, labels::NODEPOOL).and_then(|name| stores.node_pools.get("", name));
        let Some(pool) = pool else { return Ok(Requeue::No) };
        let mut wanted = (*claim).clone();
        let mut requeue = self.set_drifted(&mut wanted, &pool).await;
        // Nodes of static NodePools are never consolidated.
        if pool.spec.replicas.is_none() {
            requeue = requeue.earlier(set_consolidatable(&mut wanted, &pool, clock.now()));
        }
        writes::status_unchanged(client, &stores.node_claims, &*claim, &claim.status, &wanted.status).await?;
        Ok(requeue)
    }
}
