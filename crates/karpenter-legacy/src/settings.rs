//! The settings of a Karpenter before v1, as its ConfigMap `karpenter-global-settings` holds them.
//!
//! Only reads: what is not set is absent, what v1 no longer has or cannot be read is a note. Whether a setting is
//! used, or one of v1 stands against it, is for the caller to decide.

use std::collections::BTreeMap;
use std::time::Duration;

use karpenter_model::duration::parse_go_duration;
use serde_json::Value;

use crate::options::Options;

/// The name of the ConfigMap.
pub const GLOBAL_SETTINGS: &str = "karpenter-global-settings";

/// How many pods a node took where addresses did not limit them.
const MAX_PODS_WITHOUT_ENI_LIMITS: i64 = 110;

const TAGS: &str = "aws.tags";

/// What the ConfigMap says.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GlobalSettings {
    pub batch_max_duration: Option<Duration>,
    pub batch_idle_duration: Option<Duration>,
    pub cluster_name: Option<String>,
    pub cluster_endpoint: Option<String>,
    pub cluster_ca_bundle: Option<String>,
    pub interruption_queue: Option<String>,
    pub isolated_vpc: Option<bool>,
    /// A fraction, in spite of its name.
    pub vm_memory_overhead_percent: Option<f64>,
    pub reserved_enis: Option<u32>,
    pub default_instance_profile: Option<String>,
    pub tags: BTreeMap<String, String>,
    pub drift_enabled: Option<bool>,
    /// `aws.enableENILimitedPodDensity`
    pub limits_pods_by_addresses: Option<bool>,
    /// One sentence for every setting that has no effect.
    pub notes: Vec<String>,
}

impl GlobalSettings {
    pub fn read(data: &BTreeMap<String, String>) -> Self {
        let mut settings = Self::default();
        for (key, text) in data {
            let text = text.trim();
            if !text.is_empty() {
                settings.take(key, text);
            }
        }
        settings
    }

    fn take(&mut self, key: &str, text: &str) {
        let is_taken = match key {
            "batchMaxDuration" => put(&mut self.batch_max_duration, duration(text)),
            "batchIdleDuration" => put(&mut self.batch_idle_duration, duration(text)),
            "aws.clusterName" => put(&mut self.cluster_name, Some(text.to_owned())),
            "aws.clusterEndpoint" => put(&mut self.cluster_endpoint, Some(text.to_owned())),
            "aws.clusterCABundle" => put(&mut self.cluster_ca_bundle, Some(text.to_owned())),
            "aws.interruptionQueueName" => put(&mut self.interruption_queue, Some(text.to_owned())),
            "aws.isolatedVPC" => put(&mut self.isolated_vpc, text.parse().ok()),
            "aws.vmMemoryOverheadPercent" => put(&mut self.vm_memory_overhead_percent, fraction(text)),
            "aws.reservedENIs" => put(&mut self.reserved_enis, text.parse().ok()),
            "aws.defaultInstanceProfile" => put(&mut self.default_instance_profile, Some(text.to_owned())),
            "featureGates.driftEnabled" => put(&mut self.drift_enabled, text.parse().ok()),
            "aws.enableENILimitedPodDensity" => put(&mut self.limits_pods_by_addresses, text.parse().ok()),
            TAGS => self.take_tags(text),
            "aws.enablePodENI"
            | "aws.nodeNameConvention"
            | "aws.assumeRoleARN"
            | "aws.assumeRoleDuration" => {
                return self.notes.push(format!("{key} has no meaning any more and is ignored"));
            }
            _ => match key.strip_prefix(TAGS).and_then(|rest| rest.strip_prefix('.')) {
                Some(tag) => {
                    self.tags.insert(tag.to_owned(), text.to_owned());
                    true
                }
                None => return self.notes.push(format!("{key} is not known and is ignored")),
            },
        };
        if !is_taken {
            self.notes.push(format!("{key} is {text:?}, which cannot be read, and is ignored"));
        }
    }

    /// A JSON object of texts.
    fn take_tags(&mut self, text: &str) -> bool {
        let Ok(Value::Object(tags)) = serde_json::from_str(text) else { return false };
        for (key, value) in tags {
            let Some(value) = value.as_str() else { return false };
            self.tags.insert(key, value.to_owned());
        }
        true
    }

    /// The options of derivation with these settings where nothing else was said.
    pub fn complete(&self, options: Options) -> Options {
        let mut tags = self.tags.clone();
        tags.extend(options.tags);
        let max_pods = (self.limits_pods_by_addresses == Some(false)).then_some(MAX_PODS_WITHOUT_ENI_LIMITS);
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

/// Whether there was something to put.
fn put<T>(place: &mut Option<T>, value: Option<T>) -> bool {
    let is_there = value.is_some();
    *place = value;
    is_there
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
    fn settings_of_a_chart_are_read() {
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
        assert_eq!(settings.notes, ["aws.enablePodENI has no meaning any more and is ignored"]);
        let options = settings.complete(Options::default());
        assert_eq!(options.default_instance_profile.as_deref(), Some("nodes"));
        assert_eq!((options.drift_enabled, options.max_pods), (true, Some(110)));
        let said = Options { default_instance_profile: Some("other".to_owned()), ..Options::default() };
        assert_eq!(settings.complete(said).default_instance_profile.as_deref(), Some("other"));
    }

    #[test]
    fn what_cannot_be_read_is_told_and_ignored() {
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
            assert!(settings.notes[0].starts_with(key) && settings.notes[0].contains("cannot be read"));
            assert_eq!(GlobalSettings { notes: Vec::new(), ..settings }, GlobalSettings::default());
        }
        assert_eq!(read(&[("aws.new", "x")]).notes, ["aws.new is not known and is ignored"]);
    }
}
