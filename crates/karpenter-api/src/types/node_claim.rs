//! NodeClaim: one instance from launch to termination.
//!
//! Upstream: `pkg/apis/v1/nodeclaim.go`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

use super::{
    Condition, GoDuration, NillableDuration, NodeClassReference, Quantities, Requirement, Taint,
    kubernetes_object, null_as_default,
};

kubernetes_object!(
    /// A request for one node, and the state of that node.
    NodeClaim, "karpenter.sh", "v1", "nodeclaims", ClusterResourceScope, NodeClaimSpec, NodeClaimStatus
);

/// Immutable.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeClaimSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taints: Option<Vec<Taint>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub startup_taints: Option<Vec<Taint>>,
    #[serde(deserialize_with = "null_as_default")]
    pub requirements: Vec<Requirement>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequests>,
    pub node_class_ref: NodeClassReference,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub termination_grace_period: Option<GoDuration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expire_after: Option<NillableDuration>,
}

/// The minimum amounts of resources that the node must have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceRequests {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<Quantities>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeClaimStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    #[serde(rename = "providerID", skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    #[serde(rename = "imageID", skip_serializing_if = "Option::is_none")]
    pub image_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Quantities>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocatable: Option<Quantities>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub conditions: Vec<Condition>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_pod_event_time: Option<Time>,
}
