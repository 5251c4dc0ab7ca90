//! Detects that the input of a provisioning pass has not changed.
//!
//! If some pods were unschedulable and nothing has changed since, planning again gives the same result, and planning is
//! the most expensive part of a pass. The fingerprint covers what the planner reads; it does not cover heartbeats of
//! nodes and probe results of pods.

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

/// Digests and versions of everything that a plan depends on. Equal fingerprints mean equal input.
#[derive(Debug, PartialEq)]
pub(super) struct Fingerprint {
    /// Bound and pending pods, reservations, and hosts marked for deletion.
    pods: u64,
    nodes: u64,
    /// The resource versions of the stores of other kinds, for which almost every change affects the plan.
    revisions: Vec<u64>,
    pool_types: Vec<PoolTypes>,
}

/// The instance types of a NodePool. They are compared by address, because a provider returns a new list whenever
/// something has changed.
#[derive(Debug)]
struct PoolTypes {
    pool: String,
    types: Arc<Vec<InstanceType>>,
}

impl PartialEq for PoolTypes {
    fn eq(&self, other: &Self) -> bool {
        // Both lists are kept in memory by the fingerprints, so lists with the same address are the same list.
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
        // These kinds affect plans only through default spread constraints. CapacityBuffers use some of them too, but
        // their virtual pods are in the fingerprint themselves.
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

/// A digest of the parts of a pod that the planner reads. Most of the spec is represented by the generation of the pod.
fn pod_digest(pod: &Pod) -> u64 {
    let mut hasher = FxHasher::default();
    (pods::uid_of(pod), pods::node_name(pod), pods::nominated_node(pod)).hash(&mut hasher);
    (pods::is_terminal(pod), pods::is_terminating(pod), pod.generation).hash(&mut hasher);
    pod.labels().hash(&mut hasher);
    // Allocated resources are included, because some API servers do not set the generation of pods, and because they
    // change while a pod is resized.
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
        // A virtual pod has no generation, so its spec is included.
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

/// The fingerprint of the last pass, if it had no effect, and the events that it published.
#[derive(Debug, Default)]
pub(super) struct LastIdlePass {
    last: Option<(Fingerprint, Vec<ObjectEvent>)>,
}

impl LastIdlePass {
    /// The events to publish again, if this is the fingerprint of the last pass; `None` if the pass must plan.
    pub(super) fn repeats(&self, fingerprint: &Fingerprint) -> Option<Vec<ObjectEvent>> {
        let (last, events) = self.last.as_ref()?;
        (last == fingerprint).then(|| events.clone())
    }

    /// Stores the fingerprint of a pass. `events` is `None` if the pass had an effect; then the next pass plans in any
    /// case.
    pub(super) fn remember(&mut self, fingerprint: Fingerprint, events: Option<Vec<ObjectEvent>>) {
        self.last = events.map(|events| (fingerprint, events));
    }
}
