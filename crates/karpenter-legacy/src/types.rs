//! Types of the v1alpha5, v1alpha1 and v1beta1 kinds.
//!
//! Deserialization rejects unknown fields: the API server would have pruned them, and the user's intent would be lost.
//! Fields with the same meaning in v1 stay JSON values and are copied.

mod aws_node_template;
mod provisioner;
mod v1beta1;

pub use aws_node_template::*;
pub use provisioner::*;
pub use v1beta1::*;
