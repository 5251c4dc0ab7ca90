//! Karpenter's controllers: each one observes, decides with a pure function, and acts.
//!
//! They speak to Kubernetes through `kube::Client` and to the cloud through `karpenter_cloud::CloudProvider`, and to
//! each other not at all: what one writes, the others read from the stores, which take in own writes at once. Objects
//! that are not Karpenter's are never written, except where a rule names them: nodes of our claims, pods that are
//! nominated or evicted.

pub mod capacity_buffer;
pub mod claims;
pub mod compute;
mod condition_transitions;
pub mod context;
pub mod decision_journal;
pub mod disruption;
pub mod events;
pub mod legacy;
pub mod log_throttle;
pub mod logs;
pub mod metrics;
pub mod node;
pub mod node_overlay;
pub mod nodeclaim;
pub mod nodepool;
pub mod nomination;
pub mod offerings;
pub mod operator;
pub mod pod_deletion_cost;
pub mod pods;
pub mod provisioning;
mod recent;
pub mod settings;
pub mod state;
pub mod static_capacity;
pub mod stores;
pub mod writes;

pub use context::Context;
pub use operator::options::FeatureGates;
pub use settings::Settings;

/// The commit this was built from, as short as upstream prints it, where the build sets KARPENTER_COMMIT.
pub const COMMIT: &str = match option_env!("KARPENTER_COMMIT") {
    None => "unknown",
    Some(commit) if commit.is_empty() => "unknown",
    Some(commit) if commit.len() >= FULL_HASH_LENGTH => commit.split_at(SHORT_HASH_LENGTH).0,
    Some(commit) => commit,
};

/// Digits of a commit's hash.
const FULL_HASH_LENGTH: usize = 40;
const SHORT_HASH_LENGTH: usize = 7;
