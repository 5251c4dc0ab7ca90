//! Pools of fixed size: nodes are added until there are as many as the pool asks for, and surplus ones are taken away.
//!
//! Two controllers, as upstream, so that one side never waits for the other. Neither looks at pods that wait or at
//! prices, and budgets do not count here. What a command replaces is counted apart, because its replacement exists
//! already; replacing drifted or sick nodes is the disruption loop's business, which asks for its place under the
//! limit here as well ([`reserve_nodes`]). Gate StaticCapacity.
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
use karpenter_cluster::controllers::context::{is_deleting, label};
use karpenter_cluster::reconcile::Queue;
use karpenter_cluster::store::{Change, ObjectKey};

pub use self::count::{NodeLimitGrant, NodeLimitGrants, reserve_nodes};
pub use self::deprovisioning::StaticDeprovisioning;
pub use self::provisioning::StaticProvisioning;
use crate::context::Context;

/// Between two looks at a pool that has what it asks for.
const RECHECK: Duration = Duration::from_secs(60);

/// The number of nodes a pool asks for; `None` if it is not of fixed size, not ours or on its way out.
fn replicas(context: &Context, pool: &NodePool) -> Option<u32> {
    let is_ours = context.is_managed(&pool.spec.template.spec.node_class_ref) && !is_deleting(pool);
    let replicas = pool.spec.replicas.filter(|_| is_ours)?;
    Some(u32::try_from(replicas.max(0)).unwrap_or(u32::MAX))
}

fn is_ready(pool: &NodePool) -> bool {
    let conditions = pool.status.iter().flat_map(|status| &status.conditions);
    conditions.into_iter().any(|one| one.type_ == "Ready" && one.status == ConditionStatus::True)
}

/// A pool that is new, became ready or wants another number of nodes is looked at, and one whose claims come and go.
fn watch(context: &Context, queue: &Queue) {
    let to = queue.clone();
    context.stores.node_pools.observe(move |change: &Change<NodePool>| {
        let Change::Applied { old, new } = change else { return };
        let concerns = |pool: &NodePool| (pool.spec.replicas, pool.spec.limits.clone(), is_ready(pool));
        if old.as_ref().is_none_or(|old| concerns(old) != concerns(new)) {
            to.add(ObjectKey::of(&new.metadata));
        }
    });
    let to = queue.clone();
    context.stores.node_claims.observe(move |change: &Change<NodeClaim>| {
        let is_news = match change {
            Change::Applied { old: Some(old), new } => !is_deleting(&**old) && is_deleting(&**new),
            Change::Applied { old: None, .. } | Change::Deleted { .. } => true,
        };
        if let Some(pool) = label(&**change.object(), labels::NODEPOOL).filter(|_| is_news) {
            to.add(ObjectKey::new("", pool));
        }
    });
}
