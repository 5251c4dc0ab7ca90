//! NodeOverlay: changes prices and adds capacity of the instance types that it selects.
//!
//! Upstream: `pkg/apis/v1alpha1/nodeoverlay.go`.

use serde::{Deserialize, Serialize};

use super::{Condition, Quantities, Requirement, kubernetes_object, null_as_default};

kubernetes_object!(
    /// A change of the price or capacity of some instance types.
    NodeOverlay, "karpenter.sh", "v1alpha1", "nodeoverlays", ClusterResourceScope, NodeOverlaySpec, NodeOverlayStatus
);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeOverlaySpec {
    #[serde(deserialize_with = "null_as_default")]
    pub requirements: Vec<Requirement>,
    /// The new price per hour. It must not be set together with `price_adjustment`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price: Option<String>,
    /// The change of the price, such as `+0.5` or `-10%`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price_adjustment: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Quantities>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<i32>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeOverlayStatus {
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub conditions: Vec<Condition>,
}
