//! Instances.

use jiff::Timestamp;

use crate::api::{TagFilter, Tags};

/// Selects instances that meet all given conditions.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceQuery {
    pub ids: Vec<String>,
    pub tags: Vec<TagFilter>,
    /// States of which one must match; an empty list is no condition.
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
    /// All instance states except terminated.
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

    /// Whether the instance is shutting down or terminated.
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
    /// How the instance was bought: `spot`, `scheduled`, `capacity-block` or `interruptible-capacity-reservation`;
    /// absent for on-demand instances.
    pub lifecycle: Option<String>,
    pub capacity_reservation_id: Option<String>,
    /// Whether the instance uses capacity reservations: `capacity-reservations-only`, `none` or `open`.
    pub capacity_reservation_preference: Option<String>,
    /// The type of each network interface: `interface`, `efa` or `efa-only`.
    pub network_interface_types: Vec<String>,
    pub tenancy: Option<String>,
    pub placement_group_id: Option<String>,
    /// The placement group partition of the instance; 0 if it is in none.
    pub partition_number: Option<i32>,
    pub tags: Tags,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceStateChange {
    pub id: String,
    pub previous: InstanceState,
    pub current: InstanceState,
}

/// A dry run of `RunInstances`, which checks only whether the caller is authorized.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DryRunInstances {
    pub launch_template_name: String,
    pub instance_type: String,
    pub image_id: Option<String>,
    /// The subnet of every network interface. If the launch template has network interfaces, EC2 rejects a subnet for
    /// the instance itself.
    pub subnet_id: Option<String>,
    /// Of each interface, only network card, device index and type are set; the launch template states the rest.
    pub network_interfaces: Vec<super::NetworkInterfaceSpec>,
    /// For `instance`, `volume`, …
    pub tag_specifications: Vec<super::TagSpecification>,
}

/// Selects instances by one condition on their status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InstanceStatusQuery {
    /// Instances whose `instance-status.status` is impaired.
    InstanceImpaired,
    /// Instances whose `system-status.status` is impaired.
    SystemImpaired,
    /// Instances for which an event with one of these codes is scheduled, such as `instance-retirement`.
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
    /// The result of the check: `passed`, `failed`, `insufficient-data` or `initializing`.
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
