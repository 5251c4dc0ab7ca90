//! Where and how a type can be bought: one offering per zone of the class and capacity type.
//!
//! An offering that cannot be used is listed as unavailable rather than left out, so that an
//! explanation can tell "not offered there" from "no such type". Reservations and current
//! shortages are facts of an account at a moment and have no place here.

use karpenter_model::instance_type::Offering;
use karpenter_model::labels as core;
use karpenter_model::requirements::Requirements;

use super::info::AwsInstanceInfo;
use super::labels;
use super::node_class::{AmiFamily, AwsNodeClass, AwsZone};
use crate::intern::Interner;

/// The labels of every offering a class can have. They do not depend on the type, so they are
/// built once and copied.
pub(super) struct OfferingLabels {
    /// Zone by zone, on-demand and spot.
    by_zone: Vec<[(&'static str, Requirements); 2]>,
}

impl OfferingLabels {
    pub(super) fn new(zones: &[&AwsZone], interner: &mut Interner) -> OfferingLabels {
        let mut labels =
            |capacity_type, zone| (capacity_type, offering_requirements(capacity_type, zone, interner));
        let by_zone = zones.iter().map(|zone| {
            [labels(core::CAPACITY_TYPE_ON_DEMAND, zone), labels(core::CAPACITY_TYPE_SPOT, zone)]
        });
        OfferingLabels { by_zone: by_zone.collect() }
    }
}

/// `offered` says whether the type exists in each of the zones that `labels` were made for.
pub(super) fn offerings(
    info: &AwsInstanceInfo,
    class: &AwsNodeClass,
    offered: &[bool],
    on_demand_price: Option<f64>,
    labels: &OfferingLabels,
) -> Vec<Offering> {
    let compatible = incompatibility(info, class).is_none();
    let mut offerings = Vec::with_capacity(offered.len() * 2);
    for (offered, labels) in offered.iter().zip(&labels.by_zone) {
        let available = compatible && on_demand_price.is_some() && *offered;
        for (capacity_type, requirements) in labels {
            if !info.usage_classes.contains(capacity_type) {
                continue;
            }
            let factor =
                if *capacity_type == core::CAPACITY_TYPE_SPOT { class.spot_price_factor } else { 1.0 };
            offerings.push(Offering {
                requirements: requirements.clone(),
                price_per_hour: on_demand_price.unwrap_or(0.0) * factor,
                available,
                reservation_capacity: None,
            });
        }
    }
    offerings
}

fn offering_requirements(capacity_type: &str, zone: &AwsZone, interner: &mut Interner) -> Requirements {
    let mut requirements = Requirements::new();
    requirements.add(interner.single(core::CAPACITY_TYPE, capacity_type));
    requirements.add(interner.single(core::ZONE, &zone.name));
    if let Some(id) = &zone.id {
        requirements.add(interner.single(labels::ZONE_ID, id));
    }
    // Without these a pool that asks for a reservation would accept ordinary capacity.
    for key in [
        labels::CAPACITY_RESERVATION_ID,
        labels::CAPACITY_RESERVATION_TYPE,
        labels::CAPACITY_RESERVATION_INTERRUPTIBLE,
    ] {
        requirements.add(interner.absent(key));
    }
    requirements
}

/// Why a type can never be launched with a class, whatever the zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Incompatibility {
    #[error("the type does not support elastic network adapters")]
    NoElasticNetworkAdapter,
    #[error("the class configures a network card that the type does not have")]
    NoSuchNetworkCard,
    #[error("the class configures more interfaces on a network card than the type allows")]
    NoSuchDeviceIndex,
    #[error("the class configures more EFA interfaces than the type allows")]
    TooManyEfaInterfaces,
    #[error("AL2023 images do not run on the type's processor")]
    ImageFamily,
    #[error("the type does not support nested virtualization")]
    NoNestedVirtualization,
    #[error("connection tracking settings need the nitro hypervisor")]
    NoConnectionTracking,
}

/// The first reason, in a fixed order, for which the class rules the type out.
pub fn incompatibility(info: &AwsInstanceInfo, class: &AwsNodeClass) -> Option<Incompatibility> {
    if let Some(interfaces) = &class.network_interfaces {
        if info.ena_support == "unsupported" {
            return Some(Incompatibility::NoElasticNetworkAdapter);
        }
        for interface in interfaces {
            let Some(card) = info.network_cards.get(interface.network_card_index as usize) else {
                return Some(Incompatibility::NoSuchNetworkCard);
            };
            if card.interfaces_max <= interface.device_index {
                return Some(Incompatibility::NoSuchDeviceIndex);
            }
        }
        if class.efa_only_interfaces().count() > info.efa_interfaces.unwrap_or(0) as usize {
            return Some(Incompatibility::TooManyEfaInterfaces);
        }
    }
    if class.ami_family == AmiFamily::Al2023 && info.family == "a1" {
        return Some(Incompatibility::ImageFamily);
    }
    if class.nested_virtualization && !info.cpu_features.contains(&"nested-virtualization") {
        return Some(Incompatibility::NoNestedVirtualization);
    }
    if class.connection_tracking && info.hypervisor != "nitro" {
        return Some(Incompatibility::NoConnectionTracking);
    }
    None
}
