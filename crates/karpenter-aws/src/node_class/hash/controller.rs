//! Stamps classes, and claims whose class changes the version of its hash.

use karpenter_cluster::harness::{After, Queue, Reconcile};
use karpenter_cluster::mirror::ObjectKey;
use karpenter_controllers::{Context, writes as controller_writes};

use super::{changes_version, claim_patch, class_patch, stamp};
use crate::node_class::classes::{Lookup, NodeClasses, refers_to};
use crate::node_class::writes::ClassWrites;

/// Keeps the hash annotations of classes up to date.
pub struct NodeClassHash {
    context: Context,
    classes: NodeClasses,
    writes: ClassWrites,
    ca_bundle: Option<String>,
}

impl NodeClassHash {
    /// `ca_bundle`: the cluster's certificates in base64, as nodes are given them.
    pub fn new(context: Context, classes: NodeClasses, ca_bundle: Option<String>) -> Self {
        let writes = ClassWrites::new(context.client.clone(), classes.mirror().clone());
        Self { context, classes, writes, ca_bundle }
    }

    pub fn watch(&self, queue: &Queue) {
        let to = queue.clone();
        self.classes.mirror().observe(move |change| {
            if !change.is_deleted() {
                to.add(ObjectKey::of(&change.object().metadata));
            }
        });
    }
}

impl Reconcile for NodeClassHash {
    async fn reconcile(&self, key: &ObjectKey) -> kube::Result<After> {
        let Some(object) = self.classes.mirror().get_key(key) else { return Ok(After::Done) };
        // One that cannot be read is told by its conditions; there is nothing to hash.
        let Lookup::Found(class) = self.classes.get(&key.name) else { return Ok(After::Done) };
        let stamp = stamp(&class, self.ca_bundle.as_deref());
        if changes_version(&class, &stamp) {
            let claims = &self.context.mirrors.node_claims;
            // Before the class itself: once it carries the new version, nobody comes back for the claims.
            for claim in claims.list().iter().filter(|claim| refers_to(&claim.spec.node_class_ref, &key.name))
            {
                if let Some(patch) = claim_patch(claim, &stamp) {
                    controller_writes::merge(&self.context.client, claims, &**claim, patch).await?;
                }
            }
        }
        if let Some(patch) = class_patch(&class, &stamp) {
            self.writes.merge(&object, patch).await?;
        }
        Ok(After::Done)
    }
}
