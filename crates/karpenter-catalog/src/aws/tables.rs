//! Data about instance types that EC2's API does not return (network bandwidth and VPC limits), and price tables.
//!
//! The embedded file has this data for the instance types in its own listing and, separately, for other types that EC2
//! may return.

use super::AwsCatalog;
use super::info::{TypeInfo, VpcLimits};

/// Data about an instance type that the embedded listing does not contain.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Supplement {
    pub(super) network_bandwidth_mbps: Option<u32>,
    pub(super) vpc_limits: Option<VpcLimits>,
    /// For each price table, in the order of the regions: the type's price in millionths of the currency; zero if there
    /// is no price.
    pub(super) prices_micros: Vec<u64>,
}

impl AwsCatalog {
    /// Whether the type is in the listing or in the supplements; if not, it is newer than the embedded file.
    pub fn knows(&self, name: &str) -> bool {
        self.find(name).is_some() || self.supplements.contains_key(name)
    }

    /// Sets the fields that EC2's API does not return. For a type that is newer than the embedded file, the bandwidth
    /// is that of its network cards. For other types, data that the file lacks stays missing, as in upstream.
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

    /// All prices of the price table for a region, sorted by type name, including types that are not in the listing.
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
