//! Prices of instance types and volumes. On-demand prices and volume prices come from the AWS Price List, spot prices
//! from the spot price history; until the first response, prices come from a built-in table.
//!
//! [`Prices`] is immutable. Each response is merged over the previous prices, so a failure, or a price missing in the
//! response, never removes a price. [`price_list`] parses responses; [`controller`] requests them.
//!
//! Upstream: pkg/providers/pricing (karpenter-provider-aws)

mod controller;
pub mod price_list;
#[cfg(test)]
mod tests;
pub mod volumes;

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use karpenter_catalog::aws::{self, EbsPrices};

use crate::api::ec2::SpotPrice;

pub use controller::PricingController;

/// Prices per hour.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Prices {
    on_demand: BTreeMap<Arc<str>, f64>,
    /// Spot prices by instance type and zone; `None` until EC2's first response.
    spot: Option<BTreeMap<Arc<str>, ZonalPrices>>,
    volumes: EbsPrices,
}

type ZonalPrices = BTreeMap<Arc<str>, f64>;

impl Prices {
    /// The built-in prices of the region, or, if it has none, of its partition.
    pub fn shipped(region: &str) -> Self {
        let listed = aws::catalog().on_demand_prices(region).into_iter();
        Self {
            on_demand: listed.map(|(name, price)| (Arc::from(name), price)).collect(),
            spot: None,
            volumes: EbsPrices::embedded(region),
        }
    }

    pub fn on_demand(&self, instance_type: &str) -> Option<f64> {
        self.on_demand.get(instance_type).copied()
    }

    /// The spot price of an instance type in a zone. Until spot prices are known, it is the on-demand price, so that
    /// launches need not wait.
    pub fn spot(&self, instance_type: &str, zone: &str) -> Option<f64> {
        self.spot_in_zones(instance_type).in_zone(zone)
    }

    /// The spot prices of one instance type, to look up several zones.
    pub(crate) fn spot_in_zones(&self, instance_type: &str) -> SpotPrices<'_> {
        match &self.spot {
            Some(spot) => SpotPrices::Zonal(spot.get(instance_type)),
            None => SpotPrices::Guessed(self.on_demand(instance_type)),
        }
    }

    /// A copy in which the given on-demand prices replace earlier ones; all other prices are kept.
    pub fn with_on_demand(&self, prices: &BTreeMap<String, f64>) -> Self {
        let mut merged = self.clone();
        for (name, price) in prices {
            merged.on_demand.insert(Arc::from(name.as_str()), *price);
        }
        merged
    }

    /// A copy in which the given spot prices replace earlier ones. If there are several prices for an instance type and
    /// zone, the newest one is used.
    pub fn with_spot(&self, history: &[SpotPrice]) -> Self {
        let mut ordered: Vec<&SpotPrice> = history
            .iter()
            .filter(|entry| entry.at.is_some() && is_price(entry.price_per_hour) && !entry.zone.is_empty())
            .collect();
        ordered.sort_by_key(|entry| entry.at);
        let mut merged = self.clone();
        if ordered.is_empty() {
            return merged;
        }
        let spot = merged.spot.get_or_insert_default();
        for entry in ordered {
            let zones = spot.entry(Arc::from(entry.instance_type.as_str())).or_default();
            zones.insert(Arc::from(entry.zone.as_str()), entry.price_per_hour);
        }
        merged
    }

    /// The prices of EBS volumes.
    pub fn volumes(&self) -> &EbsPrices {
        &self.volumes
    }

    /// A copy in which the given volume prices replace earlier ones; all other prices are kept.
    pub fn with_volumes(&self, listed: &volumes::Outcome) -> Self {
        Self { volumes: listed.merge(&self.volumes), ..self.clone() }
    }

    pub fn on_demand_count(&self) -> usize {
        self.on_demand.len()
    }
}

/// The spot prices of one instance type.
pub(crate) enum SpotPrices<'a> {
    Zonal(Option<&'a ZonalPrices>),
    /// Spot prices are unknown, so the on-demand price is used in every zone.
    Guessed(Option<f64>),
}

impl SpotPrices<'_> {
    pub(crate) fn in_zone(&self, zone: &str) -> Option<f64> {
        match self {
            Self::Zonal(prices) => prices.and_then(|prices| prices.get(zone)).copied(),
            Self::Guessed(price) => *price,
        }
    }
}

/// Whether a number is a valid price. A price of 0 means that the list has no price.
pub(crate) fn is_price(price: f64) -> bool {
    price.is_finite() && price > 0.0
}

/// All prices, and how often they changed so far.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Quotes {
    pub version: u64,
    pub prices: Prices,
}

/// The current prices, which all clones share.
#[derive(Debug, Clone)]
pub struct PriceBook {
    current: Arc<RwLock<Arc<Quotes>>>,
}

impl PriceBook {
    /// Creates a price book with the built-in prices of a region.
    pub fn new(region: &str) -> Self {
        let quotes = Quotes { version: 0, prices: Prices::shipped(region) };
        Self { current: Arc::new(RwLock::new(Arc::new(quotes))) }
    }

    pub fn current(&self) -> Arc<Quotes> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes the prices; returns whether they differ from before.
    pub fn update(&self, change: impl FnOnce(&Prices) -> Prices) -> bool {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        let prices = change(&current.prices);
        if prices == current.prices {
            return false;
        }
        *current = Arc::new(Quotes { version: current.version + 1, prices });
        true
    }
}
