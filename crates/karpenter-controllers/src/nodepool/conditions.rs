//! Sets the conditions `ValidationSucceeded` and `NodeClassReady` of NodePools, and resets `NodeRegistrationHealthy`
//! when the NodePool or its node class changes.
//!
//! Upstream: pkg/controllers/nodepool/validation, readiness, registrationhealth.

pub(super) mod readiness;

use jiff::Timestamp;
use karpenter_api::conditions::{ConditionSet, NODE_POOL_CONDITIONS};
use karpenter_api::runtime::runtime_errors;
use karpenter_api::types::{NodePool, NodePoolStatus};
use karpenter_runtime::object::ObjectKey;
use karpenter_runtime::queue::Queue;
use karpenter_runtime::store::Change;
use karpenter_runtime::worker::{Reconcile, Requeue};
use kube::ResourceExt;

use self::readiness::NodeClassState;
use crate::inputs::{Reads, Writes};
use crate::registration_health::{self, NODE_REGISTRATION_HEALTHY, RegistrationHealth};
use crate::writes;

const VALIDATION_SUCCEEDED: &str = "ValidationSucceeded";
pub const VALIDATION_FAILED: &str = "NodePoolValidationFailed";

pub struct NodePoolConditions {
    pub reads: Reads,
    pub writes: Writes,
    pub health: RegistrationHealth,
}

impl NodePoolConditions {
    pub fn watch(&self, queue: &Queue) {
        let to = queue.clone();
        let health = self.health.clone();
        self.reads.stores.node_pools.observe(move |change: &Change<NodePool>| match change {
            Change::Applied { new, .. } => to.add(ObjectKey::of(&new.metadata)),
            Change::Deleted { old } => health.drop_pool(old),
        });
        for (kind, store) in &self.reads.stores.node_classes {
            let (to, pools, kind) = (queue.clone(), self.reads.stores.node_pools.clone(), kind.clone());
            store.observe(move |change| {
                let class = change.object().name_any();
                for pool in pools.list() {
                    let reference = &pool.spec.template.spec.node_class_ref;
                    if reference.group == kind.group && reference.kind == kind.kind && reference.name == class
                    {
                        to.add(ObjectKey::of(&pool.metadata));
                    }
                }
            });
        }
    }
}

impl Reconcile for NodePoolConditions {
    async fn reconcile(&self, key: &ObjectKey) -> kube::Result<Requeue> {
        let stores = &self.reads.stores;
        let Some(pool) = stores.node_pools.get_key(key) else { return Ok(Requeue::No) };
        let reference = &pool.spec.template.spec.node_class_ref;
        if !self.reads.is_managed(reference) {
            return Ok(Requeue::No);
        }
        let class = stores.node_class(&reference.group, &reference.kind, &reference.name);
        let class_generation = class.as_ref().map(|class| class.metadata.generation.unwrap_or_default());
        let decision = decide_conditions(
            &pool,
            &NodeClassState::of(class.as_deref()),
            class_generation,
            self.reads.clock.now(),
        );
        if decision.reset_health {
            self.health.reset(&pool);
        }
        let old = pool.status.clone().unwrap_or_default();
        writes::status_unchanged(&self.writes.client, &stores.node_pools, &*pool, &old, &decision.status)
            .await?;
        Ok(Requeue::No)
    }
}

/// The new status of a NodePool, and whether to drop the launch outcomes recorded for it.
#[derive(Debug, Clone, PartialEq)]
pub struct ConditionsDecision {
    pub status: NodePoolStatus,
    pub reset_health: bool,
}

pub fn decide_conditions(
    pool: &NodePool,
    class: &NodeClassState,
    class_generation: Option<i64>,
    now: Timestamp,
) -> ConditionsDecision {
    let mut status = pool.status.clone().unwrap_or_default();
    let outdated_generation =
        class_generation.filter(|generation| registration_health::is_outdated(pool, *generation));
    if outdated_generation.is_some() {
        status.node_class_observed_generation = outdated_generation;
    }
    let mut set = ConditionSet::open(NODE_POOL_CONDITIONS, &pool.metadata, &mut status.conditions, now);
    match validation_problem(pool) {
        Some(problem) => set.set_false(VALIDATION_SUCCEEDED, VALIDATION_FAILED, &problem),
        None => set.set_true(VALIDATION_SUCCEEDED),
    };
    readiness::record(&mut set, class);
    if outdated_generation.is_some() {
        set.set_unknown(NODE_REGISTRATION_HEALTHY);
    }
    ConditionsDecision { status, reset_health: outdated_generation.is_some() }
}

/// The validation errors that only the controller can find, not the API server, in one line.
fn validation_problem(pool: &NodePool) -> Option<String> {
    let object = serde_json::to_value(pool).ok()?;
    let problems: Vec<String> = runtime_errors("NodePool", &object).iter().map(ToString::to_string).collect();
    (!problems.is_empty()).then(|| problems.join("; "))
}
