//! The operator: everything around the controllers that makes a process of them.

pub mod options;

pub use options::Options;
