//! The hash of a class on the class and on claims, by which machines of an older spec are found.
//!
//! Released versions of upstream count the kubelet's settings another way than its newest ones. A class that carries
//! the older version keeps it: taking over from such a release, or going back to it, then changes no annotation and
//! replaces no machine. Any other class gets the newer version, and its claims are carried over without a second
//! thought, because hashes of different versions cannot be compared. A class that was given settings the older version
//! cannot see leaves it too, but there the claims are known to be behind. Finding drift is not done here.

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
use karpenter_cluster::controllers::context::annotation;
use serde_json::{Value, json};

use crate::kubelet::MANAGED;

pub use controller::NodeClassHash;

/// A hash, and how it was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp {
    pub version: &'static str,
    pub hash: String,
}

/// What a class, and a claim that is launched with it, is to carry. `ca_bundle`: the cluster's certificates in base64.
pub fn stamp(class: &EC2NodeClass, ca_bundle: Option<&str>) -> Stamp {
    if annotation(class, VERSION) == Some(TYPED)
        && is_told_by_typed(class)
        && let Ok(hash) = ec2_node_class_hash_v5(class, ca_bundle)
    {
        return Stamp { version: TYPED, hash: hash.to_string() };
    }
    Stamp { version: FREE_FORM, hash: ec2_node_class_hash_v6(class, ca_bundle).to_string() }
}

/// Whether the older version sees every setting of the kubelet: a change of one that it does not see would replace no
/// machine. (What it sees but has no type for, such as an expression, it refuses by itself.)
fn is_told_by_typed(class: &EC2NodeClass) -> bool {
    class.spec.kubelet.iter().flatten().all(|(key, _)| MANAGED.contains(&key.as_str()))
}

/// Whether claims of the class have to be carried over before the class itself.
pub fn changes_version(class: &EC2NodeClass, stamp: &Stamp) -> bool {
    annotation(class, VERSION) != Some(stamp.version)
}

/// What a new version of the hash says about the claims of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CarriedOver {
    /// Only the way of counting has changed.
    AsTheyAre,
    /// The class was changed so that the older version cannot tell it any more: claims of that version are behind.
    Outdated,
}

/// Whether the spec has changed since anybody looked at the class. A class that nobody ever looked at has no claims.
pub fn has_changed_unseen(class: &EC2NodeClass) -> bool {
    let conditions = class.status.iter().flat_map(|status| &status.conditions);
    let seen = conditions.filter_map(|condition| condition.observed_generation).max();
    seen.is_some_and(|seen| class.metadata.generation.is_some_and(|current| current > seen))
}

/// What the class's annotations lack.
pub fn class_patch(class: &EC2NodeClass, stamp: &Stamp) -> Option<Value> {
    let is_current = annotation(class, HASH) == Some(&stamp.hash) && !changes_version(class, stamp);
    (!is_current).then(|| annotations_patch(stamp, true))
}

/// What carries a claim of another version over. A claim that has drifted keeps its hash, and stays drifted; so does one
/// that is outdated, and drifts by it.
pub fn claim_patch(claim: &NodeClaim, stamp: &Stamp, carried_over: CarriedOver) -> Option<Value> {
    let version = annotation(claim, VERSION);
    if version == Some(stamp.version) {
        return None;
    }
    let mut conditions = claim.status.iter().flat_map(|status| &status.conditions);
    let has_drifted = conditions.any(|condition| condition.type_ == "Drifted");
    let is_outdated = carried_over == CarriedOver::Outdated && version == Some(TYPED);
    Some(annotations_patch(stamp, !has_drifted && !is_outdated))
}

fn annotations_patch(stamp: &Stamp, with_hash: bool) -> Value {
    let mut annotations = json!({ VERSION: stamp.version });
    if with_hash {
        annotations[HASH] = json!(stamp.hash);
    }
    json!({ "metadata": { "annotations": annotations } })
}
