//! The operator: everything around the controllers that makes a process of them.

pub mod election;
pub mod http;
pub mod options;

pub use options::Options;
