//! Detects that the input of a provisioning pass did not change.
//!
//! If some pods were unschedulable and nothing changed since, planning again gives the same result, and planning is
//! the expensive part of a pass. The fingerprint covers what the planner reads; heartbeats of nodes and probe results
//! of pods are not part of it.

#[cfg(test)]
mod tests;

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use karpenter_model::instance_type::InstanceType;
use karpenter_state::buffers::is_virtual;
use karpenter_state::pod::Pod;
use karpenter_state::{ClusterInput, PoolInput};
use rustc_hash::FxHasher;

use crate::events::ObjectEvent;
use crate::pods;
use crate::stores::Stores;

/// A digest of all input of a plan.
#[derive(Debug, PartialEq)]
pub(super) struct Fingerprint {
    /// Bound and pending pods, reservations, and hosts marked for deletion.
    pods: u64,
    nodes: u64,
    /// The resource versions of kinds of which almost every change affects the plan.
    revisions: Vec<u64>,
    pool_types: Vec<PoolTypes>,
}

/// The instance types of a NodePool. A provider returns a new list whenever something changed.
#[derive(Debug)]
struct PoolTypes {
    pool: String,
    types: Arc<Vec<InstanceType>>,
}

impl PartialEq for PoolTypes {
    fn eq(&self, other: &Self) -> bool {
        // The fingerprints keep both lists alive, so equal addresses mean the same list.
        self.pool == other.pool && Arc::ptr_eq(&self.types, &other.types)
    }
}

impl Fingerprint {
    pub(super) fn of(input: &ClusterInput, stores: &Stores) -> Self {
        let pool_types_of = |one: &PoolInput| PoolTypes {
            pool: one.pool.metadata.name.clone().unwrap_or_default(),
            types: one.instance_types.clone(),
        };
        let extra = [
            stores.services.as_ref().map(|store| store.revision()),
            stores.replica_sets.as_ref().map(|store| store.revision()),
            stores.stateful_sets.as_ref().map(|store| store.revision()),
            stores.replication_controllers.as_ref().map(|store| store.revision()),
        ];
        let mut revisions = vec![
            stores.node_claims.revision(),
            stores.node_pools.revision(),
            stores.daemon_sets.revision(),
            stores.volume_claims.revision(),
            stores.volumes.revision(),
            stores.storage_classes.revision(),
            stores.csi_nodes.revision(),
            stores.namespaces.revision(),
        ];
        // Only default spread constraints read these kinds. The virtual pods of buffers reflect changes of their own
        // templates.
        if !input.spreading.config.is_empty() {
            revisions.extend(extra.into_iter().flatten());
        }
        Self {
            pods: digest_pods(input),
            nodes: digest(input.nodes.iter().map(|node| node_digest(node))),
            revisions,
            pool_types: input.pools.iter().map(pool_types_of).collect(),
        }
    }
}

fn digest_pods(input: &ClusterInput) -> u64 {
    let mut hasher = FxHasher::default();
    digest(input.bound.iter().map(|pod| pod_digest(pod))).hash(&mut hasher);
    digest(input.pending.iter().map(|pod| pod_digest(pod))).hash(&mut hasher);
    for (claim, pod) in &input.expected {
        (claim, pod_digest(pod)).hash(&mut hasher);
    }
    for claim in &input.marked_for_deletion {
        claim.hash(&mut hasher);
    }
    hasher.finish()
}

fn digest(parts: impl Iterator<Item = u64>) -> u64 {
    let mut hasher = FxHasher::default();
    for part in parts {
        part.hash(&mut hasher);
    }
    hasher.finish()
}

/// A digest of the parts of a pod that the planner reads. The spec changes only with the generation.
fn pod_digest(pod: &Pod) -> u64 {
    let mut hasher = FxHasher::default();
    (pods::uid_of(pod), pods::node_name(pod), pods::nominated_node(pod)).hash(&mut hasher);
    (pods::is_terminal(pod), pods::is_terminating(pod), pod.generation).hash(&mut hasher);
    pod.labels().hash(&mut hasher);
    // The allocated resources matter for servers that do not set the generation of pods, and while a pod is resized.
    let statuses =
        pod.status.actual_resources.iter().flat_map(|status| status.container_statuses.iter().flatten());
    for status in statuses {
        let allocated = status.allocated_resources.iter().flatten();
        for (name, amount) in allocated {
            (name, &amount.0).hash(&mut hasher);
        }
    }
    if pods::is_bound(pod) {
        return hasher.finish();
    }
    for container in &pod.spec.containers {
        let requests = container.resources.iter().flat_map(|one| one.requests.iter().flatten());
        for (name, amount) in requests {
            (name, &amount.0).hash(&mut hasher);
        }
    }
    if is_virtual(pod) {
        // A virtual pod has no generation and changes with its template.
        serde_json::to_string(&*pod.spec).unwrap_or_default().hash(&mut hasher);
    }
    hasher.finish()
}

/// A digest of the parts of a node that the planner reads.
fn node_digest(node: &Node) -> u64 {
    let mut hasher = FxHasher::default();
    let metadata = &node.metadata;
    (&metadata.uid, metadata.deletion_timestamp.is_some(), &metadata.labels).hash(&mut hasher);
    if let Some(spec) = &node.spec {
        (&spec.provider_id, spec.unschedulable).hash(&mut hasher);
        for taint in spec.taints.iter().flatten() {
            (&taint.key, &taint.value, &taint.effect).hash(&mut hasher);
        }
    }
    let amounts = node.status.iter().flat_map(|status| [&status.allocatable, &status.capacity]);
    for (name, amount) in amounts.flatten().flatten() {
        (name, &amount.0).hash(&mut hasher);
    }
    hasher.finish()
}

/// The last pass that had no effect, and the events that it published.
#[derive(Debug, Default)]
pub(super) struct LastIdlePass {
    last: Option<(Fingerprint, Vec<ObjectEvent>)>,
}

impl LastIdlePass {
    /// The events to publish again if the input did not change.
    pub(super) fn repeats(&self, fingerprint: &Fingerprint) -> Option<Vec<ObjectEvent>> {
        let (last, events) = self.last.as_ref()?;
        (last == fingerprint).then(|| events.clone())
    }

    /// `events` is `None` after a pass that had an effect: then the next pass always plans.
    pub(super) fn remember(&mut self, fingerprint: Fingerprint, events: Option<Vec<ObjectEvent>>) {
        self.last = events.map(|events| (fingerprint, events));
    }
}
