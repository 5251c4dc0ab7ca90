//! Drift hashes: a node is drifted if the hash in its NodeClaim's annotation differs from that of its NodePool or node class.
//!
//! The values equal upstream's, so that replacing upstream in a running cluster does not drift all nodes. `structural` has
//! the hash function; the other modules choose the fields per kind. Comparing hashes and writing annotations is done
//! elsewhere.

mod ec2_node_class;
mod node_pool;
mod structural;

pub use ec2_node_class::{
    EC2_NODE_CLASS_HASH_VERSION_FREE_FORM_KUBELET, EC2_NODE_CLASS_HASH_VERSION_TYPED_KUBELET, HashError,
    ec2_node_class_hash_v5, ec2_node_class_hash_v6,
};
pub use node_pool::{NODE_POOL_HASH_VERSION, node_pool_hash};

/// The hash of a string with the hash function of NodePools and EC2NodeClasses; used in generated names.
pub fn text_hash(text: &str) -> u64 {
    structural::hash_text(text)
}
