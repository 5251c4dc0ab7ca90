//! Writes annotations with the hash of a NodePool's template, by which drift of NodeClaims is detected.
//!
//! Hashes of different versions cannot be compared. When the version changes, claims get the hash of the current
//! template, so that an upgrade does not replace every node. [`crate::nodeclaim::disruption`] detects drift.
//!
//! Upstream: pkg/controllers/nodepool/hash.

use karpenter_api::hash::{NODE_POOL_HASH_VERSION, node_pool_hash};
use karpenter_api::labels::{ANNOTATION_NODEPOOL_HASH, ANNOTATION_NODEPOOL_HASH_VERSION};
use karpenter_api::types::{NodeClaim, NodePool};
use karpenter_runtime::object::{ObjectKey, annotation};
use karpenter_runtime::queue::Queue;
use karpenter_runtime::store::Change;
use karpenter_runtime::worker::{Reconcile, Requeue};
use serde_json::{Value, json};

use crate::inputs::{Reads, Writes};
use crate::stores::BY_POOL;
use crate::writes;

pub struct NodePoolHash {
    pub reads: Reads,
    pub writes: Writes,
}

impl NodePoolHash {
    pub fn watch(&self, queue: &Queue) {
        let to = queue.clone();
        self.reads.stores.node_pools.observe(move |change: &Change<NodePool>| {
            if !change.is_deleted() {
                to.add(ObjectKey::of(&change.object().metadata));
            }
        });
    }
}

impl Reconcile for NodePoolHash {
    async fn reconcile(&self, key: &ObjectKey) -> kube::Result<Requeue> {
        let stores = &self.reads.stores;
        let Some(pool) = stores.node_pools.get_key(key) else { return Ok(Requeue::No) };
        if !self.reads.is_managed(&pool.spec.template.spec.node_class_ref) {
            return Ok(Requeue::No);
        }
        let hash = node_pool_hash(&pool).to_string();
        if annotation(&*pool, ANNOTATION_NODEPOOL_HASH_VERSION) != Some(NODE_POOL_HASH_VERSION) {
            // Claims are patched before the NodePool: the version in the annotation of the NodePool shows that all
            // claims are migrated.
            for claim in stores.node_claims.by(BY_POOL, &key.name) {
                if let Some(patch) = claim_patch(&claim, &hash) {
                    writes::merge(&self.writes.client, &stores.node_claims, &*claim, patch).await?;
                }
            }
        }
        if let Some(patch) = pool_patch(&pool, &hash) {
            writes::merge(&self.writes.client, &stores.node_pools, &*pool, patch).await?;
        }
        Ok(Requeue::No)
    }
}

/// The patch that sets the annotations of the NodePool; `None` if it has them already.
pub fn pool_patch(pool: &NodePool, hash: &str) -> Option<Value> {
    let is_current = annotation(pool, ANNOTATION_NODEPOOL_HASH) == Some(hash)
        && annotation(pool, ANNOTATION_NODEPOOL_HASH_VERSION) == Some(NODE_POOL_HASH_VERSION);
    (!is_current).then(|| annotations_patch(Some(hash)))
}

/// The patch for a claim whose hash has another version. A drifted claim keeps its hash, so that it stays drifted.
pub fn claim_patch(claim: &NodeClaim, hash: &str) -> Option<Value> {
    if annotation(claim, ANNOTATION_NODEPOOL_HASH_VERSION) == Some(NODE_POOL_HASH_VERSION) {
        return None;
    }
    let conditions = claim.status.iter().flat_map(|status| &status.conditions);
    let has_drifted = conditions.into_iter().any(|condition| condition.type_ == "Drifted");
    Some(annotations_patch((!has_drifted).then_some(hash)))
}

fn annotations_patch(hash: Option<&str>) -> Value {
    let mut annotations = json!({ ANNOTATION_NODEPOOL_HASH_VERSION: NODE_POOL_HASH_VERSION });
    if let Some(hash) = hash {
        annotations[ANNOTATION_NODEPOOL_HASH] = json!(hash);
    }
    json!({ "metadata": { "annotations": annotations } })
}
