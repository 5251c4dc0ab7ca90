//! The documents in which Karpenter describes a cluster to people and programs: one pod, one node, one NodeClaim, one
//! NodePool. `karpenter explain -o json` prints them, and its text is rendered from them.
//!
//! This crate has types only: it computes nothing, and does not use types of the planner. In later versions fields may
//! be added, but a field keeps its name and its meaning. Names are in camelCase, times are RFC 3339, money is in
//! dollars per hour with 6 digits, and quantities are written as in Kubernetes.

mod chain;
mod meta;
mod node;
mod node_claim;
mod node_pool;
mod pod;
mod reason;

pub use chain::{Chain, Decision, Launch, Outcome};
pub use meta::{API_VERSION, Meta, ObjectRef, Source};
pub use node::{BudgetView, CommandView, NodeDocument, NodeSummary};
pub use node_claim::{Attempt, NodeClaimDocument, Phase, TypicalSeconds};
pub use node_pool::{BlockerSummary, LimitView, NodePoolDocument};
pub use pod::{PodDocument, Scope};
pub use reason::{Fix, Param, PatchType, Reason, Resolution, ResolutionKind};
