//! Scenario tests of the AWS provider's controllers, with an embedded API server and the AWS fake. All scenario tests
//! are modules of this binary.

mod edge;
mod launch;
mod log;
mod node_class;
mod types;
mod whole;
