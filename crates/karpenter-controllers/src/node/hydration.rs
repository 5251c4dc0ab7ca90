//! Adds the label of the node class to nodes that were registered by a version without this label.
//!
//! Upstream: pkg/controllers/node/hydration.

use k8s_openapi::api::core::v1::Node;
use karpenter_api::labels;
use karpenter_api::types::NodeClaim;
use karpenter_runtime::object::{ObjectKey, label};
use karpenter_runtime::queue::Queue;
use karpenter_runtime::store::Change;
use karpenter_runtime::worker::{Reconcile, Requeue};
use serde_json::json;

use crate::inputs::{Reads, Writes};
use crate::stores::BY_PROVIDER_ID;
use crate::writes;

pub struct NodeHydration {
    pub reads: Reads,
    pub writes: Writes,
}

impl NodeHydration {
    pub fn watch(&self, queue: &Queue) {
        let to = queue.clone();
        self.reads.stores.nodes.observe(move |change: &Change<Node>| {
            if !change.is_deleted() {
                to.add(ObjectKey::of(&change.object().metadata));
            }
        });
        let (to, nodes) = (queue.clone(), self.reads.stores.nodes.clone());
        self.reads.stores.node_claims.observe(move |change: &Change<NodeClaim>| {
            let id = change.object().status.as_ref().and_then(|status| status.provider_id.as_deref());
            for node in id.map(|id| nodes.by(BY_PROVIDER_ID, id)).into_iter().flatten() {
                to.add(ObjectKey::of(&node.metadata));
            }
        });
    }
}

impl Reconcile for NodeHydration {
    async fn reconcile(&self, key: &ObjectKey) -> kube::Result<Requeue> {
        let stores = &self.reads.stores;
        let Some(node) = stores.nodes.get_key(key) else { return Ok(Requeue::No) };
        let Some(claim) = stores.claim_of_node(&node) else { return Ok(Requeue::No) };
        let reference = &claim.spec.node_class_ref;
        if !self.reads.is_managed(reference) {
            return Ok(Requeue::No);
        }
        let name = labels::node_class_label(&reference.group, &reference.kind);
        if label(&*node, &name) != Some(reference.name.as_str()) {
            let patch = json!({"metadata": {"labels": {name: reference.name}}});
            writes::merge(&self.writes.client, &stores.nodes, &*node, patch).await?;
        }
        Ok(Requeue::No)
    }
}
