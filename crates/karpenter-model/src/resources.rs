//! Resource amounts as integers: CPU in millicores, everything else in whole units.
//!
//! When quantities are converted, requests are rounded up and capacities down, so a planned pod always fits.
//!
//! Upstream: `pkg/utils/resources/resources.go`.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::quantity::{Quantity, QuantityFormat};

pub const CPU: &str = "cpu";
pub const MEMORY: &str = "memory";
pub const PODS: &str = "pods";
pub const EPHEMERAL_STORAGE: &str = "ephemeral-storage";
/// The pseudo resource in NodePool limits that limits the number of nodes.
pub const NODES: &str = "nodes";

/// An amount for each resource name. A missing name means zero.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ResourceList {
    amounts: BTreeMap<Arc<str>, i64>,
}

impl ResourceList {
    pub fn new() -> Self {
        Self::default()
    }

    /// Converts requests; amounts are rounded up.
    pub fn from_requests<'a>(quantities: impl IntoIterator<Item = (&'a str, &'a Quantity)>) -> Self {
        quantities
            .into_iter()
            .map(|(name, quantity)| (Arc::from(name), request_amount(name, quantity)))
            .collect()
    }

    /// Converts capacity, allocatable resources or limits; amounts are rounded down.
    pub fn from_capacity<'a>(quantities: impl IntoIterator<Item = (&'a str, &'a Quantity)>) -> Self {
        quantities
            .into_iter()
            .map(|(name, quantity)| (Arc::from(name), capacity_amount(name, quantity)))
            .collect()
    }

    pub fn get(&self, name: &str) -> i64 {
        self.amounts.get(name).copied().unwrap_or(0)
    }

    pub fn lookup(&self, name: &str) -> Option<i64> {
        self.amounts.get(name).copied()
    }

    pub fn set(&mut self, name: impl Into<Arc<str>>, amount: i64) {
        self.amounts.insert(name.into(), amount);
    }

    pub fn remove(&mut self, name: &str) {
        self.amounts.remove(name);
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, i64)> {
        self.amounts.iter().map(|(name, amount)| (name, *amount))
    }

    pub fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.amounts.keys()
    }

    pub fn is_empty(&self) -> bool {
        self.amounts.is_empty()
    }

    pub fn add(&mut self, other: &Self) {
        for (name, amount) in other.iter() {
            let present = self.amounts.entry(name.clone()).or_insert(0);
            *present = present.saturating_add(amount);
        }
    }

    /// Subtracts the amounts of `other`, including those of resources that `self` lacks; results may be negative.
    pub fn subtract(&mut self, other: &Self) {
        for (name, amount) in other.iter() {
            let present = self.amounts.entry(name.clone()).or_insert(0);
            *present = present.saturating_sub(amount);
        }
    }

    pub fn scaled(&self, factor: i64) -> Self {
        self.iter().map(|(name, amount)| (name.clone(), amount.saturating_mul(factor))).collect()
    }

    /// Whether `requests` fit into `self`: no amount of `self` is negative, and each is at least the request.
    pub fn holds(&self, requests: &Self) -> bool {
        self.amounts.values().all(|amount| *amount >= 0)
            && requests.iter().all(|(name, amount)| amount <= self.get(name))
    }

    /// Converts an amount to a quantity in the format that Kubernetes uses for the resource.
    pub fn quantity(name: &str, amount: i64) -> Quantity {
        if name == CPU { Quantity::from_milli(amount) } else { quantity_of_units(name, amount) }
    }
}

impl FromIterator<(Arc<str>, i64)> for ResourceList {
    fn from_iter<I: IntoIterator<Item = (Arc<str>, i64)>>(iter: I) -> Self {
        Self { amounts: iter.into_iter().collect() }
    }
}

fn quantity_of_units(name: &str, amount: i64) -> Quantity {
    let binary = name == MEMORY || name == EPHEMERAL_STORAGE || name.starts_with("hugepages-");
    Quantity::from_value(amount, if binary { QuantityFormat::BinarySi } else { QuantityFormat::DecimalSi })
}

pub fn request_amount(name: &str, quantity: &Quantity) -> i64 {
    if name == CPU { quantity.milli_ceil() } else { quantity.value_ceil() }
}

pub fn capacity_amount(name: &str, quantity: &Quantity) -> i64 {
    if name == CPU { quantity.milli_floor() } else { quantity.value_floor() }
}
