//! EC2's description of one instance type. Field names state units; nothing is derived.
//!
//! The struct is used for the embedded file and for responses of EC2. Strings are spelled as EC2 spells them. Labels,
//! capacity and overhead are computed in other modules.

use std::sync::Arc;

/// The description of one instance type; by default, all fields are empty.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TypeInfo {
    /// For example `m5.large`.
    pub name: Arc<str>,
    pub vcpus: u32,
    pub cores: u32,
    pub threads_per_core: u32,
    pub memory_mib: u64,
    /// `nitro` or `xen`; empty for bare metal instances.
    pub hypervisor: Arc<str>,
    pub bare_metal: bool,
    pub current_generation: bool,
    pub burstable: bool,
    pub encryption_in_transit: bool,
    pub ipv6: bool,
    pub nitro_enclaves: bool,
    pub nitro_tpm: bool,
    /// The architectures in EC2's order. The first one that has a Kubernetes name is the architecture of the nodes.
    pub architectures: Vec<Arc<str>>,
    pub cpu_manufacturer: Arc<str>,
    /// Optional features of the CPU, such as `nested-virtualization`.
    pub cpu_features: Vec<Arc<str>>,
    pub sustained_clock_mhz: Option<u32>,
    /// How instances can be bought: `on-demand`, `spot`, `capacity-block`.
    pub usage_classes: Vec<Arc<str>>,
    /// `cluster`, `partition`, `spread`.
    pub placement_strategies: Vec<Arc<str>>,
    /// Whether the type has an Elastic Network Adapter: `required`, `supported` or `unsupported`.
    pub ena_support: Arc<str>,
    pub efa_interfaces: Option<u32>,
    pub ipv4_addresses_per_interface: u32,
    pub ipv6_addresses_per_interface: u32,
    pub default_network_card: u32,
    /// The network cards, sorted by index.
    pub network_cards: Vec<NetworkCard>,
    /// The documented baseline bandwidth; `None` if the documentation has only a word such as "Moderate". EC2's API
    /// does not return the bandwidth; [`super::AwsCatalog::complete`] sets this field.
    pub network_bandwidth_mbps: Option<u32>,
    /// Limits that the VPC resource controller lists for the type; `None` if it does not list the type. EC2's API does
    /// not return them; [`super::AwsCatalog::complete`] sets this field.
    pub vpc_limits: Option<VpcLimits>,
    pub instance_storage: Option<InstanceStorage>,
    pub ebs: Ebs,
    pub gpus: Vec<Accelerator>,
    pub neuron_devices: Vec<NeuronDevice>,
    pub inference_accelerators: Vec<Accelerator>,
}

impl TypeInfo {
    /// The parts of the name before and after the dot; `None` unless the name has exactly one dot.
    pub fn family_and_size(&self) -> Option<(&str, &str)> {
        self.name.split_once('.').filter(|(_, size)| !size.contains('.'))
    }

    /// The part of the type's name before the first dot.
    pub fn family(&self) -> &str {
        self.name.split('.').next().unwrap_or_default()
    }

    /// Whether EC2 offers the type with the usage class (`on-demand`, `spot` or `capacity-block`).
    pub fn has_usage_class(&self, usage_class: &str) -> bool {
        self.usage_classes.iter().any(|listed| &**listed == usage_class)
    }

    /// The number of interfaces of the default network card. Interfaces of other cards give no addresses to pods.
    pub fn default_card_interfaces(&self) -> u32 {
        self.network_cards.get(self.default_network_card as usize).map_or(0, |card| card.interfaces_max)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NetworkCard {
    pub interfaces_max: u32,
    pub baseline_mbps: u32,
    pub peak_mbps: u32,
    pub efa: bool,
}

/// Limits of an instance type that no public EC2 API returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VpcLimits {
    /// Whether the type supports branch interfaces, which give pods security groups of their own.
    pub trunking: bool,
    pub branch_interfaces: u32,
    pub ipv4_addresses_per_interface: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceStorage {
    /// The total size of the local disks in GB; `None` if EC2 lists disks without a total size.
    pub total_gb: Option<u64>,
    /// Whether local disks use NVMe: `required`, `supported` or `unsupported`.
    pub nvme_support: Arc<str>,
    pub disks: Vec<Disk>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    pub count: u32,
    pub size_gb: u64,
    /// `ssd` or `hdd`.
    pub kind: Arc<str>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ebs {
    /// Whether the type is EBS-optimized: `default`, `supported` or `unsupported`.
    pub optimized_support: Arc<str>,
    pub attachments_max: u32,
    pub baseline_mbps: Option<u32>,
    pub maximum_mbps: Option<u32>,
}

/// One kind of GPU or inference accelerator that the type has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accelerator {
    pub name: Arc<str>,
    pub manufacturer: Arc<str>,
    pub count: u32,
    pub memory_mib: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NeuronDevice {
    pub name: Arc<str>,
    pub count: u32,
    pub cores_per_device: u32,
    pub core_version: u32,
    pub memory_mib: u64,
}
