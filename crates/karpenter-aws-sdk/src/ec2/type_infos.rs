//! Converts instance types into those of the catalog.

use std::sync::Arc;

use aws_sdk_ec2::types::{
    InstanceTypeInfo, NetworkCardInfo, NetworkInfo, NitroEnclavesSupport, NitroTpmSupport,
};
use karpenter_aws::api::ec2::TypeInfo;
use karpenter_catalog::aws::{Accelerator, Disk, Ebs, InstanceStorage, NetworkCard, NeuronDevice};

use crate::convert::{count, size};

/// An instance type without a name is skipped.
pub(super) fn type_info(info: InstanceTypeInfo) -> Option<TypeInfo> {
    let cpu = info.v_cpu_info.unwrap_or_else(|| aws_sdk_ec2::types::VCpuInfo::builder().build());
    let processor =
        info.processor_info.unwrap_or_else(|| aws_sdk_ec2::types::ProcessorInfo::builder().build());
    let network = info.network_info.unwrap_or_else(|| NetworkInfo::builder().build());
    let strategies = info.placement_group_info.and_then(|groups| groups.supported_strategies);
    Some(TypeInfo {
        name: info.instance_type?.as_str().into(),
        vcpus: count(cpu.default_v_cpus),
        cores: count(cpu.default_cores),
        threads_per_core: count(cpu.default_threads_per_core),
        memory_mib: size(info.memory_info.and_then(|memory| memory.size_in_mib)),
        hypervisor: text(info.hypervisor.as_ref().map(|hypervisor| hypervisor.as_str())),
        bare_metal: info.bare_metal.unwrap_or_default(),
        current_generation: info.current_generation.unwrap_or_default(),
        burstable: info.burstable_performance_supported.unwrap_or_default(),
        encryption_in_transit: network.encryption_in_transit_supported.unwrap_or_default(),
        ipv6: network.ipv6_supported.unwrap_or_default(),
        nitro_enclaves: info.nitro_enclaves_support == Some(NitroEnclavesSupport::Supported),
        nitro_tpm: info.nitro_tpm_support == Some(NitroTpmSupport::Supported),
        architectures: texts(processor.supported_architectures, |architecture| architecture.as_str()),
        cpu_manufacturer: text(processor.manufacturer.as_deref()),
        cpu_features: texts(processor.supported_features, |feature| feature.as_str()),
        sustained_clock_mhz: thousandths(processor.sustained_clock_speed_in_ghz),
        usage_classes: texts(info.supported_usage_classes, |class| class.as_str()),
        placement_strategies: texts(strategies, |strategy| strategy.as_str()),
        ena_support: text(network.ena_support.as_ref().map(|support| support.as_str())),
        efa_interfaces: network
            .efa_info
            .and_then(|efa| efa.maximum_efa_interfaces)
            .map(|number| count(Some(number))),
        ipv4_addresses_per_interface: count(network.ipv4_addresses_per_interface),
        ipv6_addresses_per_interface: count(network.ipv6_addresses_per_interface),
        default_network_card: count(network.default_network_card_index),
        network_cards: network_cards(network.network_cards.unwrap_or_default()),
        // `DescribeInstanceTypes` does not return these properties.
        network_bandwidth_mbps: None,
        vpc_limits: None,
        instance_storage: info.instance_storage_info.map(instance_storage),
        ebs: info.ebs_info.map(ebs).unwrap_or_default(),
        gpus: info.gpu_info.and_then(|gpus| gpus.gpus).unwrap_or_default().into_iter().map(gpu).collect(),
        neuron_devices: info
            .neuron_info
            .and_then(|neuron| neuron.neuron_devices)
            .unwrap_or_default()
            .into_iter()
            .map(neuron_device)
            .collect(),
        inference_accelerators: info
            .inference_accelerator_info
            .and_then(|inference| inference.accelerators)
            .unwrap_or_default()
            .into_iter()
            .map(inference_accelerator)
            .collect(),
    })
}

fn text(value: Option<&str>) -> Arc<str> {
    value.unwrap_or_default().into()
}

fn texts<T>(values: Option<Vec<T>>, name: impl Fn(&T) -> &str) -> Vec<Arc<str>> {
    values.unwrap_or_default().iter().map(|value| name(value).into()).collect()
}

/// Converts GHz to MHz, or Gbps to Mbps.
fn thousandths(value: Option<f64>) -> Option<u32> {
    let value = (value? * 1000.0).round();
    // The value is in range, so the cast is exact.
    (value >= 0.0 && value <= f64::from(u32::MAX)).then_some(value as u32)
}

fn network_cards(mut cards: Vec<NetworkCardInfo>) -> Vec<NetworkCard> {
    cards.sort_by_key(|card| card.network_card_index);
    cards
        .into_iter()
        .map(|card| NetworkCard {
            interfaces_max: count(card.maximum_network_interfaces),
            baseline_mbps: thousandths(card.baseline_bandwidth_in_gbps).unwrap_or_default(),
            peak_mbps: thousandths(card.peak_bandwidth_in_gbps).unwrap_or_default(),
            efa: card.interface_types().iter().any(|kind| kind.as_str() == "efa-only"),
        })
        .collect()
}

fn instance_storage(storage: aws_sdk_ec2::types::InstanceStorageInfo) -> InstanceStorage {
    let disk = |disk: aws_sdk_ec2::types::DiskInfo| Disk {
        count: count(disk.count),
        size_gb: size(disk.size_in_gb),
        kind: text(disk.r#type.as_ref().map(|kind| kind.as_str())),
    };
    InstanceStorage {
        total_gb: storage.total_size_in_gb.map(|total| size(Some(total))),
        nvme_support: text(storage.nvme_support.as_ref().map(|support| support.as_str())),
        disks: storage.disks.unwrap_or_default().into_iter().map(disk).collect(),
    }
}

fn ebs(ebs: aws_sdk_ec2::types::EbsInfo) -> Ebs {
    let optimized = ebs.ebs_optimized_info;
    let bandwidth = |number: Option<i32>| number.map(|number| count(Some(number)));
    Ebs {
        optimized_support: text(ebs.ebs_optimized_support.as_ref().map(|support| support.as_str())),
        attachments_max: count(ebs.maximum_ebs_attachments),
        baseline_mbps: bandwidth(optimized.as_ref().and_then(|info| info.baseline_bandwidth_in_mbps)),
        maximum_mbps: bandwidth(optimized.as_ref().and_then(|info| info.maximum_bandwidth_in_mbps)),
    }
}

fn gpu(gpu: aws_sdk_ec2::types::GpuDeviceInfo) -> Accelerator {
    let memory = gpu.memory_info.as_ref().and_then(|memory| memory.size_in_mib);
    Accelerator {
        name: text(gpu.name.as_deref()),
        manufacturer: text(gpu.manufacturer.as_deref()),
        count: count(gpu.count),
        memory_mib: u64::from(count(memory)),
    }
}

fn inference_accelerator(device: aws_sdk_ec2::types::InferenceDeviceInfo) -> Accelerator {
    let memory = device.memory_info.as_ref().and_then(|memory| memory.size_in_mib);
    Accelerator {
        name: text(device.name.as_deref()),
        manufacturer: text(device.manufacturer.as_deref()),
        count: count(device.count),
        memory_mib: u64::from(count(memory)),
    }
}

fn neuron_device(device: aws_sdk_ec2::types::NeuronDeviceInfo) -> NeuronDevice {
    let cores = device.core_info.as_ref();
    let memory = device.memory_info.as_ref().and_then(|memory| memory.size_in_mib);
    NeuronDevice {
        name: text(device.name.as_deref()),
        count: count(device.count),
        cores_per_device: count(cores.and_then(|cores| cores.count)),
        core_version: count(cores.and_then(|cores| cores.version)),
        memory_mib: u64::from(count(memory)),
    }
}
