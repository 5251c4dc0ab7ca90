//! The hash of a pool's template on the pool, by which claims that were made from an older template are found.
//!
//! When the way of hashing changes between versions, hashes cannot be compared: claims then get the new one without a
//! second thought, so that an upgrade does not replace every node. Finding drift is not done here.

use karpenter_api::hash::{NODE_POOL_HASH_VERSION, node_pool_hash};
use karpenter_api::labels::{ANNOTATION_NODEPOOL_HASH, ANNOTATION_NODEPOOL_HASH_VERSION};
use karpenter_api::types::{NodeClaim, NodePool};
use karpenter_cluster::controllers::context::annotation;
use karpenter_cluster::harness::{After, Queue, Reconcile};
use karpenter_cluster::mirror::{Change, ObjectKey};
use serde_json::{Value, json};

use crate::context::Context;
use crate::stores::BY_POOL;
use crate::writes;

/// Keeps the hash annotations of pools up to date, and carries claims over from another version.
pub struct NodePoolHash {
    pub context: Context,
}

impl NodePoolHash {
    pub fn watch(&self, queue: &Queue) {
        let to = queue.clone();
        self.context.stores.node_pools.observe(move |change: &Change<NodePool>| {
            if !change.is_deleted() {
                to.add(ObjectKey::of(&change.object().metadata));
            }
        });
    }
}

impl Reconcile for NodePoolHash {
    async fn reconcile(&self, key: &ObjectKey) -> kube::Result<After> {
        let stores = &self.context.stores;
        let Some(pool) = stores.node_pools.get_key(key) else { return Ok(After::Done) };
        if !self.context.is_managed(&pool.spec.template.spec.node_class_ref) {
            return Ok(After::Done);
        }
        let hash = node_pool_hash(&pool).to_string();
        if annotation(&*pool, ANNOTATION_NODEPOOL_HASH_VERSION) != Some(NODE_POOL_HASH_VERSION) {
            // Before the pool itself: once it carries the new version, nobody comes back for the claims.
            for claim in stores.node_claims.by(BY_POOL, &key.name) {
                if let Some(patch) = claim_patch(&claim, &hash) {
                    writes::merge(&self.context.client, &stores.node_claims, &*claim, patch).await?;
                }
            }
        }
        if let Some(patch) = pool_patch(&pool, &hash) {
            writes::merge(&self.context.client, &stores.node_pools, &*pool, patch).await?;
        }
        Ok(After::Done)
    }
}

/// What the pool's annotations lack.
pub fn pool_patch(pool: &NodePool, hash: &str) -> Option<Value> {
    let is_current = annotation(pool, ANNOTATION_NODEPOOL_HASH) == Some(hash)
        && annotation(pool, ANNOTATION_NODEPOOL_HASH_VERSION) == Some(NODE_POOL_HASH_VERSION);
    (!is_current).then(|| annotations_patch(Some(hash)))
}

/// What carries a claim of another hash version over. A claim that has drifted keeps its hash: it stays drifted.
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
