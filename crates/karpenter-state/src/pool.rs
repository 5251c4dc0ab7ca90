//! Facts that a NodePool object states.

use karpenter_api::types::{ConditionStatus, NodePool};

/// Whether the NodePool may launch nodes for pods: it is not static, not terminating, and ready in its current
/// generation.
pub fn is_launching_pool(pool: &NodePool) -> bool {
    let conditions = pool.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready");
    let is_ready = ready.is_some_and(|ready| {
        ready.status == ConditionStatus::True && ready.observed_generation == pool.metadata.generation
    });
    is_ready && pool.spec.replicas.is_none() && pool.metadata.deletion_timestamp.is_none()
}
