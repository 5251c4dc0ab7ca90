//! The kubelet settings that Karpenter interprets, as typed values.

use std::collections::BTreeMap;

use karpenter_api::types::KubeletValues;
use karpenter_model::duration::GoDuration;
use karpenter_model::quantity::Quantity;
use serde::Deserialize;
use serde_json::Value;

/// The setting `maxPods`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum MaxPods {
    Count(i32),
    /// A value that is a string; such a value is always an expression.
    Expression(String),
}

/// The managed fields: Karpenter applies them for every AMI family.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ParsedKubelet {
    #[serde(rename = "clusterDNS", deserialize_with = "null_is_nothing")]
    pub cluster_dns: Vec<String>,
    pub max_pods: Option<MaxPods>,
    pub pods_per_core: Option<i32>,
    #[serde(deserialize_with = "null_is_nothing")]
    pub system_reserved: BTreeMap<String, String>,
    #[serde(deserialize_with = "null_is_nothing")]
    pub kube_reserved: BTreeMap<String, String>,
    #[serde(deserialize_with = "null_is_nothing")]
    pub eviction_hard: BTreeMap<String, String>,
    #[serde(deserialize_with = "null_is_nothing")]
    pub eviction_soft: BTreeMap<String, String>,
    #[serde(deserialize_with = "null_is_nothing")]
    pub eviction_soft_grace_period: BTreeMap<String, GoDuration>,
    pub eviction_max_pod_grace_period: Option<i32>,
    #[serde(rename = "imageGCHighThresholdPercent")]
    pub image_gc_high_threshold_percent: Option<i32>,
    #[serde(rename = "imageGCLowThresholdPercent")]
    pub image_gc_low_threshold_percent: Option<i32>,
    #[serde(rename = "cpuCFSQuota")]
    pub cpu_cfs_quota: Option<bool>,
}

/// The JSON names of the fields of [`ParsedKubelet`].
pub(crate) const MANAGED: [&str; 12] = [
    "clusterDNS",
    "maxPods",
    "podsPerCore",
    "systemReserved",
    "kubeReserved",
    "evictionHard",
    "evictionSoft",
    "evictionSoftGracePeriod",
    "evictionMaxPodGracePeriod",
    "imageGCHighThresholdPercent",
    "imageGCLowThresholdPercent",
    "cpuCFSQuota",
];

impl ParsedKubelet {
    /// Parses the managed fields and ignores the others. Settings without [`super::violations`] always parse.
    pub fn parse(values: &KubeletValues) -> Result<Self, String> {
        let managed = values.iter().filter(|(key, _)| MANAGED.contains(&key.as_str()));
        let object: serde_json::Map<String, Value> =
            managed.map(|(key, value)| (key.clone(), value.clone())).collect();
        serde_json::from_value(Value::Object(object)).map_err(|error| error.to_string())
    }

    /// Whether any setting has to be evaluated per instance type.
    pub fn has_expressions(&self) -> bool {
        matches!(self.max_pods, Some(MaxPods::Expression(_))) || self.has_reserved_expressions()
    }

    /// Whether a reserved resource has to be evaluated per instance type.
    pub fn has_reserved_expressions(&self) -> bool {
        self.reserved().any(|(_, _, value)| is_expression(value))
    }

    /// All entries of `kubeReserved` and `systemReserved`: field, resource, value.
    pub(super) fn reserved(&self) -> impl Iterator<Item = (&'static str, &str, &str)> {
        let of = |field: &'static str, values| {
            let values: &BTreeMap<String, String> = values;
            values.iter().map(move |(key, value)| (field, key.as_str(), value.as_str())).collect::<Vec<_>>()
        };
        of("kubeReserved", &self.kube_reserved).into_iter().chain(of("systemReserved", &self.system_reserved))
    }
}

/// A reserved value that is not a quantity is an expression.
pub(super) fn is_expression(value: &str) -> bool {
    value.parse::<Quantity>().is_err()
}

fn null_is_nothing<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
