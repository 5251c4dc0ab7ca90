//! Writes the result of planning virtual pods to the status of their CapacityBuffers.
//!
//! Virtual pods are planned like other pods, but get no events, reservations or nominations. The nodes that they were
//! planned onto are recorded, so that disruption does not treat these nodes as empty. Upstream:
//! pkg/controllers/provisioning/buffers.go.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use karpenter_api::types::{CapacityBuffer, CapacityBufferStatus, ConditionStatus};
use karpenter_runtime::object::{is_conflict, name_of, namespace_of};
use karpenter_state::buffers::{PROVISIONING, READY_FOR_PROVISIONING, buffer_of, is_virtual};
use karpenter_state::pod::Pod;

use super::Provisioner;
use super::decide::Decided;
use crate::buffers::{set_condition, write_status};
use crate::pods;
use crate::stores::listed;

/// The result of planning the virtual pods of one buffer: how many were planned onto existing nodes, how many onto new
/// nodes, and how many were unschedulable.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tally {
    existing: u32,
    new: u32,
    failed: u32,
}

/// The result of planning the virtual pods of all buffers in one pass.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// The counts by namespace and name of the buffer.
    tallies: BTreeMap<(String, String), Tally>,
    /// The node that each virtual pod was planned onto, by uid.
    hosts: BTreeMap<String, String>,
}

impl Outcome {
    pub(super) fn of(decided: &Decided) -> Self {
        let mut outcome = Self::default();
        for placement in &decided.placements {
            outcome.count(&placement.pods, |tally| &mut tally.existing);
            let node = placement.host.node.as_ref().and_then(|node| node.metadata.name.clone());
            let Some(node) = node else { continue };
            let virtual_pods = placement.pods.iter().filter(|pod| is_virtual(pod));
            outcome.hosts.extend(virtual_pods.map(|pod| (pods::uid_of(pod).to_owned(), node.clone())));
        }
        for launch in &decided.launches {
            outcome.count(&launch.pods, |tally| &mut tally.new);
        }
        for failure in &decided.failures {
            outcome.count(&failure.pods, |tally| &mut tally.failed);
        }
        outcome
    }

    fn count(&mut self, pods: &[Arc<Pod>], part: impl Fn(&mut Tally) -> &mut u32) {
        for (namespace, name) in pods.iter().filter_map(|pod| buffer_of(pod)) {
            let tally = self.tallies.entry((namespace.to_owned(), name.to_owned())).or_default();
            *part(tally) += 1;
        }
    }
}

/// Records the hosts of virtual pods and writes the status of the buffers.
pub(super) async fn record(provisioner: &Provisioner, outcome: Outcome, now: Timestamp) {
    if !provisioner.reader.gates.capacity_buffer {
        return;
    }
    provisioner.reads.state.set_buffer_hosts(outcome.hosts);
    for buffer in listed(provisioner.reads.stores.capacity_buffers.as_ref()) {
        let key = (namespace_of(&*buffer).to_owned(), name_of(&*buffer).to_owned());
        let status = decide_status(&buffer, outcome.tallies.get(&key).copied(), now);
        match write_status(&provisioner.writes.client, &provisioner.reads.stores, &buffer, &status).await {
            Ok(()) => {}
            // The buffer has changed since it was read, so the next pass writes its status.
            Err(error) if is_conflict(&error) => {}
            Err(error) => {
                tracing::error!(capacitybuffer = name_of(&*buffer), %error, "failed to update status of capacitybuffer");
            }
        }
    }
}

/// The status of a buffer after a pass. It is unchanged if the pass planned no virtual pods of this buffer.
fn decide_status(buffer: &CapacityBuffer, tally: Option<Tally>, now: Timestamp) -> CapacityBufferStatus {
    let mut status = buffer.status.clone().unwrap_or_default();
    let is_ready = status
        .conditions
        .iter()
        .any(|one| one.type_ == READY_FOR_PROVISIONING && one.status == ConditionStatus::True);
    let wanted = status.replicas.and_then(|count| u32::try_from(count).ok()).unwrap_or(0);
    let (value, reason, message) = if !is_ready {
        let message = "Buffer is not ReadyForProvisioning".to_owned();
        (ConditionStatus::False, "NotReadyForProvisioning", message)
    } else if wanted == 0 {
        (ConditionStatus::False, "BufferEmpty", "Buffer has zero desired replicas".to_owned())
    } else {
        match tally {
            Some(Tally { new, failed, .. }) if new > 0 || failed > 0 => {
                let message = format!("{new}/{wanted} virtual pods required new capacity, {failed} failed");
                (ConditionStatus::False, "RequiresNewCapacity", message)
            }
            Some(Tally { existing, .. }) if existing == wanted => {
                let message = format!("All {wanted} virtual pods fit on existing capacity");
                (ConditionStatus::True, "FitsExistingCapacity", message)
            }
            _ => return status,
        }
    };
    set_condition(&mut status, buffer, PROVISIONING, (value, reason, &message), now);
    status
}
