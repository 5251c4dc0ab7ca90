//! EC2: machines and everything they are made of.

pub mod fleets;
pub mod images;
pub mod instances;
pub mod launch_templates;
pub mod network;
pub mod offers;
pub mod reservations;

use jiff::Timestamp;

use super::{AwsFuture, Tags};
pub use fleets::*;
pub use images::*;
pub use instances::*;
pub use launch_templates::*;
pub use network::*;
pub use offers::*;
pub use reservations::*;

/// What is asked of EC2. Filters that never change are part of the call: see each method.
pub trait Ec2: Send + Sync {
    /// `ec2:DescribeInstanceTypes` as a dry run: whether EC2 answers and knows us.
    fn check_access(&self) -> AwsFuture<'_, ()>;

    /// `ec2:DescribeInstanceTypes`: hardware virtualisation, x86_64 or arm64.
    fn describe_instance_types(&self) -> AwsFuture<'_, Vec<TypeInfo>>;

    /// `ec2:DescribeInstanceTypeOfferings` by zone.
    fn describe_instance_type_offerings(&self) -> AwsFuture<'_, Vec<TypeOffering>>;

    /// `ec2:DescribeSpotPriceHistory` of Linux products from a moment on; with `now`, the prices in force.
    fn describe_spot_price_history(&self, start: Timestamp) -> AwsFuture<'_, Vec<SpotPrice>>;

    /// `ec2:DescribeSubnets`.
    fn describe_subnets<'a>(&'a self, query: &'a SubnetQuery) -> AwsFuture<'a, Vec<Subnet>>;

    /// `ec2:DescribeSecurityGroups`.
    fn describe_security_groups<'a>(
        &'a self,
        query: &'a SecurityGroupQuery,
    ) -> AwsFuture<'a, Vec<SecurityGroup>>;

    /// `ec2:DescribeImages`: available ones, deprecated ones among them.
    fn describe_images<'a>(&'a self, query: &'a ImageQuery) -> AwsFuture<'a, Vec<Image>>;

    /// `ec2:DescribeCapacityReservations`: active ones.
    fn describe_capacity_reservations<'a>(
        &'a self,
        query: &'a ReservationQuery,
    ) -> AwsFuture<'a, Vec<CapacityReservation>>;

    /// `ec2:DescribePlacementGroups`: available ones.
    fn describe_placement_groups<'a>(
        &'a self,
        query: &'a PlacementGroupQuery,
    ) -> AwsFuture<'a, Vec<PlacementGroup>>;

    /// `ec2:DescribeLaunchTemplates`. A name that is not there is an error, tags that fit nothing are not.
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

    /// `ec2:CreateFleet` of type instant. A dry run answers with an error of kind `DryRunOk` when it is allowed.
    fn create_fleet<'a>(&'a self, request: &'a CreateFleet) -> AwsFuture<'a, FleetAnswer>;

    /// `ec2:RunInstances` as a dry run; the only way it is ever called. An error of kind `DryRunOk` when it is allowed.
    fn dry_run_instances<'a>(&'a self, request: &'a DryRunInstances) -> AwsFuture<'a, ()>;

    /// `ec2:DescribeInstances`. An id that is not there fails the whole call.
    fn describe_instances<'a>(&'a self, query: &'a InstanceQuery) -> AwsFuture<'a, Vec<Ec2Instance>>;

    /// `ec2:TerminateInstances`. An id that is not there fails the whole call.
    fn terminate_instances<'a>(
        &'a self,
        instance_ids: &'a [String],
    ) -> AwsFuture<'a, Vec<InstanceStateChange>>;

    /// `ec2:CreateTags`.
    fn create_tags<'a>(&'a self, resource_ids: &'a [String], tags: &'a Tags) -> AwsFuture<'a, ()>;

    /// `ec2:DescribeInstanceStatus` of running machines in the whole account.
    fn describe_instance_status<'a>(
        &'a self,
        query: &'a InstanceStatusQuery,
    ) -> AwsFuture<'a, Vec<InstanceStatus>>;
}
