//! Selects the instance types and offerings of a `CreateFleet` request: those that are compatible with the NodeClaim
//! and that one fleet can combine. Bare metal types and types with accelerators are used only if no other type is left.
//!
//! The filters run in upstream's order, each on the result of the one before. This module makes no AWS calls and does
//! not change types or offerings; candidates borrow from the resolved types.
//!
//! Upstream: `pkg/providers/instance/filter`

#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use karpenter_api::labels;
use karpenter_catalog::aws::{AMD_GPU, AWS_NEURON, AWS_NEURON_CORE, HABANA_GAUDI, NVIDIA_GPU};
use karpenter_model::instance_type::{InstanceType, Offering};

use super::constraints::LaunchConstraints;

/// The maximum number of instance types in one `CreateFleet` request.
pub const INSTANCE_TYPES_MAX: usize = 60;

/// Resources of accelerators: an instance type that has one of them is used only if no other type is left.
const EXOTIC_RESOURCES: [&str; 5] = [AWS_NEURON, AWS_NEURON_CORE, AMD_GPU, NVIDIA_GPU, HABANA_GAUDI];

/// An instance type, and those of its offerings that the launch may use.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate<'a> {
    pub instance_type: &'a InstanceType,
    pub offerings: Vec<&'a Offering>,
}

impl Candidate<'_> {
    fn cheapest(&self) -> f64 {
        self.offerings.iter().map(|offering| offering.price_per_hour).fold(f64::INFINITY, f64::min)
    }

    pub fn has_capacity_type(&self, capacity_type: &str) -> bool {
        self.offerings.iter().any(|offering| is_capacity_type(offering, capacity_type))
    }
}

/// Why the filters left no instance type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoInstanceTypes {
    #[error("all requested instance types were unavailable during launch")]
    Unavailable,
    #[error(
        "truncating instance types based on the passed-in requirements, validating minValues, minValues requirement is \
         not met for label(s) (label(s)={keys:?})"
    )]
    MinValues { keys: Vec<String> },
}

/// The instance types to request from EC2, cheapest first.
pub fn filter<'a>(
    types: &'a [InstanceType],
    constraints: &LaunchConstraints,
    min_values_are_strict: bool,
) -> Result<Vec<Candidate<'a>>, NoInstanceTypes> {
    let mut candidates = compatible_and_available(types, constraints);
    candidates = only_cheapest_reservation_kind(candidates, constraints);
    candidates = only_cheapest_capacity_block(candidates, constraints);
    candidates = only_largest_reservation_per_zone(candidates, constraints);
    if !constraints.requirements.has_min_values() {
        candidates = without_exotic(candidates);
        candidates = without_spot_above_on_demand(candidates, constraints);
    }
    if candidates.is_empty() {
        return Err(NoInstanceTypes::Unavailable);
    }
    candidates.sort_by(by_price);
    candidates.truncate(INSTANCE_TYPES_MAX);
    let missed = if min_values_are_strict { missed_min_values(&candidates, constraints) } else { Vec::new() };
    if missed.is_empty() { Ok(candidates) } else { Err(NoInstanceTypes::MinValues { keys: missed }) }
}

fn compatible_and_available<'a>(
    types: &'a [InstanceType],
    constraints: &LaunchConstraints,
) -> Vec<Candidate<'a>> {
    let fitting = types.iter().filter(|listed| listed.requirements.intersects(&constraints.requirements));
    let candidates = fitting.map(|instance_type| {
        let base_holds = instance_type.allocatable().holds(&constraints.requests);
        let holds = |offering: &Offering| match offering.overrides {
            Some(_) => instance_type.allocatable_of(offering).holds(&constraints.requests),
            None => base_holds,
        };
        let offerings = instance_type.offerings.iter().filter(|offering| {
            holds(offering)
                && offering.is_launchable()
                && offering.requirements.intersects(&constraints.requirements)
        });
        Candidate { instance_type, offerings: offerings.collect() }
    });
    candidates.filter(|candidate| !candidate.offerings.is_empty()).collect()
}

/// The kinds of reservations, which one fleet cannot mix. Of several kinds with equal prices, the first one in this
/// order is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ReservationKind {
    Default,
    CapacityBlock,
    Interruptible,
}

fn reservation_kind(offering: &Offering) -> Option<ReservationKind> {
    if !offering.is_reserved() {
        return None;
    }
    let is = |key: &str, value: &str| label(offering, key) == Some(value);
    Some(if is(labels::AWS_CAPACITY_RESERVATION_TYPE, "capacity-block") {
        ReservationKind::CapacityBlock
    } else if is(labels::AWS_CAPACITY_RESERVATION_INTERRUPTIBLE, "true") {
        ReservationKind::Interruptible
    } else {
        ReservationKind::Default
    })
}

/// If the NodeClaim allows reserved capacity, keeps only offerings of one kind of reservation: the kind of the cheapest
/// reservation.
fn only_cheapest_reservation_kind<'a>(
    candidates: Vec<Candidate<'a>>,
    constraints: &LaunchConstraints,
) -> Vec<Candidate<'a>> {
    if !constraints.allows_capacity_type(labels::CAPACITY_TYPE_RESERVED) {
        return candidates;
    }
    let offerings = candidates.iter().flat_map(|candidate| &candidate.offerings);
    let kinds = offerings.filter_map(|offering| Some((reservation_kind(offering)?, offering.price_per_hour)));
    let best = kinds.min_by(|one, two| one.1.total_cmp(&two.1).then(one.0.cmp(&two.0)));
    match best {
        Some((kind, _)) => keep_offerings(candidates, |offering| reservation_kind(offering) == Some(kind)),
        None => candidates,
    }
}

/// Keeps only the cheapest capacity block, because a fleet can target only one.
fn only_cheapest_capacity_block<'a>(
    candidates: Vec<Candidate<'a>>,
    constraints: &LaunchConstraints,
) -> Vec<Candidate<'a>> {
    if !constraints.allows_capacity_type(labels::CAPACITY_TYPE_RESERVED) {
        return candidates;
    }
    let mut best: Option<Candidate<'a>> = None;
    for candidate in &candidates {
        for offering in &candidate.offerings {
            if reservation_kind(offering) != Some(ReservationKind::CapacityBlock) {
                continue;
            }
            let is_better = best.as_ref().is_none_or(|best| best.cheapest() > offering.price_per_hour);
            if is_better {
                best = Some(Candidate { instance_type: candidate.instance_type, offerings: vec![offering] });
            }
        }
    }
    best.map_or(candidates, |best| vec![best])
}

/// For each instance type and zone, keeps only the reservation with the most capacity left, because a fleet can have
/// only one override per type and zone.
fn only_largest_reservation_per_zone<'a>(
    candidates: Vec<Candidate<'a>>,
    constraints: &LaunchConstraints,
) -> Vec<Candidate<'a>> {
    if !constraints.allows_capacity_type(labels::CAPACITY_TYPE_RESERVED) {
        return candidates;
    }
    let mut kept = Vec::new();
    for candidate in &candidates {
        let mut by_zone: BTreeMap<&str, &'a Offering> = BTreeMap::new();
        for offering in candidate.offerings.iter().copied().filter(|offering| offering.is_reserved()) {
            let zone = offering.zone().map_or("", |zone| zone);
            let held = by_zone.entry(zone).or_insert(offering);
            if offering.reservation_capacity > held.reservation_capacity {
                *held = offering;
            }
        }
        if !by_zone.is_empty() {
            let offerings = by_zone.into_values().collect();
            kept.push(Candidate { instance_type: candidate.instance_type, offerings });
        }
    }
    if kept.is_empty() { candidates } else { kept }
}

/// Drops bare metal types and types with accelerators, unless no other type would be left.
fn without_exotic(candidates: Vec<Candidate<'_>>) -> Vec<Candidate<'_>> {
    let is_exotic = |candidate: &Candidate<'_>| {
        let of_type = candidate.instance_type;
        let size = of_type.requirements.get(labels::AWS_INSTANCE_SIZE);
        size.is_some_and(|size| !size.complement && size.values.iter().any(|size| size.contains("metal")))
            || EXOTIC_RESOURCES.iter().any(|resource| of_type.capacity.get(resource) > 0)
    };
    if candidates.iter().all(is_exotic) {
        return candidates;
    }
    candidates.into_iter().filter(|candidate| !is_exotic(candidate)).collect()
}

/// If the NodeClaim allows both spot and on-demand, drops spot offerings that cost more than the cheapest on-demand
/// offering.
fn without_spot_above_on_demand<'a>(
    candidates: Vec<Candidate<'a>>,
    constraints: &LaunchConstraints,
) -> Vec<Candidate<'a>> {
    let (on_demand, spot) = (labels::CAPACITY_TYPE_ON_DEMAND, labels::CAPACITY_TYPE_SPOT);
    if !constraints.allows_capacity_type(on_demand) || !constraints.allows_capacity_type(spot) {
        return candidates;
    }
    let offerings = candidates.iter().flat_map(|candidate| &candidate.offerings);
    let prices = offerings.filter(|offering| is_capacity_type(offering, on_demand));
    let cheapest = prices.map(|offering| offering.price_per_hour).min_by(f64::total_cmp);
    match cheapest {
        Some(cheapest) => keep_offerings(candidates, |offering| {
            !is_capacity_type(offering, spot) || offering.price_per_hour <= cheapest
        }),
        None => candidates,
    }
}

fn keep_offerings<'a>(
    candidates: Vec<Candidate<'a>>,
    keep: impl Fn(&Offering) -> bool,
) -> Vec<Candidate<'a>> {
    let kept = candidates.into_iter().map(|mut candidate| {
        candidate.offerings.retain(|offering| keep(offering));
        candidate
    });
    kept.filter(|candidate| !candidate.offerings.is_empty()).collect()
}

/// The label keys for which the candidates have fewer values than `minValues` requires.
fn missed_min_values(candidates: &[Candidate<'_>], constraints: &LaunchConstraints) -> Vec<String> {
    let asked = constraints.requirements.iter().filter_map(|asked| Some((asked, asked.min_values?)));
    let missed = asked.filter(|(asked, least)| {
        let mut values = BTreeSet::new();
        for candidate in candidates {
            if let Some(offered) = candidate.instance_type.requirements.get(&asked.key)
                && !offered.complement
            {
                values.extend(offered.values.iter().filter(|value| asked.has(value)));
            }
        }
        values.len() < *least as usize
    });
    missed.map(|(asked, _)| asked.key.to_string()).collect()
}

/// The capacity type to launch: the first of reserved, spot and on-demand that the NodeClaim allows and some candidate
/// offers.
pub fn capacity_type(candidates: &[Candidate<'_>], constraints: &LaunchConstraints) -> &'static str {
    let order = [labels::CAPACITY_TYPE_RESERVED, labels::CAPACITY_TYPE_SPOT];
    let is_offered = |capacity_type: &&str| {
        constraints.allows_capacity_type(capacity_type)
            && candidates.iter().any(|candidate| candidate.has_capacity_type(capacity_type))
    };
    order.into_iter().find(is_offered).unwrap_or(labels::CAPACITY_TYPE_ON_DEMAND)
}

pub(super) fn is_capacity_type(offering: &Offering, capacity_type: &str) -> bool {
    offering.capacity_type().is_some_and(|offered| &**offered == capacity_type)
}

pub(super) fn label<'a>(offering: &'a Offering, key: &str) -> Option<&'a str> {
    offering.requirements.get(key).and_then(|value| value.single_value()).map(AsRef::as_ref)
}

/// The reservation of an instance type's reserved offering in a zone. After [`filter`] there is at most one.
pub(super) fn reservation<'a>(
    candidates: &[Candidate<'a>],
    instance_type: &str,
    zone: &str,
) -> Option<Reservation> {
    let candidate = candidates.iter().find(|candidate| &*candidate.instance_type.name == instance_type)?;
    let is_there = |offering: &&&Offering| {
        offering.is_reserved() && offering.zone().is_some_and(|there| &**there == zone)
    };
    candidate.offerings.iter().find(is_there).and_then(|offering| Reservation::of(offering))
}

/// A capacity reservation, as far as the labels of its offering describe it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reservation {
    pub id: String,
    /// The type of the reservation: `default` or `capacity-block`.
    pub reservation_type: String,
    pub is_interruptible: bool,
}

impl Reservation {
    pub(super) fn of(offering: &Offering) -> Option<Self> {
        let text = |key| label(offering, key).map(str::to_owned);
        offering.is_reserved().then_some(())?;
        Some(Self {
            id: text(labels::AWS_CAPACITY_RESERVATION_ID)?,
            reservation_type: text(labels::AWS_CAPACITY_RESERVATION_TYPE)
                .unwrap_or_else(|| "default".to_owned()),
            is_interruptible: label(offering, labels::AWS_CAPACITY_RESERVATION_INTERRUPTIBLE) == Some("true"),
        })
    }
}

/// Orders candidates by price, then by name.
fn by_price(one: &Candidate<'_>, two: &Candidate<'_>) -> Ordering {
    one.cheapest()
        .total_cmp(&two.cheapest())
        .then_with(|| one.instance_type.name.cmp(&two.instance_type.name))
}
