//! Launch templates: the parameters of a launch, except instance type and subnet.

use jiff::Timestamp;

use crate::api::{TagFilter, Tags};

/// Selects launch templates; all given conditions must hold.
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
    /// Tags of the launch template itself.
    pub tags: Tags,
}

/// The content of a launch template. Absent fields are not sent, so that the default of EC2 or of the AMI applies.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct LaunchTemplateData {
    pub image_id: String,
    /// Base64.
    pub user_data: String,
    pub instance_profile_name: Option<String>,
    /// Set only if there are no network interfaces, because each interface has its own security groups.
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
    /// `capacity-block` or `interruptible-capacity-reservation`.
    pub market_type: Option<String>,
    /// Tags by resource type: `network-interface`, `spot-instances-request`.
    pub tag_specifications: Vec<TagSpecification>,
}

/// Tags for one type of resource that a launch creates.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TagSpecification {
    pub resource_type: String,
    pub tags: Tags,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct NetworkInterfaceSpec {
    pub network_card_index: Option<i32>,
    pub device_index: i32,
    /// `interface`, `efa` or `efa-only`.
    pub interface_type: Option<String>,
    pub security_group_ids: Vec<String>,
    pub associate_public_ip_address: Option<bool>,
    pub ipv4_prefix_count: Option<i32>,
    pub ipv6_prefix_count: Option<i32>,
    pub ipv6_address_count: Option<i32>,
    pub primary_ipv6: Option<bool>,
    pub connection_tracking: Option<ConnectionTrackingSpec>,
}

/// Idle timeouts in seconds.
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
    /// The string fields are `enabled` or `disabled`, except `http_tokens`: `required` or `optional`.
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
    /// `capacity-reservations-only`, `none` or `open`.
    pub preference: String,
    pub target_id: Option<String>,
}
