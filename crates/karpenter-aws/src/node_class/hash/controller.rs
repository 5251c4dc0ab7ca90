//! Writes the hash annotations of EC2NodeClasses. When the hash version of a node class changes, migrates its
//! NodeClaims.
//!
//! Upstream: `pkg/controllers/nodeclass/hash`

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use karpenter_api::types::EC2NodeClass;
use karpenter_controllers::{Context, writes as controller_writes};
use karpenter_runtime::object::{ObjectKey, uid_of};
use karpenter_runtime::queue::Queue;
use karpenter_runtime::worker::{Reconcile, Requeue};

use super::{
    ClaimMigration, Stamp, TYPED, changes_version, claim_patch, class_patch, has_unobserved_generation, stamp,
};
use crate::node_class::classes::{Lookup, NodeClasses, refers_to};
use crate::node_class::writes::ClassWrites;

/// Keeps the hash annotations of node classes up to date.
pub struct NodeClassHash {
    context: Context,
    classes: NodeClasses,
    writes: ClassWrites,
    ca_bundle: Option<String>,
    /// Uids of node classes that had a hash of version v5. If v5 no longer covers such a node class, its spec has
    /// changed.
    had_typed_hash: Mutex<BTreeSet<String>>,
}

impl NodeClassHash {
    /// `ca_bundle` are the cluster's CA certificates in base64, as in the user data of nodes.
    pub fn new(context: Context, classes: NodeClasses, ca_bundle: Option<String>) -> Self {
        let writes = ClassWrites::new(context.client.clone(), classes.store().clone());
        Self { context, classes, writes, ca_bundle, had_typed_hash: Mutex::default() }
    }

    /// Decides how NodeClaims are migrated. If another process left the node class with a hash version that does not
    /// cover its settings, NodeClaims are migrated as upstream does, unless the node class changed after that process
    /// reconciled it.
    fn claim_migration(&self, class: &EC2NodeClass, stamp: &Stamp) -> ClaimMigration {
        let mut had_typed_hash = self.had_typed_hash.lock().unwrap_or_else(PoisonError::into_inner);
        if stamp.version == TYPED || has_unobserved_generation(class) {
            had_typed_hash.insert(uid_of(class).to_owned());
        }
        if had_typed_hash.contains(uid_of(class)) {
            ClaimMigration::SpecChanged
        } else {
            ClaimMigration::SpecUnchanged
        }
    }

    fn forget(&self, uid: &str) {
        self.had_typed_hash.lock().unwrap_or_else(PoisonError::into_inner).remove(uid);
    }

    pub fn watch(&self, queue: &Queue) {
        let to = queue.clone();
        self.classes.store().observe(move |change| {
            if !change.is_deleted() {
                to.add(ObjectKey::of(&change.object().metadata));
            }
        });
    }
}

impl Reconcile for NodeClassHash {
    async fn reconcile(&self, key: &ObjectKey) -> kube::Result<Requeue> {
        let Some(object) = self.classes.store().get_key(key) else { return Ok(Requeue::No) };
        // If the node class cannot be parsed, the status controller reports it.
        let Lookup::Found(class) = self.classes.get(&key.name) else { return Ok(Requeue::No) };
        let stamp = stamp(&class, self.ca_bundle.as_deref());
        let claim_migration = self.claim_migration(&class, &stamp);
        if changes_version(&class, &stamp) {
            let claims = &self.context.stores.node_claims;
            let mut outcome = Ok(());
            for claim in claims.list().iter().filter(|claim| refers_to(&claim.spec.node_class_ref, &key.name))
            {
                if let Some(patch) = claim_patch(claim, &stamp, claim_migration) {
                    let written =
                        controller_writes::merge(&self.context.client, claims, &**claim, patch).await;
                    outcome = written.map(drop).and(outcome);
                }
            }
            // NodeClaims are patched before the node class, because they are not migrated again once the node class has
            // the new version.
            outcome?;
        }
        if let Some(patch) = class_patch(&class, &stamp) {
            self.writes.merge(&object, patch).await?;
        }
        if stamp.version != TYPED {
            self.forget(uid_of(&*class));
        }
        Ok(Requeue::No)
    }
}
