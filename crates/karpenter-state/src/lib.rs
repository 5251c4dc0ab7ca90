//! Turns Kubernetes objects into planning problems.
//!
//! [`objects::Objects`] are typed and checked manifests. [`assemble::assemble`] turns them into a
//! [`karpenter_model::problem::Problem`], with [`notes::Note`]s about everything that was left out or
//! assumed. No I/O and no clock: the caller reads files, and the same input always gives the same problem.

pub mod assemble;
pub mod buffers;
pub mod claim;
pub mod cluster_input;
pub mod controls;
mod convert;
pub mod cost;
mod default_spread;
pub mod disruption;
pub mod dump;
pub mod explain;
pub mod fields;
mod intern;
pub mod move_annotations;
pub mod node;
pub mod notes;
pub mod objects;
pub mod overlays;
pub mod pod;
pub mod pods;
pub mod pool;
pub mod replay;
mod requests;
#[cfg(test)]
mod testing;
mod workloads;

pub use assemble::{CatalogChoice, assemble};
pub use cluster_input::{AssembledProblem, ClusterInput, Host, PoolInput, assemble_cluster};
pub use controls::ControlError;
pub use convert::node_class::{SkippedSetting, aws_node_class};
pub use convert::pool::PoolLeftOut;
pub use cost::DeletionCosts;
pub use default_spread::DefaultSpreadInput;
pub use disruption::{AssembledCluster, DisruptionInput, PoolBudgetError, assemble_disruption};
pub use dump::{Dump, read_dump};
pub use explain::{ExplainSettings, explain_input};
pub use notes::Note;
pub use objects::{ObjectError, ObjectReader, Objects, Reading, Severity};
