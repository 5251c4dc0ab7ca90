//! The controllers of the AWS provider with an embedded API server and the AWS fake. All suites of the crate are
//! modules of this binary.

mod edge;
mod launch;
mod log;
mod node_class;
mod types;
mod whole;
