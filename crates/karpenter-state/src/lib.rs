//! From Kubernetes manifests to a planning problem.
//!
//! [`objects::Objects`] types and checks what was read, [`assemble::assemble`] turns it into a
//! [`karpenter_model::problem::Problem`] plus [`notes::Note`]s about everything that was left out or assumed.
//! No I/O and no clock: files are read by the caller, and a plan of the same input is the same tomorrow.

pub mod assemble;
pub mod buffers;
pub mod controls;
mod convert;
pub mod cost;
pub mod dump;
mod expand;
pub mod fleet;
mod intern;
pub mod live;
pub mod moved;
pub mod notes;
pub mod objects;
pub mod overlays;
pub mod pod;
pub mod pods;
pub mod replay;
mod requests;
mod spreads;
#[cfg(test)]
mod testing;

pub use assemble::{CatalogChoice, assemble};
pub use controls::ControlError;
pub use convert::node_class::{SkippedSetting, aws_node_class};
pub use convert::pool::PoolLeftOut;
pub use cost::DeletionCosts;
pub use dump::{Dump, read_dump};
pub use fleet::{FleetInput, FleetRound, PoolBudgetError, assemble_fleet};
pub use live::{Host, Live, LivePool, Round, assemble_live};
pub use notes::Note;
pub use objects::{ObjectError, ObjectReader, Objects, Reading, Severity};
pub use spreads::Spreading;
