//! Current prices and availability of instance types, and other data of an account.
//!
//! An implementation is a snapshot; this module neither fetches nor expires data. `karpenter plan` uses the embedded
//! catalog; our AWS provider uses the data that it has discovered.

use super::AwsCatalog;
use super::ebs::EbsPrices;
use super::node_class::AwsZone;

/// A capacity pool of EC2: the unit of insufficient capacity errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CapacityPool<'a> {
    pub instance_type: &'a str,
    pub zone: &'a str,
    /// `on-demand` or `spot`; reservations have counts of their own.
    pub capacity_type: &'a str,
    /// The partition of the node class's placement group, if it has partitions.
    pub partition: Option<u32>,
}

/// Prices and availability for one node class.
pub trait Market {
    /// Whether the type is offered in a zone.
    fn is_offered(&self, instance_type: &str, zone: &str) -> bool;

    /// [`Market::is_offered`] for several zones; implementations may look up the type once.
    fn offered(&self, instance_type: &str, zones: &[&AwsZone]) -> Vec<bool> {
        zones.iter().map(|zone| self.is_offered(instance_type, &zone.name)).collect()
    }

    /// On-demand price per hour; the same in all zones of a region.
    fn on_demand_price(&self, instance_type: &str) -> Option<f64>;

    /// Spot price per hour.
    fn spot_price(&self, instance_type: &str, zone: &str) -> Option<f64>;

    /// [`Market::spot_price`] for several zones.
    fn spot_prices(&self, instance_type: &str, zones: &[&AwsZone]) -> Vec<Option<f64>> {
        zones.iter().map(|zone| self.spot_price(instance_type, &zone.name)).collect()
    }

    /// Prices of the volumes of a node; `None` if they are not known.
    fn ebs_prices(&self) -> Option<&EbsPrices> {
        None
    }

    /// Whether the subnets of the node class in the zone give instances a public IPv4 address.
    fn assigns_public_ipv4(&self, _zone: &AwsZone) -> bool {
        false
    }

    /// A price that the user configures for types without one.
    fn configured_price(&self, _instance_type: &str) -> Option<f64> {
        None
    }

    /// Whether a recent launch failed with an insufficient capacity error.
    fn has_insufficient_capacity(&self, _pool: CapacityPool<'_>) -> bool {
        false
    }

    /// Whether a zonal shift moves traffic away from the zone.
    fn is_shifted(&self, _zone: &AwsZone) -> bool {
        false
    }

    /// The number of instances that can still be launched into a reservation.
    fn reservation_left(&self, _reservation_id: &str) -> u32 {
        0
    }

    /// Memory that nodes of the type reported with the node class's AMIs.
    fn discovered_memory_bytes(&self, _instance_type: &str) -> Option<i64> {
        None
    }
}

/// The embedded catalog: everything that is offered is available, and spot has a fixed discount.
pub(super) struct EmbeddedMarket<'a> {
    pub(super) catalog: &'a AwsCatalog,
    pub(super) region: &'a str,
    pub(super) spot_price_factor: f64,
    pub(super) ebs_prices: EbsPrices,
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

    fn ebs_prices(&self) -> Option<&EbsPrices> {
        Some(&self.ebs_prices)
    }

    fn spot_prices(&self, instance_type: &str, zones: &[&AwsZone]) -> Vec<Option<f64>> {
        vec![self.spot_price(instance_type, ""); zones.len()]
    }
}
