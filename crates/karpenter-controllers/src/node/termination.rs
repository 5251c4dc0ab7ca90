//! Termination of deleted nodes: drain, detachment of volumes, termination of the instance, removal of the finalizer.
//!
//! The NodeClaim of a deleted node is deleted too. Progress is recorded in the conditions of the claim, so another process
//! can continue after a restart.
//!
//! Upstream: pkg/controllers/node/termination.

mod act;
pub(crate) mod decide;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use karpenter_api::labels;
use karpenter_api::types::NodeClaim;
use karpenter_cloud::CloudProvider;
use karpenter_runtime::object::{ObjectKey, annotation, is_deleting, label, name_of};
use karpenter_runtime::queue::Queue;
use karpenter_runtime::store::Change;
use karpenter_runtime::worker::{Reconcile, Requeue};
use karpenter_state::pod::Pod;

use crate::evictions::EvictionQueue;
use crate::inputs::{Reads, Writes};
use crate::stores::{BY_ATTACHED_NODE, BY_NODE, BY_PROVIDER_ID, Stores};
use crate::{pods, writes};

pub use decide::{Attachment, Facts, Step, decide};
use karpenter_state::node::is_node_ready;

/// How often a terminating node is reconciled while it waits for pods or volumes.
pub const DRAIN_POLL: Duration = Duration::from_secs(1);
/// How often a terminating node is reconciled while its instance terminates.
pub const INSTANCE_POLL: Duration = Duration::from_secs(5);

/// The controller of deleted nodes.
pub struct NodeTermination {
    pub reads: Reads,
    pub writes: Writes,
    pub cloud: Arc<dyn CloudProvider>,
    pub evictions: EvictionQueue,
}

impl NodeTermination {
    pub fn watch(&self, queue: &Queue) {
        let stores = &self.reads.stores;
        let to = queue.clone();
        stores.nodes.observe(move |change: &Change<Node>| {
            if !change.is_deleted() && is_deleting(&**change.object()) {
                to.add(ObjectKey::of(&change.object().metadata));
            }
        });
        let (to, nodes) = (queue.clone(), stores.nodes.clone());
        stores.node_claims.observe(move |change: &Change<NodeClaim>| {
            if !changes_termination(change) {
                return;
            }
            let id = change.object().status.as_ref().and_then(|status| status.provider_id.as_deref());
            for node in id.map(|id| nodes.by(BY_PROVIDER_ID, id)).into_iter().flatten() {
                if is_deleting(&*node) {
                    to.add(ObjectKey::of(&node.metadata));
                }
            }
        });
        // The deletion of a pod may complete the drain of its node.
        let (to, nodes) = (queue.clone(), stores.nodes.clone());
        stores.pods.observe(move |change: &Change<Pod>| {
            let pod = change.object();
            let is_gone = change.is_deleted() || pods::is_terminal(pod);
            let node = pods::node_name(pod).filter(|_| is_gone).and_then(|name| nodes.get("", name));
            if let Some(node) = node.filter(|node| is_deleting(&**node)) {
                to.add_debounced(ObjectKey::of(&node.metadata));
            }
        });
    }

    fn is_managed(&self, node: &Node) -> bool {
        let kinds = self.cloud.node_class_kinds();
        kinds.iter().any(|kind| label(node, &labels::node_class_label(kind.group, kind.kind)).is_some())
    }

    fn observe(&self, node: Arc<Node>, claim: Option<Arc<NodeClaim>>, by: Option<Timestamp>) -> Facts {
        let stores = &self.reads.stores;
        let now = self.reads.clock.now();
        let name = name_of(&*node).to_owned();
        let pods = stores.pods.by(BY_NODE, &name);
        // Under the rules of the v1alpha5 API, pods that tolerate the taint of cordoned nodes are not drained.
        let has_legacy_rules = label(&*node, labels::PROVISIONER_NAME).is_some();
        let stays = |pod: &Pod| has_legacy_rules && pods::tolerates_unschedulable(pod);
        let ignored: BTreeSet<String> = pods
            .iter()
            .filter(|pod| !pods::is_drainable(pod, now) || stays(pod))
            .flat_map(|pod| volumes_of(stores, pod))
            .collect();
        let attachments = stores
            .attachments
            .by(BY_ATTACHED_NODE, &name)
            .iter()
            .filter_map(|attachment| {
                let volume = attachment.spec.source.persistent_volume_name.clone()?;
                let is_ignored = ignored.contains(&volume);
                Some(Attachment { name: name_of(&**attachment).to_owned(), is_ignored })
            })
            .collect();
        let pods = pods.into_iter().filter(|pod| !stays(pod)).collect();
        Facts { node, claim, pods, attachments, terminate_by: by }
    }

    /// Whether the node is not ready and its instance no longer exists. Such a node needs no drain.
    async fn is_instance_gone(&self, node: &Node) -> kube::Result<bool> {
        let provider_id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
        let Some(provider_id) = provider_id.filter(|_| !is_node_ready(node)) else { return Ok(false) };
        match self.cloud.get(provider_id).await {
            Ok(_) => Ok(false),
            Err(error) if error.is_not_found() => Ok(true),
            Err(error) => Err(act::cloud_failure(error)),
        }
    }
}

impl Reconcile for NodeTermination {
    async fn reconcile(&self, key: &ObjectKey) -> kube::Result<Requeue> {
        let stores = &self.reads.stores;
        let Some(node) = stores.nodes.get_key(key) else { return Ok(Requeue::No) };
        if !is_deleting(&*node) || !has_finalizer(&node) || !self.is_managed(&node) {
            return Ok(Requeue::No);
        }
        let claim = stores.claim_of_node(&node);
        if let Some(claim) = claim.as_ref().filter(|claim| !is_deleting(&***claim)) {
            writes::delete(&self.writes.client, &stores.node_claims, &**claim).await?;
        }
        if self.is_instance_gone(&node).await? {
            return self.remove_finalizer(&node, claim.as_deref()).await;
        }
        // The claim is read again, because its deletion may have changed it in the store.
        let claim = stores.claim_of_node(&node);
        let by = match claim.as_deref().map(termination_time) {
            Some(time) => time?,
            None => None,
        };
        let node = self.taint(&node, claim.as_deref(), by).await?;
        let Some(node) = node else { return Ok(Requeue::No) };
        let facts = self.observe(node, claim, by);
        let step = decide(&facts, self.reads.clock.now());
        self.act(&facts, step).await
    }
}

/// Whether a change of a claim affects the termination of its node. Changes of the deletion timestamp and of
/// annotations do; changes of the status do not.
fn changes_termination(change: &Change<NodeClaim>) -> bool {
    match change {
        Change::Applied { old: Some(old), new } => {
            old.metadata.deletion_timestamp != new.metadata.deletion_timestamp
                || old.metadata.annotations != new.metadata.annotations
        }
        Change::Applied { old: None, .. } | Change::Deleted { .. } => true,
    }
}

fn has_finalizer(node: &Node) -> bool {
    node.metadata.finalizers.iter().flatten().any(|name| name == labels::FINALIZER_TERMINATION)
}

/// The termination deadline of a claim: the time by which all its pods must be gone.
pub(crate) fn termination_time(claim: &NodeClaim) -> kube::Result<Option<Timestamp>> {
    let Some(text) = annotation(claim, labels::ANNOTATION_TERMINATION_TIMESTAMP) else { return Ok(None) };
    text.parse().map(Some).map_err(|error: jiff::Error| kube::Error::Service(error.into()))
}

/// The names of the volumes that are bound to the PersistentVolumeClaims of a pod.
fn volumes_of(stores: &Stores, pod: &Pod) -> Vec<String> {
    let volumes = pod.spec.volumes.iter().flatten();
    let claims = volumes.filter_map(|volume| match (&volume.persistent_volume_claim, &volume.ephemeral) {
        (Some(source), _) => Some(source.claim_name.clone()),
        (None, Some(_)) => Some(format!("{}-{}", pod.name, volume.name)),
        (None, None) => None,
    });
    claims
        .filter_map(|claim| {
            let claim = stores.volume_claims.get(pod.namespace(), &claim)?;
            claim.spec.as_ref()?.volume_name.clone().filter(|name| !name.is_empty())
        })
        .collect()
}
