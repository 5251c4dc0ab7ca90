//! Static NodePools: creates NodeClaims up to `spec.replicas` and deletes surplus ones.
//!
//! There are two controllers, as in upstream. They ignore pending pods, prices and budgets. NodeClaims that a command
//! replaces are counted separately, because their replacement already exists. Disruption decides about drifted and
//! unhealthy nodes; it also requests node limit grants here ([`reserve_nodes`]). The feature gate is StaticCapacity.
//! Upstream: pkg/controllers/static, pkg/controllers/state/statenodepool.go.

pub mod count;
mod deprovisioning;
mod provisioning;
mod surplus;
#[cfg(test)]
mod tests;

use std::time::Duration;

use karpenter_api::labels;
use karpenter_api::types::{ConditionStatus, NodeClaim, NodePool};
use karpenter_runtime::object::{ObjectKey, is_deleting, label};
use karpenter_runtime::queue::Queue;
use karpenter_runtime::store::Change;

pub use self::count::{NodeLimitGrant, NodeLimitGrants, reserve_nodes};
pub use self::deprovisioning::StaticDeprovisioning;
pub use self::provisioning::StaticProvisioning;
use crate::context::Context;

/// How often a NodePool without changes is reconciled.
const RECHECK: Duration = Duration::from_secs(60);

/// The desired number of nodes; `None` if the NodePool is not static, not of this provider, or terminating.
fn replicas(context: &Context, pool: &NodePool) -> Option<u32> {
    let is_ours = context.is_managed(&pool.spec.template.spec.node_class_ref) && !is_deleting(pool);
    let replicas = pool.spec.replicas.filter(|_| is_ours)?;
    Some(u32::try_from(replicas.max(0)).unwrap_or(u32::MAX))
}

fn is_ready(pool: &NodePool) -> bool {
    let conditions = pool.status.iter().flat_map(|status| &status.conditions);
    conditions.into_iter().any(|one| one.type_ == "Ready" && one.status == ConditionStatus::True)
}

/// Triggers: a new NodePool, a change of its replicas, limits or readiness, and a NodeClaim that is created or
/// deleted.
fn watch(context: &Context, queue: &Queue) {
    let to = queue.clone();
    context.stores.node_pools.observe(move |change: &Change<NodePool>| {
        let Change::Applied { old, new } = change else { return };
        let relevant_parts = |pool: &NodePool| (pool.spec.replicas, pool.spec.limits.clone(), is_ready(pool));
        if old.as_ref().is_none_or(|old| relevant_parts(old) != relevant_parts(new)) {
            to.add(ObjectKey::of(&new.metadata));
        }
    });
    let to = queue.clone();
    context.stores.node_claims.observe(move |change: &Change<NodeClaim>| {
        let is_relevant = match change {
            Change::Applied { old: Some(old), new } => !is_deleting(&**old) && is_deleting(&**new),
            Change::Applied { old: None, .. } | Change::Deleted { .. } => true,
        };
        if let Some(pool) = label(&**change.object(), labels::NODEPOOL).filter(|_| is_relevant) {
            to.add(ObjectKey::new("", pool));
        }
    });
}
