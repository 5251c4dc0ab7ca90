//! Builds the content of a launch template from an EC2NodeClass and the parameters of a launch.
//!
//! The functions are pure. Their input includes the user data, which `karpenter-userdata` renders.
//!
//! Upstream: `pkg/providers/launchtemplate/launchtemplate.go`

#[cfg(test)]
mod tests;

use karpenter_api::labels;
use karpenter_api::types::{
    BlockDevice, BlockDeviceMapping, ConnectionTracking, EC2NodeClass, EC2NodeClassSpec,
};
use karpenter_userdata::AmiFamily;
use karpenter_userdata::defaults::{block_devices, metadata_options, supports_metadata_ipv6};

use super::filters::Reservation;
use crate::api::Tags;
use crate::api::ec2::{
    BlockDeviceSpec, CapacityReservationSpec, ConnectionTrackingSpec, LaunchTemplateData,
    MetadataOptionsSpec, NetworkInterfaceSpec, PlacementSpec, TagSpecification,
};

const BYTES_PER_GIB: i64 = 1 << 30;

/// All inputs that determine the content of a launch template.
#[derive(Debug, Clone, PartialEq)]
pub struct TemplateInput<'a> {
    pub class: &'a EC2NodeClass,
    pub family: AmiFamily,
    pub region: &'a str,
    pub cluster_is_ipv6: bool,
    pub image_id: &'a str,
    /// In base64.
    pub user_data: String,
    pub capacity_type: &'a str,
    pub tenancy: &'a str,
    pub efa_count: i64,
    pub is_enclave_enabled: bool,
    pub reservation: Option<Reservation>,
    /// Whether the template states which reservations its instances may use. Otherwise EC2 uses open reservations by
    /// default.
    pub targets_reservations: bool,
    pub placement_group_id: Option<&'a str>,
    pub partition: Option<i32>,
    pub tags: &'a Tags,
}

pub fn template_data(input: &TemplateInput<'_>) -> LaunchTemplateData {
    let spec = &input.class.spec;
    let status = input.class.status.as_ref();
    LaunchTemplateData {
        image_id: input.image_id.to_owned(),
        user_data: input.user_data.clone(),
        instance_profile_name: status.and_then(|status| status.instance_profile.clone()),
        // The template has at least one network interface, and each interface lists the security groups itself.
        security_group_ids: Vec::new(),
        network_interfaces: network_interfaces(input),
        block_device_mappings: block_device_mappings(spec, input.family),
        metadata_options: Some(metadata(spec, input.region, input.cluster_is_ipv6)),
        nested_virtualization: spec.cpu_options.as_ref().and_then(|cpu| cpu.nested_virtualization.clone()),
        detailed_monitoring: spec.detailed_monitoring.unwrap_or(false),
        enclave_enabled: input.is_enclave_enabled,
        placement: PlacementSpec {
            tenancy: Some(input.tenancy.to_owned()),
            group_id: input.placement_group_id.map(str::to_owned),
            partition_number: input.partition,
        },
        capacity_reservation: input.targets_reservations.then(|| capacity_reservation(input)),
        market_type: market_type(input),
        tag_specifications: tag_specifications(input),
    }
}

fn tag_specifications(input: &TemplateInput<'_>) -> Vec<TagSpecification> {
    let mut kinds = vec!["network-interface"];
    if input.capacity_type == labels::CAPACITY_TYPE_SPOT {
        kinds.push("spot-instances-request");
    }
    let tagged = |kind: &str| TagSpecification { resource_type: kind.to_owned(), tags: input.tags.clone() };
    kinds.into_iter().map(tagged).collect()
}

fn capacity_reservation(input: &TemplateInput<'_>) -> CapacityReservationSpec {
    if input.capacity_type == labels::CAPACITY_TYPE_RESERVED {
        CapacityReservationSpec {
            preference: "capacity-reservations-only".to_owned(),
            target_id: input.reservation.as_ref().map(|reservation| reservation.id.clone()),
        }
    } else {
        CapacityReservationSpec { preference: "none".to_owned(), target_id: None }
    }
}

fn market_type(input: &TemplateInput<'_>) -> Option<String> {
    let reservation = input.reservation.as_ref().filter(|_| input.targets_reservations)?;
    if reservation.reservation_type == "capacity-block" {
        Some("capacity-block".to_owned())
    } else if reservation.is_interruptible {
        Some("interruptible-capacity-reservation".to_owned())
    } else {
        None
    }
}

fn network_interfaces(input: &TemplateInput<'_>) -> Vec<NetworkInterfaceSpec> {
    let spec = &input.class.spec;
    let groups = input.class.status.iter().flat_map(|status| &status.security_groups);
    let full = NetworkInterfaceSpec {
        security_group_ids: groups.map(|group| group.id.clone()).collect(),
        associate_public_ip_address: spec.associate_public_ip_address,
        ipv4_prefix_count: spec.ip_prefix_count.filter(|_| !input.cluster_is_ipv6),
        ipv6_prefix_count: spec.ip_prefix_count.filter(|_| input.cluster_is_ipv6),
        ipv6_address_count: input.cluster_is_ipv6.then_some(1),
        primary_ipv6: input.cluster_is_ipv6.then_some(true),
        connection_tracking: spec.connection_tracking.as_ref().and_then(connection_tracking),
        ..NetworkInterfaceSpec::default()
    };
    let own = spec.network_interfaces.as_deref().unwrap_or_default();
    if !own.is_empty() {
        let interfaces = own.iter().map(|interface| {
            // Interfaces of type efa-only carry no IP traffic, and EC2 rejects addresses on them.
            let base = if interface.interface_type == "efa-only" {
                let security_group_ids = full.security_group_ids.clone();
                NetworkInterfaceSpec { security_group_ids, ..NetworkInterfaceSpec::default() }
            } else {
                full.clone()
            };
            NetworkInterfaceSpec {
                network_card_index: Some(interface.network_card_index),
                device_index: interface.device_index,
                interface_type: Some(interface.interface_type.clone()),
                ..base
            }
        });
        return interfaces.collect();
    }
    if input.efa_count > 0 {
        let cards = 0..i32::try_from(input.efa_count).unwrap_or(i32::MAX);
        // Only the interface of the first network card is the primary one, and only the primary one may get a public
        // address.
        let interfaces = cards.map(|card| NetworkInterfaceSpec {
            network_card_index: Some(card),
            device_index: i32::from(card != 0),
            interface_type: Some("efa".to_owned()),
            ..full.clone()
        });
        return interfaces.collect();
    }
    vec![full]
}

fn connection_tracking(tracking: &ConnectionTracking) -> Option<ConnectionTrackingSpec> {
    let spec = ConnectionTrackingSpec {
        tcp_established_timeout_secs: tracking.tcp_established_timeout,
        udp_stream_timeout_secs: tracking.udp_stream_timeout,
        udp_timeout_secs: tracking.udp_timeout,
    };
    (spec != ConnectionTrackingSpec::default()).then_some(spec)
}

fn block_device_mappings(spec: &EC2NodeClassSpec, family: AmiFamily) -> Vec<BlockDeviceSpec> {
    let own = spec.block_device_mappings.as_deref().unwrap_or_default();
    if !own.is_empty() {
        return own.iter().map(block_device).collect();
    }
    let defaults = block_devices(family).into_iter().map(|device| BlockDeviceSpec {
        device_name: Some(device.device_name.to_owned()),
        encrypted: Some(device.encrypted),
        volume_type: Some(device.volume_type.to_owned()),
        volume_size_gib: i32::try_from(device.volume_size_gib).ok(),
        ..BlockDeviceSpec::default()
    });
    defaults.collect()
}

/// Converts a mapping. Validation rejects a mapping without `ebs`; if the node class was not validated, EC2 returns the
/// error.
fn block_device(mapping: &BlockDeviceMapping) -> BlockDeviceSpec {
    let none = BlockDevice::default();
    let disk = mapping.ebs.as_ref().unwrap_or(&none);
    let positive = |amount: Option<i64>| {
        amount.filter(|amount| *amount != 0).and_then(|amount| i32::try_from(amount).ok())
    };
    BlockDeviceSpec {
        device_name: mapping.device_name.clone(),
        delete_on_termination: disk.delete_on_termination,
        encrypted: disk.encrypted,
        volume_type: disk.volume_type.clone(),
        iops: positive(disk.iops),
        throughput: positive(disk.throughput),
        kms_key_id: disk.kms_key_id.clone(),
        snapshot_id: disk.snapshot_id.clone(),
        volume_initialization_rate: disk.volume_initialization_rate,
        volume_size_gib: disk.volume_size.as_ref().and_then(|size| {
            let bytes = size.value_ceil();
            i32::try_from(bytes / BYTES_PER_GIB + i64::from(bytes % BYTES_PER_GIB != 0)).ok()
        }),
    }
}

fn metadata(spec: &EC2NodeClassSpec, region: &str, cluster_is_ipv6: bool) -> MetadataOptionsSpec {
    // An account may enable instance tags in metadata by default, but Karpenter's tag keys are not valid there, so they
    // are disabled.
    let instance_metadata_tags = Some("disabled".to_owned());
    match &spec.metadata_options {
        Some(options) => MetadataOptionsSpec {
            http_endpoint: options.http_endpoint.clone(),
            http_protocol_ipv6: options.http_protocol_ipv6.clone().filter(|_| supports_metadata_ipv6(region)),
            http_put_response_hop_limit: options
                .http_put_response_hop_limit
                .and_then(|limit| i32::try_from(limit).ok()),
            http_tokens: options.http_tokens.clone(),
            instance_metadata_tags,
        },
        None => {
            let options = metadata_options(region, cluster_is_ipv6);
            MetadataOptionsSpec {
                http_endpoint: Some(options.http_endpoint.to_owned()),
                http_protocol_ipv6: options.http_protocol_ipv6.map(str::to_owned),
                http_put_response_hop_limit: i32::try_from(options.http_put_response_hop_limit).ok(),
                http_tokens: Some(options.http_tokens.to_owned()),
                instance_metadata_tags,
            }
        }
    }
}
