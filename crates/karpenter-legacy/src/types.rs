//! The old kinds as types, one file per generation of the API.
//!
//! Reading is strict: a field that a kind never had is refused, because the old server would have dropped it and its
//! writer meant something. Fields that mean the same in v1 are kept as JSON and copied.

mod aws_node_template;
mod provisioner;
mod v1beta1;

pub use aws_node_template::*;
pub use provisioner::*;
pub use v1beta1::*;
