//! Deserializes `cases.json`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use karpenter_model::duration::GoDuration;
use karpenter_model::taints::{Effect, Taint};
use karpenter_userdata::{AmiFamily, Input, Kubelet};
use serde::Deserialize;
use serde_json::{Map, Value};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Case {
    pub(crate) name: String,
    family: String,
    cluster_name: String,
    endpoint: String,
    ca_bundle: Option<String>,
    cidr: Option<String>,
    labels: BTreeMap<String, String>,
    taints: Vec<WrittenTaint>,
    kubelet: Map<String, Value>,
    max_pods: i32,
    raid0: bool,
    user_data: Option<String>,
    ami_version: Option<String>,
    #[serde(default)]
    pub(crate) fails: bool,
}

#[derive(Deserialize)]
struct WrittenTaint {
    key: String,
    #[serde(default)]
    value: String,
    effect: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WrittenKubelet {
    #[serde(rename = "clusterDNS")]
    cluster_dns: Vec<String>,
    max_pods: Option<i32>,
    pods_per_core: Option<i32>,
    system_reserved: BTreeMap<String, String>,
    kube_reserved: BTreeMap<String, String>,
    eviction_hard: BTreeMap<String, String>,
    eviction_soft: BTreeMap<String, String>,
    eviction_soft_grace_period: BTreeMap<String, GoDuration>,
    eviction_max_pod_grace_period: Option<i32>,
    #[serde(rename = "imageGCHighThresholdPercent")]
    image_gc_high_threshold_percent: Option<i32>,
    #[serde(rename = "imageGCLowThresholdPercent")]
    image_gc_low_threshold_percent: Option<i32>,
    #[serde(rename = "cpuCFSQuota")]
    cpu_cfs_quota: Option<bool>,
}

impl Case {
    pub(crate) fn family(&self) -> AmiFamily {
        AmiFamily::parse(&self.family).expect("a family")
    }

    pub(crate) fn expected(&self) -> String {
        let path = folder().join(format!("{}.txt", self.name));
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    pub(crate) fn input(&self) -> Input {
        let taints = self.taints.iter().map(|taint| Taint {
            key: taint.key.as_str().into(),
            value: taint.value.as_str().into(),
            effect: Effect::parse(&taint.effect).expect("an effect"),
        });
        Input {
            ca_bundle: self.ca_bundle.clone(),
            cluster_cidr: self.cidr.clone(),
            labels: self.labels.clone(),
            taints: taints.collect(),
            kubelet: self.kubelet(),
            instance_store_raid0: self.raid0,
            custom_user_data: self.user_data.clone(),
            ami_version: self.ami_version.clone(),
            ..Input::new(self.family(), &self.cluster_name, &self.endpoint)
        }
    }

    fn kubelet(&self) -> Kubelet {
        let written: WrittenKubelet =
            serde_json::from_value(Value::Object(self.kubelet.clone())).expect("a kubelet configuration");
        Kubelet {
            raw: self.kubelet.clone(),
            cluster_dns: written.cluster_dns,
            max_pods: written.max_pods.or(Some(self.max_pods)),
            pods_per_core: written.pods_per_core,
            system_reserved: written.system_reserved,
            kube_reserved: written.kube_reserved,
            eviction_hard: written.eviction_hard,
            eviction_soft: written.eviction_soft,
            eviction_soft_grace_period: written.eviction_soft_grace_period,
            eviction_max_pod_grace_period_seconds: written.eviction_max_pod_grace_period,
            image_gc_high_threshold_percent: written.image_gc_high_threshold_percent,
            image_gc_low_threshold_percent: written.image_gc_low_threshold_percent,
            cpu_cfs_quota: written.cpu_cfs_quota,
        }
    }
}

pub(crate) fn plain(family: AmiFamily) -> Input {
    let mut input = Input::new(family, "demo", "https://demo.example");
    input.cluster_cidr = Some("10.100.0.0/16".to_owned());
    input
}

pub(crate) fn all() -> Vec<Case> {
    let text = std::fs::read_to_string(folder().join("cases.json")).expect("cases.json");
    let document: Value = serde_json::from_str(&text).expect("JSON");
    let defaults = document["defaults"].as_object().expect("defaults");
    let cases = document["cases"].as_array().expect("cases").iter().map(|difference| {
        let mut case = defaults.clone();
        case.extend(difference.as_object().expect("an object").clone());
        serde_json::from_value(Value::Object(case)).expect("a case")
    });
    cases.collect()
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}
