//! The types of the v1alpha5, v1alpha1 and v1beta1 kinds.
//!
//! An unknown field is an error, because the API server would have dropped it, and what the user intended would be
//! lost. Fields that have the same meaning in v1 stay JSON values and are copied.

mod aws_node_template;
mod provisioner;
mod v1beta1;

pub use aws_node_template::*;
pub use provisioner::*;
pub use v1beta1::*;
