//! Launch templates: all parameters of a launch except instance type and subnet.

use jiff::Timestamp;

use crate::api::{TagFilter, Tags};

/// Selects launch templates that meet all given conditions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LaunchTemplateQuery {
    pub names: Vec<String>,
    pub tags: Vec<TagFilter>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LaunchTemplate {
    pub id: String,
    pub name: String,
    pub created_at: Option<Timestamp>,
    pub tags: Tags,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CreateLaunchTemplate {
    pub name: String,
    pub data: LaunchTemplateData,
    /// Tags of the launch template itself, not those of its instances.
    pub tags: Tags,
}

/// The content of a launch template. An absent field is not sent, so EC2's or the AMI's default applies.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct LaunchTemplateData {
    pub image_id: String,
    /// Base64.
    pub user_data: String,
    pub instance_profile_name: Option<String>,
    /// Set only if the template has no network interfaces; otherwise each interface has its own security groups.
    pub security_group_ids: Vec<String>,
    pub network_interfaces: Vec<NetworkInterfaceSpec>,
    pub block_device_mappings: Vec<BlockDeviceSpec>,
    pub metadata_options: Option<MetadataOptionsSpec>,
    /// `enabled` or `disabled`.
    pub nested_virtualization: Option<String>,
    pub detailed_monitoring: bool,
    pub enclave_enabled: bool,
    pub placement: PlacementSpec,
    pub capacity_reservation: Option<CapacityReservationSpec>,
    /// `capacity-block` or `interruptible-capacity-reservation`; absent for other launches.
    pub market_type: Option<String>,
    /// Tags by type of resource, such as `network-interface` or `spot-instances-request`.
    pub tag_specifications: Vec<TagSpecification>,
}

/// The tags that a launch gives to one type of resource.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TagSpecification {
    pub resource_type: String,
    pub tags: Tags,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct NetworkInterfaceSpec {
    pub network_card_index: Option<i32>,
    pub device_index: i32,
    /// The interface type: `interface`, `efa` or `efa-only`.
    pub interface_type: Option<String>,
    pub security_group_ids: Vec<String>,
    pub associate_public_ip_address: Option<bool>,
    pub ipv4_prefix_count: Option<i32>,
    pub ipv6_prefix_count: Option<i32>,
    pub ipv6_address_count: Option<i32>,
    pub primary_ipv6: Option<bool>,
    pub connection_tracking: Option<ConnectionTrackingSpec>,
}

/// Idle timeouts of tracked connections, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct ConnectionTrackingSpec {
    pub tcp_established_timeout_secs: Option<i32>,
    pub udp_stream_timeout_secs: Option<i32>,
    pub udp_timeout_secs: Option<i32>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct BlockDeviceSpec {
    pub device_name: Option<String>,
    pub delete_on_termination: Option<bool>,
    pub encrypted: Option<bool>,
    /// `gp3`, …
    pub volume_type: Option<String>,
    pub iops: Option<i32>,
    pub throughput: Option<i32>,
    pub kms_key_id: Option<String>,
    pub snapshot_id: Option<String>,
    pub volume_initialization_rate: Option<i32>,
    pub volume_size_gib: Option<i32>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct MetadataOptionsSpec {
    /// Whether the metadata endpoint is `enabled` or `disabled`. The other string fields have the same values, except
    /// `http_tokens`, which is `required` or `optional`.
    pub http_endpoint: Option<String>,
    pub http_protocol_ipv6: Option<String>,
    pub http_put_response_hop_limit: Option<i32>,
    pub http_tokens: Option<String>,
    pub instance_metadata_tags: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct PlacementSpec {
    /// `default` or `dedicated`.
    pub tenancy: Option<String>,
    pub group_id: Option<String>,
    pub partition_number: Option<i32>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct CapacityReservationSpec {
    /// Which reservations a launch may use: `capacity-reservations-only`, `none` or `open`.
    pub preference: String,
    pub target_id: Option<String>,
}
