//! The offerings of an instance type: one for each zone of the node class and capacity type, and one for each capacity
//! reservation. If the node class's placement group has partitions, each offering exists once per partition.
//!
//! Offerings that cannot be launched are listed as unavailable, so that an explanation can distinguish "not offered in
//! this zone" from "no such type".
//!
//! Upstream: karpenter-provider-aws `pkg/providers/instancetype/offering`.

use std::collections::BTreeMap;
use std::sync::Arc;

use karpenter_model::instance_type::Offering;
use karpenter_model::labels as core;
use karpenter_model::requirements::Requirements;

use super::account::{CapacityReservation, ReservationKind};
use super::compatibility::incompatibility;
use super::ebs::Attachments;
use super::info::TypeInfo;
use super::labels;
use super::market::{CapacityPool, Market};
use super::node_class::{AwsNodeClass, AwsZone};
use super::requirements::reservation_value;
use crate::intern::Interner;

/// Reserved capacity is already paid for, so its price is nearly zero: the on-demand price divided by this, which keeps
/// the order of prices between types.
const RESERVED_PRICE_DIVISOR: f64 = 10_000_000.0;

/// The labels of all offerings of a node class. They do not depend on the instance type, so they are built once and
/// shared by all types.
pub(super) struct OfferingLabels {
    /// For each zone: the labels of on-demand and of spot offerings.
    by_zone: Vec<[(&'static str, Partitioned); 2]>,
    /// For each reservation of the node class, in its order: the labels of its offerings.
    reserved: Vec<Partitioned>,
    reservation_id_label: Arc<str>,
}

/// One set of labels for each partition of the placement group; without partitions, a single set.
type Partitioned = Vec<(Option<u32>, Requirements)>;

impl OfferingLabels {
    pub(super) fn new<'a>(
        class: &'a AwsNodeClass,
        zones: &[&AwsZone],
        interner: &mut Interner,
    ) -> OfferingLabels {
        let partitions: Vec<u32> =
            class.placement_group.iter().flat_map(|group| group.partitions()).collect();
        let mut offering_labels = |capacity_type, zone: &AwsZone| {
            let mut requirements =
                zone_and_capacity_type(capacity_type, &zone.name, zone.id.as_deref(), interner);
            // Offerings without a reservation state that these labels do not exist; otherwise a NodePool that requires
            // a reservation would match such offerings.
            for key in labels::RESERVATION {
                requirements.add_shared(interner.absent(key));
            }
            (capacity_type, partitioned(requirements, &partitions, interner))
        };
        let by_zone = zones
            .iter()
            .map(|zone| {
                [
                    offering_labels(core::CAPACITY_TYPE_ON_DEMAND, zone),
                    offering_labels(core::CAPACITY_TYPE_SPOT, zone),
                ]
            })
            .collect();
        // There may be thousands of reservations that differ only in their ids, so they share the other labels.
        let mut shared_by_kind: BTreeMap<(&str, ReservationKind, bool), Requirements> = BTreeMap::new();
        let of_reservation = |held: &'a CapacityReservation| {
            let shared =
                shared_by_kind.entry((&held.zone, held.kind, held.interruptible)).or_insert_with(|| {
                    let zone = zones.iter().find(|zone| *zone.name == *held.zone);
                    let id = zone.and_then(|zone| zone.id.as_deref());
                    let mut requirements =
                        zone_and_capacity_type(core::CAPACITY_TYPE_RESERVED, &held.zone, id, interner);
                    for key in labels::RESERVATION {
                        if key != labels::CAPACITY_RESERVATION_ID {
                            requirements.add_shared(interner.single(key, reservation_value(held, key)));
                        }
                    }
                    requirements
                });
            let mut requirements = shared.clone();
            requirements
                .add_shared(interner.single_unshared(labels::CAPACITY_RESERVATION_ID, held.id.clone()));
            partitioned(requirements, &partitions, interner)
        };
        let reserved = class.capacity_reservations.iter().map(of_reservation).collect();
        let reservation_id_label = interner.get(labels::CAPACITY_RESERVATION_ID);
        OfferingLabels { by_zone, reserved, reservation_id_label }
    }
}

fn zone_and_capacity_type(
    capacity_type: &str,
    zone: &str,
    zone_id: Option<&str>,
    interner: &mut Interner,
) -> Requirements {
    let mut requirements = Requirements::new();
    requirements.add_shared(interner.single(core::CAPACITY_TYPE, capacity_type));
    requirements.add_shared(interner.single(core::ZONE, zone));
    if let Some(id) = zone_id {
        requirements.add_shared(interner.single(labels::ZONE_ID, id));
    }
    requirements
}

fn partitioned(requirements: Requirements, partitions: &[u32], interner: &mut Interner) -> Partitioned {
    if partitions.is_empty() {
        return vec![(None, requirements)];
    }
    let with = |number: &u32| {
        let mut requirements = requirements.clone();
        requirements.add_shared(interner.single(labels::PLACEMENT_GROUP_PARTITION, &number.to_string()));
        (Some(*number), requirements)
    };
    partitions.iter().map(with).collect()
}

/// The zones of the node class, and whether the type is offered in each.
#[derive(Clone, Copy)]
pub(super) struct Zones<'a> {
    pub(super) zones: &'a [&'a AwsZone],
    pub(super) offered: &'a [bool],
}

/// `reserved` are the indexes of the node class's reservations for this instance type.
pub(super) fn offerings(
    info: &TypeInfo,
    (class, reserved): (&AwsNodeClass, &[usize]),
    Zones { zones, offered }: Zones<'_>,
    market: &dyn Market,
    labels: &OfferingLabels,
) -> Vec<Offering> {
    let attachments = Attachments::new(class, market);
    let compatible = incompatibility(info, class).is_none();
    let on_demand_price = market.on_demand_price(&info.name);
    let mut offerings = Vec::with_capacity(zones.len() * 2 + reserved.len());
    let spot_prices = match info.has_usage_class(core::CAPACITY_TYPE_SPOT) {
        true => market.spot_prices(&info.name, zones),
        false => vec![None; zones.len()],
    };
    for (((zone, offered), spot_price), kinds) in
        zones.iter().zip(offered).zip(spot_prices).zip(&labels.by_zone)
    {
        let reachable = compatible && *offered && !market.is_shifted(zone);
        let attached = attachments.per_hour(zone);
        for (capacity_type, partitioned) in kinds {
            if !info.has_usage_class(capacity_type) {
                continue;
            }
            let price = match *capacity_type {
                core::CAPACITY_TYPE_SPOT => spot_price,
                _ => on_demand_price,
            };
            let price = price.or_else(|| market.configured_price(&info.name));
            for (partition, requirements) in partitioned {
                let pool = CapacityPool {
                    instance_type: &info.name,
                    zone: &zone.name,
                    capacity_type,
                    partition: *partition,
                };
                let mut offering = Offering {
                    requirements: requirements.clone(),
                    available: reachable && price.is_some() && !market.has_insufficient_capacity(pool),
                    ..Offering::default()
                };
                if let Some(price) = price {
                    offering.set_price(price, attached);
                }
                offerings.push(offering);
            }
        }
    }
    for position in reserved {
        let (held, partitioned) = (&class.capacity_reservations[*position], &labels.reserved[*position]);
        let place = zones.iter().zip(offered).find(|(zone, _)| *zone.name == *held.zone);
        let reachable = place.is_some_and(|(zone, offered)| *offered && !market.is_shifted(zone));
        let left = market.reservation_left(&held.id);
        let attached = place.map_or(0.0, |(zone, _)| attachments.per_hour(zone));
        for (_, requirements) in partitioned {
            let mut offering = Offering {
                requirements: requirements.clone(),
                // A reserved offering is available even without a price, because capacity that is already paid for
                // should be used.
                available: compatible && reachable && left > 0 && !held.expiring,
                reservation_capacity: Some(left),
                reservation_id_label: Some(labels.reservation_id_label.clone()),
                ..Offering::default()
            };
            offering.set_price(on_demand_price.unwrap_or(0.0) / RESERVED_PRICE_DIVISOR, attached);
            offerings.push(offering);
        }
    }
    offerings
}
