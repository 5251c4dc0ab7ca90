//! The labels a node of a type will carry with a class, as requirements.
//!
//! Adds to the labels of the type what the class decides: system, place, ways to buy, reservations and
//! placement group. What a class does not have is stated as absent, placement groups aside: those labels
//! exist only with a group, as pools cannot ask for them otherwise.

use std::collections::BTreeSet;

use karpenter_model::labels as core;
use karpenter_model::requirements::{Requirement, Requirements};

use super::account::CapacityReservation;
use super::info::TypeInfo;
use super::labels;
use super::node_class::{AwsNodeClass, AwsZone};
use super::resolver::TypeLabels;
use super::type_labels::architecture;
use crate::intern::Interner;

/// Requirements that are the same for every type of a class, save for types with reservations.
pub(super) struct ClassLabels {
    common: Vec<Requirement>,
    without_reservation: [Requirement; 3],
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
        ClassLabels { common, without_reservation: labels::RESERVATION.map(|key| interner.absent(key)) }
    }
}

/// `reserved` are the positions of the class's reservations of the type, and `zones` its zones that offer it.
pub(super) fn requirements<'a>(
    info: &TypeInfo,
    of_type: &TypeLabels,
    (class, reserved): (&AwsNodeClass, &[usize]),
    of_class: &ClassLabels,
    zones: impl Iterator<Item = &'a AwsZone> + Clone,
    interner: &mut Interner,
) -> Requirements {
    let mut requirements = of_type.0.clone();
    for requirement in &of_class.common {
        requirements.add(requirement.clone());
    }
    // There are no Windows images for Arm: no operating system at all, so nothing can run there.
    let operating_system = match (class.ami_family.is_windows(), architecture(info)) {
        (false, _) => Some("linux"),
        (true, "amd64") => Some("windows"),
        (true, _) => None,
    };
    requirements.add(interner.any_of(core::OS, operating_system));
    requirements.add(interner.any_of(core::ZONE, zones.clone().map(|zone| zone.name.as_str())));
    if zones.clone().any(|zone| zone.id.is_some()) {
        requirements.add(interner.any_of(labels::ZONE_ID, zones.filter_map(|zone| zone.id.as_deref())));
    }

    let as_reserved = (!reserved.is_empty()).then_some(core::CAPACITY_TYPE_RESERVED);
    requirements.add(interner.any_of(core::CAPACITY_TYPE, capacity_types(info).chain(as_reserved)));
    if as_reserved.is_some() {
        for key in labels::RESERVATION {
            let held = reserved.iter().map(|position| &class.capacity_reservations[*position]);
            let values: BTreeSet<&str> = held.map(|held| reservation_value(held, key)).collect();
            requirements.add(interner.any_of(key, values));
        }
    } else {
        for requirement in &of_class.without_reservation {
            requirements.add(requirement.clone());
        }
    }
    requirements
}

/// What a reservation says for one of the keys in [`labels::RESERVATION`].
pub(super) fn reservation_value<'a>(held: &'a CapacityReservation, key: &str) -> &'a str {
    match key {
        labels::CAPACITY_RESERVATION_ID => &held.id,
        labels::CAPACITY_RESERVATION_TYPE => held.kind.as_str(),
        _ if held.interruptible => "true",
        _ => "false",
    }
}

/// The capacity types the type can be bought in, reservations aside.
pub(super) fn capacity_types(info: &TypeInfo) -> impl Iterator<Item = &'static str> + '_ {
    [core::CAPACITY_TYPE_ON_DEMAND, core::CAPACITY_TYPE_SPOT]
        .into_iter()
        .filter(|capacity_type| info.has_usage_class(capacity_type))
}
