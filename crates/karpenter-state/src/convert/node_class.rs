//! Converts EC2NodeClasses: the settings that affect the capacity, offerings or prices of instance types.
//!
//! Settings that matter at launch only (user data, tags, roles) are ignored.

use std::collections::BTreeMap;

use karpenter_api::types::EC2NodeClass;
use karpenter_catalog::aws::{AmiFamily, AwsNodeClass, AwsZone, BlockDevice, NetworkInterface};
use karpenter_model::quantity::Quantity;
use serde_json::Value;

/// A setting that could not be parsed and is ignored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedSetting {
    pub path: String,
    pub why: String,
}

/// The settings of the class, applied to `base`. `base` has what a manifest cannot state: prices and settings of the
/// operator.
pub fn aws_node_class(raw: &EC2NodeClass, base: &AwsNodeClass) -> (AwsNodeClass, Vec<SkippedSetting>) {
    let mut class = base.clone();
    let mut skipped = Vec::new();
    let spec = &raw.spec;
    match AmiFamily::parse(spec.resolved_ami_family()) {
        Some(family) => class.ami_family = family,
        None => {
            skip(&mut skipped, "spec.amiFamily", format!("{:?} is not a family", spec.resolved_ami_family()))
        }
    }
    if let Some(kubelet) = &spec.kubelet {
        read_kubelet(kubelet, &mut class, &mut skipped);
    }
    class.block_devices = spec
        .block_device_mappings
        .iter()
        .flatten()
        .map(|mapping| BlockDevice {
            device_name: mapping.device_name.clone(),
            root_volume: mapping.root_volume,
            volume_size: mapping.ebs.as_ref().and_then(|ebs| ebs.volume_size),
            volume_type: mapping.ebs.as_ref().and_then(|ebs| ebs.volume_type.clone()),
            iops: mapping.ebs.as_ref().and_then(|ebs| ebs.iops),
            throughput_mibps: mapping.ebs.as_ref().and_then(|ebs| ebs.throughput),
        })
        .collect();
    class.prices_attachments = true;
    class.associate_public_ipv4 = spec.associate_public_ip_address;
    class.instance_store_raid0 = spec.instance_store_policy.as_deref() == Some("RAID0");
    class.network_interfaces = spec.network_interfaces.as_ref().map(|interfaces| {
        let convert = |one: &karpenter_api::types::NetworkInterface| NetworkInterface {
            network_card_index: u32::try_from(one.network_card_index).unwrap_or(0),
            device_index: u32::try_from(one.device_index).unwrap_or(0),
            efa_only: one.interface_type == "efa-only",
        };
        interfaces.iter().map(convert).collect()
    });
    let nested = spec.cpu_options.as_ref().and_then(|options| options.nested_virtualization.as_deref());
    class.nested_virtualization = nested == Some("enabled");
    class.connection_tracking = spec.connection_tracking.is_some();
    read_subnets(raw, &mut class);
    (class, skipped)
}

/// Reads the zones of the resolved subnets, and derives the region from them.
fn read_subnets(raw: &EC2NodeClass, class: &mut AwsNodeClass) {
    let subnets = raw.status.as_ref().map_or(&[][..], |status| &status.subnets);
    let zones: BTreeMap<&str, Option<&String>> =
        subnets.iter().map(|subnet| (subnet.zone.as_str(), subnet.zone_id.as_ref())).collect();
    let Some((first, _)) = zones.first_key_value() else { return };
    class.region = first.trim_end_matches(|letter: char| letter.is_ascii_lowercase()).to_owned();
    class.zones =
        zones.into_iter().map(|(name, id)| AwsZone { name: name.to_owned(), id: id.cloned() }).collect();
}

fn read_kubelet(
    kubelet: &BTreeMap<String, Value>,
    class: &mut AwsNodeClass,
    skipped: &mut Vec<SkippedSetting>,
) {
    if let Some(value) = kubelet.get("maxPods") {
        match value.as_u64().and_then(|count| u32::try_from(count).ok()) {
            Some(count) => class.max_pods = Some(count),
            None => skip(skipped, "spec.kubelet.maxPods", format!("{value} is not a number of pods")),
        }
    }
    if let Some(value) = kubelet.get("podsPerCore") {
        match value.as_u64().and_then(|count| u32::try_from(count).ok()) {
            Some(count) => class.pods_per_core = count,
            None => skip(skipped, "spec.kubelet.podsPerCore", format!("{value} is not a number of pods")),
        }
    }
    let reserved = |name: &str, skipped: &mut Vec<SkippedSetting>| -> BTreeMap<String, Quantity> {
        let mut amounts = BTreeMap::new();
        for (resource, text) in texts(kubelet, name) {
            match text.parse::<Quantity>() {
                Ok(amount) if !amount.is_negative() => drop(amounts.insert(resource.to_owned(), amount)),
                Ok(_) => {
                    skip(skipped, &format!("spec.kubelet.{name}.{resource}"), format!("{text:?} is negative"))
                }
                Err(error) => skip(skipped, &format!("spec.kubelet.{name}.{resource}"), error.to_string()),
            }
        }
        amounts
    };
    class.kube_reserved = reserved("kubeReserved", skipped);
    class.system_reserved = reserved("systemReserved", skipped);
    class.eviction_hard = BTreeMap::new();
    for (signal, text) in texts(kubelet, "evictionHard") {
        match text.parse() {
            Ok(threshold) => drop(class.eviction_hard.insert(signal.to_owned(), threshold)),
            Err(error) => skip(skipped, &format!("spec.kubelet.evictionHard.{signal}"), format!("{error}")),
        }
    }
}

fn texts<'a>(kubelet: &'a BTreeMap<String, Value>, name: &str) -> impl Iterator<Item = (&'a str, String)> {
    let map = kubelet.get(name).and_then(Value::as_object);
    map.into_iter().flatten().map(|(key, value)| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        (key.as_str(), text)
    })
}

fn skip(skipped: &mut Vec<SkippedSetting>, path: &str, why: String) {
    skipped.push(SkippedSetting { path: path.to_owned(), why });
}
