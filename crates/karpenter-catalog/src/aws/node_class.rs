//! The settings of an EC2NodeClass and of the operator that affect instance types.
//!
//! The struct has parsed values, so resolving instance types cannot fail; other modules read manifests. Settings that
//! affect only launches (user data, tags, roles) are not included.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::str::FromStr;

use karpenter_model::quantity::{Quantity, QuantityFormat};

use super::account::{CapacityReservation, PlacementGroup};
use crate::CatalogError;

/// The assumed spot price, as a share of the on-demand price.
///
/// Spot prices change by the hour and differ by zone, and there is no offline source for them. A constant share keeps
/// the order of prices between types, and spot cheaper than on-demand; it is not a forecast. See
/// [`AwsNodeClass::spot_price_factor`].
pub const DEFAULT_SPOT_PRICE_FACTOR: f64 = 0.4;

/// The operator's default for the share of an instance's memory that hypervisor and firmware use.
pub const DEFAULT_VM_MEMORY_OVERHEAD_PERCENT: f64 = 0.075;

pub const DEFAULT_REGION: &str = "us-east-1";

/// The volume type of [`AmiFamily::default_volumes`].
pub const DEFAULT_VOLUME_TYPE: &str = "gp3";

const GIB: i64 = 1 << 30;

/// The settings that determine an instance type's labels, capacity, overhead and offerings.
#[derive(Debug, Clone, PartialEq)]
pub struct AwsNodeClass {
    pub region: String,
    /// The zones of the node class's subnets. Only these zones have offerings.
    pub zones: Vec<AwsZone>,
    pub ami_family: AmiFamily,
    /// `kubelet.maxPods`, if it is a number and not an expression.
    pub max_pods: Option<u32>,
    /// `kubelet.podsPerCore`; zero means unset, as it does for the kubelet.
    pub pods_per_core: u32,
    /// `kubelet.kubeReserved`; each resource that it lists replaces the computed amount.
    pub kube_reserved: BTreeMap<String, Quantity>,
    pub system_reserved: BTreeMap<String, Quantity>,
    /// `kubelet.evictionHard`, by signal; of the signals, only `memory.available` and `nodefs.available` are used.
    pub eviction_hard: BTreeMap<String, EvictionThreshold>,
    pub block_devices: Vec<BlockDevice>,
    /// Whether volumes and public addresses are part of a node's price. Without an EC2NodeClass they are unknown, so
    /// the price is that of the instance alone.
    pub prices_attachments: bool,
    /// `associatePublicIPAddress`; if it is not set, the subnet decides.
    pub associate_public_ipv4: Option<bool>,
    /// `instanceStorePolicy: RAID0`: local disks become the node's ephemeral storage.
    pub instance_store_raid0: bool,
    /// `networkInterfaces`. `None` and an empty list differ, because a list, even an empty one, determines the number
    /// of EFA interfaces.
    pub network_interfaces: Option<Vec<NetworkInterface>>,
    /// `cpuOptions.nestedVirtualization: enabled`.
    pub nested_virtualization: bool,
    /// Whether the node class sets `connectionTracking`.
    pub connection_tracking: bool,
    /// `status.capacityReservations`; empty if the feature gate `ReservedCapacity` is off.
    pub capacity_reservations: Vec<CapacityReservation>,
    /// The placement group that `placementGroupSelector` selects.
    pub placement_group: Option<PlacementGroup>,
    /// The operator setting RESERVED_ENIS: how many network interfaces give no addresses to pods.
    pub reserved_enis: u32,
    /// The operator setting VM_MEMORY_OVERHEAD_PERCENT; in spite of its name, a fraction and not a percentage.
    pub vm_memory_overhead_percent: f64,
    /// Spot price divided by on-demand price, for every type and zone. Only the embedded catalog uses it.
    pub spot_price_factor: f64,
}

impl Default for AwsNodeClass {
    /// AMI family AL2023 with default settings, in the first four zones of us-east-1.
    fn default() -> Self {
        AwsNodeClass {
            region: DEFAULT_REGION.to_owned(),
            zones: ["a", "b", "c", "d"]
                .map(|letter| AwsZone::named(format!("{DEFAULT_REGION}{letter}")))
                .into(),
            ami_family: AmiFamily::Al2023,
            max_pods: None,
            pods_per_core: 0,
            kube_reserved: BTreeMap::new(),
            system_reserved: BTreeMap::new(),
            eviction_hard: BTreeMap::new(),
            block_devices: Vec::new(),
            prices_attachments: false,
            associate_public_ipv4: None,
            instance_store_raid0: false,
            network_interfaces: None,
            nested_virtualization: false,
            connection_tracking: false,
            capacity_reservations: Vec::new(),
            placement_group: None,
            reserved_enis: 0,
            vm_memory_overhead_percent: DEFAULT_VM_MEMORY_OVERHEAD_PERCENT,
            spot_price_factor: DEFAULT_SPOT_PRICE_FACTOR,
        }
    }
}

impl AwsNodeClass {
    /// The volumes of a node: those in `blockDeviceMappings`, or, if there are none, those of the AMI family.
    pub(super) fn volumes(&self) -> Cow<'_, [BlockDevice]> {
        if !self.block_devices.is_empty() {
            return Cow::Borrowed(&self.block_devices);
        }
        let volume = |(device, gib): &(&str, i64)| BlockDevice {
            device_name: Some((*device).to_owned()),
            volume_size: Some(Quantity::from_value(*gib * GIB, QuantityFormat::BinarySi)),
            volume_type: Some(DEFAULT_VOLUME_TYPE.to_owned()),
            ..BlockDevice::default()
        };
        Cow::Owned(self.ami_family.default_volumes().iter().map(volume).collect())
    }

    /// The node class's network interfaces that are for EFA only and have no IP addresses.
    pub(super) fn efa_only_interfaces(&self) -> impl Iterator<Item = &NetworkInterface> {
        self.network_interfaces.iter().flatten().filter(|interface| interface.efa_only)
    }
}

/// An availability zone, with its zone id if that is known.
///
/// Zone names differ between accounts: `us-east-1a` of one account may be `us-east-1b` of another. Zone ids such as
/// `use1-az6` mean the same zone everywhere.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct AwsZone {
    pub name: String,
    pub id: Option<String>,
}

impl AwsZone {
    pub fn named(name: impl Into<String>) -> AwsZone {
        AwsZone { name: name.into(), id: None }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AmiFamily {
    Al2,
    Al2023,
    Bottlerocket,
    Windows2019,
    Windows2022,
    Windows2025,
    Custom,
}

impl AmiFamily {
    pub const ALL: [AmiFamily; 7] = [
        AmiFamily::Al2,
        AmiFamily::Al2023,
        AmiFamily::Bottlerocket,
        AmiFamily::Windows2019,
        AmiFamily::Windows2022,
        AmiFamily::Windows2025,
        AmiFamily::Custom,
    ];

    /// The family as spelled in `spec.amiFamily`.
    pub fn as_str(self) -> &'static str {
        match self {
            AmiFamily::Al2 => "AL2",
            AmiFamily::Al2023 => "AL2023",
            AmiFamily::Bottlerocket => "Bottlerocket",
            AmiFamily::Windows2019 => "Windows2019",
            AmiFamily::Windows2022 => "Windows2022",
            AmiFamily::Windows2025 => "Windows2025",
            AmiFamily::Custom => "Custom",
        }
    }

    /// Parses a value of `spec.amiFamily`; `None` for an unknown value.
    pub fn parse(text: &str) -> Option<AmiFamily> {
        AmiFamily::ALL.into_iter().find(|family| family.as_str() == text)
    }

    /// The Windows build number, which is also a node label; `None` for Linux.
    pub fn windows_build(self) -> Option<&'static str> {
        match self {
            AmiFamily::Windows2019 => Some("10.0.17763"),
            AmiFamily::Windows2022 => Some("10.0.20348"),
            AmiFamily::Windows2025 => Some("10.0.26100"),
            AmiFamily::Al2 | AmiFamily::Al2023 | AmiFamily::Bottlerocket | AmiFamily::Custom => None,
        }
    }

    pub fn is_windows(self) -> bool {
        self.windows_build().is_some()
    }

    /// Whether the memory reserved for the kubelet depends on the number of pods that ENIs allow, instead of the actual
    /// maximum number of pods.
    pub(super) fn reserves_memory_by_eni_limit(self) -> bool {
        matches!(self, AmiFamily::Al2 | AmiFamily::Al2023 | AmiFamily::Custom)
    }

    pub(super) fn honours_pods_per_core(self) -> bool {
        self != AmiFamily::Bottlerocket
    }

    /// Whether each pod gets an address of an ENI (network interface), so that ENIs limit the number of pods.
    pub(super) fn limits_pods_by_eni(self) -> bool {
        !self.is_windows()
    }

    /// The device that holds ephemeral storage; `None` for custom AMIs, where it is unknown.
    pub(super) fn ephemeral_device(self) -> Option<&'static str> {
        match self {
            AmiFamily::Al2 | AmiFamily::Al2023 => Some("/dev/xvda"),
            AmiFamily::Bottlerocket => Some("/dev/xvdb"),
            AmiFamily::Windows2019 | AmiFamily::Windows2022 | AmiFamily::Windows2025 => Some("/dev/sda1"),
            AmiFamily::Custom => None,
        }
    }

    /// The device names and sizes in GiB of a node's volumes if the node class has no `blockDeviceMappings`; empty for
    /// custom AMIs, where they are unknown.
    pub fn default_volumes(self) -> &'static [(&'static str, i64)] {
        match self {
            AmiFamily::Al2 | AmiFamily::Al2023 => &[("/dev/xvda", 20)],
            // The first volume holds the operating system, the second container images and data of pods.
            AmiFamily::Bottlerocket => &[("/dev/xvda", 4), ("/dev/xvdb", 20)],
            AmiFamily::Windows2019 | AmiFamily::Windows2022 | AmiFamily::Windows2025 => &[("/dev/sda1", 50)],
            AmiFamily::Custom => &[],
        }
    }

    pub(super) fn default_volume_gib(self) -> i64 {
        if self.is_windows() { 50 } else { 20 }
    }
}

/// One entry of `blockDeviceMappings`, reduced to the fields that affect capacity and price.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BlockDevice {
    pub device_name: Option<String>,
    pub root_volume: bool,
    pub volume_size: Option<Quantity>,
    pub volume_type: Option<String>,
    pub iops: Option<i64>,
    pub throughput_mibps: Option<i64>,
}

impl BlockDevice {
    /// The size in whole GiB, rounded up as in the launch template; zero if the size is unknown.
    pub(super) fn size_gib(&self) -> i64 {
        self.volume_size.map_or(0, |size| {
            let bytes = size.value_ceil();
            bytes / GIB + i64::from(bytes % GIB != 0)
        })
    }
}

/// One entry of `networkInterfaces`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NetworkInterface {
    pub network_card_index: u32,
    pub device_index: u32,
    pub efa_only: bool,
}

/// Eviction threshold of the kubelet: an amount, or a share of the capacity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum EvictionThreshold {
    Amount(Quantity),
    /// A percentage of the capacity, from 0 to 100. The kubelet treats 100 as disabled.
    Percent(f64),
}

impl FromStr for EvictionThreshold {
    type Err = CatalogError;

    fn from_str(text: &str) -> Result<Self, CatalogError> {
        let invalid = || CatalogError::EvictionThreshold { value: text.to_owned() };
        match text.strip_suffix('%') {
            Some(number) => {
                let percent: f64 = number.parse().map_err(|_| invalid())?;
                if (0.0..=100.0).contains(&percent) {
                    Ok(EvictionThreshold::Percent(percent))
                } else {
                    Err(invalid())
                }
            }
            None => {
                let amount: Quantity = text.parse().map_err(|_| invalid())?;
                if amount.is_negative() { Err(invalid()) } else { Ok(EvictionThreshold::Amount(amount)) }
            }
        }
    }
}
