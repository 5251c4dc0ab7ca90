//! Whether a node class can launch an instance type. Types that it cannot launch stay in the list with unavailable
//! offerings, so that explanations can name them.
//!
//! Upstream: karpenter-provider-aws `pkg/providers/instancetype/compatibility/compatibility.go`.

use std::sync::Arc;

use super::info::TypeInfo;
use super::node_class::{AmiFamily, AwsNodeClass};

/// Why a node class cannot launch an instance type in any zone.
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
    #[error("AL2023 does not support the processor of the type")]
    ImageFamily,
    #[error("the type does not support nested virtualization")]
    NoNestedVirtualization,
    #[error("the type cannot be launched into placement groups of this strategy")]
    PlacementStrategy,
    #[error("connection tracking settings need the nitro hypervisor")]
    NoConnectionTracking,
}

/// The first reason why the node class cannot launch the instance type; reasons are checked in a fixed order. `None` if
/// it can.
pub fn incompatibility(info: &TypeInfo, class: &AwsNodeClass) -> Option<Incompatibility> {
    if let Some(interfaces) = &class.network_interfaces {
        if info.network_cards.is_empty() {
            return Some(Incompatibility::NoSuchNetworkCard);
        }
        if &*info.ena_support == "unsupported" {
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
    if class.ami_family == AmiFamily::Al2023 && info.family() == "a1" {
        return Some(Incompatibility::ImageFamily);
    }
    if class.nested_virtualization && !lists(&info.cpu_features, "nested-virtualization") {
        return Some(Incompatibility::NoNestedVirtualization);
    }
    if let Some(group) = &class.placement_group
        && !lists(&info.placement_strategies, group.strategy.as_str())
    {
        return Some(Incompatibility::PlacementStrategy);
    }
    if class.connection_tracking && &*info.hypervisor != "nitro" {
        return Some(Incompatibility::NoConnectionTracking);
    }
    None
}

fn lists(texts: &[Arc<str>], wanted: &str) -> bool {
    texts.iter().any(|text| &**text == wanted)
}
