//! KWOKNodeClass: settings of nodes that the kwok provider simulates.
//!
//! Upstream: `kwok/apis/v1alpha1/kwoknodeclass.go`.

use serde::{Deserialize, Serialize};

use super::{Condition, GoDuration, kubernetes_object, null_as_default};

kubernetes_object!(
    /// The settings of simulated nodes.
    KWOKNodeClass, "karpenter.kwok.sh", "v1alpha1", "kwoknodeclasses", ClusterResourceScope, KWOKNodeClassSpec,
    KWOKNodeClassStatus
);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KWOKNodeClassSpec {
    /// How long after its launch a simulated node registers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_registration_delay: Option<GoDuration>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KWOKNodeClassStatus {
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub conditions: Vec<Condition>,
}
