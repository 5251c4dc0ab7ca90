//! EC2: instances, instance types, launch templates, AMIs, networks and capacity reservations.

pub mod fleets;
pub mod images;
pub mod instances;
pub mod launch_templates;
pub mod network;
pub mod offerings;
pub mod reservations;

use jiff::Timestamp;

use super::{AwsFuture, Tags};
pub use fleets::*;
pub use images::*;
pub use instances::*;
pub use launch_templates::*;
pub use network::*;
pub use offerings::*;
pub use reservations::*;

/// The EC2 calls in use. The comment of a method states which filters its implementation always sets.
pub trait Ec2: Send + Sync {
    /// `ec2:DescribeInstanceTypes` as a dry run, which checks that EC2 is reachable and accepts the credentials.
    fn check_access(&self) -> AwsFuture<'_, ()>;

    /// `ec2:DescribeInstanceTypes`, filtered to types with hardware virtualisation and x86_64 or arm64.
    fn describe_instance_types(&self) -> AwsFuture<'_, Vec<TypeInfo>>;

    /// `ec2:DescribeInstanceTypeOfferings` with one result per zone.
    fn describe_instance_type_offerings(&self) -> AwsFuture<'_, Vec<TypeOffering>>;

    /// `ec2:DescribeSpotPriceHistory` of Linux products since `start`; if `start` is the current time, the current
    /// prices.
    fn describe_spot_price_history(&self, start: Timestamp) -> AwsFuture<'_, Vec<SpotPrice>>;

    /// `ec2:DescribeSubnets`.
    fn describe_subnets<'a>(&'a self, query: &'a SubnetQuery) -> AwsFuture<'a, Vec<Subnet>>;

    /// `ec2:DescribeSecurityGroups`.
    fn describe_security_groups<'a>(
        &'a self,
        query: &'a SecurityGroupQuery,
    ) -> AwsFuture<'a, Vec<SecurityGroup>>;

    /// `ec2:DescribeImages`, filtered to available AMIs, including deprecated ones.
    fn describe_images<'a>(&'a self, query: &'a ImageQuery) -> AwsFuture<'a, Vec<Image>>;

    /// `ec2:DescribeCapacityReservations`, filtered to active reservations.
    fn describe_capacity_reservations<'a>(
        &'a self,
        query: &'a ReservationQuery,
    ) -> AwsFuture<'a, Vec<CapacityReservation>>;

    /// `ec2:DescribePlacementGroups`, filtered to available groups.
    fn describe_placement_groups<'a>(
        &'a self,
        query: &'a PlacementGroupQuery,
    ) -> AwsFuture<'a, Vec<PlacementGroup>>;

    /// `ec2:DescribeLaunchTemplates`. A name that does not exist is an error; tags that match nothing give an empty
    /// result.
    fn describe_launch_templates<'a>(
        &'a self,
        query: &'a LaunchTemplateQuery,
    ) -> AwsFuture<'a, Vec<LaunchTemplate>>;

    /// `ec2:CreateLaunchTemplate`.
    fn create_launch_template<'a>(
        &'a self,
        request: &'a CreateLaunchTemplate,
    ) -> AwsFuture<'a, LaunchTemplate>;

    /// `ec2:DeleteLaunchTemplate`.
    fn delete_launch_template<'a>(&'a self, launch_template_id: &'a str) -> AwsFuture<'a, ()>;

    /// `ec2:CreateFleet` of type `instant`. If the request is a dry run and is authorized, the result is an error of
    /// kind `DryRunOk`.
    fn create_fleet<'a>(&'a self, request: &'a CreateFleet) -> AwsFuture<'a, FleetAnswer>;

    /// `ec2:RunInstances`, always as a dry run. If the request is authorized, the result is an error of kind
    /// `DryRunOk`.
    fn dry_run_instances<'a>(&'a self, request: &'a DryRunInstances) -> AwsFuture<'a, ()>;

    /// `ec2:DescribeInstances`. If one id is unknown, the whole call fails.
    fn describe_instances<'a>(&'a self, query: &'a InstanceQuery) -> AwsFuture<'a, Vec<Ec2Instance>>;

    /// `ec2:TerminateInstances`. If one id is unknown, the whole call fails.
    fn terminate_instances<'a>(
        &'a self,
        instance_ids: &'a [String],
    ) -> AwsFuture<'a, Vec<InstanceStateChange>>;

    /// `ec2:CreateTags`.
    fn create_tags<'a>(&'a self, resource_ids: &'a [String], tags: &'a Tags) -> AwsFuture<'a, ()>;

    /// `ec2:DescribeInstanceStatus` of all running instances of the account that match the query.
    fn describe_instance_status<'a>(
        &'a self,
        query: &'a InstanceStatusQuery,
    ) -> AwsFuture<'a, Vec<InstanceStatus>>;
}
