//! The input of [`crate::render`]. The caller resolves all values.

use core::net::IpAddr;
use std::collections::BTreeMap;

use karpenter_model::duration::GoDuration;
use karpenter_model::taints::Taint;

use crate::AmiFamily;

#[derive(Debug, Clone, PartialEq)]
pub struct Input {
    pub family: AmiFamily,
    pub cluster_name: String,
    pub cluster_endpoint: String,
    /// The CA certificates of the API server in base64, as in a kubeconfig; `None` if the instance uses the certificate
    /// authorities of its AMI.
    pub ca_bundle: Option<String>,
    /// The service CIDR of the cluster, which only AL2023 needs.
    pub cluster_cidr: Option<String>,
    /// The labels that the kubelet gives the node when it registers; see [`crate::prepare::labels`].
    pub labels: BTreeMap<String, String>,
    /// The taints that the kubelet gives the node when it registers, in order; see [`crate::prepare::taints`].
    pub taints: Vec<Taint>,
    pub kubelet: Kubelet,
    /// `instanceStorePolicy: RAID0`.
    pub instance_store_raid0: bool,
    pub custom_user_data: Option<String>,
    /// The version of a Bottlerocket AMI, if known; see [`crate::bottlerocket::version::of_class`].
    pub ami_version: Option<String>,
}

impl Input {
    /// An input in which all optional values are absent.
    pub fn new(
        family: AmiFamily,
        cluster_name: impl Into<String>,
        cluster_endpoint: impl Into<String>,
    ) -> Self {
        Self {
            family,
            cluster_name: cluster_name.into(),
            cluster_endpoint: cluster_endpoint.into(),
            ca_bundle: None,
            cluster_cidr: None,
            labels: BTreeMap::new(),
            taints: Vec::new(),
            kubelet: Kubelet::default(),
            instance_store_raid0: false,
            custom_user_data: None,
            ami_version: None,
        }
    }

    pub(crate) fn custom_text(&self) -> &str {
        self.custom_user_data.as_deref().unwrap_or_default()
    }
}

/// The kubelet configuration for instance types that share it, with expressions evaluated and defaults filled in.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Kubelet {
    /// `spec.kubelet` of the node class, which only AL2023 uses. The fields below take precedence over it.
    pub raw: serde_json::Map<String, serde_json::Value>,
    pub cluster_dns: Vec<String>,
    pub max_pods: Option<i32>,
    pub pods_per_core: Option<i32>,
    pub system_reserved: BTreeMap<String, String>,
    pub kube_reserved: BTreeMap<String, String>,
    pub eviction_hard: BTreeMap<String, String>,
    pub eviction_soft: BTreeMap<String, String>,
    pub eviction_soft_grace_period: BTreeMap<String, GoDuration>,
    pub eviction_max_pod_grace_period_seconds: Option<i32>,
    pub image_gc_high_threshold_percent: Option<i32>,
    pub image_gc_low_threshold_percent: Option<i32>,
    pub cpu_cfs_quota: Option<bool>,
}

impl Kubelet {
    /// Whether the cluster uses IPv6, which bootstrap scripts derive from the address of the first DNS server. An
    /// IPv4-mapped IPv6 address counts as IPv4.
    pub(crate) fn is_ipv6(&self) -> bool {
        self.cluster_dns.first().is_some_and(|address| !is_ipv4(address))
    }
}

fn is_ipv4(address: &str) -> bool {
    match address.parse::<IpAddr>() {
        Ok(IpAddr::V4(_)) => true,
        Ok(IpAddr::V6(address)) => address.to_ipv4_mapped().is_some(),
        Err(_) => false,
    }
}
