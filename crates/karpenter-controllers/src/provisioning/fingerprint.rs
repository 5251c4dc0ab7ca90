//! Whether anything that a round depends on is different from the last time.
//!
//! A round that found no place for some pods finds none again as long as nothing changes, and planning is the expensive
//! part of it. What counts is what the planner reads: a heartbeat of a node or a probe of a pod is no change.

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

/// Everything that a plan depends on, in short.
#[derive(Debug, PartialEq)]
pub(super) struct Fingerprint {
    /// Bound, pending and expected pods, and what is leaving.
    pods: u64,
    nodes: u64,
    /// Versions of the kinds that change seldom, and only when it matters.
    revisions: Vec<u64>,
    offers: Vec<Offer>,
}

/// A pool's instance types; a provider that has news gives another list.
#[derive(Debug)]
struct Offer {
    pool: String,
    types: Arc<Vec<InstanceType>>,
}

impl PartialEq for Offer {
    fn eq(&self, other: &Self) -> bool {
        // The lists are kept, so an address is not used twice.
        self.pool == other.pool && Arc::ptr_eq(&self.types, &other.types)
    }
}

impl Fingerprint {
    pub(super) fn of(live: &ClusterInput, stores: &Stores) -> Self {
        let offer = |one: &PoolInput| Offer {
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
        // Default spreads look at these; for buffers alone the pods that stand for them tell.
        if !live.spreading.config.is_empty() {
            revisions.extend(extra.into_iter().flatten());
        }
        Self {
            pods: digest_pods(live),
            nodes: digest(live.nodes.iter().map(|node| node_digest(node))),
            revisions,
            offers: live.pools.iter().map(offer).collect(),
        }
    }
}

fn digest_pods(live: &ClusterInput) -> u64 {
    let mut hasher = FxHasher::default();
    digest(live.bound.iter().map(|pod| pod_digest(pod))).hash(&mut hasher);
    digest(live.pending.iter().map(|pod| pod_digest(pod))).hash(&mut hasher);
    for (claim, pod) in &live.expected {
        (claim, pod_digest(pod)).hash(&mut hasher);
    }
    for claim in &live.leaving {
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

/// What the planner sees of a pod beyond its spec, which does not change without its generation.
fn pod_digest(pod: &Pod) -> u64 {
    let mut hasher = FxHasher::default();
    (pods::uid_of(pod), pods::node_name(pod), pods::nominated_node(pod)).hash(&mut hasher);
    (pods::is_terminal(pod), pods::is_terminating(pod), pod.generation).hash(&mut hasher);
    pod.labels().hash(&mut hasher);
    // Where servers do not count generations of pods, and while a pod is resized.
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
        // Has no generation, and follows its template.
        serde_json::to_string(&*pod.spec).unwrap_or_default().hash(&mut hasher);
    }
    hasher.finish()
}

/// What the planner sees of a node.
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

/// The last round that left nothing to do, and what it told.
#[derive(Debug, Default)]
pub(super) struct LastIdlePass {
    last: Option<(Fingerprint, Vec<ObjectEvent>)>,
}

impl LastIdlePass {
    /// What was told, to be told again, if nothing has changed since.
    pub(super) fn repeats(&self, fingerprint: &Fingerprint) -> Option<Vec<ObjectEvent>> {
        let (last, notices) = self.last.as_ref()?;
        (last == fingerprint).then(|| notices.clone())
    }

    /// `notices` is `None` after a round that did something: the next one is planned whatever it looks like.
    pub(super) fn remember(&mut self, fingerprint: Fingerprint, notices: Option<Vec<ObjectEvent>>) {
        self.last = notices.map(|notices| (fingerprint, notices));
    }
}
