//! Instance types and their offerings: zone, capacity type, price and availability.
//!
//! A catalog is a list of instance types. Providers build catalogs; the planner reads them.
//!
//! Upstream: `pkg/cloudprovider/types.go`.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::labels;
use crate::requirements::Requirements;
use crate::resources::{MEMORY, ResourceList};

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Offering {
    /// All labels of the offering, including zone, capacity type and reservation.
    pub requirements: Requirements,
    /// The price of a node: of its instance and of everything that is billed with it, such as volumes.
    pub price_per_hour: f64,
    /// The price of the instance alone; `None` if nothing else is billed with the node.
    pub instance_price_per_hour: Option<f64>,
    /// Whether the provider offers the instance type in this zone and capacity type now. A full reservation counts as
    /// available; see [`Offering::is_launchable`].
    pub available: bool,
    /// For reserved offerings: how many more instances can be launched into the reservation.
    pub reservation_capacity: Option<u32>,
    /// For reserved offerings: the key of the label in `requirements` whose value is the reservation's id; each
    /// provider has a key of its own. Offerings with the same id share one reservation, across instance types and
    /// catalogs.
    pub reservation_id_label: Option<Arc<str>>,
    /// Resource amounts in which nodes of this offering differ from the instance type, if there are any.
    pub overrides: Option<Arc<Overrides>>,
}

/// Amounts that replace those of the instance type, resource by resource.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Overrides {
    pub capacity: ResourceList,
    /// The overhead, which replaces the sum of kube-reserved, system-reserved and eviction threshold.
    pub overhead: ResourceList,
}

impl Offering {
    /// Sets the hourly price of the instance, and that of everything that is billed with it.
    pub fn set_price(&mut self, instance_per_hour: f64, attached_per_hour: f64) {
        self.price_per_hour = instance_per_hour + attached_per_hour;
        self.instance_price_per_hour = (attached_per_hour != 0.0).then_some(instance_per_hour);
    }

    /// The hourly price of the instance alone.
    pub fn instance_price(&self) -> f64 {
        self.instance_price_per_hour.unwrap_or(self.price_per_hour)
    }

    /// The hourly price of what is billed with the instance: volumes and addresses.
    pub fn attached_price(&self) -> f64 {
        self.price_per_hour - self.instance_price()
    }

    fn single(&self, key: &str) -> Option<&Arc<str>> {
        self.requirements.get(key).and_then(|requirement| requirement.single_value())
    }

    pub fn zone(&self) -> Option<&Arc<str>> {
        self.single(labels::ZONE)
    }

    pub fn capacity_type(&self) -> Option<&Arc<str>> {
        self.single(labels::CAPACITY_TYPE)
    }

    pub fn is_reserved(&self) -> bool {
        self.capacity_type().is_some_and(|value| &**value == labels::CAPACITY_TYPE_RESERVED)
    }

    /// For a reserved offering: the key of the label that identifies the reservation, and the reservation's id.
    pub fn reservation(&self) -> Option<(&Arc<str>, &Arc<str>)> {
        let label = self.reservation_id_label.as_ref().filter(|_| self.is_reserved())?;
        Some((label, self.single(label)?))
    }

    /// Whether the offering is available and, if it is reserved, the reservation has capacity left.
    pub fn is_launchable(&self) -> bool {
        self.available && (!self.is_reserved() || self.reservation_capacity.unwrap_or(0) > 0)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct InstanceType {
    pub name: Arc<str>,
    pub requirements: Requirements,
    pub offerings: Vec<Offering>,
    pub capacity: ResourceList,
    /// Sum of kube-reserved, system-reserved and eviction threshold.
    pub overhead: ResourceList,
    /// For each CSI driver: how many volumes a node of this type can attach. A driver that is missing has no known
    /// limit.
    pub volume_attachment_limits: BTreeMap<Arc<str>, u32>,
}

impl InstanceType {
    /// Capacity minus overhead, and memory minus huge pages, for nodes of offerings without overrides.
    pub fn allocatable(&self) -> ResourceList {
        allocatable(&self.capacity, &self.overhead)
    }

    /// The allocatable resources of a node of one of the type's offerings, including the offering's overrides.
    pub fn allocatable_of(&self, offering: &Offering) -> ResourceList {
        match &offering.overrides {
            Some(overrides) => allocatable(
                &replaced(&self.capacity, &overrides.capacity),
                &replaced(&self.overhead, &overrides.overhead),
            ),
            None => self.allocatable(),
        }
    }

    /// The capacity of a node of one of the type's offerings, including the offering's overrides.
    pub fn capacity_of(&self, offering: &Offering) -> ResourceList {
        match &offering.overrides {
            Some(overrides) => replaced(&self.capacity, &overrides.capacity),
            None => self.capacity.clone(),
        }
    }

    /// Whether some offering overrides resource amounts of the instance type.
    pub fn has_overrides(&self) -> bool {
        self.offerings.iter().any(|offering| offering.overrides.is_some())
    }

    /// The lowest price among available offerings; `None` if none is available.
    pub fn cheapest_price(&self) -> Option<f64> {
        self.offerings.iter().filter(|o| o.available).map(|o| o.price_per_hour).min_by(f64::total_cmp)
    }
}

fn replaced(amounts: &ResourceList, by: &ResourceList) -> ResourceList {
    let mut replaced = amounts.clone();
    by.iter().for_each(|(name, amount)| replaced.set(name.clone(), amount));
    replaced
}

fn allocatable(capacity: &ResourceList, overhead: &ResourceList) -> ResourceList {
    let mut allocatable = capacity.clone();
    for (name, amount) in overhead.iter() {
        if let Some(capacity) = capacity.lookup(name) {
            allocatable.set(name.clone(), capacity.saturating_sub(amount));
        }
    }
    let huge: i64 =
        capacity.iter().filter(|(name, _)| name.starts_with("hugepages-")).map(|(_, amount)| amount).sum();
    if huge > 0 {
        allocatable.set(MEMORY, allocatable.get(MEMORY).saturating_sub(huge).max(0));
    }
    allocatable
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overrides_of_offering_replace_amounts_of_type() {
        let list = |pairs: &[(&str, i64)]| -> ResourceList {
            pairs.iter().map(|(name, amount)| (Arc::from(*name), *amount)).collect()
        };
        let overrides =
            Overrides { capacity: list(&[("slots", 4), ("cpu", 2000)]), overhead: list(&[("memory", 600)]) };
        let plain = Offering::default();
        let other = Offering { overrides: Some(Arc::new(overrides)), ..Offering::default() };
        let instance_type = InstanceType {
            name: "x".into(),
            requirements: Requirements::new(),
            offerings: vec![plain.clone(), other.clone()],
            capacity: list(&[("cpu", 4000), ("memory", 1000)]),
            overhead: list(&[("cpu", 100), ("memory", 200)]),
            volume_attachment_limits: BTreeMap::new(),
        };
        assert_eq!(instance_type.allocatable_of(&plain), instance_type.allocatable());
        let expected = list(&[("cpu", 1900), ("memory", 400), ("slots", 4)]);
        assert_eq!(instance_type.allocatable_of(&other), expected);
        assert_eq!(instance_type.capacity_of(&other), list(&[("cpu", 2000), ("memory", 1000), ("slots", 4)]));
        assert!(instance_type.has_overrides());
    }

    #[test]
    fn node_price_is_instance_price_plus_attachments() {
        let mut offering = Offering { price_per_hour: 0.5, ..Offering::default() };
        assert_eq!((offering.instance_price(), offering.attached_price()), (0.5, 0.0));
        offering.set_price(0.096, 0.25);
        assert_eq!((offering.price_per_hour, offering.instance_price()), (0.346, 0.096));
        assert!((offering.attached_price() - 0.25).abs() < 1e-12);
        offering.set_price(0.096, 0.0);
        assert_eq!((offering.price_per_hour, offering.instance_price_per_hour), (0.096, None));
    }

    #[test]
    fn huge_pages_leave_less_memory() {
        let list = |pairs: &[(&str, i64)]| -> ResourceList {
            pairs.iter().map(|(name, amount)| (Arc::from(*name), *amount)).collect()
        };
        let instance_type = InstanceType {
            name: "x".into(),
            requirements: Requirements::new(),
            offerings: vec![],
            capacity: list(&[("cpu", 4000), ("memory", 1000), ("hugepages-2Mi", 300)]),
            overhead: list(&[("cpu", 100), ("memory", 200)]),
            volume_attachment_limits: BTreeMap::new(),
        };
        let allocatable = instance_type.allocatable();
        assert_eq!(allocatable.get("cpu"), 3900);
        assert_eq!(allocatable.get("memory"), 500);
        assert_eq!(allocatable.get("hugepages-2Mi"), 300);
    }
}
