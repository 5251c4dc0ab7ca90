//! Combines the description of an instance type with a node class.
//!
//! A [`Resolver`] holds what all types of a node class share, mainly the labels of offerings. Resolvers do not share
//! state.

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

/// The instance type for a node class. For many types, use one [`Resolver`].
pub fn resolve(info: &TypeInfo, class: &AwsNodeClass, market: &dyn Market) -> InstanceType {
    Resolver::new(class).resolve(info, market)
}

/// Labels that depend on the type only. Callers keep them with the [`TypeInfo`], because computing them is most of the work.
#[derive(Debug, Clone, PartialEq)]
pub struct TypeLabels(pub(super) Requirements);

/// Builds [`TypeLabels`] with shared strings.
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
    /// The zones of the node class by name, without duplicates: several subnets may be in one zone.
    zones: Vec<&'a AwsZone>,
    /// The positions of the node class's reservations, by instance type. The map is never iterated, because its order
    /// is not defined.
    reservations: FxHashMap<&'a str, Vec<usize>>,
    interner: Interner,
    class_labels: ClassLabels,
    offering_labels: OfferingLabels,
}

impl<'a> Resolver<'a> {
    pub fn new(class: &'a AwsNodeClass) -> Resolver<'a> {
        let mut zones: Vec<&AwsZone> = class.zones.iter().collect();
        // A zone may be listed with and without its id; the entry with the id is used.
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

    /// Resolves a type with labels that were computed before.
    pub fn resolve_labelled(
        &mut self,
        info: &TypeInfo,
        labels: &TypeLabels,
        market: &dyn Market,
    ) -> InstanceType {
        self.resolve_as(self.class, info, labels, market)
    }

    /// Resolves a type with its own kubelet settings, for node classes with expressions: `class` is the resolver's class with
    /// the evaluated values in its kubelet fields.
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
            // EC2's limits are shared with network interfaces and local disks, which depend on the running node; no limit can be
            // computed here.
            volume_attachment_limits: BTreeMap::new(),
        }
    }

    /// Resolves only the offerings of a type; they change more often than its other properties.
    pub fn offerings(&self, info: &TypeInfo, market: &dyn Market) -> Vec<Offering> {
        self.offerings_where(info, &market.offered(&info.name, &self.zones), market)
    }

    fn offerings_where(&self, info: &TypeInfo, offered: &[bool], market: &dyn Market) -> Vec<Offering> {
        let reserved = self.reservations.get(&*info.name).map_or(&[][..], Vec::as_slice);
        let zones = Zones { zones: &self.zones, offered };
        offerings::offerings(info, (self.class, reserved), zones, market, &self.offering_labels)
    }
}
