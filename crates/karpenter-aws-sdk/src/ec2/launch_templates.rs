//! Launch templates. Fields that are `None` are not sent.

use aws_sdk_ec2::types as sdk;
use karpenter_aws::api::ec2::{
    BlockDeviceSpec, CapacityReservationSpec, LaunchTemplate, LaunchTemplateData, MetadataOptionsSpec,
    NetworkInterfaceSpec, PlacementSpec,
};

use super::{sdk_tags, tags, unless_empty};
use crate::convert::timestamp;

pub(super) fn launch_template(template: sdk::LaunchTemplate) -> LaunchTemplate {
    LaunchTemplate {
        id: template.launch_template_id.unwrap_or_default(),
        name: template.launch_template_name.unwrap_or_default(),
        created_at: timestamp(template.create_time),
        tags: tags(template.tags),
    }
}

pub(super) fn launch_template_data(data: &LaunchTemplateData) -> sdk::RequestLaunchTemplateData {
    let profile = data
        .instance_profile_name
        .as_ref()
        .map(|name| sdk::LaunchTemplateIamInstanceProfileSpecificationRequest::builder().name(name).build());
    let cpu = data.nested_virtualization.as_ref().map(|nested| {
        let nested = sdk::NestedVirtualizationSpecification::from(nested.as_str());
        sdk::LaunchTemplateCpuOptionsRequest::builder().nested_virtualization(nested).build()
    });
    let market = data.market_type.as_ref().map(|market| {
        let market = sdk::MarketType::from(market.as_str());
        sdk::LaunchTemplateInstanceMarketOptionsRequest::builder().market_type(market).build()
    });
    let tagged = data.tag_specifications.iter().map(|specification| {
        sdk::LaunchTemplateTagSpecificationRequest::builder()
            .resource_type(specification.resource_type.as_str().into())
            .set_tags(Some(sdk_tags(&specification.tags)))
            .build()
    });
    let monitoring =
        sdk::LaunchTemplatesMonitoringRequest::builder().enabled(data.detailed_monitoring).build();
    let enclave = sdk::LaunchTemplateEnclaveOptionsRequest::builder().enabled(data.enclave_enabled).build();
    sdk::RequestLaunchTemplateData::builder()
        .image_id(&data.image_id)
        .user_data(&data.user_data)
        .set_iam_instance_profile(profile)
        .set_security_group_ids(unless_empty(data.security_group_ids.clone()))
        .set_network_interfaces(unless_empty(data.network_interfaces.iter().map(network_interface).collect()))
        .set_block_device_mappings(unless_empty(
            data.block_device_mappings.iter().map(block_device).collect(),
        ))
        .set_metadata_options(data.metadata_options.as_ref().map(metadata_options))
        .set_cpu_options(cpu)
        .monitoring(monitoring)
        .enclave_options(enclave)
        .set_placement(placement(&data.placement))
        .set_capacity_reservation_specification(data.capacity_reservation.as_ref().map(capacity_reservation))
        .set_instance_market_options(market)
        .set_tag_specifications(unless_empty(tagged.collect()))
        .build()
}

fn network_interface(
    interface: &NetworkInterfaceSpec,
) -> sdk::LaunchTemplateInstanceNetworkInterfaceSpecificationRequest {
    let tracking = interface.connection_tracking.map(|tracking| {
        sdk::ConnectionTrackingSpecificationRequest::builder()
            .set_tcp_established_timeout(tracking.tcp_established_timeout_secs)
            .set_udp_stream_timeout(tracking.udp_stream_timeout_secs)
            .set_udp_timeout(tracking.udp_timeout_secs)
            .build()
    });
    sdk::LaunchTemplateInstanceNetworkInterfaceSpecificationRequest::builder()
        .set_network_card_index(interface.network_card_index)
        .device_index(interface.device_index)
        .set_interface_type(interface.interface_type.clone())
        .set_groups(unless_empty(interface.security_group_ids.clone()))
        .set_associate_public_ip_address(interface.associate_public_ip_address)
        .set_ipv4_prefix_count(interface.ipv4_prefix_count)
        .set_ipv6_prefix_count(interface.ipv6_prefix_count)
        .set_ipv6_address_count(interface.ipv6_address_count)
        .set_primary_ipv6(interface.primary_ipv6)
        .set_connection_tracking_specification(tracking)
        .build()
}

fn block_device(device: &BlockDeviceSpec) -> sdk::LaunchTemplateBlockDeviceMappingRequest {
    let ebs = sdk::LaunchTemplateEbsBlockDeviceRequest::builder()
        .set_delete_on_termination(device.delete_on_termination)
        .set_encrypted(device.encrypted)
        .set_volume_type(device.volume_type.as_deref().map(Into::into))
        .set_iops(device.iops)
        .set_throughput(device.throughput)
        .set_kms_key_id(device.kms_key_id.clone())
        .set_snapshot_id(device.snapshot_id.clone())
        .set_volume_initialization_rate(device.volume_initialization_rate)
        .set_volume_size(device.volume_size_gib)
        .build();
    sdk::LaunchTemplateBlockDeviceMappingRequest::builder()
        .set_device_name(device.device_name.clone())
        .ebs(ebs)
        .build()
}

fn metadata_options(options: &MetadataOptionsSpec) -> sdk::LaunchTemplateInstanceMetadataOptionsRequest {
    sdk::LaunchTemplateInstanceMetadataOptionsRequest::builder()
        .set_http_endpoint(options.http_endpoint.as_deref().map(Into::into))
        .set_http_protocol_ipv6(options.http_protocol_ipv6.as_deref().map(Into::into))
        .set_http_put_response_hop_limit(options.http_put_response_hop_limit)
        .set_http_tokens(options.http_tokens.as_deref().map(Into::into))
        .set_instance_metadata_tags(options.instance_metadata_tags.as_deref().map(Into::into))
        .build()
}

fn placement(placement: &PlacementSpec) -> Option<sdk::LaunchTemplatePlacementRequest> {
    if *placement == PlacementSpec::default() {
        return None;
    }
    Some(
        sdk::LaunchTemplatePlacementRequest::builder()
            .set_tenancy(placement.tenancy.as_deref().map(Into::into))
            .set_group_id(placement.group_id.clone())
            .set_partition_number(placement.partition_number)
            .build(),
    )
}

fn capacity_reservation(
    reservation: &CapacityReservationSpec,
) -> sdk::LaunchTemplateCapacityReservationSpecificationRequest {
    let target = reservation
        .target_id
        .as_ref()
        .map(|id| sdk::CapacityReservationTarget::builder().capacity_reservation_id(id).build());
    sdk::LaunchTemplateCapacityReservationSpecificationRequest::builder()
        .capacity_reservation_preference(reservation.preference.as_str().into())
        .set_capacity_reservation_target(target)
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enclaves_and_monitoring_are_disabled_explicitly() {
        let sent = launch_template_data(&LaunchTemplateData::default());
        assert_eq!(sent.enclave_options().and_then(|options| options.enabled()), Some(false));
        assert_eq!(sent.monitoring().and_then(|monitoring| monitoring.enabled()), Some(false));
        let data = LaunchTemplateData { enclave_enabled: true, ..LaunchTemplateData::default() };
        let sent = launch_template_data(&data);
        assert_eq!(sent.enclave_options().and_then(|options| options.enabled()), Some(true));
    }
}
