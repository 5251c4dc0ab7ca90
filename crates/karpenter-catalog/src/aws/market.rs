//! What can be bought at this moment: the questions that resolving a type asks about prices, shortages
//! and what an account has seen.
//!
//! Answers are a snapshot; nothing here fetches or ages anything. The embedded catalog answers for
//! `karpenter plan`, a running provider with what it has learned.

use super::AwsCatalog;
use super::node_class::AwsZone;

/// One place to buy a type from, as a shortage may concern it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pool<'a> {
    pub instance_type: &'a str,
    pub zone: &'a str,
    /// `on-demand` or `spot`; reservations have their own counts.
    pub capacity_type: &'a str,
    /// The partition of the class's placement group, for groups that have any.
    pub partition: Option<u32>,
}

/// The state of the market for one class.
pub trait Market {
    /// Whether the type exists in a zone at all.
    fn is_offered(&self, instance_type: &str, zone: &str) -> bool;

    /// [`Market::is_offered`] for several zones, for those who can find a type once for all of them.
    fn offered(&self, instance_type: &str, zones: &[&AwsZone]) -> Vec<bool> {
        zones.iter().map(|zone| self.is_offered(instance_type, &zone.name)).collect()
    }

    /// Per hour. The same in all zones of a region.
    fn on_demand_price(&self, instance_type: &str) -> Option<f64>;

    /// Per hour.
    fn spot_price(&self, instance_type: &str, zone: &str) -> Option<f64>;

    /// [`Market::spot_price`] in several zones.
    fn spot_prices(&self, instance_type: &str, zones: &[&AwsZone]) -> Vec<Option<f64>> {
        zones.iter().map(|zone| self.spot_price(instance_type, &zone.name)).collect()
    }

    /// A price that the user states for types without one.
    fn stated_price(&self, _instance_type: &str) -> Option<f64> {
        None
    }

    /// Whether a recent launch found the pool empty.
    fn is_short(&self, _pool: Pool<'_>) -> bool {
        false
    }

    /// Whether traffic is being moved away from the zone.
    fn is_shifted(&self, _zone: &AwsZone) -> bool {
        false
    }

    /// How many more instances fit into a reservation.
    fn reservation_left(&self, _reservation_id: &str) -> u32 {
        0
    }

    /// What nodes of the type with the class's images were seen to have.
    fn discovered_memory_bytes(&self, _instance_type: &str) -> Option<i64> {
        None
    }
}

/// The embedded catalog as a market: everything that exists can be bought, spot at a fixed discount.
pub(super) struct EmbeddedMarket<'a> {
    pub(super) catalog: &'a AwsCatalog,
    pub(super) region: &'a str,
    pub(super) spot_price_factor: f64,
}

impl Market for EmbeddedMarket<'_> {
    fn is_offered(&self, instance_type: &str, zone: &str) -> bool {
        self.catalog.is_offered(self.region, zone, instance_type)
    }

    fn on_demand_price(&self, instance_type: &str) -> Option<f64> {
        self.catalog.on_demand_price(self.region, instance_type)
    }

    fn spot_price(&self, instance_type: &str, _zone: &str) -> Option<f64> {
        Some(self.on_demand_price(instance_type)? * self.spot_price_factor)
    }

    fn spot_prices(&self, instance_type: &str, zones: &[&AwsZone]) -> Vec<Option<f64>> {
        vec![self.spot_price(instance_type, ""); zones.len()]
    }
}
