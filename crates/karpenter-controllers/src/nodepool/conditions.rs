//! The conditions of a pool: is it valid, is its node class ready, do its machines become nodes.

use jiff::Timestamp;
use karpenter_api::conditions::{ConditionSet, NODE_POOL_CONDITIONS};
use karpenter_api::runtime::runtime_errors;
use karpenter_api::types::{NodePool, NodePoolStatus};
use karpenter_cluster::harness::{After, Queue, Reconcile};
use karpenter_cluster::mirror::{Change, ObjectKey};
use kube::ResourceExt;

use super::readiness::{self, NodeClassState};
use super::registration_health::{self, NODE_REGISTRATION_HEALTHY, RegistrationHealth};
use crate::context::Context;
use crate::writes;

const VALIDATION_SUCCEEDED: &str = "ValidationSucceeded";
pub const VALIDATION_FAILED: &str = "NodePoolValidationFailed";

/// Keeps the conditions of pools up to date.
pub struct NodePoolConditions {
    pub context: Context,
    pub health: RegistrationHealth,
}

impl NodePoolConditions {
    pub fn watch(&self, queue: &Queue) {
        let to = queue.clone();
        let health = self.health.clone();
        self.context.stores.node_pools.observe(move |change: &Change<NodePool>| match change {
            Change::Applied { new, .. } => to.add(ObjectKey::of(&new.metadata)),
            Change::Deleted { old } => health.drop_pool(old),
        });
        for (kind, store) in &self.context.stores.node_classes {
            let (to, pools, kind) = (queue.clone(), self.context.stores.node_pools.clone(), kind.clone());
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
    async fn reconcile(&self, key: &ObjectKey) -> kube::Result<After> {
        let stores = &self.context.stores;
        let Some(pool) = stores.node_pools.get_key(key) else { return Ok(After::Done) };
        let reference = &pool.spec.template.spec.node_class_ref;
        if !self.context.is_managed(reference) {
            return Ok(After::Done);
        }
        let class = stores.node_class(&reference.group, &reference.kind, &reference.name);
        let class_generation = class.as_ref().map(|class| class.metadata.generation.unwrap_or_default());
        let decision = decide_conditions(
            &pool,
            &NodeClassState::of(class.as_deref()),
            class_generation,
            self.context.clock.now(),
        );
        if decision.forget_health {
            self.health.forget(&pool);
        }
        let old = pool.status.clone().unwrap_or_default();
        writes::status_unchanged(&self.context.client, &stores.node_pools, &*pool, &old, &decision.status)
            .await?;
        Ok(After::Done)
    }
}

/// The status a pool should have, and whether what was learnt about its machines no longer counts.
#[derive(Debug, Clone, PartialEq)]
pub struct ConditionsDecision {
    pub status: NodePoolStatus,
    pub forget_health: bool,
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
    ConditionsDecision { status, forget_health: outdated_generation.is_some() }
}

/// All that the controllers have against an admitted pool, in one line.
fn validation_problem(pool: &NodePool) -> Option<String> {
    let object = serde_json::to_value(pool).ok()?;
    let problems: Vec<String> = runtime_errors("NodePool", &object).iter().map(ToString::to_string).collect();
    (!problems.is_empty()).then(|| problems.join("; "))
}
