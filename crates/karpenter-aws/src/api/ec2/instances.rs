//! Instances.

use jiff::Timestamp;

use crate::api::{TagFilter, Tags};

/// Selects instances; all given conditions must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceQuery {
    pub ids: Vec<String>,
    pub tags: Vec<TagFilter>,
    /// Matches any of these states; empty means no condition.
    pub states: Vec<InstanceState>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum InstanceState {
    #[default]
    Pending,
    Running,
    Stopping,
    Stopped,
    ShuttingDown,
    Terminated,
}

impl InstanceState {
    /// All states except terminated.
    pub const ALIVE: [Self; 5] =
        [Self::Pending, Self::Running, Self::Stopping, Self::Stopped, Self::ShuttingDown];

    pub const ALL: [Self; 6] =
        [Self::Pending, Self::Running, Self::Stopping, Self::Stopped, Self::ShuttingDown, Self::Terminated];

    /// EC2's spelling.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Stopping => "stopping",
            Self::Stopped => "stopped",
            Self::ShuttingDown => "shutting-down",
            Self::Terminated => "terminated",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }

    /// Shutting down or terminated.
    pub const fn is_terminating(self) -> bool {
        matches!(self, Self::ShuttingDown | Self::Terminated)
    }
}

/// An instance as returned by `DescribeInstances`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ec2Instance {
    pub id: String,
    pub instance_type: String,
    pub image_id: String,
    pub state: InstanceState,
    pub launched_at: Option<Timestamp>,
    pub zone: String,
    pub zone_id: Option<String>,
    pub subnet_id: Option<String>,
    pub security_group_ids: Vec<String>,
    pub private_dns_name: Option<String>,
    pub instance_profile_arn: Option<String>,
    pub spot_instance_request_id: Option<String>,
    /// `spot`, `scheduled`, `capacity-block`, `interruptible-capacity-reservation`; absent for on-demand.
    pub lifecycle: Option<String>,
    pub capacity_reservation_id: Option<String>,
    /// `capacity-reservations-only`, `none`, `open`.
    pub capacity_reservation_preference: Option<String>,
    /// One per interface: `interface`, `efa`, `efa-only`.
    pub network_interface_types: Vec<String>,
    pub tenancy: Option<String>,
    pub placement_group_id: Option<String>,
    /// 0 if the instance is in no partition.
    pub partition_number: Option<i32>,
    pub tags: Tags,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceStateChange {
    pub id: String,
    pub previous: InstanceState,
    pub current: InstanceState,
}

/// A dry run of `RunInstances`, which only checks authorization.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DryRunInstances {
    pub launch_template_name: String,
    pub instance_type: String,
    pub image_id: Option<String>,
    /// The subnet of every network interface. EC2 rejects a subnet of the instance if the launch template has network
    /// interfaces.
    pub subnet_id: Option<String>,
    /// Only network card, device index and type; the launch template has the rest.
    pub network_interfaces: Vec<super::NetworkInterfaceSpec>,
    /// For `instance`, `volume`, …
    pub tag_specifications: Vec<super::TagSpecification>,
}

/// Selects instances by one condition on their status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InstanceStatusQuery {
    /// `instance-status.status` is impaired.
    InstanceImpaired,
    /// `system-status.status` is impaired.
    SystemImpaired,
    /// An event with one of these codes is scheduled, such as `instance-retirement`.
    EventCodes(Vec<String>),
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InstanceStatus {
    pub instance_id: String,
    pub zone: String,
    pub state: Option<InstanceState>,
    pub instance_checks: Vec<StatusCheck>,
    pub system_checks: Vec<StatusCheck>,
    pub events: Vec<ScheduledEvent>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StatusCheck {
    /// Such as `reachability`.
    pub name: String,
    /// `passed`, `failed`, `insufficient-data`, `initializing`.
    pub status: String,
    pub impaired_since: Option<Timestamp>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScheduledEvent {
    pub id: String,
    pub code: String,
    pub description: String,
    pub not_before: Option<Timestamp>,
    pub not_after: Option<Timestamp>,
}
