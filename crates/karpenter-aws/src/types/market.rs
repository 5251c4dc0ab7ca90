//! The prices and the availability of instance types for one EC2NodeClass, from which `karpenter-catalog` computes
//! offerings.

use std::collections::{BTreeMap, BTreeSet};

use karpenter_catalog::aws::{AwsZone, CapacityPool, EbsPrices, Market};

use super::class_view::ClassView;
use super::discovered::Discovered;
use super::memory::MemorySnapshot;
use crate::pricing::Prices;
use crate::reservations::AvailableCounts;
use crate::unavailable::{OfferingQuery, UnavailableSnapshot};

pub struct LiveMarket<'a> {
    pub(super) view: &'a ClassView,
    pub(super) discovered: &'a Discovered,
    pub(super) prices: &'a Prices,
    pub(super) shortages: &'a UnavailableSnapshot,
    pub(super) left: &'a AvailableCounts,
    pub(super) shifted_zone_ids: &'a BTreeSet<String>,
    pub(super) memory: &'a MemorySnapshot,
    pub(super) public_subnets: &'a BTreeSet<String>,
    pub(super) stated_prices: &'a BTreeMap<String, f64>,
}

impl Market for LiveMarket<'_> {
    fn is_offered(&self, instance_type: &str, zone: &str) -> bool {
        let known = self.discovered.find(instance_type);
        known.is_some_and(|known| known.zones.binary_search_by(|listed| (**listed).cmp(zone)).is_ok())
    }

    fn offered(&self, instance_type: &str, zones: &[&AwsZone]) -> Vec<bool> {
        let listed = self.discovered.find(instance_type).map_or(&[][..], |known| &known.zones);
        let is_listed = |zone: &&AwsZone| listed.iter().any(|listed| **listed == *zone.name);
        zones.iter().map(is_listed).collect()
    }

    fn on_demand_price(&self, instance_type: &str) -> Option<f64> {
        self.prices.on_demand(instance_type)
    }

    fn spot_price(&self, instance_type: &str, zone: &str) -> Option<f64> {
        self.prices.spot(instance_type, zone)
    }

    fn spot_prices(&self, instance_type: &str, zones: &[&AwsZone]) -> Vec<Option<f64>> {
        let prices = self.prices.spot_in_zones(instance_type);
        zones.iter().map(|zone| prices.in_zone(&zone.name)).collect()
    }

    fn ebs_prices(&self) -> Option<&EbsPrices> {
        Some(self.prices.volumes())
    }

    /// Whether every node in the zone gets a public IPv4 address. A launch uses one of the subnets in the zone, so this
    /// is true only if all of them assign an address.
    fn assigns_public_ipv4(&self, zone: &AwsZone) -> bool {
        let ids = self.view.subnet_ids.get(&zone.name).map_or(&[][..], Vec::as_slice);
        !ids.is_empty() && ids.iter().all(|id| self.public_subnets.contains(id))
    }

    fn configured_price(&self, instance_type: &str) -> Option<f64> {
        self.stated_prices.get(instance_type).copied()
    }

    fn has_insufficient_capacity(&self, pool: CapacityPool<'_>) -> bool {
        self.shortages.is_unavailable(&OfferingQuery {
            instance_type: pool.instance_type,
            zone: pool.zone,
            capacity_type: pool.capacity_type,
            subnet_ids: self.view.subnet_ids.get(pool.zone).map_or(&[], Vec::as_slice),
            group_id: self.view.facts.placement_group.as_ref().map(|group| &*group.id),
            partition: pool.partition,
        })
    }

    fn is_shifted(&self, zone: &AwsZone) -> bool {
        self.view.is_unlaunchable || zone.id.as_ref().is_some_and(|id| self.shifted_zone_ids.contains(id))
    }

    fn reservation_left(&self, reservation_id: &str) -> u32 {
        self.left.of(reservation_id)
    }

    fn discovered_memory_bytes(&self, instance_type: &str) -> Option<i64> {
        self.memory.of(instance_type, &self.view.images)
    }
}
