//! Drift hashes: a node is drifted if the hash in its NodeClaim's annotation differs from the current hash of its
//! NodePool or node class.
//!
//! The hashes equal upstream's, so that replacing upstream's controller in a running cluster does not mark all nodes as
//! drifted. `structural` has the hash function; the other modules choose the fields of each kind. Other crates compare
//! hashes and write the annotations.

mod ec2_node_class;
mod node_pool;
mod structural;

pub use ec2_node_class::{
    EC2_NODE_CLASS_HASH_VERSION_FREE_FORM_KUBELET, EC2_NODE_CLASS_HASH_VERSION_TYPED_KUBELET, HashError,
    ec2_node_class_hash_v5, ec2_node_class_hash_v6,
};
pub use node_pool::{NODE_POOL_HASH_VERSION, node_pool_hash};

/// The hash of a string, by the hash function of NodePools and EC2NodeClasses; generated names contain it.
pub fn text_hash(text: &str) -> u64 {
    structural::hash_text(text)
}
