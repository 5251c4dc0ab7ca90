//! The state of the fake; a test may change every field.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use karpenter_catalog::aws::{TypeInfo, catalog};

use super::FakeInstance;
use crate::api::Tags;
use crate::api::ec2::{
    CapacityReservation, CreateFleet, CreateLaunchTemplate, Image, InstanceStatus, LaunchTemplate,
    LaunchTemplateData, PlacementGroup, SecurityGroup, Subnet, TypeOffering,
};
use crate::api::eks::Cluster;
use crate::api::iam::InstanceProfile;
use crate::api::zonal_shift::Shift;

/// A capacity pool: instance type, zone, and `on-demand` or `spot`.
pub type Pool = (String, String, String);

/// A launch template and its content.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredTemplate {
    pub template: LaunchTemplate,
    pub data: LaunchTemplateData,
}

#[derive(Debug, Clone, PartialEq)]
pub struct QueuedMessage {
    pub id: String,
    pub body: String,
    pub sent_at: Timestamp,
    pub visible_at: Timestamp,
    pub receive_count: u32,
    /// The receipt handle that the latest `ReceiveMessage` returned for the message.
    pub receipt_handle: String,
}

/// The state of the fake.
#[derive(Debug, Clone)]
pub struct World {
    pub region: String,
    pub account_id: String,
    pub types: Vec<TypeInfo>,
    pub offerings: Vec<TypeOffering>,
    /// On-demand prices per hour, by instance type.
    pub on_demand_prices: BTreeMap<String, f64>,
    /// Prices of volumes per month, by usage type.
    pub volume_prices: BTreeMap<String, f64>,
    /// Spot prices per hour, by instance type and zone.
    pub spot_prices: BTreeMap<(String, String), f64>,
    pub subnets: BTreeMap<String, Subnet>,
    pub security_groups: BTreeMap<String, SecurityGroup>,
    pub images: BTreeMap<String, Image>,
    /// The values of SSM parameters, by name.
    pub parameters: BTreeMap<String, String>,
    /// Names of SSM parameters that may not be read.
    pub denied_parameters: BTreeSet<String>,
    pub reservations: BTreeMap<String, CapacityReservation>,
    pub placement_groups: BTreeMap<String, PlacementGroup>,
    /// By name.
    pub launch_templates: BTreeMap<String, StoredTemplate>,
    pub instances: BTreeMap<String, FakeInstance>,
    pub statuses: Vec<InstanceStatus>,
    /// How many more instances each pool can launch; a pool that is not listed is unlimited.
    pub pool_capacity: BTreeMap<Pool, usize>,
    /// Whether the service-linked role for spot is missing, so that spot launches fail.
    pub is_spot_role_missing: bool,
    /// The error code that `CreateFleet` returns for each override if the launch template does not exist; if `None`,
    /// the whole call fails.
    pub missing_template_code: Option<&'static str>,
    /// How many instances one `CreateFleet` launches at most.
    pub fleet_instances_max: Option<usize>,
    /// Whether `DescribeInstances` omits the partition number.
    pub are_partitions_hidden: bool,
    /// How long after its launch `DescribeInstances` does not return an instance.
    pub visible_after: Duration,
    /// How long after its launch an instance is pending.
    pub runs_after: Duration,
    /// How long an instance is shutting down before it is terminated.
    pub ends_after: Duration,
    /// By name.
    pub roles: BTreeSet<String>,
    /// By name.
    pub profiles: BTreeMap<String, InstanceProfile>,
    pub clusters: BTreeMap<String, Cluster>,
    pub shifts: Vec<Shift>,
    /// By queue name.
    pub queues: BTreeMap<String, Vec<QueuedMessage>>,
    /// All `CreateFleet` requests so far, including dry runs.
    pub fleets: Vec<CreateFleet>,
    /// All requests so far that created a launch template.
    pub created_templates: Vec<CreateLaunchTemplate>,
    /// For each `TerminateInstances` request so far: the instance ids.
    pub terminations: Vec<Vec<String>>,
    counter: u64,
}

/// The fake's spot price divided by the on-demand price.
const SPOT_PRICE_SHARE: f64 = 0.4;
const ADDRESSES_PER_SUBNET: i64 = 4000;

impl World {
    /// The initial state: instance types, zones and prices of the embedded catalog; one subnet per zone with 4000 free
    /// addresses; one security group; the cluster `cluster`. The subnets and the security group have the tag
    /// `karpenter.sh/discovery=cluster`.
    pub fn new(region: &str) -> Self {
        let facts = catalog();
        let zones = facts.zones(region);
        let mut world = Self {
            region: region.to_owned(),
            account_id: "123456789012".to_owned(),
            types: facts.types().to_vec(),
            offerings: Vec::new(),
            on_demand_prices: BTreeMap::new(),
            volume_prices: BTreeMap::from([("EBS:VolumeUsage.gp3".to_owned(), 0.08)]),
            spot_prices: BTreeMap::new(),
            subnets: BTreeMap::new(),
            security_groups: BTreeMap::new(),
            images: BTreeMap::new(),
            parameters: BTreeMap::new(),
            denied_parameters: BTreeSet::new(),
            reservations: BTreeMap::new(),
            placement_groups: BTreeMap::new(),
            launch_templates: BTreeMap::new(),
            instances: BTreeMap::new(),
            statuses: Vec::new(),
            pool_capacity: BTreeMap::new(),
            is_spot_role_missing: false,
            missing_template_code: None,
            fleet_instances_max: None,
            are_partitions_hidden: false,
            visible_after: Duration::ZERO,
            runs_after: Duration::from_secs(20),
            ends_after: Duration::from_secs(40),
            roles: BTreeSet::from(["KarpenterNodeRole-cluster".to_owned()]),
            profiles: BTreeMap::new(),
            clusters: BTreeMap::new(),
            shifts: Vec::new(),
            queues: BTreeMap::new(),
            fleets: Vec::new(),
            created_templates: Vec::new(),
            terminations: Vec::new(),
            counter: 0,
        };
        for info in facts.types() {
            let price = facts.on_demand_price(region, &info.name);
            if let Some(price) = price {
                world.on_demand_prices.insert(info.name.to_string(), price);
            }
            for zone in zones.iter().filter(|zone| facts.is_offered(region, &zone.name, &info.name)) {
                let (instance_type, zone) = (info.name.to_string(), zone.name.to_string());
                if let Some(price) = price.filter(|_| info.has_usage_class("spot")) {
                    world.spot_prices.insert((instance_type.clone(), zone.clone()), price * SPOT_PRICE_SHARE);
                }
                world.offerings.push(TypeOffering { instance_type, zone });
            }
        }
        for (zone, letter) in zones.iter().zip('a'..) {
            world.add_subnet(&format!("subnet-{letter}"), &zone.name, zone.id.as_deref());
        }
        world.add_security_group("sg-nodes", "nodes");
        world.add_cluster("cluster");
        world
    }

    pub fn add_subnet(&mut self, id: &str, zone: &str, zone_id: Option<&str>) {
        let subnet = Subnet {
            id: id.to_owned(),
            vpc_id: "vpc-1".to_owned(),
            zone: zone.to_owned(),
            zone_id: zone_id.map(str::to_owned),
            available_ip_count: ADDRESSES_PER_SUBNET,
            maps_public_ip_on_launch: false,
            tags: discovery(),
        };
        self.subnets.insert(id.to_owned(), subnet);
    }

    pub fn add_security_group(&mut self, id: &str, name: &str) {
        let group = SecurityGroup {
            id: id.to_owned(),
            name: name.to_owned(),
            vpc_id: Some("vpc-1".to_owned()),
            tags: discovery(),
        };
        self.security_groups.insert(id.to_owned(), group);
    }

    pub fn add_cluster(&mut self, name: &str) {
        let cluster = Cluster {
            name: name.to_owned(),
            arn: format!("arn:aws:eks:{}:{}:cluster/{name}", self.region, self.account_id),
            endpoint: Some(format!("https://{name}.eks.example")),
            version: Some("1.35".to_owned()),
            certificate_authority: Some("Y2x1c3Rlci1jYQ==".to_owned()),
            service_ipv4_cidr: Some("10.100.0.0/16".to_owned()),
            service_ipv6_cidr: None,
        };
        self.clusters.insert(name.to_owned(), cluster);
    }

    /// Adds an available AMI that Amazon owns.
    pub fn add_image(&mut self, id: &str, name: &str, architecture: &str, created_at: Timestamp) {
        let image = Image {
            id: id.to_owned(),
            name: name.to_owned(),
            architecture: architecture.to_owned(),
            owner_id: "602401143452".to_owned(),
            owner_alias: Some("amazon".to_owned()),
            created_at: Some(created_at),
            deprecated_at: None,
            state: "available".to_owned(),
            root_device_name: Some("/dev/xvda".to_owned()),
            tags: Tags::new(),
        };
        self.images.insert(id.to_owned(), image);
    }

    /// Adds the AL2023 AMIs of a Kubernetes version, and the SSM parameters that hold their ids.
    pub fn add_al2023_images(&mut self, kubernetes_version: &str) {
        let variants =
            [("x86_64", "standard"), ("arm64", "standard"), ("x86_64", "nvidia"), ("x86_64", "neuron")];
        let base = format!("/aws/service/eks/optimized-ami/{kubernetes_version}/amazon-linux-2023");
        for (architecture, variant) in variants {
            let id = format!("ami-{}{variant}", architecture.replace('_', ""));
            let name =
                format!("amazon-eks-node-al2023-{architecture}-{variant}-{kubernetes_version}-v20260101");
            self.add_image(&id, &name, architecture, Timestamp::UNIX_EPOCH);
            self.parameters
                .insert(format!("{base}/{architecture}/{variant}/recommended/image_id"), id.clone());
            self.parameters.insert(format!("{base}/{architecture}/{variant}/{name}/image_id"), id);
        }
    }

    /// Sets the remaining capacity of a pool to 0.
    pub fn sell_out(&mut self, instance_type: &str, zone: &str, capacity_type: &str) {
        self.pool_capacity.insert((instance_type.to_owned(), zone.to_owned(), capacity_type.to_owned()), 0);
    }

    pub fn is_offered(&self, instance_type: &str, zone: &str) -> bool {
        self.offerings.iter().any(|offering| offering.instance_type == instance_type && offering.zone == zone)
    }

    /// The zone id of a zone, according to the subnets.
    pub fn zone_id(&self, zone: &str) -> Option<String> {
        self.subnets.values().find(|subnet| subnet.zone == zone).and_then(|subnet| subnet.zone_id.clone())
    }

    pub fn send_message(&mut self, queue_name: &str, body: String, now: Timestamp) {
        let id = self.next_id("message");
        let message = QueuedMessage {
            id,
            body,
            sent_at: now,
            visible_at: now,
            receive_count: 0,
            receipt_handle: String::new(),
        };
        self.queues.entry(queue_name.to_owned()).or_default().push(message);
    }

    /// A new unique id, made of the prefix and a counter.
    pub fn next_id(&mut self, prefix: &str) -> String {
        self.counter += 1;
        format!("{prefix}-{:017x}", self.counter)
    }
}

fn discovery() -> Tags {
    Tags::from([("karpenter.sh/discovery".to_owned(), "cluster".to_owned())])
}
