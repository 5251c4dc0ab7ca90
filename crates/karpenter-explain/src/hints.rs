//! Stable names of reasons for programs, and hints that state which change would make a pod fit. A hint names the field
//! to change. Reasons that a user cannot influence have no hint.

use karpenter_model::reason::{Reason, Refusal, Scope};
use karpenter_model::resources::ResourceList;

/// The stable name of a reason, as JSON and YAML show it.
pub fn reason_name(reason: &Reason) -> &'static str {
    match reason {
        Reason::NoNodePools => "NoNodePools",
        Reason::OptedOut => "OptedOut",
        Reason::InvalidPod { .. } => "InvalidPod",
        Reason::Volume { .. } => "Volume",
        Reason::DynamicResources => "DynamicResources",
        Reason::Taint(_) => "Taint",
        Reason::UndefinedLabel { .. } => "UndefinedLabel",
        Reason::Requirement { .. } => "Requirement",
        Reason::TooLarge { .. } => "TooLarge",
        Reason::PoolMatchesNoInstanceType { .. } => "PoolMatchesNoInstanceType",
        Reason::NoInstanceTypeMatches { .. } => "NoInstanceTypeMatches",
        Reason::NoOffering { .. } => "NoOffering",
        Reason::LimitExceeded { .. } => "LimitExceeded",
        Reason::NodeLimitReached { .. } => "NodeLimitReached",
        Reason::HostPortTaken { .. } => "HostPortTaken",
        Reason::Spread { .. } => "Spread",
        Reason::Affinity { .. } => "Affinity",
        Reason::AntiAffinity { .. } => "AntiAffinity",
        Reason::MinValues { .. } => "MinValues",
        Reason::VolumeLimit { .. } => "VolumeLimit",
        Reason::ReservationFull => "ReservationFull",
        Reason::NotEnoughRoom => "NotEnoughRoom",
        Reason::PlannerFault => "PlannerFault",
    }
}

/// The hint: the change that removes this reason.
pub fn hint(refusal: &Refusal) -> Option<String> {
    let pool = match &refusal.scope {
        Scope::NodePool(name) => Some(&**name),
        Scope::Pod | Scope::Cluster | Scope::ExistingNodes { .. } => None,
    };
    let in_pool = |field: &str| match pool {
        Some(pool) => format!("{field} of NodePool {pool}"),
        None => field.to_owned(),
    };
    Some(match &refusal.reason {
        Reason::NoNodePools => "add a NodePool with a nodeClassRef".to_owned(),
        Reason::Taint(taint) => format!("add a toleration for {taint} to the pod, or drop the taint"),
        Reason::UndefinedLabel { wanted, hint: Some(meant) } => {
            format!("write {meant} instead of {}", wanted.key)
        }
        Reason::UndefinedLabel { wanted, hint: None } => {
            format!("add {} to {}", wanted.key, in_pool("spec.template.metadata.labels or requirements"))
        }
        Reason::Requirement { offered, wanted } => {
            format!(
                "change the pod's {}, or widen {}",
                wanted.key,
                in_pool(&format!("{} in spec.template", offered.key))
            )
        }
        Reason::TooLarge { short_of, .. } if short_of.is_empty() => {
            format!(
                "lower the pod's requests, or allow larger types in {}",
                in_pool("spec.template.spec.requirements")
            )
        }
        Reason::TooLarge { short_of, .. } => format!(
            "lower the pod's {} request, or allow larger types in {}",
            short_of.join(" and "),
            in_pool("spec.template.spec.requirements")
        ),
        Reason::PoolMatchesNoInstanceType { .. } => {
            format!("widen {}", in_pool("spec.template.spec.requirements"))
        }
        Reason::NoInstanceTypeMatches { wanted } | Reason::NoOffering { wanted } => match wanted.as_slice() {
            [] => format!("widen {}", in_pool("spec.template.spec.requirements")),
            wanted => {
                let keys: Vec<&str> = wanted.iter().map(|requirement| &*requirement.key).collect();
                format!("relax {} in the pod or in {}", keys.join(", "), in_pool("the requirements"))
            }
        },
        Reason::LimitExceeded { resource, limit, .. } => format!(
            "raise {} above {}",
            in_pool(&format!("spec.limits.{resource}")),
            ResourceList::quantity(resource, *limit)
        ),
        Reason::NodeLimitReached { limit } => format!("raise {} above {limit}", in_pool("spec.limits.nodes")),
        Reason::MinValues { key, wanted, .. } => {
            format!("lower minValues of {key} below {wanted}, or plan with --min-values-policy best-effort")
        }
        Reason::Spread { key, .. } => {
            format!("raise maxSkew, or let nodes be created in more domains of {key}")
        }
        Reason::AntiAffinity { key } => {
            format!("allow more domains of {key}, or make the anti-affinity preferred")
        }
        Reason::Affinity { key } => {
            format!("check that a pod with the selected labels can run in some {key}")
        }
        Reason::ReservationFull => "wait for the reservation, or allow other capacity types".to_owned(),
        Reason::OptedOut
        | Reason::InvalidPod { .. }
        | Reason::Volume { .. }
        | Reason::DynamicResources
        | Reason::HostPortTaken { .. }
        | Reason::VolumeLimit { .. }
        | Reason::NotEnoughRoom
        | Reason::PlannerFault => return None,
    })
}

/// How far the pod was from fitting. Reasons with a smaller distance are shown first.
pub fn distance(reason: &Reason) -> u8 {
    match reason {
        Reason::InvalidPod { .. }
        | Reason::Volume { .. }
        | Reason::OptedOut
        | Reason::DynamicResources
        | Reason::PlannerFault => 0,
        Reason::LimitExceeded { .. } | Reason::NodeLimitReached { .. } | Reason::ReservationFull => 1,
        Reason::TooLarge { .. } | Reason::NoOffering { .. } | Reason::MinValues { .. } => 2,
        Reason::Spread { .. } | Reason::Affinity { .. } | Reason::AntiAffinity { .. } => 2,
        Reason::HostPortTaken { .. } | Reason::VolumeLimit { .. } => 2,
        Reason::NoInstanceTypeMatches { .. } => 3,
        Reason::UndefinedLabel { .. } => 4,
        Reason::Requirement { .. } => 5,
        Reason::Taint(_) => 6,
        Reason::PoolMatchesNoInstanceType { .. } => 7,
        Reason::NoNodePools | Reason::NotEnoughRoom => 8,
    }
}
