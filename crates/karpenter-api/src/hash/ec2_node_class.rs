//! The static drift hash of an EC2NodeClass. It has two versions, which treat the kubelet settings differently.
//!
//! Selector terms are not part of the hash. Drift compares what they select with what the instance has.
//!
//! Upstream: karpenter-provider-aws `pkg/apis/v1/ec2nodeclass.go`.

use std::collections::BTreeMap;
use std::fmt::Write;

use karpenter_model::duration::GoDuration;
use serde::Deserialize;
use serde_json::Value;

use super::structural::{
    Record, hash_bool, hash_duration, hash_i32, hash_i64, hash_list, hash_map, hash_text, hash_text_map,
};
use crate::types::{BlockDeviceMapping, EC2NodeClass, EC2NodeClassSpec, KubeletValues, NetworkInterface};

/// The hash version of releases up to 1.14, in which kubelet settings are a fixed set of typed fields.
pub const EC2_NODE_CLASS_HASH_VERSION_TYPED_KUBELET: &str = "v5";
/// The hash version in which kubelet settings may have any field and are hashed as JSON text.
pub const EC2_NODE_CLASS_HASH_VERSION_FREE_FORM_KUBELET: &str = "v6";

/// Why a hash cannot be computed.
#[derive(Debug, thiserror::Error)]
pub enum HashError {
    /// The kubelet settings do not fit the typed fields of version v5; for example, `maxPods` is an expression.
    #[error("spec.kubelet has a field of the wrong type for hash version v5: {0}")]
    TypedKubelet(#[source] serde_json::Error),
}

/// The value of the annotation `karpenter.k8s.aws/ec2nodeclass-hash` in hash version v5.
///
/// `ca_bundle` is the cluster's certificate bundle in base64, as it appears in the user data.
pub fn ec2_node_class_hash_v5(class: &EC2NodeClass, ca_bundle: Option<&str>) -> Result<u64, HashError> {
    let kubelet = class.spec.kubelet.as_ref().map(typed_kubelet).transpose()?;
    let spec = hash_spec(&class.spec, kubelet.as_ref().map(hash_typed_kubelet));
    Ok(hash_list([
        spec,
        hash_text(class.spec.resolved_ami_family()),
        hash_text(ca_bundle.unwrap_or_default()),
    ]))
}

/// The value of the annotation `karpenter.k8s.aws/ec2nodeclass-hash` in hash version v6.
pub fn ec2_node_class_hash_v6(class: &EC2NodeClass, ca_bundle: Option<&str>) -> u64 {
    hash_list([
        hash_spec(&class.spec, None),
        hash_text(class.spec.resolved_ami_family()),
        hash_text(ca_bundle.unwrap_or_default()),
        hash_text(&kubelet_text(class.spec.kubelet.as_ref())),
    ])
}

fn hash_spec(spec: &EC2NodeClassSpec, kubelet: Option<u64>) -> u64 {
    let placement_group = spec.placement_group_selector.as_ref().map(|selector| {
        Record::new("PlacementGroupSelector")
            .plain_text("Name", selector.name.as_deref().unwrap_or_default())
            .plain_text("ID", selector.id.as_deref().unwrap_or_default())
            .hash()
    });
    let metadata_options = spec.metadata_options.as_ref().map(|options| {
        Record::new("MetadataOptions")
            .optional_text("HTTPEndpoint", options.http_endpoint.as_deref())
            .optional_text("HTTPProtocolIPv6", options.http_protocol_ipv6.as_deref())
            .field("HTTPPutResponseHopLimit", options.http_put_response_hop_limit.map(hash_i64))
            .optional_text("HTTPTokens", options.http_tokens.as_deref())
            .hash()
    });
    let connection_tracking = spec.connection_tracking.as_ref().map(|timeouts| {
        Record::new("ConnectionTracking")
            .field("TCPEstablishedTimeout", timeouts.tcp_established_timeout.map(hash_i32))
            .field("UDPStreamTimeout", timeouts.udp_stream_timeout.map(hash_i32))
            .field("UDPTimeout", timeouts.udp_timeout.map(hash_i32))
            .hash()
    });
    let cpu_options = spec.cpu_options.as_ref().map(|options| {
        Record::new("CPUOptions")
            .optional_text("NestedVirtualization", options.nested_virtualization.as_deref())
            .hash()
    });
    Record::new("EC2NodeClassSpec")
        .field("PlacementGroupSelector", placement_group)
        .field("AssociatePublicIPAddress", spec.associate_public_ip_address.map(hash_bool))
        .optional_text("UserData", spec.user_data.as_deref())
        .plain_text("Role", spec.role.as_deref().unwrap_or_default())
        .optional_text("InstanceProfile", spec.instance_profile.as_deref())
        .field("Tags", spec.tags.as_ref().map(hash_text_map))
        .field("Kubelet", kubelet)
        .field(
            "BlockDeviceMappings",
            spec.block_device_mappings
                .as_ref()
                .map(|mappings| hash_list(mappings.iter().map(hash_block_device))),
        )
        .optional_text("InstanceStorePolicy", spec.instance_store_policy.as_deref())
        .field(
            "NetworkInterfaces",
            spec.network_interfaces
                .as_ref()
                .map(|interfaces| hash_list(interfaces.iter().map(hash_network_interface))),
        )
        .field("DetailedMonitoring", spec.detailed_monitoring.map(hash_bool))
        .field("MetadataOptions", metadata_options)
        .field("ConnectionTracking", connection_tracking)
        .optional_text("Context", spec.context.as_deref())
        .field("CPUOptions", cpu_options)
        .hash()
}

fn hash_block_device(mapping: &BlockDeviceMapping) -> u64 {
    let ebs = mapping.ebs.as_ref().map(|ebs| {
        Record::new("BlockDevice")
            .field("DeleteOnTermination", ebs.delete_on_termination.map(hash_bool))
            .field("Encrypted", ebs.encrypted.map(hash_bool))
            .field("IOPS", ebs.iops.map(hash_i64))
            .optional_text("KMSKeyID", ebs.kms_key_id.as_deref())
            .optional_text("SnapshotID", ebs.snapshot_id.as_deref())
            .field("Throughput", ebs.throughput.map(hash_i64))
            .field("VolumeInitializationRate", ebs.volume_initialization_rate.map(hash_i32))
            // The size is hashed in its canonical form, so that 1024Gi and 1Ti have the same hash.
            .field("VolumeSize", ebs.volume_size.map(|size| hash_text(&size.to_string())))
            .optional_text("VolumeType", ebs.volume_type.as_deref())
            .hash()
    });
    Record::new("BlockDeviceMapping")
        .optional_text("DeviceName", mapping.device_name.as_deref())
        .field("EBS", ebs)
        .field("RootVolume", mapping.root_volume.then(|| hash_bool(true)))
        .hash()
}

fn hash_network_interface(interface: &NetworkInterface) -> u64 {
    let index = |value: i32| (value != 0).then(|| hash_i32(value));
    Record::new("NetworkInterface")
        .field("NetworkCardIndex", index(interface.network_card_index))
        .field("DeviceIndex", index(interface.device_index))
        .plain_text("InterfaceType", &interface.interface_type)
        .hash()
}

/// The kubelet fields that version v5 hashes; it ignores all others.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct TypedKubelet {
    #[serde(rename = "clusterDNS")]
    cluster_dns: Option<Vec<String>>,
    max_pods: Option<i32>,
    pods_per_core: Option<i32>,
    system_reserved: Option<BTreeMap<String, String>>,
    kube_reserved: Option<BTreeMap<String, String>>,
    eviction_hard: Option<BTreeMap<String, String>>,
    eviction_soft: Option<BTreeMap<String, String>>,
    eviction_soft_grace_period: Option<BTreeMap<String, GoDuration>>,
    eviction_max_pod_grace_period: Option<i32>,
    #[serde(rename = "imageGCHighThresholdPercent")]
    image_gc_high_threshold_percent: Option<i32>,
    #[serde(rename = "imageGCLowThresholdPercent")]
    image_gc_low_threshold_percent: Option<i32>,
    #[serde(rename = "cpuCFSQuota")]
    cpu_cfs_quota: Option<bool>,
}

fn typed_kubelet(values: &KubeletValues) -> Result<TypedKubelet, HashError> {
    let object = values.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    serde_json::from_value(Value::Object(object)).map_err(HashError::TypedKubelet)
}

fn hash_typed_kubelet(kubelet: &TypedKubelet) -> u64 {
    let grace_periods = kubelet.eviction_soft_grace_period.as_ref();
    Record::new("KubeletConfiguration")
        .field(
            "ClusterDNS",
            kubelet.cluster_dns.as_ref().map(|dns| hash_list(dns.iter().map(|ip| hash_text(ip)))),
        )
        .field("MaxPods", kubelet.max_pods.map(hash_i32))
        .field("PodsPerCore", kubelet.pods_per_core.map(hash_i32))
        .field("SystemReserved", kubelet.system_reserved.as_ref().map(hash_text_map))
        .field("KubeReserved", kubelet.kube_reserved.as_ref().map(hash_text_map))
        .field("EvictionHard", kubelet.eviction_hard.as_ref().map(hash_text_map))
        .field("EvictionSoft", kubelet.eviction_soft.as_ref().map(hash_text_map))
        .field(
            "EvictionSoftGracePeriod",
            grace_periods.map(|periods| hash_map(periods, |period| hash_duration(period.nanos))),
        )
        .field("EvictionMaxPodGracePeriod", kubelet.eviction_max_pod_grace_period.map(hash_i32))
        .field("ImageGCHighThresholdPercent", kubelet.image_gc_high_threshold_percent.map(hash_i32))
        .field("ImageGCLowThresholdPercent", kubelet.image_gc_low_threshold_percent.map(hash_i32))
        .field("CPUCFSQuota", kubelet.cpu_cfs_quota.map(hash_bool))
        .hash()
}

/// The kubelet settings as compact JSON with sorted keys, escaped as Go's encoder does; `null` if there are no
/// settings.
fn kubelet_text(kubelet: Option<&KubeletValues>) -> String {
    let Some(values) = kubelet.filter(|values| !values.is_empty()) else {
        return "null".to_owned();
    };
    let mut text = String::new();
    write_object(&mut text, values.iter());
    text
}

fn write_value(text: &mut String, value: &Value) {
    match value {
        Value::Object(entries) => {
            let sorted: BTreeMap<&String, &Value> = entries.iter().collect();
            write_object(text, sorted.into_iter());
        }
        Value::Array(elements) => {
            text.push('[');
            for (index, element) in elements.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                write_value(text, element);
            }
            text.push(']');
        }
        Value::String(content) => write_text(text, content),
        Value::Null | Value::Bool(_) | Value::Number(_) => {
            let _ = write!(text, "{value}");
        }
    }
}

fn write_object<'a>(text: &mut String, entries: impl Iterator<Item = (&'a String, &'a Value)>) {
    text.push('{');
    for (index, (key, value)) in entries.enumerate() {
        if index > 0 {
            text.push(',');
        }
        write_text(text, key);
        text.push(':');
        write_value(text, value);
    }
    text.push('}');
}

fn write_text(text: &mut String, content: &str) {
    for character in Value::from(content).to_string().chars() {
        match character {
            // Go's JSON encoder escapes characters that have a meaning in HTML or JavaScript.
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(text, "\\u{:04x}", u32::from(character));
            }
            other => text.push(other),
        }
    }
}
