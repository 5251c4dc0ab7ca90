//! Facts that no EC2 call reports, by type name: what a running provider has to be shipped with.
//!
//! The embedded file holds them for the types of its listing, and as supplements for types that the
//! listing lacks but a live answer may have.

use super::AwsCatalog;
use super::info::{TypeInfo, VpcLimits};

/// What the tables say about a type outside the listing.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Supplement {
    pub(super) network_bandwidth_mbps: Option<u32>,
    pub(super) vpc_limits: Option<VpcLimits>,
    /// One per price table, in the order of the regions; zero where there is no price.
    pub(super) prices_micros: Vec<u64>,
}

impl AwsCatalog {
    /// Whether any table has the type; one that EC2 sells and no table has is newer than they are.
    pub fn knows(&self, name: &str) -> bool {
        self.find(name).is_some() || self.supplements.contains_key(name)
    }

    /// Adds to a live description what EC2 does not tell. A type newer than the tables gets its bandwidth
    /// from its network cards; for a type the tables know, silence is an answer that other tools give too.
    pub fn complete(&self, info: &mut TypeInfo) {
        let known = match (self.find(&info.name), self.supplements.get(&*info.name)) {
            (Some(listed), _) => Some((listed.network_bandwidth_mbps, listed.vpc_limits)),
            (None, Some(supplement)) => Some((supplement.network_bandwidth_mbps, supplement.vpc_limits)),
            (None, None) => None,
        };
        match known {
            Some((bandwidth, limits)) => {
                info.network_bandwidth_mbps = bandwidth;
                info.vpc_limits = limits;
            }
            None => {
                let baseline: u32 = info.network_cards.iter().map(|card| card.baseline_mbps).sum();
                info.network_bandwidth_mbps = (baseline > 0).then_some(baseline);
                info.vpc_limits = None;
            }
        }
    }

    /// Every price of the table for a region, types outside the listing included, in name order.
    pub fn on_demand_prices(&self, region: &str) -> Vec<(&str, f64)> {
        let listed = self.types.iter().map(|info| &*info.name);
        let mut names: Vec<&str> = listed.chain(self.supplements.keys().copied()).collect();
        names.sort_unstable();
        names.into_iter().filter_map(|name| Some((name, self.on_demand_price(region, name)?))).collect()
    }

    pub(super) fn supplement_price_micros(&self, region: &str, name: &str) -> Option<u64> {
        let table = self.price_tables.keys().position(|known| *known == region)?;
        self.supplements.get(name)?.prices_micros.get(table).copied()
    }
}
