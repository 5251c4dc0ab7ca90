//! Karpenter's controllers. Each one reads the stores, decides with a pure function, and writes.
//!
//! They access Kubernetes through `kube::Client` and the cloud through `karpenter_cloud::CloudProvider`. They do not
//! call each other: what one controller writes, the others read from the stores, which apply the writes of this
//! process at once. Objects of other owners are only written where a rule requires it: nodes of NodeClaims, and pods
//! that are nominated or evicted.

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

/// The commit of the build, as short as upstream prints it; the build sets KARPENTER_COMMIT.
pub const COMMIT: &str = match option_env!("KARPENTER_COMMIT") {
    None => "unknown",
    Some(commit) if commit.is_empty() => "unknown",
    Some(commit) if commit.len() >= FULL_HASH_LENGTH => commit.split_at(SHORT_HASH_LENGTH).0,
    Some(commit) => commit,
};

/// Digits of a commit hash.
const FULL_HASH_LENGTH: usize = 40;
const SHORT_HASH_LENGTH: usize = 7;
