//! Scenario tests of the controllers of the AWS provider, with an embedded API server and the AWS fake. All of them are
//! modules of this binary.

mod edge;
mod launch;
mod log;
mod node_class;
mod types;
mod whole;
