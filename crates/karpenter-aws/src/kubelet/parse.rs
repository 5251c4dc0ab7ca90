//! The kubelet settings that Karpenter itself interprets, as typed values.

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
    /// A string, which is always an expression.
    Expression(String),
}

/// The managed fields, which Karpenter applies for every AMI family.
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

/// The names that the fields of [`ParsedKubelet`] have in JSON.
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
    /// Parses the managed fields and ignores the others. Parsing never fails for settings that have no
    /// [`super::violations`].
    pub fn parse(values: &KubeletValues) -> Result<Self, String> {
        let managed = values.iter().filter(|(key, _)| MANAGED.contains(&key.as_str()));
        let object: serde_json::Map<String, Value> =
            managed.map(|(key, value)| (key.clone(), value.clone())).collect();
        serde_json::from_value(Value::Object(object)).map_err(|error| error.to_string())
    }

    /// Whether some setting is an expression, so that it must be evaluated for each instance type.
    pub fn has_expressions(&self) -> bool {
        matches!(self.max_pods, Some(MaxPods::Expression(_))) || self.has_reserved_expressions()
    }

    /// Whether some reserved resource is an expression, so that it must be evaluated for each instance type.
    pub fn has_reserved_expressions(&self) -> bool {
        self.reserved().any(|(_, _, value)| is_expression(value))
    }

    /// All entries of `kubeReserved` and `systemReserved`, as (field, resource, value).
    pub(super) fn reserved(&self) -> impl Iterator<Item = (&'static str, &str, &str)> {
        let of = |field: &'static str, values| {
            let values: &BTreeMap<String, String> = values;
            values.iter().map(move |(key, value)| (field, key.as_str(), value.as_str())).collect::<Vec<_>>()
        };
        of("kubeReserved", &self.kube_reserved).into_iter().chain(of("systemReserved", &self.system_reserved))
    }
}

/// Whether a reserved value is an expression, which it is unless it is a quantity.
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
