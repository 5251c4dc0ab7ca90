//! The violations that the validator reports, and their messages.

use std::fmt;
use std::sync::Arc;

use karpenter_model::requirements::Requirement;
use karpenter_model::resources::ResourceList;
use karpenter_model::taints::Taint;

/// A node that the plan adds, or an existing node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
    /// Index into `Plan::new_nodes`.
    Planned(usize),
    Existing(Arc<str>),
    Unschedulable,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Planned(index) => write!(f, "planned node {index}"),
            Self::Existing(name) => write!(f, "node {name}"),
            Self::Unschedulable => f.write_str("the unschedulable list"),
        }
    }
}

/// A rule that the plan violates. If several identical pods are concerned, `pod` is one of them.
#[derive(Debug, Clone, PartialEq)]
pub enum Violation {
    RunOutOfRange {
        place: Place,
        group: u32,
        start: u32,
        count: u32,
    },
    PodMissing {
        pod: String,
        count: u32,
    },
    PodPlacedTwice {
        pod: String,
        count: u32,
    },
    /// The binding order names a node for some pods on which the plan does not place them.
    OrderOutOfPlace {
        place: Place,
        pod: String,
        count: u32,
    },
    OrderLacksPods {
        place: Place,
        pod: String,
        count: u32,
    },
    OrderRepeatsPods {
        pod: String,
        count: u32,
    },
    RefusedPodPlaced {
        place: Place,
        pod: String,
    },
    UnknownExistingNode {
        index: usize,
    },
    UnknownPool {
        node: usize,
        pool: usize,
    },
    UnknownInstanceType {
        node: usize,
        index: usize,
    },
    UnknownOffering {
        node: usize,
        instance_type: Arc<str>,
        index: usize,
    },
    NodeWithoutPods {
        node: usize,
    },
    ChosenTypeNotFirst {
        node: usize,
        instance_type: Arc<str>,
    },
    OptionListedTwice {
        node: usize,
        instance_type: Arc<str>,
    },
    OptionsOutOfOrder {
        node: usize,
        instance_type: Arc<str>,
    },
    CheaperOfferingIgnored {
        node: usize,
        instance_type: Arc<str>,
        price_per_hour: f64,
    },
    OfferingUnavailable {
        node: usize,
        instance_type: Arc<str>,
    },
    OfferingIncompatible {
        node: usize,
        instance_type: Arc<str>,
    },
    RequirementsOutsidePool {
        node: usize,
        requirement: Requirement,
    },
    OptionOutsideRequirements {
        node: usize,
        instance_type: Arc<str>,
    },
    OptionWithoutOffering {
        node: usize,
        instance_type: Arc<str>,
    },
    OptionTooSmall {
        node: usize,
        instance_type: Arc<str>,
        resource: Arc<str>,
        wanted: i64,
        free: i64,
    },
    RequestsWrong {
        node: usize,
        resource: Arc<str>,
        stated: i64,
        actual: i64,
    },
    MinValuesUnmet {
        node: usize,
        key: Arc<str>,
        wanted: u32,
        found: u32,
    },
    UntoleratedTaint {
        place: Place,
        pod: String,
        taint: Taint,
    },
    NodeSelectorUnmet {
        place: Place,
        pod: String,
        instance_type: Option<Arc<str>>,
        requirement: Requirement,
    },
    RequiredTermsUnmet {
        place: Place,
        pod: String,
        instance_type: Option<Arc<str>>,
    },
    VolumeTopologyUnmet {
        place: Place,
        pod: String,
        instance_type: Option<Arc<str>>,
    },
    HostPortConflict {
        place: Place,
        pod: String,
        port: u16,
    },
    VolumeLimitExceeded {
        place: Place,
        instance_type: Option<Arc<str>>,
        driver: Arc<str>,
        limit: u32,
        wanted: u32,
    },
    ExistingNodeOverfull {
        node: Arc<str>,
        resource: Arc<str>,
        wanted: i64,
        free: i64,
    },
    LimitExceeded {
        pool: Arc<str>,
        resource: Arc<str>,
        limit: i64,
        used: i64,
    },
    ReservationExceeded {
        reservation: String,
        capacity: u32,
        used: u32,
    },
    /// More NodeClaims may launch into the reservation than it has slots, so a launch could use a slot that another
    /// node relies on.
    ReservationContested {
        reservation: String,
        capacity: u32,
        nodes: u32,
    },
    NodePriceWrong {
        node: usize,
        stated: f64,
        actual: f64,
    },
    PlanPriceWrong {
        stated: f64,
        actual: f64,
    },
    PriceNotFinite {
        what: &'static str,
    },
    LowerBoundAbovePrice {
        bound: f64,
        price: f64,
    },
    CostAboveCompat {
        price: f64,
        compat: f64,
    },
    TopologyKeyMissing {
        place: Place,
        pod: String,
        key: Arc<str>,
    },
    /// The NodeClaim may launch in several domains of a topology key, but a constraint of its pods needs one domain.
    DomainOpen {
        place: Place,
        pod: String,
        key: Arc<str>,
        domains: Vec<Arc<str>>,
    },
    SpreadBroken {
        place: Place,
        pod: String,
        key: Arc<str>,
        domain: Arc<str>,
        max_skew: u32,
        domain_count: u32,
        minimum: u32,
        left: u32,
    },
    /// A node would hold more pods of a hard hostname spread than the NodePool's spread share allows.
    SpreadShareExceeded {
        place: Place,
        pod: String,
        limit: u32,
        node_count: u32,
        left: u32,
    },
    AffinityUnmet {
        place: Place,
        pod: String,
        key: Arc<str>,
        domain: Arc<str>,
        left: u32,
    },
    AntiAffinityBroken {
        place: Place,
        pod: String,
        key: Arc<str>,
        domain: Arc<str>,
        other: String,
    },
}

struct OnType<'a>(&'a Option<Arc<str>>);

impl fmt::Display for OnType<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(name) => write!(f, " as {name}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let amount = |name: &str, amount: i64| ResourceList::quantity(name, amount);
        match self {
            Self::RunOutOfRange { place, group, start, count } => {
                write!(f, "{place}: pods {start}+{count} of group {group} do not exist")
            }
            Self::PodMissing { pod, count } => {
                write!(f, "{count} pods from {pod} on are neither placed nor listed as unschedulable")
            }
            Self::PodPlacedTwice { pod, count } => {
                write!(f, "{count} pods from {pod} on appear more than once")
            }
            Self::OrderOutOfPlace { place, pod, count } => {
                write!(
                    f,
                    "{place}: the binding order names {count} pods from {pod} on that are not planned there"
                )
            }
            Self::OrderLacksPods { place, pod, count } => {
                write!(f, "{place}: {count} pods from {pod} on are not in the binding order")
            }
            Self::OrderRepeatsPods { pod, count } => {
                write!(f, "{count} pods from {pod} on are in the binding order more than once")
            }
            Self::RefusedPodPlaced { place, pod } => {
                write!(f, "{place}: pod {pod} must not be scheduled but is placed")
            }
            Self::UnknownExistingNode { index } => write!(f, "existing node {index} does not exist"),
            Self::UnknownPool { node, pool } => write!(f, "planned node {node}: pool {pool} does not exist"),
            Self::UnknownInstanceType { node, index } => {
                write!(f, "planned node {node}: instance type {index} does not exist")
            }
            Self::UnknownOffering { node, instance_type, index } => {
                write!(f, "planned node {node}: {instance_type} has no offering {index}")
            }
            Self::NodeWithoutPods { node } => write!(f, "planned node {node}: no pods"),
            Self::ChosenTypeNotFirst { node, instance_type } => {
                write!(f, "planned node {node}: the chosen {instance_type} is not the first option")
            }
            Self::OptionListedTwice { node, instance_type } => {
                write!(f, "planned node {node}: option {instance_type} is listed twice")
            }
            Self::OptionsOutOfOrder { node, instance_type } => {
                write!(f, "planned node {node}: option {instance_type} is cheaper than the one before it")
            }
            Self::CheaperOfferingIgnored { node, instance_type, price_per_hour } => {
                write!(f, "planned node {node}: {instance_type} is also offered at {price_per_hour} per hour")
            }
            Self::OfferingUnavailable { node, instance_type } => {
                write!(f, "planned node {node}: the chosen offering of {instance_type} cannot be launched")
            }
            Self::OfferingIncompatible { node, instance_type } => {
                write!(
                    f,
                    "planned node {node}: the chosen offering of {instance_type} is not one the claim allows"
                )
            }
            Self::RequirementsOutsidePool { node, requirement } => {
                write!(f, "planned node {node}: {requirement} contradicts the pool")
            }
            Self::OptionOutsideRequirements { node, instance_type } => {
                write!(
                    f,
                    "planned node {node}: option {instance_type} does not meet the claim's requirements"
                )
            }
            Self::OptionWithoutOffering { node, instance_type } => {
                write!(
                    f,
                    "planned node {node}: option {instance_type} has no available offering the claim allows"
                )
            }
            Self::OptionTooSmall { node, instance_type, resource, wanted, free } => write!(
                f,
                "planned node {node}: option {instance_type} has {} of {resource}, {} needed",
                amount(resource, *free),
                amount(resource, *wanted)
            ),
            Self::RequestsWrong { node, resource, stated, actual } => write!(
                f,
                "planned node {node}: states {} of {resource} requested, it is {}",
                amount(resource, *stated),
                amount(resource, *actual)
            ),
            Self::MinValuesUnmet { node, key, wanted, found } => {
                write!(
                    f,
                    "planned node {node}: minValues of {key} needs {wanted} values, options have {found}"
                )
            }
            Self::UntoleratedTaint { place, pod, taint } => {
                write!(f, "{place}: pod {pod} does not tolerate {taint}")
            }
            Self::NodeSelectorUnmet { place, pod, instance_type, requirement } => {
                write!(f, "{place}: pod {pod} selects {requirement}, not met{}", OnType(instance_type))
            }
            Self::RequiredTermsUnmet { place, pod, instance_type } => {
                write!(
                    f,
                    "{place}: no required node affinity term of pod {pod} is met{}",
                    OnType(instance_type)
                )
            }
            Self::VolumeTopologyUnmet { place, pod, instance_type } => {
                write!(f, "{place}: the volumes of pod {pod} cannot be reached{}", OnType(instance_type))
            }
            Self::HostPortConflict { place, pod, port } => {
                write!(f, "{place}: host port {port} of pod {pod} is taken")
            }
            Self::VolumeLimitExceeded { place, instance_type, driver, limit, wanted } => {
                write!(f, "{place}: {wanted} volumes of {driver}{}, at most {limit}", OnType(instance_type))
            }
            Self::ExistingNodeOverfull { node, resource, wanted, free } => write!(
                f,
                "node {node}: {} of {resource} planned, {} free",
                amount(resource, *wanted),
                amount(resource, *free)
            ),
            Self::LimitExceeded { pool, resource, limit, used } => write!(
                f,
                "nodepool {pool}: {} of {resource} used, limit {}",
                amount(resource, *used),
                amount(resource, *limit)
            ),
            Self::ReservationExceeded { reservation, capacity, used } => {
                write!(f, "reservation {reservation}: {used} nodes planned, capacity {capacity}")
            }
            Self::ReservationContested { reservation, capacity, nodes } => {
                write!(f, "reservation {reservation}: {nodes} nodes may launch into it, capacity {capacity}")
            }
            Self::NodePriceWrong { node, stated, actual } => {
                write!(f, "planned node {node}: price {stated}, the offering costs {actual}")
            }
            Self::PlanPriceWrong { stated, actual } => {
                write!(f, "plan price {stated}, the nodes cost {actual}")
            }
            Self::PriceNotFinite { what } => write!(f, "{what} is not a finite number"),
            Self::LowerBoundAbovePrice { bound, price } => {
                write!(f, "lower bound {bound} is above the price {price}")
            }
            Self::CostAboveCompat { price, compat } => {
                write!(f, "price {price} is above the price {compat} of compat mode")
            }
            Self::TopologyKeyMissing { place, pod, key } => {
                write!(f, "{place}: pod {pod} needs the topology label {key}, which the node lacks")
            }
            Self::DomainOpen { place, pod, key, domains } => {
                write!(f, "{place}: {key} of pod {pod} may become any of {}", domains.join(", "))
            }
            Self::SpreadBroken { place, pod, key, domain, max_skew, domain_count, minimum, left } => write!(
                f,
                "{place}: {left} pods like {pod} violate the spread over {key}: {domain} has {domain_count}, the minimum is {minimum}, maxSkew {max_skew}"
            ),
            Self::SpreadShareExceeded { place, pod, limit, node_count, left } => write!(
                f,
                "{place}: {left} pods like {pod} exceed the share of their hostname spread: the node has {node_count}, the limit is {limit}"
            ),
            Self::AffinityUnmet { place, pod, key, domain, left } => {
                write!(f, "{place}: {left} pods like {pod} find no matching pod in {key} {domain}")
            }
            Self::AntiAffinityBroken { place, pod, key, domain, other } => {
                write!(f, "{place}: pod {pod} must not share {key} {domain} with {other}")
            }
        }
    }
}
