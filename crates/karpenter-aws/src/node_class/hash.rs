//! The hash annotations of an EC2NodeClass and of its NodeClaims, by which drift of the node class's spec is detected.
//!
//! Released versions of upstream hash `spec.kubelet` in another way than unreleased ones (here: hash versions v5 and
//! v6). If a node class has an annotation of v5, it keeps v5, so that an upgrade from such a release, or a rollback to
//! it, changes no annotation and replaces no node. Every other node class gets v6. Its NodeClaims get the new hash
//! without a comparison, because hashes of different versions cannot be compared. A node class with kubelet settings
//! that v5 does not cover gets v6 as well; its NodeClaims are then known to be drifted. [`crate::drift`] decides about
//! drift.

mod controller;
#[cfg(test)]
mod tests;

use karpenter_api::hash::{
    EC2_NODE_CLASS_HASH_VERSION_FREE_FORM_KUBELET as FREE_FORM,
    EC2_NODE_CLASS_HASH_VERSION_TYPED_KUBELET as TYPED, ec2_node_class_hash_v5, ec2_node_class_hash_v6,
};
use karpenter_api::labels::{
    AWS_ANNOTATION_NODE_CLASS_HASH as HASH, AWS_ANNOTATION_NODE_CLASS_HASH_VERSION as VERSION,
};
use karpenter_api::types::{EC2NodeClass, NodeClaim};
use karpenter_runtime::object::annotation;
use serde_json::{Value, json};

use crate::kubelet::MANAGED;

pub use controller::NodeClassHash;

/// A hash and its version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp {
    pub version: &'static str,
    pub hash: String,
}

/// The hash for the annotations of a node class and of NodeClaims launched with it. `ca_bundle` are the cluster's CA
/// certificates in base64.
pub fn stamp(class: &EC2NodeClass, ca_bundle: Option<&str>) -> Stamp {
    if annotation(class, VERSION) == Some(TYPED)
        && typed_hash_covers_kubelet(class)
        && let Ok(hash) = ec2_node_class_hash_v5(class, ca_bundle)
    {
        return Stamp { version: TYPED, hash: hash.to_string() };
    }
    Stamp { version: FREE_FORM, hash: ec2_node_class_hash_v6(class, ca_bundle).to_string() }
}

/// Whether hash version v5 covers every key of `spec.kubelet`. If it does not, a change of another key would not be
/// detected as drift. (For a value of the wrong type, such as an expression, the v5 hash returns an error instead.)
fn typed_hash_covers_kubelet(class: &EC2NodeClass) -> bool {
    class.spec.kubelet.iter().flatten().all(|(key, _)| MANAGED.contains(&key.as_str()))
}

/// Whether the node class gets another hash version, so that its NodeClaims must be migrated first.
pub fn changes_version(class: &EC2NodeClass, stamp: &Stamp) -> bool {
    annotation(class, VERSION) != Some(stamp.version)
}

/// How the NodeClaims of a node class get a new hash version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimMigration {
    /// Only the hash version changed, so NodeClaims get the new hash.
    SpecUnchanged,
    /// The spec changed as well, so NodeClaims with the older version keep their hash and count as drifted.
    SpecChanged,
}

/// Whether the spec changed after the last reconcile. False for a node class that was never reconciled, because it has
/// no NodeClaims.
pub fn has_unobserved_generation(class: &EC2NodeClass) -> bool {
    let conditions = class.status.iter().flat_map(|status| &status.conditions);
    let seen = conditions.filter_map(|condition| condition.observed_generation).max();
    seen.is_some_and(|seen| class.metadata.generation.is_some_and(|current| current > seen))
}

/// The patch for the annotations of the node class; `None` if they are current.
pub fn class_patch(class: &EC2NodeClass, stamp: &Stamp) -> Option<Value> {
    let is_current = annotation(class, HASH) == Some(&stamp.hash) && !changes_version(class, stamp);
    (!is_current).then(|| annotations_patch(stamp, true))
}

/// The patch that gives a NodeClaim the new hash version; `None` if it has that version already. A NodeClaim keeps its
/// hash if it has drifted or if its node class changed its spec.
pub fn claim_patch(claim: &NodeClaim, stamp: &Stamp, claim_migration: ClaimMigration) -> Option<Value> {
    let version = annotation(claim, VERSION);
    if version == Some(stamp.version) {
        return None;
    }
    let mut conditions = claim.status.iter().flat_map(|status| &status.conditions);
    let has_drifted = conditions.any(|condition| condition.type_ == "Drifted");
    let is_outdated = claim_migration == ClaimMigration::SpecChanged && version == Some(TYPED);
    Some(annotations_patch(stamp, !has_drifted && !is_outdated))
}

fn annotations_patch(stamp: &Stamp, with_hash: bool) -> Value {
    let mut annotations = json!({ VERSION: stamp.version });
    if with_hash {
        annotations[HASH] = json!(stamp.hash);
    }
    json!({ "metadata": { "annotations": annotations } })
}
