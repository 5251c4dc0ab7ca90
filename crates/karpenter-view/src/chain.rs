//! Blocker chains: what prevents a placement or a saving, and the simulated result without it.

use serde::{Deserialize, Serialize};

use crate::reason::Reason;

/// The blockers: first the one that is effective now, then always the one that appears when all before it are removed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Chain {
    pub blockers: Vec<Reason>,
    /// The simulated result of applying the fixes of all blockers; absent if the pods are still not placed, or if no
    /// command saves money.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub result: Option<Outcome>,
    /// The reason at which the chain ends without a result.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub remaining: Option<Reason>,
}

/// What the command or plan of an outcome does with the node that the document is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Decision {
    /// Pods are placed; no node is disrupted.
    Place,
    Delete,
    Replace,
}

/// A simulated result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Outcome {
    pub decision: Decision,
    /// New nodes; equal ones are one entry with a count.
    pub launches: Vec<Launch>,
    /// Names of the existing nodes on which pods are placed.
    pub existing_nodes: Vec<String>,
    /// The number of pods that are placed or rescheduled.
    pub pods: u64,
    /// The price of the new nodes.
    pub added_per_hour: f64,
    /// The price that a command saves per hour; 0 for placements.
    pub saving_per_hour: f64,
}

/// New nodes with equal properties.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Launch {
    pub count: u64,
    pub node_pool: String,
    pub instance_type: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub zone: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub capacity_type: Option<String>,
    /// The price of one node.
    pub price_per_hour: f64,
}
