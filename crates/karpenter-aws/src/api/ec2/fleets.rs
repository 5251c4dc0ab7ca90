//! EC2 fleets of type `instant`: one synchronous request that launches instances from a list of alternatives
//! (overrides).

use super::TagSpecification;

#[derive(Debug, Clone, PartialEq)]
pub struct CreateFleet {
    pub launch_template_configs: Vec<FleetLaunchTemplate>,
    pub target: TargetCapacityType,
    pub total_target_capacity: i32,
    /// Set only for fleets of spot instances.
    pub spot_allocation_strategy: Option<SpotAllocationStrategy>,
    /// Set only for fleets of on-demand instances.
    pub on_demand_allocation_strategy: Option<OnDemandAllocationStrategy>,
    /// Set only for fleets in reserved capacity, for example to `interruptible-capacity-reservation`.
    pub reservation_types: Vec<String>,
    pub context: Option<String>,
    pub tag_specifications: Vec<TagSpecification>,
    pub is_dry_run: bool,
}

/// EC2's `DefaultTargetCapacityType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TargetCapacityType {
    OnDemand,
    Spot,
    CapacityBlock,
    ReservedCapacity,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SpotAllocationStrategy {
    PriceCapacityOptimized,
    CapacityOptimizedPrioritized,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OnDemandAllocationStrategy {
    LowestPrice,
    Prioritized,
}

/// The latest version of a launch template, with the overrides (instance type, subnet) that it may be launched with.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FleetLaunchTemplate {
    pub launch_template_name: String,
    pub overrides: Vec<FleetOverride>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct FleetOverride {
    pub instance_type: String,
    pub subnet_id: Option<String>,
    pub image_id: Option<String>,
    pub zone: Option<String>,
    /// The priority of the override; a lower number has precedence.
    pub priority: Option<f64>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct FleetAnswer {
    pub fleet_id: String,
    pub instances: Vec<FleetInstances>,
    pub errors: Vec<FleetError>,
}

/// The instances that a fleet launched from one override.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FleetInstances {
    pub instance_ids: Vec<String>,
    pub instance_type: String,
    /// `on-demand`, `spot`, …
    pub lifecycle: String,
    pub launch_template_name: Option<String>,
    pub launched_as: FleetOverride,
}

/// Why EC2 could not launch an override.
#[derive(Debug, Clone, PartialEq)]
pub struct FleetError {
    pub error: crate::api::AwsError,
    pub launch_template_name: Option<String>,
    pub tried: FleetOverride,
    pub lifecycle: Option<String>,
}
