//! Explains decisions to people: why a pod is pending, why a node is not consolidated, how far a NodeClaim is, whether a
//! NodePool launches nodes. The documents are those of `karpenter-view`; [`text`] renders them.
//!
//! Pure functions of an [`input::ExplainInput`], without I/O and clock: the current time is part of the input. A
//! **blocker chain** is found by simulation: the first blocker is removed in a copy of the input, the planner or
//! disruption is run again, and so on until the pods are placed or a command saves money, at most six times. The result
//! of the chain is then simulated with exactly the changes of the fixes.

mod claim;
mod format;
pub mod hints;
pub mod input;
mod node;
mod node_pool;
mod outcome;
mod pod;
mod reasons;
pub mod text;
pub mod verdict_names;

use std::fmt;

use karpenter_view::{API_VERSION, Meta, ObjectRef};

pub use claim::{REGISTRATION_TIMEOUT_SECS, explain_node_claim};
pub use node::explain_node;
pub use node_pool::explain_node_pool;
pub use pod::explain_pod;

use input::ExplainInput;

/// The object is not in the input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotFound {
    pub object: ObjectRef,
}

impl fmt::Display for NotFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is not in the input", self.object)
    }
}

impl std::error::Error for NotFound {}

fn meta(input: &ExplainInput) -> Meta {
    Meta {
        api: API_VERSION.to_owned(),
        source: input.source,
        at: input.now_secs.map(format::time),
        revision: input.cluster.revision,
        cluster: None,
        leader: None,
        history_since: None,
        notes: input.notes.clone(),
    }
}
