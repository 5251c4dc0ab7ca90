//! The AWS catalog: what EC2 offers, decoded from an embedded file, and how a node class turns
//! each type into labels, capacity, overhead and offerings.
//!
//! The arithmetic is the AWS provider's, so a plan made offline agrees with what the provider
//! would report for the same settings. Not here: anything that differs by account or by the hour
//! (spot prices, shortages, capacity reservations, placement groups, memory seen on real nodes).
//!
//! ```
//! use karpenter_catalog::aws::{self, AwsNodeClass};
//!
//! let types = aws::catalog().resolve(&AwsNodeClass::default());
//! let m5 = types.iter().find(|resolved| &*resolved.name == "m5.large").unwrap();
//! assert_eq!(m5.allocatable().get("cpu"), 1930);
//! ```

mod capacity;
mod columns;
mod decode;
mod info;
pub mod labels;
mod node_class;
mod offerings;
mod requirements;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use karpenter_model::instance_type::InstanceType;

pub use capacity::{
    AMD_GPU, AWS_EFA, AWS_NEURON, AWS_NEURON_CORE, AWS_POD_ENI, AWS_PRIVATE_IPV4, HABANA_GAUDI, NVIDIA_GPU,
};
pub use info::{
    Accelerator, AwsInstanceInfo, Disk, Ebs, InstanceStorage, NetworkCard, NeuronDevice, VpcLimits,
};
pub use node_class::{
    AmiFamily, AwsNodeClass, AwsZone, BlockDevice, DEFAULT_REGION, DEFAULT_SPOT_PRICE_FACTOR,
    DEFAULT_VM_MEMORY_OVERHEAD_PERCENT, EvictionThreshold, NetworkInterface,
};
pub use offerings::{Incompatibility, incompatibility};

use crate::intern::Interner;
use offerings::OfferingLabels;

static DATA: &[u8] = include_bytes!("../data/aws.bin");

static CATALOG: LazyLock<AwsCatalog> =
    LazyLock::new(|| decode::decode(DATA).expect("the embedded file is checked in together with its reader"));

/// The embedded catalog. Decoded on first use.
pub fn catalog() -> &'static AwsCatalog {
    &CATALOG
}

/// Where the embedded facts come from.
pub fn sources() -> &'static [Source] {
    &catalog().sources
}

/// One origin of facts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source {
    pub name: &'static str,
    pub version: &'static str,
    /// Which facts were taken from it.
    pub holds: &'static str,
}

/// On-demand prices per hour in one region, for Linux on shared tenancy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PriceTable {
    pub region: &'static str,
    /// `USD`, or `CNY` for the regions in China.
    pub currency: &'static str,
    /// When the source made its table, as it states it.
    pub generated_at: &'static str,
    /// Per type, in catalog order; zero where the region has no price.
    micros: Vec<u64>,
}

/// Facts about all instance types, regions and prices.
#[derive(Debug, Clone, PartialEq)]
pub struct AwsCatalog {
    sources: Vec<Source>,
    types: Vec<AwsInstanceInfo>,
    regions: BTreeMap<&'static str, Vec<AwsZone>>,
    price_tables: BTreeMap<&'static str, PriceTable>,
    /// Region to, per type in catalog order, one bit per zone of `regions`.
    offered_zones: BTreeMap<&'static str, Vec<u64>>,
}

impl AwsCatalog {
    /// All types, ordered by name.
    pub fn types(&self) -> &[AwsInstanceInfo] {
        &self.types
    }

    pub fn find(&self, name: &str) -> Option<&AwsInstanceInfo> {
        self.position(name).map(|position| &self.types[position])
    }

    /// Regions whose zones are known, in alphabetical order.
    pub fn regions(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.regions.keys().copied()
    }

    /// The zones of a region with the ids of one sample account; empty for an unknown region.
    pub fn zones(&self, region: &str) -> &[AwsZone] {
        self.regions.get(region).map_or(&[], Vec::as_slice)
    }

    /// The table used for a region: its own, or else that of us-east-1.
    pub fn price_table(&self, region: &str) -> Option<&PriceTable> {
        self.price_tables.get(region).or_else(|| self.price_tables.get(DEFAULT_REGION))
    }

    /// The on-demand price per hour, in the currency of [`AwsCatalog::price_table`].
    pub fn on_demand_price(&self, region: &str, name: &str) -> Option<f64> {
        self.on_demand_price_at(region, self.position(name)?)
    }

    /// Whether the type exists in a zone of a region.
    pub fn is_offered(&self, region: &str, zone: &str, name: &str) -> bool {
        self.position(name).is_some_and(|position| self.is_offered_at(region, zone, position))
    }

    /// Every type as the engine sees it, ordered by name. Types that the class or region rules out
    /// are included, with unavailable offerings only.
    pub fn resolve(&self, class: &AwsNodeClass) -> Vec<InstanceType> {
        let mut resolver = Resolver::new(class);
        (0..self.types.len()).map(|position| self.resolve_at(position, &mut resolver)).collect()
    }

    /// One type as the engine sees it.
    pub fn resolve_one(&self, name: &str, class: &AwsNodeClass) -> Option<InstanceType> {
        self.position(name).map(|position| self.resolve_at(position, &mut Resolver::new(class)))
    }

    fn resolve_at(&self, position: usize, resolver: &mut Resolver<'_>) -> InstanceType {
        let region = &resolver.class.region;
        let offered = |zone: &AwsZone| self.is_offered_at(region, &zone.name, position);
        let price = self.on_demand_price_at(region, position);
        resolver.resolve(&self.types[position], offered, price)
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.types.binary_search_by(|info| info.name.as_str().cmp(name)).ok()
    }

    fn on_demand_price_at(&self, region: &str, position: usize) -> Option<f64> {
        let micros = *self.price_table(region)?.micros.get(position)?;
        (micros > 0).then(|| micros as f64 / 1e6)
    }

    /// Where no listing of offerings exists, a region's price table is the next best witness, and
    /// without either the type is taken to exist.
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

/// Applies one class to the facts about types.
struct Resolver<'a> {
    class: &'a AwsNodeClass,
    /// The class's zones by name, each once: several subnets may share a zone.
    zones: Vec<&'a AwsZone>,
    interner: Interner,
    offering_labels: OfferingLabels,
}

impl<'a> Resolver<'a> {
    fn new(class: &'a AwsNodeClass) -> Resolver<'a> {
        let mut zones: Vec<&AwsZone> = class.zones.iter().collect();
        // Where a zone is listed with and without its id, the id is worth keeping.
        zones.sort_by_key(|zone| (&zone.name, zone.id.is_none(), &zone.id));
        zones.dedup_by_key(|zone| &zone.name);
        let mut interner = Interner::default();
        let offering_labels = OfferingLabels::new(&zones, &mut interner);
        Resolver { class, zones, interner, offering_labels }
    }

    /// `on_demand_price` is absent for types that cannot be bought, which leaves every offering
    /// unavailable.
    fn resolve(
        &mut self,
        info: &AwsInstanceInfo,
        offered: impl Fn(&AwsZone) -> bool,
        on_demand_price: Option<f64>,
    ) -> InstanceType {
        let class = self.class;
        let offered: Vec<bool> = self.zones.iter().map(|zone| offered(zone)).collect();
        let present = self.zones.iter().zip(&offered).filter(|(_, offered)| **offered);
        let zones: Vec<&AwsZone> = present.map(|(zone, _)| *zone).collect();
        let mut overhead = capacity::kube_reserved(info, class);
        overhead.add(&capacity::system_reserved(class));
        overhead.add(&capacity::eviction_threshold(info, class));
        InstanceType {
            name: Arc::from(info.name.as_str()),
            requirements: requirements::requirements(info, class, &zones, &mut self.interner),
            offerings: offerings::offerings(info, class, &offered, on_demand_price, &self.offering_labels),
            capacity: capacity::capacity(info, class),
            overhead,
            // EC2's limits are shared with network interfaces and local disks in ways that depend
            // on the running node, so a number from here would be a guess.
            volume_attachment_limits: BTreeMap::new(),
        }
    }
}
