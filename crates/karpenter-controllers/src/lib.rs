//! Karpenter's controllers. Each controller reads the stores, decides with a pure function, and writes the result.
//!
//! Controllers access Kubernetes through `kube::Client` and the cloud through `karpenter_cloud::CloudProvider`. They do
//! not call each other: a write of one controller is applied to the stores at once, where the other controllers read
//! it. Objects that Karpenter does not own are written only where necessary: nodes of NodeClaims, and pods that are
//! nominated or evicted.

pub mod annotations;
mod buffers;
pub mod capacity_buffer;
pub mod claims;
pub mod compute;
mod condition_transitions;
pub mod decision_journal;
pub mod disruption;
pub mod events;
pub mod evictions;
pub mod inputs;
pub mod legacy;
pub mod log_throttle;
pub mod logs;
pub mod metrics;
pub mod metrics_export;
pub mod node;
pub mod node_health;
pub mod node_overlay;
pub mod nodeclaim;
pub mod nodepool;
pub mod nomination;
pub mod nominations;
pub mod offerings;
pub mod operator;
mod planner_faults;
pub mod planner_input;
pub mod pod_deletion_cost;
pub mod pods;
pub mod provisioning;
mod recent;
pub mod registration_health;
pub mod settings;
pub mod state;
pub mod static_capacity;
mod status_events;
pub mod stores;
pub mod writes;

pub use operator::context::Context;
pub use settings::{FeatureGates, Settings};

/// The commit of the build, with as many digits as upstream prints. The build sets it with the environment variable
/// KARPENTER_COMMIT.
pub const COMMIT: &str = match option_env!("KARPENTER_COMMIT") {
    None => "unknown",
    Some(commit) if commit.is_empty() => "unknown",
    Some(commit) if commit.len() >= FULL_HASH_LENGTH => commit.split_at(SHORT_HASH_LENGTH).0,
    Some(commit) => commit,
};

/// The number of digits of a full commit hash.
const FULL_HASH_LENGTH: usize = 40;
const SHORT_HASH_LENGTH: usize = 7;
