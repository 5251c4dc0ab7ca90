//! Subnets, security groups, AMIs, capacity reservations and placement groups.

use aws_sdk_ec2::types as sdk;
use karpenter_aws::api::ec2::{CapacityReservation, Image, PlacementGroup, SecurityGroup, Subnet};

use super::tags;
use crate::convert::{parsed_timestamp, timestamp};

pub(super) fn subnet(subnet: sdk::Subnet) -> Subnet {
    Subnet {
        id: subnet.subnet_id.unwrap_or_default(),
        vpc_id: subnet.vpc_id.unwrap_or_default(),
        zone: subnet.availability_zone.unwrap_or_default(),
        zone_id: subnet.availability_zone_id,
        available_ip_count: subnet.available_ip_address_count.unwrap_or_default().into(),
        maps_public_ip_on_launch: subnet.map_public_ip_on_launch.unwrap_or_default(),
        tags: tags(subnet.tags),
    }
}

pub(super) fn security_group(group: sdk::SecurityGroup) -> SecurityGroup {
    SecurityGroup {
        id: group.group_id.unwrap_or_default(),
        name: group.group_name.unwrap_or_default(),
        vpc_id: group.vpc_id,
        tags: tags(group.tags),
    }
}

pub(super) fn image(image: sdk::Image) -> Image {
    let spelled = |text: Option<&str>| text.unwrap_or_default().to_owned();
    Image {
        architecture: spelled(image.architecture.as_ref().map(sdk::ArchitectureValues::as_str)),
        state: spelled(image.state.as_ref().map(sdk::ImageState::as_str)),
        id: image.image_id.unwrap_or_default(),
        name: image.name.unwrap_or_default(),
        owner_id: image.owner_id.unwrap_or_default(),
        owner_alias: image.image_owner_alias,
        created_at: parsed_timestamp(image.creation_date),
        deprecated_at: parsed_timestamp(image.deprecation_time),
        root_device_name: image.root_device_name,
        tags: tags(image.tags),
    }
}

pub(super) fn capacity_reservation(reservation: sdk::CapacityReservation) -> CapacityReservation {
    let spelled = |text: Option<&str>| text.unwrap_or_default().to_owned();
    let criteria = reservation.instance_match_criteria.as_ref().map(sdk::InstanceMatchCriteria::as_str);
    let kind = reservation.reservation_type.as_ref().map(sdk::CapacityReservationType::as_str);
    CapacityReservation {
        instance_match_criteria: spelled(criteria),
        // Older responses do not contain the type.
        reservation_type: kind.unwrap_or("default").to_owned(),
        state: spelled(reservation.state.as_ref().map(sdk::CapacityReservationState::as_str)),
        tenancy: reservation.tenancy.as_ref().map(|tenancy| tenancy.as_str().to_owned()),
        id: reservation.capacity_reservation_id.unwrap_or_default(),
        owner_id: reservation.owner_id.unwrap_or_default(),
        instance_type: reservation.instance_type.unwrap_or_default(),
        zone: reservation.availability_zone.unwrap_or_default(),
        zone_id: reservation.availability_zone_id,
        is_interruptible: reservation.interruptible.unwrap_or_default(),
        starts_at: timestamp(reservation.start_date),
        ends_at: timestamp(reservation.end_date),
        total_count: reservation.total_instance_count.unwrap_or_default().into(),
        available_count: reservation.available_instance_count.unwrap_or_default().into(),
        tags: tags(reservation.tags),
    }
}

pub(super) fn placement_group(group: sdk::PlacementGroup) -> PlacementGroup {
    let spelled = |text: Option<&str>| text.unwrap_or_default().to_owned();
    PlacementGroup {
        strategy: spelled(group.strategy.as_ref().map(sdk::PlacementStrategy::as_str)),
        spread_level: group.spread_level.as_ref().map(|level| level.as_str().to_owned()),
        state: spelled(group.state.as_ref().map(sdk::PlacementGroupState::as_str)),
        id: group.group_id.unwrap_or_default(),
        name: group.group_name.unwrap_or_default(),
        partition_count: group.partition_count.unwrap_or_default(),
        tags: tags(group.tags),
    }
}
