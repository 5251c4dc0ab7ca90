//! Reasons why a pod is unschedulable, as structured values that logs, events and the command line print.

use std::fmt;
use std::sync::Arc;

use crate::requirements::{Incompatible, Requirement};
use crate::resources::ResourceList;
use crate::taints::Taint;

/// A reason, and its scope: the pod itself, a NodePool or existing nodes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Refusal {
    pub scope: Scope,
    pub reason: Reason,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// The reason concerns the pod itself, so no node would help.
    Pod,
    /// All NodePools.
    Cluster,
    ExistingNodes {
        count: u32,
    },
    NodePool(Arc<str>),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// No NodePool is ready and dynamic (without `replicas`).
    NoNodePools,
    /// The pod's requirements exclude every node that Karpenter launches.
    OptedOut,
    /// A field of the pod is invalid; `what` names the field and the valid values.
    InvalidPod {
        what: Arc<str>,
    },
    /// A volume of the pod cannot be used.
    Volume {
        what: Arc<str>,
    },
    /// The pod uses dynamic resource claims, which are not supported.
    DynamicResources,
    Taint(Taint),
    UndefinedLabel {
        wanted: Requirement,
        hint: Option<Arc<str>>,
    },
    Requirement {
        offered: Requirement,
        wanted: Requirement,
    },
    /// Instance types match the labels, but none is large enough. `largest` is the maximum of each resource.
    TooLarge {
        requests: ResourceList,
        largest: ResourceList,
        short_of: Vec<Arc<str>>,
    },
    /// No instance type meets the NodePool's own requirements.
    PoolMatchesNoInstanceType {
        culprit: Option<Requirement>,
    },
    /// No instance type meets both the pod's and the NodePool's requirements.
    NoInstanceTypeMatches {
        wanted: Vec<Requirement>,
    },
    /// Instance types match, but none of them has an available offering (zone and capacity type) that matches as well.
    NoOffering {
        wanted: Vec<Requirement>,
    },
    LimitExceeded {
        resource: Arc<str>,
        limit: i64,
        used: i64,
    },
    NodeLimitReached {
        limit: i64,
    },
    HostPortTaken {
        port: u16,
    },
    Spread {
        key: Arc<str>,
        max_skew: u32,
        domains: Vec<(Arc<str>, u32)>,
    },
    Affinity {
        key: Arc<str>,
    },
    AntiAffinity {
        key: Arc<str>,
    },
    MinValues {
        key: Arc<str>,
        wanted: u32,
        found: u32,
    },
    VolumeLimit {
        driver: Arc<str>,
        limit: u32,
    },
    ReservationFull,
    NotEnoughRoom,
    /// Because of a fault of the planner, no plan that contains the pod passes validation.
    PlannerFault,
}

impl From<Incompatible> for Reason {
    fn from(incompatible: Incompatible) -> Self {
        match incompatible {
            Incompatible::Undefined { wanted, hint } => Self::UndefinedLabel { wanted, hint },
            Incompatible::Conflict { offered, wanted } => Self::Requirement { offered, wanted },
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pod => f.write_str("pod"),
            Self::Cluster => f.write_str("cluster"),
            Self::ExistingNodes { count: 1 } => f.write_str("1 existing node"),
            Self::ExistingNodes { count } => write!(f, "{count} existing nodes"),
            Self::NodePool(name) => write!(f, "nodepool {name}"),
        }
    }
}

fn list(requirements: &[Requirement]) -> String {
    requirements.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoNodePools => f.write_str("no dynamic nodepools found"),
            Self::OptedOut => f.write_str("the pod's requirements exclude nodes of nodepools"),
            Self::InvalidPod { what } => write!(f, "the pod is invalid: {what}"),
            Self::Volume { what } => write!(f, "a volume cannot be used: {what}"),
            Self::DynamicResources => f.write_str(
                "pod has Dynamic Resource Allocation requirements that are not yet supported by Karpenter",
            ),
            Self::Taint(taint) => write!(f, "did not tolerate taint {taint}"),
            Self::UndefinedLabel { wanted, hint } => {
                write!(f, "label \"{}\" does not have known values", wanted.key)?;
                match hint {
                    Some(hint) => write!(f, " (typo of \"{hint}\"?)"),
                    None => Ok(()),
                }
            }
            Self::Requirement { offered, wanted } => {
                write!(f, "requires {wanted}, but only {offered} is offered")
            }
            Self::TooLarge { requests, largest, short_of } => {
                f.write_str("no instance type has enough resources: ")?;
                for (position, name) in short_of.iter().enumerate() {
                    if position > 0 {
                        f.write_str(", ")?;
                    }
                    let quantity = |amount| ResourceList::quantity(name, amount);
                    write!(
                        f,
                        "{name} {} wanted, at most {} free",
                        quantity(requests.get(name)),
                        quantity(largest.get(name).max(0))
                    )?;
                }
                if short_of.is_empty() {
                    f.write_str("no single type has all of them together")?;
                }
                if requests.get(crate::resources::CPU) >= 1_000_000_000 {
                    f.write_str(" (is \"M\" meant to be \"m\"?)")?;
                }
                Ok(())
            }
            Self::PoolMatchesNoInstanceType { culprit: Some(requirement) } => {
                write!(
                    f,
                    "nodepool requirements filtered out all available instance types; no type has {requirement}"
                )
            }
            Self::PoolMatchesNoInstanceType { culprit: None } => {
                f.write_str("nodepool requirements filtered out all available instance types")
            }
            Self::NoInstanceTypeMatches { wanted } => write!(f, "no instance type met {}", list(wanted)),
            Self::NoOffering { wanted } => write!(f, "no available offering met {}", list(wanted)),
            Self::LimitExceeded { resource, limit, used } => {
                let quantity = |amount| ResourceList::quantity(resource, amount);
                write!(
                    f,
                    "all available instance types exceed limits for nodepool: {resource} {} of {} used",
                    quantity(*used),
                    quantity(*limit)
                )
            }
            Self::NodeLimitReached { limit } => {
                write!(f, "node limits have been exhausted for nodepool: at most {limit} nodes")
            }
            Self::HostPortTaken { port } => write!(f, "host port {port} is in use"),
            Self::Spread { key, max_skew, domains } => {
                write!(f, "would violate topology spread over {key} (maxSkew {max_skew}")?;
                for (position, (domain, count)) in domains.iter().enumerate() {
                    write!(f, "{}{domain} has {count}", if position == 0 { "; " } else { ", " })?;
                }
                f.write_str(")")
            }
            Self::Affinity { key } => write!(f, "pod affinity over {key}: no domain has a matching pod"),
            Self::AntiAffinity { key } => write!(f, "pod anti-affinity over {key} excludes every domain"),
            Self::MinValues { key, wanted, found } => {
                write!(f, "minValues of {key} needs {wanted} values, only {found} remain")
            }
            Self::VolumeLimit { driver, limit } => {
                write!(f, "would exceed the limit of {limit} volumes of {driver}")
            }
            Self::ReservationFull => f.write_str("the capacity reservation is full"),
            Self::NotEnoughRoom => f.write_str("not enough free resources"),
            Self::PlannerFault => {
                f.write_str("left out because of a planner fault; all other pods are planned")
            }
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.scope, self.reason)
    }
}
