//! The AWS provider's controllers on an embedded API server and an in-process cloud. All suites of the crate are
//! modules of this one binary.

mod edge;
mod launch;
mod log;
mod node_class;
mod types;
mod whole;
