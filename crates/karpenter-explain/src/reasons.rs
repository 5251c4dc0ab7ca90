//! Converts the planner's reasons and disruption's verdicts into reasons of the view, with typed parameters.

use std::collections::BTreeMap;

use karpenter_disruption::candidate::Blocked;
use karpenter_disruption::verdict::Verdict;
use karpenter_model::reason::{Reason as Cause, Refusal, Scope};
use karpenter_model::requirements::Requirement;
use karpenter_view::{Param, Reason};

use crate::format::{quantity, time};
use crate::hints::reason_name;
use crate::verdict_names::verdict_name;

/// A reason without a fix.
pub(crate) fn reason(code: &str, params: &[(&str, Param)], message: String) -> Reason {
    let params: BTreeMap<String, Param> =
        params.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    Reason { code: code.to_owned(), params, message, fix: None }
}

/// The reason why a NodePool does not accept a pod; the NodePool is one of its parameters.
pub(crate) fn of_refusal(refusal: &Refusal) -> Reason {
    let mut params = params_of(&refusal.reason);
    if let Scope::NodePool(pool) = &refusal.scope {
        params.push(("nodePool", (&**pool).into()));
    }
    reason(reason_name(&refusal.reason), &params, message_of(&refusal.reason))
}

fn texts(requirements: &[Requirement]) -> Param {
    Param::List(requirements.iter().map(ToString::to_string).collect())
}

fn params_of(cause: &Cause) -> Vec<(&'static str, Param)> {
    match cause {
        Cause::Taint(taint) => vec![("taint", taint.to_string().into())],
        Cause::UndefinedLabel { wanted, hint } => {
            let mut params = vec![("key", (&*wanted.key).into()), ("wanted", wanted.to_string().into())];
            params.extend(hint.as_ref().map(|hint| ("similarKey", Param::from(&**hint))));
            params
        }
        Cause::Requirement { offered, wanted } => vec![
            ("key", (&*wanted.key).into()),
            ("wanted", wanted.to_string().into()),
            ("offered", offered.to_string().into()),
        ],
        Cause::TooLarge { requests, largest, short_of } => {
            let mut params =
                vec![("resources", Param::List(short_of.iter().map(|one| one.to_string()).collect()))];
            if let [only] = short_of.as_slice() {
                params.push(("requested", quantity(only, requests.get(only)).into()));
                params.push(("largest", quantity(only, largest.get(only).max(0)).into()));
            }
            params
        }
        Cause::PoolMatchesNoInstanceType { culprit } => {
            culprit.iter().map(|one| ("requirement", one.to_string().into())).collect()
        }
        Cause::NoInstanceTypeMatches { wanted } | Cause::NoOffering { wanted } => {
            vec![("wanted", texts(wanted))]
        }
        Cause::LimitExceeded { resource, limit, used } => vec![
            ("resource", (&**resource).into()),
            ("limit", quantity(resource, *limit).into()),
            ("used", quantity(resource, *used).into()),
        ],
        Cause::NodeLimitReached { limit } => {
            vec![("resource", "nodes".into()), ("limit", limit.to_string().into())]
        }
        Cause::HostPortTaken { port } => vec![("port", u64::from(*port).into())],
        Cause::Spread { key, max_skew, domains } => vec![
            ("key", (&**key).into()),
            ("maxSkew", u64::from(*max_skew).into()),
            ("domains", Param::List(domains.iter().map(|(name, count)| format!("{name}={count}")).collect())),
        ],
        Cause::Affinity { key } | Cause::AntiAffinity { key } => vec![("key", (&**key).into())],
        Cause::MinValues { key, wanted, found } => vec![
            ("key", (&**key).into()),
            ("wanted", u64::from(*wanted).into()),
            ("found", u64::from(*found).into()),
        ],
        Cause::VolumeLimit { driver, limit } => {
            vec![("driver", (&**driver).into()), ("limit", u64::from(*limit).into())]
        }
        Cause::InvalidPod { what } | Cause::Volume { what } => vec![("what", (&**what).into())],
        Cause::NoNodePools
        | Cause::OptedOut
        | Cause::DynamicResources
        | Cause::ReservationFull
        | Cause::NotEnoughRoom
        | Cause::PlannerFault => Vec::new(),
    }
}

/// Short messages for tables. The planner's own messages equal upstream's and are longer.
fn message_of(cause: &Cause) -> String {
    match cause {
        Cause::Taint(taint) => format!("taint {taint} is not tolerated"),
        Cause::Requirement { offered, wanted } => format!("requires {wanted}; the NodePool has {offered}"),
        Cause::UndefinedLabel { wanted, hint } => match hint {
            Some(hint) => format!("label {} is not defined; similar: {hint}", wanted.key),
            None => format!("label {} is not defined", wanted.key),
        },
        Cause::TooLarge { requests, largest, short_of } if !short_of.is_empty() => {
            let parts: Vec<String> = short_of
                .iter()
                .map(|name| {
                    let (wanted, most) = (requests.get(name), largest.get(name).max(0));
                    match most {
                        0 => format!("requests {name} {}; no instance type has any", quantity(name, wanted)),
                        most => format!(
                            "requests {name} {}; the largest instance type has {}",
                            quantity(name, wanted),
                            quantity(name, most)
                        ),
                    }
                })
                .collect();
            parts.join(", ")
        }
        Cause::LimitExceeded { resource, limit, used } => {
            format!("{resource} limit {}, {} used", quantity(resource, *limit), quantity(resource, *used))
        }
        Cause::NodeLimitReached { limit } => format!("nodes limit {limit} is reached"),
        other => other.to_string(),
    }
}

/// The reason that corresponds to a verdict.
pub(crate) fn of_verdict(verdict: &Verdict) -> Reason {
    reason(verdict_name(verdict), &verdict_params(verdict), verdict.to_string())
}

fn verdict_params(verdict: &Verdict) -> Vec<(&'static str, Param)> {
    match verdict {
        Verdict::Blocked(Blocked::PodBudget(name)) => vec![("podDisruptionBudget", (&**name).into())],
        Verdict::Blocked(Blocked::PodBudgets(names)) => {
            vec![("podDisruptionBudgets", Param::List(names.iter().map(|name| name.to_string()).collect()))]
        }
        Verdict::Blocked(Blocked::PodAnnotated(pod) | Blocked::PodHeld(pod)) => {
            vec![("pod", (&**pod).into())]
        }
        Verdict::Blocked(Blocked::NoPool(pool))
        | Verdict::NeverConsolidated { pool }
        | Verdict::OnlyWhenEmpty { pool }
        | Verdict::RepairHalted { pool }
        | Verdict::LaunchesFail { pool } => vec![("nodePool", (&**pool).into())],
        Verdict::UnknownInstanceType { name } => vec![("instanceType", (&**name).into())],
        Verdict::MissingLabel { key } => vec![("key", (*key).into())],
        Verdict::Settling { until_secs: Some(until) } | Verdict::CoolDown { until_secs: until } => {
            vec![("until", time(*until).into())]
        }
        Verdict::BudgetExhausted { pool, reason } => {
            vec![("nodePool", (&**pool).into()), ("reason", reason.as_str().into())]
        }
        Verdict::MovesExhausted { pool, per_hour, left, wanted } => vec![
            ("nodePool", (&**pool).into()),
            ("perHour", u64::from(*per_hour).into()),
            ("left", u64::from(*left).into()),
            ("required", u64::from(*wanted).into()),
        ],
        Verdict::WouldNotFit { unschedulable } => {
            vec![("pods", Param::List(unschedulable.iter().take(5).map(|one| one.pod.to_string()).collect()))]
        }
        Verdict::NeedsSeveralNodes { count } => vec![("count", (*count as u64).into())],
        Verdict::TooFewTypes { key, wanted, found } => vec![
            ("key", (&**key).into()),
            ("wanted", u64::from(*wanted).into()),
            ("found", u64::from(*found).into()),
        ],
        Verdict::SpotToSpotInflexible { wanted, found } => {
            vec![("wanted", (*wanted as u64).into()), ("found", (*found as u64).into())]
        }
        Verdict::BelowThreshold { saving_per_hour, wanted_per_hour } => {
            vec![("savingPerHour", (*saving_per_hour).into()), ("requiredPerHour", (*wanted_per_hour).into())]
        }
        Verdict::Unbalanced { score, threshold } => {
            vec![("score", (*score).into()), ("threshold", (*threshold).into())]
        }
        Verdict::PodBudgetJoint { name, wanted, allowed } => vec![
            ("podDisruptionBudget", (&**name).into()),
            ("required", u64::from(*wanted).into()),
            ("allowed", u64::from(*allowed).into()),
        ],
        Verdict::NotCheaper { price_now_per_hour, cheapest_replacement_per_hour } => {
            let mut params = vec![("pricePerHour", Param::Number(*price_now_per_hour))];
            let cheapest =
                cheapest_replacement_per_hour.map(|price| ("cheapestPerHour", Param::Number(price)));
            params.extend(cheapest);
            params
        }
        Verdict::Stays {
            price_per_hour,
            pods_elsewhere_per_hour,
            free_capacity_per_hour,
            pods,
            disruption_price_per_hour,
        } => vec![
            ("pricePerHour", (*price_per_hour).into()),
            ("podsElsewherePerHour", (*pods_elsewhere_per_hour).into()),
            ("freeCapacityPerHour", (*free_capacity_per_hour).into()),
            ("pods", (*pods as u64).into()),
            ("disruptionPricePerHour", (*disruption_price_per_hour).into()),
        ],
        Verdict::HasBufferPods { node } => vec![("node", (&**node).into())],
        Verdict::Chosen { .. }
        | Verdict::DryRun { .. }
        | Verdict::Blocked(_)
        | Verdict::NotDrifted
        | Verdict::Settling { until_secs: None }
        | Verdict::SpotToSpotOff
        | Verdict::StaticScalingDown
        | Verdict::StaticAtLimit
        | Verdict::StaticReservationsFull
        | Verdict::NotNow
        | Verdict::Fine => Vec::new(),
    }
}
