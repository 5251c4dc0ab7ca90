//! Checks slots of capacity reservations: no more nodes are planned into a reservation than it has slots, and no
//! planned node can lose its slot, whichever of its allowed reservations another launch uses.

use std::collections::{BTreeMap, BTreeSet};

use karpenter_model::instance_type::{InstanceType, Offering};
use karpenter_model::plan::Plan;
use karpenter_model::problem::Problem;

use super::claim_groups::{ClaimGroups, OptionStatus};
use super::violation::Violation;

/// Identifies a reservation by its id, or by instance type and zone if it has no id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Name<'a> {
    Id(&'a str, &'a str),
    Place(&'a str, &'a str),
}

impl std::fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Id(_, id) => f.write_str(id),
            Self::Place(instance_type, zone) => write!(f, "{instance_type} in {zone}"),
        }
    }
}

fn name<'a>(instance_type: &'a InstanceType, offering: &'a Offering) -> Name<'a> {
    match offering.reservation() {
        Some((label, id)) => Name::Id(label, id),
        None => Name::Place(&instance_type.name, offering.zone().map_or("", |zone| zone)),
    }
}

pub(super) fn check(
    problem: &Problem,
    plan: &Plan,
    claim_groups: &ClaimGroups<'_>,
    violations: &mut Vec<Violation>,
) {
    let mut capacity: BTreeMap<Name<'_>, u32> = BTreeMap::new();
    for instance_type in problem.catalogs.iter().flat_map(|catalog| catalog.iter()) {
        for offering in instance_type.offerings.iter().filter(|one| one.available && one.is_reserved()) {
            let stated = offering.reservation_capacity.unwrap_or(0);
            let least = capacity.entry(name(instance_type, offering)).or_insert(stated);
            *least = (*least).min(stated);
        }
    }
    if capacity.is_empty() {
        return;
    }
    let mut planned: BTreeMap<Name<'_>, u32> = BTreeMap::new();
    let mut allowed: BTreeMap<Name<'_>, u32> = BTreeMap::new();
    for (node, claim_group) in plan.new_nodes.iter().zip(&claim_groups.of_node) {
        let Some(claim_group) = claim_group.map(|claim_group| &claim_groups.claim_groups[claim_group]) else {
            continue;
        };
        let chosen = &claim_group.catalog[node.instance_type];
        let offering = &chosen.offerings[node.offering];
        if offering.is_reserved() {
            *planned.entry(name(chosen, offering)).or_insert(0) += 1;
        }
        let mut listed: BTreeSet<Name<'_>> = BTreeSet::new();
        for option in node.instance_type_options.iter().filter(|option| **option < claim_group.catalog.len())
        {
            let OptionStatus::Usable { offerings, .. } = &*claim_group.option_status(*option) else {
                continue;
            };
            let instance_type = &claim_group.catalog[*option];
            let offerings = offerings.iter().map(|offering| &instance_type.offerings[*offering]);
            let launchable = offerings.filter(|one| one.is_reserved() && one.is_launchable());
            listed.extend(launchable.map(|one| name(instance_type, one)));
        }
        for one in listed.into_iter().filter(|one| matches!(one, Name::Id(..))) {
            *allowed.entry(one).or_insert(0) += 1;
        }
    }
    for (reservation, capacity) in capacity {
        let used = planned.get(&reservation).copied().unwrap_or(0);
        let nodes = allowed.get(&reservation).copied().unwrap_or(0);
        let reservation = reservation.to_string();
        if used > capacity {
            violations.push(Violation::ReservationExceeded { reservation, capacity, used });
        } else if nodes > capacity {
            violations.push(Violation::ReservationContested { reservation, capacity, nodes });
        }
    }
}
