//! The AWS catalog: EC2 instance types from an embedded file, and the labels, capacity, overhead and offerings that
//! each type has with a given node class.
//!
//! The arithmetic is that of upstream's AWS provider. Our AWS provider calls the same functions with live data (see
//! [`resolve`]), so a plan made offline agrees with it. Data that differs by account or changes over time (spot prices,
//! insufficient capacity, reservations, memory of real nodes) comes from an implementation of [`Market`]; the embedded
//! catalog has no such data.
//!
//! Upstream: karpenter-provider-aws `pkg/providers/instancetype/types.go`.
//!
//! ```
//! use karpenter_catalog::aws::{self, AwsNodeClass};
//!
//! let types = aws::catalog().resolve(&AwsNodeClass::default());
//! let m5 = types.iter().find(|resolved| &*resolved.name == "m5.large").unwrap();
//! assert_eq!(m5.allocatable().get("cpu"), 1930);
//! ```

mod account;
mod capacity;
mod columns;
mod compatibility;
mod decode;
mod ebs;
mod info;
pub mod labels;
mod market;
mod node_class;
mod offerings;
pub mod partition;
mod requirements;
mod resolver;
mod tables;
#[cfg(test)]
mod tests;
mod type_labels;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use karpenter_model::instance_type::InstanceType;

pub use account::{CapacityReservation, PlacementGroup, PlacementStrategy, ReservationKind};
pub use capacity::{
    AMD_GPU, AWS_EFA, AWS_NEURON, AWS_NEURON_CORE, AWS_POD_ENI, AWS_PRIVATE_IPV4, HABANA_GAUDI, NVIDIA_GPU,
    family_max_pods, pods,
};
pub use compatibility::{Incompatibility, incompatibility};
pub use ebs::{EbsPrices, VolumePrices};
pub use info::{Accelerator, Disk, Ebs, InstanceStorage, NetworkCard, NeuronDevice, TypeInfo, VpcLimits};
pub use market::{CapacityPool, Market};
pub use node_class::{
    AmiFamily, AwsNodeClass, AwsZone, BlockDevice, DEFAULT_REGION, DEFAULT_SPOT_PRICE_FACTOR,
    DEFAULT_VM_MEMORY_OVERHEAD_PERCENT, DEFAULT_VOLUME_TYPE, EvictionThreshold, NetworkInterface,
};
pub use resolver::{Resolver, TypeLabelBuilder, TypeLabels, resolve};

use market::EmbeddedMarket;
use tables::Supplement;

static DATA: &[u8] = include_bytes!("../data/aws.bin");

static CATALOG: LazyLock<AwsCatalog> =
    LazyLock::new(|| decode::decode(DATA).expect("the embedded file matches its decoder"));

/// The embedded catalog; the first call decodes it.
pub fn catalog() -> &'static AwsCatalog {
    &CATALOG
}

/// Where the embedded data comes from.
pub fn sources() -> &'static [Source] {
    &catalog().sources
}

/// One source of the embedded data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source {
    pub name: &'static str,
    pub version: &'static str,
    /// Which of the embedded data comes from this source.
    pub holds: &'static str,
}

/// On-demand prices per hour in one region, for Linux instances with shared tenancy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PriceTable {
    pub region: &'static str,
    /// `USD`, or `CNY` in China's regions.
    pub currency: &'static str,
    /// When the price table was generated, as its source states it.
    pub generated_at: &'static str,
    /// For each instance type, in catalog order: the price in millionths of the currency; zero if the region has no
    /// price for it.
    micros: Vec<u64>,
}

/// All instance types, regions and prices.
#[derive(Debug, Clone, PartialEq)]
pub struct AwsCatalog {
    sources: Vec<Source>,
    types: Vec<TypeInfo>,
    regions: BTreeMap<&'static str, Vec<AwsZone>>,
    price_tables: BTreeMap<&'static str, PriceTable>,
    /// For each region and each instance type, in catalog order: the zones that offer the type, one bit per zone of
    /// `regions`.
    offered_zones: BTreeMap<&'static str, Vec<u64>>,
    /// Data about instance types that EC2's listing does not contain.
    supplements: BTreeMap<&'static str, Supplement>,
}

impl AwsCatalog {
    /// All instance types, sorted by name.
    pub fn types(&self) -> &[TypeInfo] {
        &self.types
    }

    pub fn find(&self, name: &str) -> Option<&TypeInfo> {
        self.position(name).map(|position| &self.types[position])
    }

    /// Regions whose zones are known, in alphabetical order.
    pub fn regions(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.regions.keys().copied()
    }

    /// The zones of a region, with the zone ids that one sample account has; empty for an unknown region.
    pub fn zones(&self, region: &str) -> &[AwsZone] {
        self.regions.get(region).map_or(&[], Vec::as_slice)
    }

    /// The price table for a region: the region's own; if it has none, that of its partition's fallback region; else
    /// that of us-east-1.
    pub fn price_table(&self, region: &str) -> Option<&PriceTable> {
        let fallback = partition::fallback_price_region(partition::of_region(region));
        let table = |region: &str| self.price_tables.get(region);
        table(region).or_else(|| table(fallback)).or_else(|| table(DEFAULT_REGION))
    }

    /// The on-demand price per hour of an instance type, in the currency of [`AwsCatalog::price_table`].
    pub fn on_demand_price(&self, region: &str, name: &str) -> Option<f64> {
        let table = self.price_table(region)?;
        let micros = match self.position(name) {
            Some(position) => *table.micros.get(position)?,
            None => self.supplement_price_micros(table.region, name)?,
        };
        (micros > 0).then(|| micros as f64 / 1e6)
    }

    /// Whether the instance type is offered in the zone.
    pub fn is_offered(&self, region: &str, zone: &str, name: &str) -> bool {
        self.position(name).is_some_and(|position| self.is_offered_at(region, zone, position))
    }

    /// All instance types for a node class, sorted by name. For types that the node class or region excludes, all
    /// offerings are unavailable.
    pub fn resolve(&self, class: &AwsNodeClass) -> Vec<InstanceType> {
        let market = self.market(class);
        let mut resolver = Resolver::new(class);
        self.types.iter().map(|info| resolver.resolve(info, &market)).collect()
    }

    /// The named instance type, resolved for a node class.
    pub fn resolve_one(&self, name: &str, class: &AwsNodeClass) -> Option<InstanceType> {
        self.find(name).map(|info| resolve(info, class, &self.market(class)))
    }

    fn market<'a>(&'a self, class: &'a AwsNodeClass) -> EmbeddedMarket<'a> {
        EmbeddedMarket {
            catalog: self,
            region: &class.region,
            spot_price_factor: class.spot_price_factor,
            ebs_prices: EbsPrices::embedded(&class.region),
        }
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.types.binary_search_by(|info| (*info.name).cmp(name)).ok()
    }

    /// For a region without a listing of offerings, a type counts as offered if the region's price table has a price
    /// for it; without a price table, every type does.
    fn is_offered_at(&self, region: &str, zone: &str, position: usize) -> bool {
        match (self.offered_zones.get(region), self.price_tables.get(region)) {
            (Some(offered), _) => {
                let bit = self.zones(region).iter().position(|known| known.name == zone);
                bit.is_some_and(|bit| offered.get(position).is_some_and(|bits| bits >> bit & 1 == 1))
            }
            (None, Some(prices)) => prices.micros.get(position).is_some_and(|micros| *micros > 0),
            (None, None) => true,
        }
    }
}
