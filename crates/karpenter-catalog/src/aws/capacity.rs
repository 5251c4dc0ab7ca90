//! The capacity of a node of an instance type, and the overhead that pods cannot use.
//!
//! The arithmetic is upstream's, including its rounding: if the result were larger, planned pods would not fit on the
//! node. Resources with an amount of zero are omitted, because a missing resource means zero.
//!
//! Upstream: karpenter-provider-aws `pkg/providers/instancetype/types.go`.

use std::collections::BTreeMap;

use karpenter_model::quantity::Quantity;
use karpenter_model::resources::{self, CPU, EPHEMERAL_STORAGE, MEMORY, PODS, ResourceList};

use super::info::TypeInfo;
use super::node_class::{AwsNodeClass, EvictionThreshold};
use super::type_labels::architecture;
use crate::intern::Interner;

pub const NVIDIA_GPU: &str = "nvidia.com/gpu";
pub const AMD_GPU: &str = "amd.com/gpu";
pub const HABANA_GAUDI: &str = "habana.ai/gaudi";
pub const AWS_NEURON: &str = "aws.amazon.com/neuron";
pub const AWS_NEURON_CORE: &str = "aws.amazon.com/neuroncore";
pub const AWS_POD_ENI: &str = "vpc.amazonaws.com/pod-eni";
pub const AWS_EFA: &str = "vpc.amazonaws.com/efa";
pub const AWS_PRIVATE_IPV4: &str = "vpc.amazonaws.com/PrivateIPv4Address";

const MIB: i64 = 1 << 20;
const GIB: i64 = 1 << 30;
const DECIMAL_GIGABYTE: i64 = 1_000_000_000;

/// The kubelet's default of `maxPods`, used for AMI families whose pods need no ENI addresses.
const DEFAULT_PODS: i64 = 110;

/// Memory in MiB that the Linux kernel reserves for contiguous allocations on Arm instances.
const ARM_RESERVED_MIB: i64 = 64;

pub(super) fn capacity(info: &TypeInfo, class: &AwsNodeClass, names: &mut Interner) -> ResourceList {
    let mut capacity = ResourceList::new();
    let mut set = |name: &str, amount: i64| {
        if amount > 0 {
            capacity.set(names.get(name), amount);
        }
    };
    set(CPU, i64::from(info.vcpus) * 1000);
    set(MEMORY, memory_bytes(info, class));
    set(EPHEMERAL_STORAGE, ephemeral_storage_bytes(info, class));
    set(PODS, pods(info, class));
    for (name, manufacturer) in [(NVIDIA_GPU, "NVIDIA"), (AMD_GPU, "AMD"), (HABANA_GAUDI, "Habana")] {
        let counts =
            info.gpus.iter().filter(|gpu| &*gpu.manufacturer == manufacturer).map(|gpu| i64::from(gpu.count));
        set(name, counts.sum());
    }
    set(AWS_NEURON, info.neuron_devices.iter().map(|device| i64::from(device.count)).sum());
    if let Some(first) = info.neuron_devices.first() {
        set(AWS_NEURON_CORE, i64::from(first.count) * i64::from(first.cores_per_device));
    }
    if let Some(limits) = info.vpc_limits {
        if limits.trunking {
            set(AWS_POD_ENI, i64::from(limits.branch_interfaces));
        }
        if class.ami_family.is_windows() && architecture(info) == "amd64" {
            set(AWS_PRIVATE_IPV4, i64::from(limits.ipv4_addresses_per_interface) - 1);
        }
    }
    set(
        AWS_EFA,
        match class.network_interfaces {
            Some(_) => class.efa_only_interfaces().count() as i64,
            None => i64::from(info.efa_interfaces.unwrap_or(0)),
        },
    );
    capacity
}

/// The resources reserved for the kubelet and the container runtime.
pub(super) fn kube_reserved(info: &TypeInfo, class: &AwsNodeClass, names: &mut Interner) -> ResourceList {
    let pods = if class.ami_family.reserves_memory_by_eni_limit() {
        eni_limited_pods(info, class, 0)
    } else {
        pods(info, class)
    };
    let mut reserved = ResourceList::new();
    reserved.set(names.get(CPU), kube_reserved_milli_cpu(i64::from(info.vcpus) * 1000));
    reserved.set(names.get(MEMORY), (11 * pods + 255) * MIB);
    reserved.set(names.get(EPHEMERAL_STORAGE), GIB);
    overlay(&mut reserved, &class.kube_reserved, names);
    reserved
}

/// `kubelet.systemReserved` of the node class; empty by default.
pub(super) fn system_reserved(class: &AwsNodeClass, names: &mut Interner) -> ResourceList {
    let mut reserved = ResourceList::new();
    overlay(&mut reserved, &class.system_reserved, names);
    reserved
}

/// The amounts of memory and storage that the kubelet keeps free by evicting pods.
pub(super) fn eviction_threshold(
    info: &TypeInfo,
    class: &AwsNodeClass,
    names: &mut Interner,
) -> ResourceList {
    let signal = |name: &str, capacity: i64, default: i64| match class.eviction_hard.get(name) {
        Some(EvictionThreshold::Amount(amount)) => amount.value_ceil(),
        // The kubelet treats a threshold of 100 % as disabled.
        Some(EvictionThreshold::Percent(100.0)) => 0,
        Some(EvictionThreshold::Percent(percent)) => (capacity as f64 / 100.0 * percent).ceil() as i64,
        None => default,
    };
    let (memory, storage) = (memory_bytes(info, class), ephemeral_storage_bytes(info, class));
    let mut threshold = ResourceList::new();
    threshold.set(names.get(MEMORY), signal("memory.available", memory, 100 * MIB));
    let storage_default = (storage as f64 / 100.0 * 10.0).ceil() as i64;
    threshold.set(names.get(EPHEMERAL_STORAGE), signal("nodefs.available", storage, storage_default));
    threshold
}

/// Replaces computed amounts by those of the node class. Resources that a node's capacity does not have, such as `pid`,
/// are ignored.
fn overlay(reserved: &mut ResourceList, given: &BTreeMap<String, Quantity>, names: &mut Interner) {
    for (name, quantity) in given {
        if [CPU, MEMORY, EPHEMERAL_STORAGE].contains(&name.as_str()) {
            reserved.set(names.get(name), resources::request_amount(name, quantity));
        }
    }
}

/// The cpu reserved for the kubelet: 6 % of the first core, 1 % of the second, 0.5 % of the next two, and 0.25 % of the
/// others. Each part is truncated to whole millicores.
fn kube_reserved_milli_cpu(milli_cpu: i64) -> i64 {
    const BANDS: [(i64, i64, f64); 4] =
        [(0, 1000, 0.06), (1000, 2000, 0.01), (2000, 4000, 0.005), (4000, i64::MAX, 0.0025)];
    BANDS
        .into_iter()
        .filter(|(start, _, _)| milli_cpu >= *start)
        .map(|(start, end, share)| ((milli_cpu.min(end) - start) as f64 * share) as i64)
        .sum()
}

fn memory_bytes(info: &TypeInfo, class: &AwsNodeClass) -> i64 {
    let mut mib = info.memory_mib as i64;
    if info.architectures.first().is_some_and(|first| &**first == "arm64") {
        mib -= ARM_RESERVED_MIB;
    }
    let overhead_mib = (mib * MIB) as f64 * class.vm_memory_overhead_percent / 1024.0 / 1024.0;
    (mib - overhead_mib.ceil() as i64) * MIB
}

/// The number of pods per node if the node class does not set `maxPods`. An expression for `maxPods` starts from this
/// value.
pub fn family_max_pods(info: &TypeInfo, class: &AwsNodeClass) -> i64 {
    if class.ami_family.limits_pods_by_eni() {
        eni_limited_pods(info, class, class.reserved_enis)
    } else {
        DEFAULT_PODS
    }
}

/// The maximum number of pods on a node of the instance type.
pub fn pods(info: &TypeInfo, class: &AwsNodeClass) -> i64 {
    let count = class.max_pods.map_or_else(|| family_max_pods(info, class), i64::from);
    if class.pods_per_core > 0 && class.ami_family.honours_pods_per_core() {
        count.min(i64::from(class.pods_per_core) * i64::from(info.vcpus))
    } else {
        count
    }
}

/// The number of pods that have addresses on the network interfaces of the default card. Each interface uses one
/// address itself; two pods use the host network and need none.
fn eni_limited_pods(info: &TypeInfo, class: &AwsNodeClass, reserved_enis: u32) -> i64 {
    let interfaces = i64::from(info.default_card_interfaces());
    let efa_only =
        class.efa_only_interfaces().filter(|interface| interface.network_card_index == 0).count() as i64;
    let usable = interfaces - i64::from(reserved_enis) - efa_only;
    if usable <= 0 { 0 } else { usable * (i64::from(info.ipv4_addresses_per_interface) - 1) + 2 }
}

fn ephemeral_storage_bytes(info: &TypeInfo, class: &AwsNodeClass) -> i64 {
    if class.instance_store_raid0
        && let Some(total_gb) = info.instance_storage.as_ref().and_then(|storage| storage.total_gb)
    {
        return total_gb as i64 * DECIMAL_GIGABYTE;
    }
    configured_volume(class).map_or(class.ami_family.default_volume_gib() * GIB, |size| size.value_floor())
}

/// The size of the volume that holds ephemeral storage, if the node class sets it.
fn configured_volume(class: &AwsNodeClass) -> Option<Quantity> {
    let root = class.block_devices.iter().find(|device| device.root_volume);
    if let Some(size) = root.and_then(|device| device.volume_size) {
        return Some(size);
    }
    match class.ami_family.ephemeral_device() {
        Some(name) => {
            class.block_devices.iter().find(|device| device.device_name.as_deref() == Some(name))?.volume_size
        }
        // Which volume of a custom AMI holds ephemeral storage is unknown; the last mapping is assumed.
        None => class.block_devices.last()?.volume_size,
    }
}
