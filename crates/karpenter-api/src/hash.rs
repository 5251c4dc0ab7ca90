//! Hashes by which drift is found: a node is out of date when the hash it was launched with differs from the hash of
//! the object it was launched from.
//!
//! Reproduces existing values bit for bit, so that taking over a running cluster does not make every node look
//! drifted. The structural scheme is in `structural`; which fields count is decided per kind. Comparing hashes and
//! stamping them on objects is not done here.

mod ec2_node_class;
mod node_pool;
mod structural;

pub use ec2_node_class::{
    EC2_NODE_CLASS_HASH_VERSION_FREE_FORM_KUBELET, EC2_NODE_CLASS_HASH_VERSION_TYPED_KUBELET, HashError,
    ec2_node_class_hash_v5, ec2_node_class_hash_v6,
};
pub use node_pool::{NODE_POOL_HASH_VERSION, node_pool_hash};

/// The hash of a bare text in the same scheme, for names that end in one.
pub fn text_hash(text: &str) -> u64 {
    structural::hash_text(text)
}
