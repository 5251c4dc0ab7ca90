//! Current prices and availability of instance types, and other data of an AWS account.
//!
//! An implementation of [`Market`] is a snapshot; this module neither fetches data nor lets it expire. `karpenter plan`
//! uses the embedded catalog; our AWS provider uses the data that it discovered.

use super::AwsCatalog;
use super::ebs::EbsPrices;
use super::node_class::AwsZone;

/// A capacity pool of EC2. An insufficient capacity error applies to one such pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CapacityPool<'a> {
    pub instance_type: &'a str,
    pub zone: &'a str,
    /// `on-demand` or `spot`. Reservations are not pools, because their free instances are counted.
    pub capacity_type: &'a str,
    /// The partition of the node class's placement group; `None` if there are no partitions.
    pub partition: Option<u32>,
}

/// The prices and availability that one node class sees.
pub trait Market {
    /// Whether EC2 offers the instance type in the zone.
    fn is_offered(&self, instance_type: &str, zone: &str) -> bool;

    /// Like [`Market::is_offered`], for several zones; an implementation can then look up the type only once.
    fn offered(&self, instance_type: &str, zones: &[&AwsZone]) -> Vec<bool> {
        zones.iter().map(|zone| self.is_offered(instance_type, &zone.name)).collect()
    }

    /// The on-demand price per hour, which is the same in all zones of a region; `None` if unknown.
    fn on_demand_price(&self, instance_type: &str) -> Option<f64>;

    /// The spot price per hour in a zone; `None` if unknown.
    fn spot_price(&self, instance_type: &str, zone: &str) -> Option<f64>;

    /// Like [`Market::spot_price`], for several zones.
    fn spot_prices(&self, instance_type: &str, zones: &[&AwsZone]) -> Vec<Option<f64>> {
        zones.iter().map(|zone| self.spot_price(instance_type, &zone.name)).collect()
    }

    /// The prices of EBS volumes; `None` if they are unknown.
    fn ebs_prices(&self) -> Option<&EbsPrices> {
        None
    }

    /// Whether the node class's subnets in the zone give instances a public IPv4 address by default.
    fn assigns_public_ipv4(&self, _zone: &AwsZone) -> bool {
        false
    }

    /// The price that the user configured for an instance type that has no other price.
    fn configured_price(&self, _instance_type: &str) -> Option<f64> {
        None
    }

    /// Whether a recent launch in this pool failed with an insufficient capacity error.
    fn has_insufficient_capacity(&self, _pool: CapacityPool<'_>) -> bool {
        false
    }

    /// Whether a zonal shift currently moves traffic away from the zone.
    fn is_shifted(&self, _zone: &AwsZone) -> bool {
        false
    }

    /// How many more instances can be launched into a reservation.
    fn reservation_left(&self, _reservation_id: &str) -> u32 {
        0
    }

    /// The memory that nodes of this type reported with the node class's AMIs; `None` if no such node was seen.
    fn discovered_memory_bytes(&self, _instance_type: &str) -> Option<i64> {
        None
    }
}

/// The market of the embedded catalog: every offered type is available, and spot prices are a fixed share of on-demand
/// prices.
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
