//! The document of one NodeClaim.

use serde::{Deserialize, Serialize};

use crate::meta::Meta;
use crate::reason::{Fix, Resolution};

/// The progress of a node's launch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeClaimDocument {
    pub meta: Meta,
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub node_pool: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub instance_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub zone: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub capacity_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub price_per_hour: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub provider_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub node: Option<String>,
    /// The number of pods that are nominated for the node.
    pub nominated_pods: u64,
    pub summary: String,
    pub resolution: Resolution,
    /// Created, Launched, Registered and Initialized, in this order.
    pub phases: Vec<Phase>,
    /// When the NodeClaim will be deleted if its node has not registered.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub timeout_at: Option<String>,
    /// How long other NodeClaims of the NodePool took from launch to registration.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub typical: Option<TypicalSeconds>,
    /// The other NodeClaims of the same NodePool: how many registered, and how many there are.
    pub others: Attempt,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub fix: Option<Fix>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Phase {
    pub name: String,
    /// The time at which the phase was reached; absent if it was not.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub at: Option<String>,
}

/// Percentiles of a duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TypicalSeconds {
    pub p50: u64,
    pub p90: u64,
}

/// How many NodeClaims of a NodePool registered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Attempt {
    pub registered: u64,
    pub all: u64,
}
