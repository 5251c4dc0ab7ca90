//! The labels that a node of an instance type has with a node class, as requirements.
//!
//! To the labels of the instance type, this module adds what the node class determines: operating system, zones,
//! capacity types, reservations and placement group. If the node class has no value for a label, the requirement is
//! `DoesNotExist`. Labels of placement groups are an exception: they are left out if there is no group, so a NodePool
//! cannot require them.

use std::collections::BTreeSet;
use std::sync::Arc;

use karpenter_model::labels as core;
use karpenter_model::requirements::{Requirement, Requirements};
use rustc_hash::FxHashMap;

use super::account::CapacityReservation;
use super::info::TypeInfo;
use super::labels;
use super::node_class::{AwsNodeClass, AwsZone};
use super::resolver::TypeLabels;
use super::type_labels::architecture;
use crate::intern::Interner;

/// Labels that the node class determines. Most instance types have the same zones and capacity types, so labels are
/// built once per combination of these.
pub(super) struct ClassLabels {
    common: Vec<Arc<Requirement>>,
    made: FxHashMap<OfferedAs, Requirements>,
}

/// The zones and capacity types in which an instance type is offered.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct OfferedAs {
    /// For each zone of the node class: whether the instance type is offered there.
    pub(super) offered: Vec<bool>,
    operating_system: Option<&'static str>,
    capacity_types: [Option<&'static str>; 3],
}

impl OfferedAs {
    pub(super) fn new(
        info: &TypeInfo,
        class: &AwsNodeClass,
        offered: Vec<bool>,
        is_reserved: bool,
    ) -> OfferedAs {
        // There are no Windows AMIs for Arm. Without an operating system label, no pod can be scheduled on such a node.
        let operating_system = match (class.ami_family.is_windows(), architecture(info)) {
            (false, _) => Some("linux"),
            (true, "amd64") => Some("windows"),
            (true, _) => None,
        };
        let bought = |capacity_type| info.has_usage_class(capacity_type).then_some(capacity_type);
        let capacity_types = [
            bought(core::CAPACITY_TYPE_ON_DEMAND),
            bought(core::CAPACITY_TYPE_SPOT),
            is_reserved.then_some(core::CAPACITY_TYPE_RESERVED),
        ];
        OfferedAs { offered, operating_system, capacity_types }
    }

    fn is_reserved(&self) -> bool {
        self.capacity_types[2].is_some()
    }
}

impl ClassLabels {
    pub(super) fn new(class: &AwsNodeClass, interner: &mut Interner) -> ClassLabels {
        let mut common = vec![
            interner.single_or_absent(core::WINDOWS_BUILD, class.ami_family.windows_build()),
            interner.single(core::REGION, &class.region),
        ];
        if let Some(group) = &class.placement_group {
            common.push(interner.single(labels::PLACEMENT_GROUP_ID, &group.id));
            let partitions: Vec<String> = group.partitions().map(|number| number.to_string()).collect();
            if !partitions.is_empty() {
                let partitions = partitions.iter().map(String::as_str);
                common.push(interner.any_of(labels::PLACEMENT_GROUP_PARTITION, partitions));
            }
        }
        ClassLabels { common, made: FxHashMap::default() }
    }

    /// The labels of all instance types with these zones and capacity types, except labels of reservations.
    fn of(&mut self, offered_as: &OfferedAs, zones: &[&AwsZone], interner: &mut Interner) -> &Requirements {
        if !self.made.contains_key(offered_as) {
            let made = self.make(offered_as, zones, interner);
            self.made.insert(offered_as.clone(), made);
        }
        &self.made[offered_as]
    }

    fn make(&self, offered_as: &OfferedAs, zones: &[&AwsZone], interner: &mut Interner) -> Requirements {
        let mut made: Requirements = self.common.iter().cloned().collect();
        let zones = zones
            .iter()
            .zip(&offered_as.offered)
            .filter(|(_, is_offered)| **is_offered)
            .map(|(zone, _)| *zone);
        made.add_shared(interner.any_of(core::OS, offered_as.operating_system));
        made.add_shared(interner.any_of(core::ZONE, zones.clone().map(|zone| zone.name.as_str())));
        if zones.clone().any(|zone| zone.id.is_some()) {
            made.add_shared(interner.any_of(labels::ZONE_ID, zones.filter_map(|zone| zone.id.as_deref())));
        }
        made.add_shared(
            interner.any_of(core::CAPACITY_TYPE, offered_as.capacity_types.into_iter().flatten()),
        );
        if !offered_as.is_reserved() {
            for key in labels::RESERVATION {
                made.add_shared(interner.absent(key));
            }
        }
        made
    }
}

/// `reserved` are the indexes of the node class's reservations for this instance type.
pub(super) fn requirements(
    of_type: &TypeLabels,
    offered_as: &OfferedAs,
    (class, reserved): (&AwsNodeClass, &[usize]),
    of_class: &mut ClassLabels,
    zones: &[&AwsZone],
    interner: &mut Interner,
) -> Requirements {
    let mut requirements = of_type.0.clone();
    requirements.extend(of_class.of(offered_as, zones, interner));
    if offered_as.is_reserved() {
        let held = reserved.iter().map(|position| &class.capacity_reservations[*position]);
        let ids = held.clone().map(|held| held.id.clone());
        requirements.add(Requirement::in_values(interner.get(labels::CAPACITY_RESERVATION_ID), ids));
        for key in labels::RESERVATION {
            if key != labels::CAPACITY_RESERVATION_ID {
                let values: BTreeSet<&str> = held.clone().map(|held| reservation_value(held, key)).collect();
                requirements.add_shared(interner.any_of(key, values));
            }
        }
    }
    requirements
}

/// The value that a reservation has for one of the label keys in [`labels::RESERVATION`].
pub(super) fn reservation_value<'a>(held: &'a CapacityReservation, key: &str) -> &'a str {
    match key {
        labels::CAPACITY_RESERVATION_ID => &held.id,
        labels::CAPACITY_RESERVATION_TYPE => held.kind.as_str(),
        _ if held.interruptible => "true",
        _ => "false",
    }
}
