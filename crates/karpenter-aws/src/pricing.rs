//! What machines cost: on demand from the price list, on spot from the price history, and from a shipped table until
//! either has answered.
//!
//! What is known is a value; each answer makes a new one, with the old prices under the new ones, so a failing service
//! or a list with gaps never takes a price away. Reading answers is in [`price_list`]; asking, in [`controller`].

mod controller;
pub mod price_list;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use karpenter_catalog::aws;

use crate::api::ec2::SpotPrice;

pub use controller::PricingController;

/// Prices per hour.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Prices {
    on_demand: BTreeMap<Arc<str>, f64>,
    /// By type and zone; nothing until the first answer.
    spot: Option<BTreeMap<Arc<str>, ZonalPrices>>,
}

type ZonalPrices = BTreeMap<Arc<str>, f64>;

impl Prices {
    /// What the shipped tables say about a region, or else about its partition.
    pub fn shipped(region: &str) -> Self {
        let listed = aws::catalog().on_demand_prices(region).into_iter();
        Self { on_demand: listed.map(|(name, price)| (Arc::from(name), price)).collect(), spot: None }
    }

    pub fn on_demand(&self, instance_type: &str) -> Option<f64> {
        self.on_demand.get(instance_type).copied()
    }

    /// Until spot prices are known, spot is taken to cost what on demand does: better to launch than to wait.
    pub fn spot(&self, instance_type: &str, zone: &str) -> Option<f64> {
        self.spot_in_zones(instance_type).in_zone(zone)
    }

    /// For those who ask about several zones of a type.
    pub(crate) fn spot_in_zones(&self, instance_type: &str) -> SpotPrices<'_> {
        match &self.spot {
            Some(spot) => SpotPrices::Zonal(spot.get(instance_type)),
            None => SpotPrices::Guessed(self.on_demand(instance_type)),
        }
    }

    /// These prices over what was known.
    pub fn with_on_demand(&self, prices: &BTreeMap<String, f64>) -> Self {
        let mut merged = self.clone();
        for (name, price) in prices {
            merged.on_demand.insert(Arc::from(name.as_str()), *price);
        }
        merged
    }

    /// These prices over what was known. Of several for one pool the newest counts.
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

    pub fn on_demand_count(&self) -> usize {
        self.on_demand.len()
    }
}

/// What a type costs on spot.
pub(crate) enum SpotPrices<'a> {
    Zonal(Option<&'a ZonalPrices>),
    /// The same everywhere, as nothing is known.
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

/// Whether a number can be what something costs: a free machine is a gap in the list, not an offer.
pub(crate) fn is_price(price: f64) -> bool {
    price.is_finite() && price > 0.0
}

/// Prices and how often they have changed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Quotes {
    pub version: u64,
    pub prices: Prices,
}

/// What is known right now. Clones share it.
#[derive(Debug, Clone)]
pub struct PriceBook {
    current: Arc<RwLock<Arc<Quotes>>>,
}

impl PriceBook {
    /// Starts with the shipped tables.
    pub fn new(region: &str) -> Self {
        let quotes = Quotes { version: 0, prices: Prices::shipped(region) };
        Self { current: Arc::new(RwLock::new(Arc::new(quotes))) }
    }

    pub fn current(&self) -> Arc<Quotes> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether anything changed.
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
