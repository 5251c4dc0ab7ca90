//! The scope of a violation: the part of a plan, if any, that must be left out because of the violation.

use std::sync::Arc;

use super::violation::{Place, Violation};

/// The part of a plan that a violation concerns.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ViolationScope {
    /// Index into `Plan::new_nodes`.
    PlannedNode(usize),
    /// The existing node with this name.
    ExistingNode(Arc<str>),
    /// All planned nodes of a NodePool.
    Pool(Arc<str>),
    /// All planned nodes on reserved capacity.
    Reservations,
    /// The placement of pods on nodes, or the binding order, is inconsistent.
    Coverage,
}

impl From<&Place> for ViolationScope {
    fn from(place: &Place) -> Self {
        match place {
            Place::Planned(index) => Self::PlannedNode(*index),
            Place::Existing(name) => Self::ExistingNode(name.clone()),
            Place::Unschedulable => Self::Coverage,
        }
    }
}

impl Violation {
    /// Whether executing the plan could leave pods unschedulable or launch useless nodes. Otherwise the violation is a
    /// wrong value (a price, a bound, a sum of requests, the order of options) on nodes that can run their pods.
    pub fn is_unsafe(&self) -> bool {
        !matches!(
            self,
            Self::NodePriceWrong { .. }
                | Self::PlanPriceWrong { .. }
                | Self::PriceNotFinite { .. }
                | Self::LowerBoundAbovePrice { .. }
                | Self::CostAboveCompat { .. }
                | Self::RequestsWrong { .. }
                | Self::ChosenTypeNotFirst { .. }
                | Self::OptionsOutOfOrder { .. }
                | Self::OptionListedTwice { .. }
                | Self::CheaperOfferingIgnored { .. }
        )
    }

    pub fn scope(&self) -> ViolationScope {
        match self {
            Self::PodMissing { .. }
            | Self::PodPlacedTwice { .. }
            | Self::OrderOutOfPlace { .. }
            | Self::OrderLacksPods { .. }
            | Self::OrderRepeatsPods { .. }
            | Self::UnknownExistingNode { .. }
            | Self::PlanPriceWrong { .. }
            | Self::PriceNotFinite { .. }
            | Self::LowerBoundAbovePrice { .. }
            | Self::CostAboveCompat { .. } => ViolationScope::Coverage,
            Self::UnknownPool { node, .. }
            | Self::UnknownInstanceType { node, .. }
            | Self::UnknownOffering { node, .. }
            | Self::NodeWithoutPods { node }
            | Self::ChosenTypeNotFirst { node, .. }
            | Self::OptionListedTwice { node, .. }
            | Self::OptionsOutOfOrder { node, .. }
            | Self::CheaperOfferingIgnored { node, .. }
            | Self::OfferingUnavailable { node, .. }
            | Self::OfferingIncompatible { node, .. }
            | Self::RequirementsOutsidePool { node, .. }
            | Self::OptionOutsideRequirements { node, .. }
            | Self::OptionWithoutOffering { node, .. }
            | Self::OptionTooSmall { node, .. }
            | Self::RequestsWrong { node, .. }
            | Self::MinValuesUnmet { node, .. }
            | Self::NodePriceWrong { node, .. } => ViolationScope::PlannedNode(*node),
            Self::ExistingNodeOverfull { node, .. } => ViolationScope::ExistingNode(node.clone()),
            Self::LimitExceeded { pool, .. } => ViolationScope::Pool(pool.clone()),
            Self::ReservationExceeded { .. } | Self::ReservationContested { .. } => {
                ViolationScope::Reservations
            }
            Self::RunOutOfRange { place, .. }
            | Self::RefusedPodPlaced { place, .. }
            | Self::UntoleratedTaint { place, .. }
            | Self::NodeSelectorUnmet { place, .. }
            | Self::RequiredTermsUnmet { place, .. }
            | Self::VolumeTopologyUnmet { place, .. }
            | Self::HostPortConflict { place, .. }
            | Self::VolumeLimitExceeded { place, .. }
            | Self::TopologyKeyMissing { place, .. }
            | Self::DomainOpen { place, .. }
            | Self::SpreadBroken { place, .. }
            | Self::SpreadShareExceeded { place, .. }
            | Self::AffinityUnmet { place, .. }
            | Self::AntiAffinityBroken { place, .. } => place.into(),
        }
    }

    /// The name of the violated rule, used as a metric label.
    pub fn rule(&self) -> String {
        let text = format!("{self:?}");
        text.split([' ', '{']).next().unwrap_or_default().to_owned()
    }
}
