//! AWS settings: the AWSNodeTemplate (`karpenter.k8s.aws/v1alpha1`), and `spec.provider` of a v1alpha5 Provisioner.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// `AWSNodeTemplate.spec`, or `Provisioner.spec.provider`, which lacks the fields `user_data`, `ami_selector` and
/// `detailed_monitoring`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct AwsSettings {
    pub api_version: Option<String>,
    pub kind: Option<String>,
    pub ami_family: Option<String>,
    pub context: Option<String>,
    pub instance_profile: Option<String>,
    pub subnet_selector: BTreeMap<String, String>,
    pub security_group_selector: BTreeMap<String, String>,
    pub tags: BTreeMap<String, String>,
    pub launch_template: Option<String>,
    pub metadata_options: Option<MetadataOptions>,
    pub block_device_mappings: Option<Vec<BlockDeviceMapping>>,
    pub ami_selector: BTreeMap<String, String>,
    pub user_data: Option<String>,
    pub detailed_monitoring: Option<bool>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct MetadataOptions {
    pub http_endpoint: Option<String>,
    #[serde(rename = "httpProtocolIPv6")]
    pub http_protocol_ipv6: Option<String>,
    pub http_put_response_hop_limit: Option<i64>,
    pub http_tokens: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct BlockDeviceMapping {
    pub device_name: Option<String>,
    pub ebs: Option<BlockDevice>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct BlockDevice {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delete_on_termination: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encrypted: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iops: Option<i64>,
    #[serde(rename = "kmsKeyID", skip_serializing_if = "Option::is_none")]
    pub kms_key_id: Option<String>,
    #[serde(rename = "snapshotID", skip_serializing_if = "Option::is_none")]
    pub snapshot_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throughput: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_size: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_type: Option<String>,
}
