//! The v1beta1 kinds (`karpenter.sh/v1beta1`, `karpenter.k8s.aws/v1beta1`). Most of their fields are the same in v1 and
//! are copied.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::KubeletConfiguration;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct BetaNodePoolSpec {
    pub template: BetaNodeClaimTemplate,
    pub disruption: BetaDisruption,
    pub limits: Option<Value>,
    pub weight: Option<Value>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct BetaNodeClaimTemplate {
    pub metadata: Option<Value>,
    pub spec: BetaNodeClaimSpec,
}

/// The template in a v1beta1 NodePool; NodeClaims have the same spec, but are not converted, because controllers create
/// them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct BetaNodeClaimSpec {
    pub taints: Option<Value>,
    pub startup_taints: Option<Value>,
    pub requirements: Option<Value>,
    pub resources: Option<Value>,
    pub kubelet: Option<KubeletConfiguration>,
    pub node_class_ref: Option<BetaNodeClassRef>,
    pub termination_grace_period: Option<Value>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct BetaNodeClassRef {
    pub api_version: Option<String>,
    pub kind: Option<String>,
    pub name: String,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct BetaDisruption {
    pub consolidation_policy: Option<String>,
    pub consolidate_after: Option<String>,
    pub expire_after: Option<String>,
    pub budgets: Option<Vec<Value>>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct BetaEC2NodeClassSpec {
    pub ami_family: Option<String>,
    pub ami_selector_terms: Option<Vec<Value>>,
    pub subnet_selector_terms: Option<Value>,
    pub security_group_selector_terms: Option<Value>,
    #[serde(rename = "associatePublicIPAddress")]
    pub associate_public_ip_address: Option<bool>,
    pub user_data: Option<String>,
    pub role: Option<String>,
    pub instance_profile: Option<String>,
    pub tags: Option<Map<String, Value>>,
    pub block_device_mappings: Option<Value>,
    pub instance_store_policy: Option<String>,
    pub detailed_monitoring: Option<bool>,
    pub metadata_options: Option<super::MetadataOptions>,
    pub context: Option<String>,
}
