//! Controller of CapacityBuffers: resolves the referenced pod template or workload, and determines the number of
//! virtual pods.
//!
//! The controller writes both to the status of the CapacityBuffer, from which provisioning reads them to plan the
//! virtual pods. Upstream: pkg/controllers/capacitybuffer.

#[cfg(test)]
mod tests;

use std::time::Duration;

use jiff::Timestamp;
use karpenter_api::types::{CapacityBuffer, CapacityBufferStatus, ConditionStatus, LocalObjectReference};
use karpenter_runtime::object::{ObjectKey, is_conflict};
use karpenter_runtime::queue::Queue;
use karpenter_runtime::worker::{Reconcile, Requeue};
use karpenter_state::buffers::{self, READY_FOR_PROVISIONING, Resolved, Unresolved};

use crate::buffers::{observe_referenced_objects, set_condition, write_status};
use crate::inputs::{Reads, Writes};

/// How often a buffer is reconciled without a change.
const RECHECK_PERIOD: Duration = Duration::from_secs(30);
/// Retry after a conflict with a concurrent write.
const CONFLICT_RETRY_AFTER: Duration = Duration::from_secs(1);

pub struct CapacityBuffers {
    pub reads: Reads,
    pub writes: Writes,
}

impl CapacityBuffers {
    pub fn watch(&self, queue: &Queue) {
        let stores = &self.reads.stores;
        if let Some(buffers) = &stores.capacity_buffers {
            let to = queue.clone();
            buffers.observe(move |change| {
                if !change.is_deleted() {
                    to.add(ObjectKey::of(&change.object().metadata));
                }
            });
        }
        observe_referenced_objects(stores, {
            let to = queue.clone();
            move |buffer| to.add(ObjectKey::of(&buffer.metadata))
        });
    }
}

impl Reconcile for CapacityBuffers {
    async fn reconcile(&self, key: &ObjectKey) -> kube::Result<Requeue> {
        let stores = &self.reads.stores;
        let buffer = stores.capacity_buffers.as_ref().and_then(|buffers| buffers.get_key(key));
        let Some(buffer) = buffer else { return Ok(Requeue::No) };
        let resolved = buffers::resolve(&buffer, stores);
        let new = decide_status(&buffer, &resolved, self.reads.clock.now());
        match write_status(&self.writes.client, &self.reads.stores, &buffer, &new).await {
            Ok(()) => Ok(Requeue::After(RECHECK_PERIOD)),
            Err(error) if is_conflict(&error) => Ok(Requeue::After(CONFLICT_RETRY_AFTER)),
            Err(error) => Err(error),
        }
    }
}

/// The status that a buffer should have.
pub fn decide_status(
    buffer: &CapacityBuffer,
    resolved: &Result<Resolved, Unresolved>,
    now: Timestamp,
) -> CapacityBufferStatus {
    let mut status = buffer.status.clone().unwrap_or_default();
    status.provisioning_strategy.clone_from(&buffer.spec.provisioning_strategy);
    match resolved {
        Ok(resolved) => {
            let template = resolved.pod_template.clone();
            let (name, generation) = template.unzip();
            status.pod_template_ref = name.map(|name| LocalObjectReference { name });
            status.pod_template_generation = generation;
            status.replicas = Some(resolved.replicas);
            let message = "Pod template resolved successfully";
            let state = (ConditionStatus::True, "Resolved", message);
            set_condition(&mut status, buffer, READY_FOR_PROVISIONING, state, now);
        }
        Err(Unresolved { reason, message }) => {
            let state = (ConditionStatus::False, *reason, message.as_str());
            set_condition(&mut status, buffer, READY_FOR_PROVISIONING, state, now);
        }
    }
    status
}
