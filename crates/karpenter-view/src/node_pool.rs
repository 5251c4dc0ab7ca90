//! The document of one NodePool.

use serde::{Deserialize, Serialize};

use crate::meta::Meta;
use crate::reason::{Reason, Resolution};

/// Whether a NodePool can launch nodes, what its nodes cost, and what blocks their consolidation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodePoolDocument {
    pub meta: Meta,
    pub name: String,
    pub ready: bool,
    pub summary: String,
    pub resolution: Resolution,
    /// The reasons why the NodePool launches no nodes.
    pub reasons: Vec<Reason>,
    /// The number of pending pods that would be placed if the NodePool launched nodes.
    pub affected_pods: u64,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub affected_pod: Option<String>,
    pub nodes: u64,
    pub cost_per_hour: f64,
    pub unpriced_nodes: u64,
    pub limits: Vec<LimitView>,
    /// The blockers of the NodePool's first 20 nodes by name. A blocker of more nodes comes first.
    pub blockers: Vec<BlockerSummary>,
    /// The number of instance types that the NodePool's requirements allow; the next field has the number in its
    /// catalog.
    pub instance_types_allowed: u64,
    pub instance_types: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LimitView {
    pub resource: String,
    pub used: String,
    pub limit: String,
}

/// A blocker, and the nodes that it affects.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BlockerSummary {
    pub reason: Reason,
    pub nodes: u64,
}
