//! The hash of a class on the class and on claims, by which machines of an older spec are found.
//!
//! Released versions of upstream count the kubelet's settings another way than its newest ones. A class that carries
//! the older version keeps it: taking over from such a release, or going back to it, then changes no annotation and
//! replaces no machine. Any other class gets the newer version, and its claims are carried over without a second
//! thought, because hashes of different versions cannot be compared. Finding drift is not done here.

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

pub use controller::NodeClassHash;

/// A hash, and how it was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp {
    pub version: &'static str,
    pub hash: String,
}

/// What a class, and a claim that is launched with it, is to carry. `ca_bundle`: the cluster's certificates in base64.
pub fn stamp(class: &EC2NodeClass, ca_bundle: Option<&str>) -> Stamp {
    // Settings that the older version has no place for (an expression, say) leave no choice but the newer one.
    if annotation(class, VERSION) == Some(TYPED)
        && let Ok(hash) = ec2_node_class_hash_v5(class, ca_bundle)
    {
        return Stamp { version: TYPED, hash: hash.to_string() };
    }
    Stamp { version: FREE_FORM, hash: ec2_node_class_hash_v6(class, ca_bundle).to_string() }
}

/// Whether claims of the class have to be carried over before the class itself.
pub fn changes_version(class: &EC2NodeClass, stamp: &Stamp) -> bool {
    annotation(class, VERSION) != Some(stamp.version)
}

/// What the class's annotations lack.
pub fn class_patch(class: &EC2NodeClass, stamp: &Stamp) -> Option<Value> {
    let is_current = annotation(class, HASH) == Some(&stamp.hash) && !changes_version(class, stamp);
    (!is_current).then(|| annotations_patch(stamp, true))
}

/// What carries a claim of another version over. A claim that has drifted keeps its hash: it stays drifted.
pub fn claim_patch(claim: &NodeClaim, stamp: &Stamp) -> Option<Value> {
    if annotation(claim, VERSION) == Some(stamp.version) {
        return None;
    }
    let mut conditions = claim.status.iter().flat_map(|status| &status.conditions);
    let has_drifted = conditions.any(|condition| condition.type_ == "Drifted");
    Some(annotations_patch(stamp, !has_drifted))
}

fn annotations_patch(stamp: &Stamp, with_hash: bool) -> Value {
    let mut annotations = json!({ VERSION: stamp.version });
    if with_hash {
        annotations[HASH] = json!(stamp.hash);
    }
    json!({ "metadata": { "annotations": annotations } })
}
