//! Prices of EBS volumes and public IPv4 addresses, which AWS bills in addition to the instance.
//!
//! A table of prices is embedded for the main regions; the running provider replaces it by the AWS Price List. Only
//! what a node class states is priced. The size of a volume from a snapshot or an AMI, and the I/O requests of magnetic
//! volumes, are unknown and cost nothing here. So a node costs at least what these functions return.
//!
//! Source: <https://aws.amazon.com/ebs/pricing/> as of July 2021. The prices of gp3 storage in eu-west-2,
//! ap-northeast-1 and ap-southeast-1 were compared with AWS's prices of 2026 and had not changed; other prices were not
//! compared.

use std::collections::BTreeMap;

use super::node_class::{AwsNodeClass, BlockDevice};
use super::partition;
use crate::aws::{AwsZone, DEFAULT_REGION, Market};

/// Hours per month by which monthly prices are divided, as in the examples of AWS's pricing pages.
const HOURS_PER_MONTH: f64 = 730.0;

/// The volume type assumed if a mapping has no `volumeType`. EC2 then uses the type in the AMI, which is gp3 for EKS's
/// AMIs.
const ASSUMED_TYPE: &str = "gp3";

/// IOPS and MiB/s that are included in the price of a gp3 volume.
const GP3_FREE_IOPS: i64 = 3000;
const GP3_FREE_MIBPS: i64 = 125;

/// The numbers of IOPS at which the price per IOPS of io2 changes.
const IOPS_TIER_ENDS: [i64; 3] = [32_000, 64_000, i64::MAX];

/// The prices per IOPS in the three tiers of io2, as shares of the price in the first tier.
const IO2_TIER_SHARES: [f64; 3] = [1.0, 0.7, 0.49];

/// The price of magnetic volumes per GiB and month in us-east-1, used for all regions because no other is embedded.
const STANDARD_PER_GIB: f64 = 0.05;

/// The hourly price of a public IPv4 address since February 2024, in every region except those in China.
const PUBLIC_IPV4_PER_HOUR: f64 = 0.005;

/// Prices per month of one volume type, in the currency of the region.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct VolumePrices {
    pub per_gib: f64,
    /// The price per provisioned IOPS beyond those included, by tier: up to 32,000, up to 64,000, and above.
    pub per_iops: [f64; 3],
    /// The price per provisioned MiB/s of throughput beyond that included.
    pub per_mibps: f64,
}

/// Prices of EBS volumes in one region, by volume type. A volume type without an entry costs nothing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EbsPrices {
    by_type: BTreeMap<String, VolumePrices>,
}

/// The prices of one region in the embedded table, in dollars per month.
struct Row {
    region: &'static str,
    gp3: f64,
    gp3_iops: f64,
    gp2: f64,
    /// The price of io1 and io2 storage.
    io: f64,
    io_iops: f64,
    st1: f64,
    sc1: f64,
}

#[rustfmt::skip]
const TABLE: [Row; 21] = [
    Row { region: "af-south-1", gp3: 0.1047, gp3_iops: 0.0065, gp2: 0.1309, io: 0.16422, io_iops: 0.08568, st1: 0.0595, sc1: 0.019992 },
    Row { region: "ap-east-1", gp3: 0.1056, gp3_iops: 0.0066, gp2: 0.132, io: 0.1518, io_iops: 0.0792, st1: 0.0594, sc1: 0.0198 },
    Row { region: "ap-northeast-1", gp3: 0.096, gp3_iops: 0.006, gp2: 0.12, io: 0.142, io_iops: 0.074, st1: 0.054, sc1: 0.018 },
    Row { region: "ap-northeast-2", gp3: 0.0912, gp3_iops: 0.0057, gp2: 0.114, io: 0.1278, io_iops: 0.0666, st1: 0.051, sc1: 0.0174 },
    Row { region: "ap-northeast-3", gp3: 0.096, gp3_iops: 0.006, gp2: 0.12, io: 0.142, io_iops: 0.074, st1: 0.054, sc1: 0.018 },
    Row { region: "ap-south-1", gp3: 0.0912, gp3_iops: 0.0057, gp2: 0.114, io: 0.131, io_iops: 0.068, st1: 0.051, sc1: 0.0174 },
    Row { region: "ap-southeast-1", gp3: 0.096, gp3_iops: 0.006, gp2: 0.12, io: 0.138, io_iops: 0.072, st1: 0.054, sc1: 0.018 },
    Row { region: "ap-southeast-2", gp3: 0.096, gp3_iops: 0.006, gp2: 0.12, io: 0.138, io_iops: 0.072, st1: 0.054, sc1: 0.018 },
    Row { region: "ca-central-1", gp3: 0.088, gp3_iops: 0.0055, gp2: 0.11, io: 0.138, io_iops: 0.072, st1: 0.05, sc1: 0.0168 },
    Row { region: "eu-central-1", gp3: 0.0952, gp3_iops: 0.006, gp2: 0.119, io: 0.149, io_iops: 0.078, st1: 0.054, sc1: 0.018 },
    Row { region: "eu-north-1", gp3: 0.0836, gp3_iops: 0.0052, gp2: 0.1045, io: 0.1311, io_iops: 0.0684, st1: 0.0475, sc1: 0.01596 },
    Row { region: "eu-south-1", gp3: 0.0924, gp3_iops: 0.0058, gp2: 0.1155, io: 0.1449, io_iops: 0.0756, st1: 0.0525, sc1: 0.01764 },
    Row { region: "eu-west-1", gp3: 0.088, gp3_iops: 0.0055, gp2: 0.11, io: 0.138, io_iops: 0.072, st1: 0.05, sc1: 0.0168 },
    Row { region: "eu-west-2", gp3: 0.0928, gp3_iops: 0.0058, gp2: 0.116, io: 0.145, io_iops: 0.076, st1: 0.053, sc1: 0.0174 },
    Row { region: "eu-west-3", gp3: 0.0928, gp3_iops: 0.0058, gp2: 0.116, io: 0.145, io_iops: 0.076, st1: 0.053, sc1: 0.0174 },
    Row { region: "me-south-1", gp3: 0.0968, gp3_iops: 0.0061, gp2: 0.121, io: 0.1518, io_iops: 0.0792, st1: 0.055, sc1: 0.01848 },
    Row { region: "sa-east-1", gp3: 0.152, gp3_iops: 0.0095, gp2: 0.19, io: 0.238, io_iops: 0.091, st1: 0.086, sc1: 0.0288 },
    Row { region: "us-east-1", gp3: 0.08, gp3_iops: 0.005, gp2: 0.10, io: 0.125, io_iops: 0.065, st1: 0.045, sc1: 0.015 },
    Row { region: "us-east-2", gp3: 0.08, gp3_iops: 0.005, gp2: 0.10, io: 0.125, io_iops: 0.065, st1: 0.045, sc1: 0.015 },
    Row { region: "us-west-1", gp3: 0.096, gp3_iops: 0.006, gp2: 0.12, io: 0.138, io_iops: 0.072, st1: 0.054, sc1: 0.018 },
    Row { region: "us-west-2", gp3: 0.08, gp3_iops: 0.005, gp2: 0.10, io: 0.125, io_iops: 0.065, st1: 0.045, sc1: 0.015 },
];

impl EbsPrices {
    /// The embedded prices of a region; those of us-east-1 if the region has none. For China, where prices are in yuan,
    /// no prices are embedded.
    pub fn embedded(region: &str) -> Self {
        if partition::of_region(region) == "aws-cn" {
            return Self::default();
        }
        let row = |region: &str| TABLE.iter().find(|row| row.region == region);
        row(region).or_else(|| row(DEFAULT_REGION)).map_or_else(Self::default, Row::prices)
    }

    /// The volume types that have a price, in alphabetical order.
    pub fn types(&self) -> impl Iterator<Item = (&str, &VolumePrices)> {
        self.by_type.iter().map(|(name, prices)| (name.as_str(), prices))
    }

    pub fn find(&self, volume_type: &str) -> Option<&VolumePrices> {
        self.by_type.get(volume_type)
    }

    pub fn get_or_insert(&mut self, volume_type: &str) -> &mut VolumePrices {
        self.by_type.entry(volume_type.to_owned()).or_default()
    }

    /// The hourly price of a volume: its size, plus IOPS and throughput beyond those included.
    fn per_hour(&self, volume: &BlockDevice) -> f64 {
        let volume_type = volume.volume_type.as_deref().unwrap_or(ASSUMED_TYPE);
        let Some(prices) = self.find(volume_type) else { return 0.0 };
        let (free_iops, free_mibps) = match volume_type {
            "gp3" => (GP3_FREE_IOPS, GP3_FREE_MIBPS),
            _ => (0, 0),
        };
        let mut per_month = prices.per_gib * volume.size_gib() as f64;
        let iops = volume.iops.unwrap_or(0);
        let mut charged = free_iops;
        for (end, price) in IOPS_TIER_ENDS.into_iter().zip(prices.per_iops) {
            per_month += price * (iops.min(end) - charged).max(0) as f64;
            charged = charged.max(end);
        }
        per_month += prices.per_mibps * (volume.throughput_mibps.unwrap_or(0) - free_mibps).max(0) as f64;
        per_month / HOURS_PER_MONTH
    }
}

impl Row {
    fn prices(&self) -> EbsPrices {
        let storage = |per_gib| VolumePrices { per_gib, ..VolumePrices::default() };
        let by_type = [
            // In every region, throughput costs half as much per MiB/s as storage costs per GiB.
            (
                "gp3",
                VolumePrices { per_gib: self.gp3, per_iops: [self.gp3_iops; 3], per_mibps: self.gp3 / 2.0 },
            ),
            ("gp2", storage(self.gp2)),
            ("io1", VolumePrices { per_iops: [self.io_iops; 3], ..storage(self.io) }),
            (
                "io2",
                VolumePrices {
                    per_iops: IO2_TIER_SHARES.map(|share| self.io_iops * share),
                    ..storage(self.io)
                },
            ),
            ("st1", storage(self.st1)),
            ("sc1", storage(self.sc1)),
            ("standard", storage(STANDARD_PER_GIB)),
        ];
        EbsPrices { by_type: by_type.map(|(name, prices)| (name.to_owned(), prices)).into() }
    }
}

/// The hourly prices of what AWS bills with an instance of a node class: volumes and public addresses.
pub(super) struct Attachments<'a> {
    class: &'a AwsNodeClass,
    market: &'a dyn Market,
    volumes_per_hour: f64,
}

impl<'a> Attachments<'a> {
    pub(super) fn new(class: &'a AwsNodeClass, market: &'a dyn Market) -> Self {
        let volumes_per_hour = match market.ebs_prices().filter(|_| class.prices_attachments) {
            Some(prices) => class.volumes().iter().map(|volume| prices.per_hour(volume)).sum(),
            None => 0.0,
        };
        Self { class, market, volumes_per_hour }
    }

    pub(super) fn per_hour(&self, zone: &AwsZone) -> f64 {
        let class = self.class;
        let has_address = class.prices_attachments
            && class.associate_public_ipv4.unwrap_or_else(|| self.market.assigns_public_ipv4(zone))
            && partition::of_region(&class.region) != "aws-cn";
        self.volumes_per_hour + if has_address { PUBLIC_IPV4_PER_HOUR } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aws::{self, AmiFamily};

    fn volume(volume_type: &str, size: &str, iops: i64, throughput: i64) -> BlockDevice {
        BlockDevice {
            volume_type: (!volume_type.is_empty()).then(|| volume_type.to_owned()),
            volume_size: size.parse().ok(),
            iops: (iops > 0).then_some(iops),
            throughput_mibps: (throughput > 0).then_some(throughput),
            ..BlockDevice::default()
        }
    }

    fn per_month(region: &str, volume: &BlockDevice) -> f64 {
        EbsPrices::embedded(region).per_hour(volume) * HOURS_PER_MONTH
    }

    #[test]
    fn volume_costs_storage_and_what_it_provisions_above_the_baseline() {
        let table = [
            ("us-east-1", volume("gp3", "20Gi", 0, 0), 1.6),
            ("us-east-1", volume("gp3", "20Gi", 3000, 125), 1.6),
            ("us-east-1", volume("gp3", "100Gi", 4000, 225), 8.0 + 5.0 + 4.0),
            ("us-east-1", volume("", "20Gi", 0, 0), 1.6),
            ("us-east-1", volume("gp2", "20Gi", 0, 0), 2.0),
            ("us-east-1", volume("io1", "10Gi", 1000, 0), 1.25 + 65.0),
            ("us-east-1", volume("io2", "10Gi", 33_000, 0), 1.25 + 2080.0 + 45.5),
            ("us-east-1", volume("io2", "10Gi", 65_000, 0), 1.25 + 2080.0 + 1456.0 + 31.85),
            ("us-east-1", volume("st1", "125Gi", 0, 0), 5.625),
            ("us-east-1", volume("standard", "10Gi", 0, 0), 0.5),
            ("us-east-1", volume("xp9", "10Gi", 0, 0), 0.0),
            // The size is rounded up to whole GiB, as in the launch template, so 20G are 19 GiB.
            ("us-east-1", volume("gp3", "20G", 0, 0), 19.0 * 0.08),
            ("eu-central-1", volume("gp3", "20Gi", 0, 0), 1.904),
            // The size of a volume from a snapshot is unknown and counts as zero.
            ("us-east-1", volume("gp3", "", 0, 0), 0.0),
            ("us-east-1", volume("gp3", "", 4000, 0), 5.0),
            ("xx-new-1", volume("gp3", "20Gi", 0, 0), 1.6),
            ("cn-north-1", volume("gp3", "20Gi", 0, 0), 0.0),
        ];
        for (region, volume, expected) in table {
            let found = per_month(region, &volume);
            assert!((found - expected).abs() < 1e-9, "{region} {volume:?}: {found}, expected {expected}");
        }
    }

    #[test]
    fn table_is_consistent() {
        assert!(TABLE.is_sorted_by(|one, other| one.region < other.region));
        for row in &TABLE {
            let near = |one: f64, other: f64| (one / other - 1.0).abs() < 0.01;
            assert!(near(row.gp3, 0.8 * row.gp2), "{}", row.region);
            assert!(near(row.gp3_iops, row.gp3 / 16.0), "{}", row.region);
            assert!(row.sc1 < row.st1 && row.st1 < row.gp3 && row.gp2 < row.io, "{}", row.region);
            assert!(aws::catalog().regions().any(|region| region == row.region), "{}", row.region);
        }
    }

    fn on_demand(class: &AwsNodeClass) -> Vec<(f64, f64)> {
        let resolved = aws::catalog().resolve_one("m5.large", class).expect("a known type");
        let offerings = resolved.offerings.iter();
        let paid =
            offerings.filter(|offering| offering.capacity_type().is_some_and(|kind| &**kind == "on-demand"));
        paid.map(|offering| (offering.instance_price(), offering.attached_price() * HOURS_PER_MONTH))
            .collect()
    }

    #[test]
    fn node_price_has_volumes_of_the_family_or_of_the_class() {
        let table: [(AmiFamily, Vec<BlockDevice>, f64); 7] = [
            (AmiFamily::Al2, vec![], 1.6),
            (AmiFamily::Al2023, vec![], 1.6),
            (AmiFamily::Bottlerocket, vec![], 1.92),
            (AmiFamily::Windows2022, vec![], 4.0),
            // The AMI defines the volumes, so their price is unknown.
            (AmiFamily::Custom, vec![], 0.0),
            (AmiFamily::Al2023, vec![volume("gp3", "100Gi", 0, 0)], 8.0),
            (
                AmiFamily::Al2023,
                vec![volume("gp3", "10Gi", 0, 0), volume("io1", "8Gi", 100, 0)],
                0.8 + 1.0 + 6.5,
            ),
        ];
        for (ami_family, block_devices, expected) in table {
            let class = AwsNodeClass {
                ami_family,
                block_devices,
                prices_attachments: true,
                ..AwsNodeClass::default()
            };
            for (instance, attached) in on_demand(&class) {
                assert_eq!(instance, 0.096);
                assert!(
                    (attached - expected).abs() < 1e-9,
                    "{ami_family:?}: {attached}, expected {expected}"
                );
            }
            // RAID0 makes local disks the ephemeral storage, but the EBS volumes still exist and are billed.
            let raid0 = AwsNodeClass { instance_store_raid0: true, ..class };
            assert!(on_demand(&raid0).iter().all(|(_, attached)| (attached - expected).abs() < 1e-9));
        }
        assert!(on_demand(&AwsNodeClass::default()).iter().all(|prices| *prices == (0.096, 0.0)));
    }

    #[test]
    fn public_address_is_part_of_the_node_price() {
        let class = |region: &str, associate_public_ipv4| AwsNodeClass {
            region: region.to_owned(),
            ami_family: AmiFamily::Custom,
            associate_public_ipv4,
            prices_attachments: true,
            ..AwsNodeClass::default()
        };
        let address = |class: &AwsNodeClass| on_demand(class)[0].1 / HOURS_PER_MONTH;
        assert!((address(&class("us-east-1", Some(true))) - 0.005).abs() < 1e-9);
        assert_eq!(address(&class("us-east-1", Some(false))), 0.0);
        assert_eq!(address(&class("us-east-1", None)), 0.0, "subnets are not known offline");
        assert_eq!(address(&class("cn-north-1", Some(true))), 0.0);
    }
}
