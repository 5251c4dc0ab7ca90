//! The document of one node.

use serde::{Deserialize, Serialize};

use crate::chain::{Chain, Outcome};
use crate::meta::{Meta, ObjectRef};
use crate::reason::{Reason, Resolution};

/// Why a node is or is not disrupted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeDocument {
    pub meta: Meta,
    pub node: ObjectRef,
    pub facts: NodeSummary,
    pub summary: String,
    pub resolution: Resolution,
    pub verdict: Reason,
    pub chain: Chain,
    /// The command of which the node is a candidate.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub command: Option<CommandView>,
    /// The best command for the node, if it is rejected because it saves too little.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rejected: Option<Outcome>,
    /// The budgets of the NodePool for the reason of the disruption, if they block it; otherwise empty.
    pub budgets: Vec<BudgetView>,
}

/// The properties of a node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeSummary {
    pub node_claim: String,
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
    pub cpu_percent: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub memory_percent: Option<u64>,
    /// The number of pods that would be rescheduled if the node were deleted.
    pub pods: u64,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub created: Option<String>,
}

/// A command that disruption executes, or would execute.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CommandView {
    /// The reason of the disruption: `Underutilized`, `Empty`, `Drifted`, `Unhealthy` or `Expired`.
    pub reason: String,
    pub candidates: Vec<String>,
    pub outcome: Outcome,
}

/// One entry of `spec.disruption.budgets`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BudgetView {
    /// The entry as text: nodes, reasons, schedule and duration.
    pub entry: String,
    /// Whether the schedule of the entry is active at present; true without a schedule.
    pub is_active: bool,
    /// The number of nodes that the entry allows to be disrupted; absent while the entry is not active.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub allowed: Option<u64>,
    /// When the next active period of the schedule begins, or the current one ends.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub next_change: Option<String>,
}
