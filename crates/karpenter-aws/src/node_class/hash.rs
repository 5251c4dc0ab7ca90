//! The hash annotations of an EC2NodeClass and its NodeClaims, from which drift of the spec is detected.
//!
//! Released versions of upstream hash `spec.kubelet` in another way than unreleased ones (hash versions v5 and v6
//! here). A class with an annotation of the older version keeps that version, so that an upgrade from such a release
//! and a rollback to it change no annotation and replace no node. Every other class gets the newer version, and its
//! NodeClaims get the new hash without a comparison, because hashes of different versions are not comparable. A class
//! with kubelet settings that the older version does not cover also gets the newer version; its NodeClaims are then
//! known to be drifted. Drift itself is decided in [`crate::drift`].

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

/// The hash for the annotations of a class and of claims launched with it. `ca_bundle`: the cluster's CA certificates
/// in base64.
pub fn stamp(class: &EC2NodeClass, ca_bundle: Option<&str>) -> Stamp {
    if annotation(class, VERSION) == Some(TYPED)
        && typed_hash_covers_kubelet(class)
        && let Ok(hash) = ec2_node_class_hash_v5(class, ca_bundle)
    {
        return Stamp { version: TYPED, hash: hash.to_string() };
    }
    Stamp { version: FREE_FORM, hash: ec2_node_class_hash_v6(class, ca_bundle).to_string() }
}

/// Whether the older version covers every key of `spec.kubelet`: a change of another key would not be detected as
/// drift. (For a value of the wrong type, such as an expression, the older hash returns an error.)
fn typed_hash_covers_kubelet(class: &EC2NodeClass) -> bool {
    class.spec.kubelet.iter().flatten().all(|(key, _)| MANAGED.contains(&key.as_str()))
}

/// Whether the class changes its hash version, so that its claims must be migrated first.
pub fn changes_version(class: &EC2NodeClass, stamp: &Stamp) -> bool {
    annotation(class, VERSION) != Some(stamp.version)
}

/// How the claims of a class migrate to a new hash version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimMigration {
    /// Only the hash version changed: claims get the new hash.
    SpecUnchanged,
    /// The spec changed too: claims of the older version keep their hash and drift.
    SpecChanged,
}

/// Whether the spec changed after the last reconcile. False for a class that was never reconciled: it has no claims.
pub fn has_unobserved_generation(class: &EC2NodeClass) -> bool {
    let conditions = class.status.iter().flat_map(|status| &status.conditions);
    let seen = conditions.filter_map(|condition| condition.observed_generation).max();
    seen.is_some_and(|seen| class.metadata.generation.is_some_and(|current| current > seen))
}

/// The patch for the class's annotations; `None` if they are current.
pub fn class_patch(class: &EC2NodeClass, stamp: &Stamp) -> Option<Value> {
    let is_current = annotation(class, HASH) == Some(&stamp.hash) && !changes_version(class, stamp);
    (!is_current).then(|| annotations_patch(stamp, true))
}

/// The patch that migrates a claim; `None` if it has the version already. A claim that has drifted, or whose class
/// changed its spec, keeps its hash.
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
