//! What EC2 says about one instance type: raw facts, named and with units, nothing derived.
//!
//! Strings are EC2's own spellings and point into the embedded catalog file. Labels,
//! capacity and overhead are computed from these facts elsewhere.

/// The facts about one instance type.
#[derive(Debug, Clone, PartialEq)]
pub struct AwsInstanceInfo {
    /// For example `m5.large`.
    pub name: String,
    /// The part of the name before the dot.
    pub family: &'static str,
    /// The part of the name after the dot.
    pub size: &'static str,
    pub vcpus: u32,
    pub cores: u32,
    pub threads_per_core: u32,
    pub memory_mib: u64,
    /// `nitro` or `xen`; empty for bare metal.
    pub hypervisor: &'static str,
    pub bare_metal: bool,
    pub current_generation: bool,
    pub burstable: bool,
    pub encryption_in_transit: bool,
    pub ipv6: bool,
    pub nitro_enclaves: bool,
    pub nitro_tpm: bool,
    /// In EC2's order, which decides the architecture of types that list more than one.
    pub architectures: Vec<&'static str>,
    pub cpu_manufacturer: &'static str,
    /// Such as `nested-virtualization`.
    pub cpu_features: Vec<&'static str>,
    pub sustained_clock_mhz: Option<u32>,
    /// `on-demand`, `spot`, `capacity-block`.
    pub usage_classes: Vec<&'static str>,
    /// `cluster`, `partition`, `spread`.
    pub placement_strategies: Vec<&'static str>,
    /// `required`, `supported` or `unsupported`.
    pub ena_support: &'static str,
    pub efa_interfaces: Option<u32>,
    pub ipv4_addresses_per_interface: u32,
    pub ipv6_addresses_per_interface: u32,
    pub default_network_card: u32,
    /// In card-index order.
    pub network_cards: Vec<NetworkCard>,
    /// Documented baseline; absent where the documentation has only a word such as "Moderate".
    pub network_bandwidth_mbps: Option<u32>,
    /// Absent for types the VPC resource controller does not know.
    pub vpc_limits: Option<VpcLimits>,
    pub instance_storage: Option<InstanceStorage>,
    pub ebs: Ebs,
    pub gpus: Vec<Accelerator>,
    pub neuron_devices: Vec<NeuronDevice>,
    pub inference_accelerators: Vec<Accelerator>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NetworkCard {
    pub interfaces_max: u32,
    pub baseline_mbps: u32,
    pub peak_mbps: u32,
    pub efa: bool,
}

/// Limits that no public EC2 call reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VpcLimits {
    /// Whether the type can carry branch interfaces at all.
    pub trunking: bool,
    pub branch_interfaces: u32,
    pub ipv4_addresses_per_interface: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceStorage {
    pub total_gb: u64,
    /// `required`, `supported` or `unsupported`.
    pub nvme_support: &'static str,
    pub disks: Vec<Disk>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Disk {
    pub count: u32,
    pub size_gb: u64,
    /// `ssd` or `hdd`.
    pub kind: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ebs {
    /// `default`, `supported` or `unsupported`.
    pub optimized_support: &'static str,
    pub attachments_max: u32,
    pub baseline_mbps: Option<u32>,
    pub maximum_mbps: Option<u32>,
}

/// One kind of GPU or inference accelerator on the type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accelerator {
    pub name: &'static str,
    pub manufacturer: &'static str,
    pub count: u32,
    pub memory_mib: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NeuronDevice {
    pub name: &'static str,
    pub count: u32,
    pub cores_per_device: u32,
    pub core_version: u32,
    pub memory_mib: u64,
}
