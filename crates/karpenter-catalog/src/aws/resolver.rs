//! Combines EC2's description of an instance type with a node class into the planner's instance type.
//!
//! A [`Resolver`] holds what all instance types of a node class share, mainly the labels of offerings. Two resolvers
//! share no state.

use std::collections::BTreeMap;

use karpenter_model::instance_type::{InstanceType, Offering};
use karpenter_model::requirements::Requirements;
use rustc_hash::FxHashMap;

use super::info::TypeInfo;
use super::market::Market;
use super::node_class::{AwsNodeClass, AwsZone};
use super::offerings::{self, OfferingLabels, Zones};
use super::requirements::{self, ClassLabels, OfferedAs};
use super::{capacity, type_labels};
use crate::intern::Interner;

/// Resolves one instance type for a node class. To resolve many types, use one [`Resolver`].
pub fn resolve(info: &TypeInfo, class: &AwsNodeClass, market: &dyn Market) -> InstanceType {
    Resolver::new(class).resolve(info, market)
}

/// The labels that depend only on the instance type. Callers should keep them with the [`TypeInfo`], because computing
/// them is most of the work of resolving.
#[derive(Debug, Clone, PartialEq)]
pub struct TypeLabels(pub(super) Requirements);

/// Builds [`TypeLabels`]; equal strings are stored once.
#[derive(Default)]
pub struct TypeLabelBuilder {
    interner: Interner,
}

impl TypeLabelBuilder {
    pub fn make(&mut self, info: &TypeInfo) -> TypeLabels {
        TypeLabels(type_labels::requirements(info, &mut self.interner))
    }
}

/// Resolves instance types for one node class.
pub struct Resolver<'a> {
    class: &'a AwsNodeClass,
    /// The zones of the node class, sorted by name and without duplicates, because several subnets may be in one zone.
    zones: Vec<&'a AwsZone>,
    /// For each instance type: the indexes of the node class's reservations for it. The map is never iterated, because
    /// its order is undefined.
    reservations: FxHashMap<&'a str, Vec<usize>>,
    interner: Interner,
    class_labels: ClassLabels,
    offering_labels: OfferingLabels,
}

impl<'a> Resolver<'a> {
    pub fn new(class: &'a AwsNodeClass) -> Resolver<'a> {
        let mut zones: Vec<&AwsZone> = class.zones.iter().collect();
        // A zone may be listed twice, with and without its zone id; the entry with the id is used.
        zones.sort_by_key(|zone| (&zone.name, zone.id.is_none(), &zone.id));
        zones.dedup_by_key(|zone| &zone.name);
        let mut reservations: FxHashMap<&str, Vec<usize>> = FxHashMap::default();
        for (position, held) in class.capacity_reservations.iter().enumerate() {
            reservations.entry(&held.instance_type).or_default().push(position);
        }
        let mut interner = Interner::default();
        let class_labels = ClassLabels::new(class, &mut interner);
        let offering_labels = OfferingLabels::new(class, &zones, &mut interner);
        Resolver { class, zones, reservations, interner, class_labels, offering_labels }
    }

    pub fn resolve(&mut self, info: &TypeInfo, market: &dyn Market) -> InstanceType {
        let labels = TypeLabels(type_labels::requirements(info, &mut self.interner));
        self.resolve_labelled(info, &labels, market)
    }

    /// Resolves an instance type whose [`TypeLabels`] were computed before.
    pub fn resolve_labelled(
        &mut self,
        info: &TypeInfo,
        labels: &TypeLabels,
        market: &dyn Market,
    ) -> InstanceType {
        self.resolve_as(self.class, info, labels, market)
    }

    /// Resolves an instance type for a node class whose kubelet settings are expressions. `class` is the resolver's
    /// node class with the values that the expressions have for this type.
    pub fn resolve_as(
        &mut self,
        class: &AwsNodeClass,
        info: &TypeInfo,
        labels: &TypeLabels,
        market: &dyn Market,
    ) -> InstanceType {
        let reserved = self.reservations.get(&*info.name).map_or(&[][..], Vec::as_slice);
        let offered_as =
            OfferedAs::new(info, self.class, market.offered(&info.name, &self.zones), !reserved.is_empty());
        let mut overhead = capacity::kube_reserved(info, class, &mut self.interner);
        overhead.add(&capacity::system_reserved(class, &mut self.interner));
        overhead.add(&capacity::eviction_threshold(info, class, &mut self.interner));
        let mut capacity = capacity::capacity(info, class, &mut self.interner);
        if let Some(bytes) = market.discovered_memory_bytes(&info.name) {
            capacity.set(self.interner.get(karpenter_model::resources::MEMORY), bytes);
        }
        InstanceType {
            name: info.name.clone(),
            requirements: requirements::requirements(
                labels,
                &offered_as,
                (self.class, reserved),
                &mut self.class_labels,
                &self.zones,
                &mut self.interner,
            ),
            offerings: self.offerings_where(info, &offered_as.offered, market),
            capacity,
            overhead,
            // Volumes share EC2's attachment limit with network interfaces and local disks, which differ between nodes,
            // so no limit can be computed here.
            volume_attachment_limits: BTreeMap::new(),
        }
    }

    /// Resolves only the offerings of an instance type, which change more often than its other properties.
    pub fn offerings(&self, info: &TypeInfo, market: &dyn Market) -> Vec<Offering> {
        self.offerings_where(info, &market.offered(&info.name, &self.zones), market)
    }

    fn offerings_where(&self, info: &TypeInfo, offered: &[bool], market: &dyn Market) -> Vec<Offering> {
        let reserved = self.reservations.get(&*info.name).map_or(&[][..], Vec::as_slice);
        let zones = Zones { zones: &self.zones, offered };
        offerings::offerings(info, (self.class, reserved), zones, market, &self.offering_labels)
    }
}
