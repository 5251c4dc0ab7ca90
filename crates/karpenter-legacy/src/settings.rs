//! Reads the ConfigMap `karpenter-global-settings` of Karpenter up to v0.31.
//!
//! A key that is not set is `None`. For keys that v1 does not have, and for invalid values, there are notes. The caller
//! decides whether command line flags take precedence.
//!
//! Upstream: karpenter-core v0.31 `pkg/apis/settings/settings.go`.

use std::collections::BTreeMap;
use std::time::Duration;

use karpenter_model::duration::parse_go_duration;
use serde_json::Value;

use crate::options::Options;

/// The name of the ConfigMap with the global settings.
pub const GLOBAL_SETTINGS: &str = "karpenter-global-settings";

/// The `maxPods` of a node if ENIs do not limit its number of pods.
const MAX_PODS_WITHOUT_ENI_LIMITS: i64 = 110;

const TAGS: &str = "aws.tags";

/// The settings in the ConfigMap `karpenter-global-settings`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GlobalSettings {
    pub batch_max_duration: Option<Duration>,
    pub batch_idle_duration: Option<Duration>,
    pub cluster_name: Option<String>,
    pub cluster_endpoint: Option<String>,
    pub cluster_ca_bundle: Option<String>,
    pub interruption_queue: Option<String>,
    pub isolated_vpc: Option<bool>,
    /// The share of memory used by the hypervisor: a fraction, in spite of the name of the setting.
    pub vm_memory_overhead_percent: Option<f64>,
    pub reserved_enis: Option<u32>,
    pub default_instance_profile: Option<String>,
    pub tags: BTreeMap<String, String>,
    pub drift_enabled: Option<bool>,
    /// `aws.enableENILimitedPodDensity`
    pub eni_limited_pod_density: Option<bool>,
    /// A message for every setting that has no effect.
    pub notes: Vec<String>,
}

impl GlobalSettings {
    pub fn read(data: &BTreeMap<String, String>) -> Self {
        let mut settings = Self::default();
        for (key, text) in data {
            let text = text.trim();
            if !text.is_empty() {
                settings.read_entry(key, text);
            }
        }
        settings
    }

    fn read_entry(&mut self, key: &str, text: &str) {
        let is_valid = match key {
            "batchMaxDuration" => set(&mut self.batch_max_duration, duration(text)),
            "batchIdleDuration" => set(&mut self.batch_idle_duration, duration(text)),
            "aws.clusterName" => set(&mut self.cluster_name, Some(text.to_owned())),
            "aws.clusterEndpoint" => set(&mut self.cluster_endpoint, Some(text.to_owned())),
            "aws.clusterCABundle" => set(&mut self.cluster_ca_bundle, Some(text.to_owned())),
            "aws.interruptionQueueName" => set(&mut self.interruption_queue, Some(text.to_owned())),
            "aws.isolatedVPC" => set(&mut self.isolated_vpc, text.parse().ok()),
            "aws.vmMemoryOverheadPercent" => set(&mut self.vm_memory_overhead_percent, fraction(text)),
            "aws.reservedENIs" => set(&mut self.reserved_enis, text.parse().ok()),
            "aws.defaultInstanceProfile" => set(&mut self.default_instance_profile, Some(text.to_owned())),
            "featureGates.driftEnabled" => set(&mut self.drift_enabled, text.parse().ok()),
            "aws.enableENILimitedPodDensity" => set(&mut self.eni_limited_pod_density, text.parse().ok()),
            TAGS => self.read_tags(text),
            "aws.enablePodENI"
            | "aws.nodeNameConvention"
            | "aws.assumeRoleARN"
            | "aws.assumeRoleDuration" => {
                return self.notes.push(format!("{key} is not supported in v1 and is ignored"));
            }
            _ => match key.strip_prefix(TAGS).and_then(|rest| rest.strip_prefix('.')) {
                Some(tag) => {
                    self.tags.insert(tag.to_owned(), text.to_owned());
                    true
                }
                None => return self.notes.push(format!("unknown setting {key} is ignored")),
            },
        };
        if !is_valid {
            self.notes.push(format!("{key} has the invalid value {text:?} and is ignored"));
        }
    }

    /// Reads tags from a JSON object whose values are strings.
    fn read_tags(&mut self, text: &str) -> bool {
        let Ok(Value::Object(tags)) = serde_json::from_str(text) else { return false };
        for (key, value) in tags {
            let Some(value) = value.as_str() else { return false };
            self.tags.insert(key, value.to_owned());
        }
        true
    }

    /// Sets options that are not set to the values of these settings. Tags are merged; those in `options` take
    /// precedence.
    pub fn complete(&self, options: Options) -> Options {
        let mut tags = self.tags.clone();
        tags.extend(options.tags);
        let max_pods = (self.eni_limited_pod_density == Some(false)).then_some(MAX_PODS_WITHOUT_ENI_LIMITS);
        Options {
            default_instance_profile: options
                .default_instance_profile
                .or_else(|| self.default_instance_profile.clone()),
            cluster_name: options.cluster_name.or_else(|| self.cluster_name.clone()),
            drift_enabled: options.drift_enabled || self.drift_enabled == Some(true),
            max_pods: options.max_pods.or(max_pods),
            tags,
            ..options
        }
    }
}

/// Sets a field if there is a value; returns whether there is one.
fn set<T>(field: &mut Option<T>, value: Option<T>) -> bool {
    let is_set = value.is_some();
    *field = value;
    is_set
}

fn duration(text: &str) -> Option<Duration> {
    let nanos = parse_go_duration(text).ok()?;
    u64::try_from(nanos).ok().map(Duration::from_nanos)
}

fn fraction(text: &str) -> Option<f64> {
    text.parse().ok().filter(|value: &f64| (0.0..1.0).contains(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> GlobalSettings {
        let data = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        GlobalSettings::read(&data)
    }

    #[test]
    fn settings_of_the_chart_are_read() {
        let settings = read(&[
            ("batchMaxDuration", "10s"),
            ("batchIdleDuration", "1s"),
            ("aws.clusterName", "shop"),
            ("aws.clusterEndpoint", ""),
            ("aws.defaultInstanceProfile", "nodes"),
            ("aws.enablePodENI", "false"),
            ("aws.enableENILimitedPodDensity", "false"),
            ("aws.isolatedVPC", "true"),
            ("aws.vmMemoryOverheadPercent", "0.05"),
            ("aws.interruptionQueueName", "queue"),
            ("aws.tags", "{\"team\": \"a\"}"),
            ("aws.tags.owner", "b"),
            ("featureGates.driftEnabled", "true"),
        ]);
        assert_eq!(settings.batch_max_duration, Some(Duration::from_secs(10)));
        assert_eq!(settings.cluster_endpoint, None, "empty is not set");
        assert_eq!((settings.isolated_vpc, settings.vm_memory_overhead_percent), (Some(true), Some(0.05)));
        assert_eq!(settings.tags.len(), 2);
        assert_eq!(settings.notes, ["aws.enablePodENI is not supported in v1 and is ignored"]);
        let options = settings.complete(Options::default());
        assert_eq!(options.default_instance_profile.as_deref(), Some("nodes"));
        assert_eq!((options.drift_enabled, options.max_pods), (true, Some(110)));
        let said = Options { default_instance_profile: Some("other".to_owned()), ..Options::default() };
        assert_eq!(settings.complete(said).default_instance_profile.as_deref(), Some("other"));
    }

    #[test]
    fn invalid_values_are_noted_and_ignored() {
        for (key, text) in [
            ("batchMaxDuration", "soon"),
            ("batchIdleDuration", "-1s"),
            ("aws.isolatedVPC", "perhaps"),
            ("aws.vmMemoryOverheadPercent", "7"),
            ("aws.reservedENIs", "-1"),
            ("aws.tags", "team=a"),
            ("aws.tags", "{\"team\": 1}"),
        ] {
            let settings = read(&[(key, text)]);
            assert_eq!(settings.notes.len(), 1, "{key}");
            assert!(settings.notes[0].starts_with(key) && settings.notes[0].contains("invalid value"));
            assert_eq!(GlobalSettings { notes: Vec::new(), ..settings }, GlobalSettings::default());
        }
        assert_eq!(read(&[("aws.new", "x")]).notes, ["unknown setting aws.new is ignored"]);
    }
}
