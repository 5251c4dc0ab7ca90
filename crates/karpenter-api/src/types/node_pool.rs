//! NodePool: which nodes Karpenter may launch, how many, and how it disrupts them.
//!
//! Upstream: `pkg/apis/v1/nodepool.go`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    Condition, GoDuration, NillableDuration, NodeClassReference, Quantities, Requirement, Taint,
    kubernetes_object, null_as_default,
};

kubernetes_object!(
    /// A template for nodes, with limits and rules for disruption.
    NodePool, "karpenter.sh", "v1", "nodepools", ClusterResourceScope, NodePoolSpec, NodePoolStatus
);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodePoolSpec {
    pub template: NodeClaimTemplate,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disruption: Option<Disruption>,
    /// The NodePool's limits, by resource name; `nodes` limits the number of nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<Quantities>,
    /// NodePools with a higher weight are tried first; the default is 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<i32>,
    /// The fixed number of nodes of a static NodePool; not set for dynamic NodePools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeClaimTemplate {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<NodeClaimTemplateMetadata>,
    pub spec: NodeClaimTemplateSpec,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeClaimTemplateMetadata {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub annotations: Option<BTreeMap<String, String>>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeClaimTemplateSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taints: Option<Vec<Taint>>,
    /// Taints that another controller removes before the node is initialized, so pods need not tolerate them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub startup_taints: Option<Vec<Taint>>,
    #[serde(deserialize_with = "null_as_default")]
    pub requirements: Vec<Requirement>,
    pub node_class_ref: NodeClassReference,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub termination_grace_period: Option<GoDuration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expire_after: Option<NillableDuration>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Disruption {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consolidate_after: Option<NillableDuration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consolidation_policy: Option<ConsolidationPolicy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budgets: Option<Vec<Budget>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ConsolidationPolicy {
    WhenEmpty,
    #[default]
    WhenEmptyOrUnderutilized,
    Balanced,
    /// A value that this version of Karpenter does not know.
    #[serde(untagged)]
    Other(String),
}

/// A disruption budget, which limits how many nodes may be disrupted at the same time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Budget {
    /// The maximum number of nodes, as a count such as `5` or a percentage such as `10%`.
    pub nodes: String,
    /// The reasons that the budget applies to. If absent, it applies to all reasons; if empty, to none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasons: Option<Vec<DisruptionReason>>,
    /// A cron schedule in UTC; each scheduled time activates the budget for `duration`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<GoDuration>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum DisruptionReason {
    Underutilized,
    Empty,
    Drifted,
    Unhealthy,
    /// A value that this version of Karpenter does not know.
    #[serde(untagged)]
    Other(String),
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodePoolStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<Quantities>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_class_observed_generation: Option<i64>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub conditions: Vec<Condition>,
}
