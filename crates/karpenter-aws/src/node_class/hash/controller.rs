//! Stamps classes, and claims whose class changes the version of its hash.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use karpenter_api::types::EC2NodeClass;
use karpenter_cluster::controllers::context::uid_of;
use karpenter_cluster::harness::{After, Queue, Reconcile};
use karpenter_cluster::mirror::ObjectKey;
use karpenter_controllers::{Context, writes as controller_writes};

use super::{
    CarriedOver, Stamp, TYPED, changes_version, claim_patch, class_patch, has_changed_unseen, stamp,
};
use crate::node_class::classes::{Lookup, NodeClasses, refers_to};
use crate::node_class::writes::ClassWrites;

/// Keeps the hash annotations of classes up to date.
pub struct NodeClassHash {
    context: Context,
    classes: NodeClasses,
    writes: ClassWrites,
    ca_bundle: Option<String>,
    /// Uids of classes that the older version could tell: if it cannot any more, it is because they were changed.
    typed: Mutex<BTreeSet<String>>,
}

impl NodeClassHash {
    /// `ca_bundle`: the cluster's certificates in base64, as nodes are given them.
    pub fn new(context: Context, classes: NodeClasses, ca_bundle: Option<String>) -> Self {
        let writes = ClassWrites::new(context.client.clone(), classes.mirror().clone());
        Self { context, classes, writes, ca_bundle, typed: Mutex::default() }
    }

    /// A class that another process left in a version it cannot stay in is carried over as upstream does it, unless it
    /// has been changed since that process looked at it.
    fn carried_over(&self, class: &EC2NodeClass, stamp: &Stamp) -> CarriedOver {
        let mut typed = self.typed.lock().unwrap_or_else(PoisonError::into_inner);
        if stamp.version == TYPED || has_changed_unseen(class) {
            typed.insert(uid_of(class).to_owned());
        }
        if typed.contains(uid_of(class)) { CarriedOver::Outdated } else { CarriedOver::AsTheyAre }
    }

    fn forget(&self, uid: &str) {
        self.typed.lock().unwrap_or_else(PoisonError::into_inner).remove(uid);
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
        let carried_over = self.carried_over(&class, &stamp);
        if changes_version(&class, &stamp) {
            let claims = &self.context.mirrors.node_claims;
            let mut outcome = Ok(());
            for claim in claims.list().iter().filter(|claim| refers_to(&claim.spec.node_class_ref, &key.name))
            {
                if let Some(patch) = claim_patch(claim, &stamp, carried_over) {
                    let written =
                        controller_writes::merge(&self.context.client, claims, &**claim, patch).await;
                    outcome = written.map(drop).and(outcome);
                }
            }
            // Before the class itself: once it carries the new version, nobody comes back for the claims.
            outcome?;
        }
        if let Some(patch) = class_patch(&class, &stamp) {
            self.writes.merge(&object, patch).await?;
        }
        if stamp.version != TYPED {
            self.forget(uid_of(&*class));
        }
        Ok(After::Done)
    }
}
