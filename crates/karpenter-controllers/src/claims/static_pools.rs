//! What the provisioning and the deprovisioning controller of static NodePools have in common: the desired number of
//! nodes, and the watches that trigger a reconcile.

use std::time::Duration;

use karpenter_api::labels;
use karpenter_api::types::{ConditionStatus, NodeClaim, NodePool};
use karpenter_runtime::object::{ObjectKey, is_deleting, label};
use karpenter_runtime::queue::Queue;
use karpenter_runtime::store::Change;

use crate::inputs::Reads;

/// How often a NodePool without changes is reconciled.
pub(crate) const RECHECK: Duration = Duration::from_secs(60);

/// The desired number of nodes; `None` if the NodePool is not static, not of this provider, or terminating.
pub(crate) fn replicas(reads: &Reads, pool: &NodePool) -> Option<u32> {
    let is_ours = reads.is_managed(&pool.spec.template.spec.node_class_ref) && !is_deleting(pool);
    let replicas = pool.spec.replicas.filter(|_| is_ours)?;
    Some(u32::try_from(replicas.max(0)).unwrap_or(u32::MAX))
}

pub(crate) fn is_ready(pool: &NodePool) -> bool {
    let conditions = pool.status.iter().flat_map(|status| &status.conditions);
    conditions.into_iter().any(|one| one.type_ == "Ready" && one.status == ConditionStatus::True)
}

/// Adds a NodePool to the queue when it is created, when its replicas, limits or readiness change, and when one of its
/// NodeClaims is created or deleted.
pub(crate) fn watch(reads: &Reads, queue: &Queue) {
    let to = queue.clone();
    reads.stores.node_pools.observe(move |change: &Change<NodePool>| {
        let Change::Applied { old, new } = change else { return };
        let relevant_parts = |pool: &NodePool| (pool.spec.replicas, pool.spec.limits.clone(), is_ready(pool));
        if old.as_ref().is_none_or(|old| relevant_parts(old) != relevant_parts(new)) {
            to.add(ObjectKey::of(&new.metadata));
        }
    });
    let to = queue.clone();
    reads.stores.node_claims.observe(move |change: &Change<NodeClaim>| {
        let is_relevant = match change {
            Change::Applied { old: Some(old), new } => !is_deleting(&**old) && is_deleting(&**new),
            Change::Applied { old: None, .. } | Change::Deleted { .. } => true,
        };
        if let Some(pool) = label(&**change.object(), labels::NODEPOOL).filter(|_| is_relevant) {
            to.add(ObjectKey::new("", pool));
        }
    });
}
