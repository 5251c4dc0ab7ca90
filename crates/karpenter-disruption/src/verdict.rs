//! The verdict for every node: why it is or is not disrupted. Events, the decision journal and the CLI show it.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use karpenter_model::reason::Refusal;

use crate::candidate::Blocked;
use crate::cluster::Reason;
use crate::command::Method;

/// The verdict for one node.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeVerdict {
    /// Index into `Cluster::state_nodes`.
    pub state_node: usize,
    pub claim: Arc<str>,
    /// The method that decided; `None` if no method considered the node.
    pub method: Option<Method>,
    pub verdict: Verdict,
}

impl NodeVerdict {
    /// Upstream's event for the verdict, if there is one; the message is the `Display` of `verdict`.
    pub fn event(&self) -> Option<EventKind> {
        let has_to_be = matches!(
            self.method,
            Some(Method::Repair | Method::Expiration | Method::StaticDrift | Method::Drift)
        );
        match self.verdict {
            // For repair and drift the event is `DisruptionBlocked`, because `Unconsolidatable` is for consolidation
            // only.
            Verdict::WouldNotFit { .. } | Verdict::PodBudgetJoint { .. } if has_to_be => {
                Some(EventKind::DisruptionBlocked)
            }
            _ => self.verdict.event(),
        }
    }
}

/// A pod that cannot be scheduled if its node is deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnschedulablePod {
    /// namespace/name
    pub pod: Arc<str>,
    /// Why no node fits. Empty if the pod would only fit on a node that is not initialized; see `uninitialized`.
    pub reasons: Vec<Refusal>,
    /// The node that is not initialized yet and on which the pod would be scheduled.
    pub uninitialized: Option<UninitializedNode>,
}

/// A node that is not initialized: its claim and its node, as far as they exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UninitializedNode {
    pub claim: Option<Arc<str>>,
    pub node: Option<Arc<str>>,
}

impl fmt::Display for UninitializedNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let claim = self.claim.as_ref().map(|name| format!("nodeclaim/{name}"));
        let node = self.node.as_ref().map(|name| format!("node/{name}"));
        let known: Vec<String> = claim.into_iter().chain(node).collect();
        f.write_str(&known.join(", "))
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// The node is part of a command of this evaluation.
    Chosen {
        method: Method,
    },
    /// The node is part of a command of the consolidation dry run.
    DryRun {
        method: Method,
    },
    Blocked(Blocked),
    /// The NodePool is static, and the node has not drifted.
    NotDrifted,
    NeverConsolidated {
        pool: Arc<str>,
    },
    OnlyWhenEmpty {
        pool: Arc<str>,
    },
    HasBufferPods {
        node: Arc<str>,
    },
    UnknownInstanceType {
        name: Arc<str>,
    },
    MissingLabel {
        key: &'static str,
    },
    /// `consolidateAfter` has not elapsed since the last pod event. `None`: there was no pod event yet.
    Settling {
        until_secs: Option<i64>,
    },
    CoolDown {
        until_secs: i64,
    },
    BudgetExhausted {
        pool: Arc<str>,
        reason: Reason,
    },
    MovesExhausted {
        pool: Arc<str>,
        per_hour: u32,
        /// How many more pods may be moved within this hour; `wanted` is the number that the command would move.
        left: u32,
        wanted: u32,
    },
    WouldNotFit {
        unschedulable: Vec<UnschedulablePod>,
    },
    NeedsSeveralNodes {
        count: usize,
    },
    NotCheaper {
        price_now_per_hour: f64,
        cheapest_replacement_per_hour: Option<f64>,
    },
    /// There are cheaper instance types, but too few for `minValues`.
    TooFewTypes {
        key: Arc<str>,
        wanted: u32,
        found: u32,
    },
    SpotToSpotOff,
    SpotToSpotInflexible {
        wanted: usize,
        found: usize,
    },
    BelowThreshold {
        saving_per_hour: f64,
        wanted_per_hour: f64,
    },
    Unbalanced {
        score: f64,
        threshold: f64,
    },
    /// A PodDisruptionBudget does not allow all evictions of the command together.
    PodBudgetJoint {
        name: Arc<str>,
        wanted: u32,
        allowed: u32,
    },
    /// Too many nodes of the NodePool are unhealthy.
    RepairHalted {
        pool: Arc<str>,
    },
    StaticScalingDown,
    StaticAtLimit,
    StaticReservationsFull,
    /// Launches from the static NodePool failed repeatedly.
    LaunchesFail {
        pool: Arc<str>,
    },
    /// Another command has priority in this evaluation.
    NotNow,
    /// Its price is at most the sum of what its pods would cost elsewhere, what its free capacity is worth for pods of other
    /// nodes, and the price of moving its pods.
    Stays {
        price_per_hour: f64,
        pods_elsewhere_per_hour: f64,
        free_capacity_per_hour: f64,
        pods: usize,
        disruption_price_per_hour: f64,
    },
    /// No command was found for the node.
    Fine,
}

/// The kind of event that upstream publishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventKind {
    DisruptionBlocked,
    Unconsolidatable,
    NodeRepairBlocked,
}

impl Verdict {
    /// Whether the node stays only because of the objective, not because of a rule or setting.
    pub fn is_unexplained(&self) -> bool {
        matches!(self, Self::Fine | Self::Stays { .. })
    }

    /// Upstream's event for the verdict on consolidation.
    pub fn event(&self) -> Option<EventKind> {
        match self {
            // Both states last only seconds; if they were published, every node of a growing cluster would get an
            // event.
            Self::Blocked(Blocked::InCommand | Blocked::Nominated) => None,
            Self::Blocked(_)
            | Self::StaticAtLimit
            | Self::StaticReservationsFull
            | Self::LaunchesFail { .. } => Some(EventKind::DisruptionBlocked),
            Self::RepairHalted { .. } => Some(EventKind::NodeRepairBlocked),
            Self::NeverConsolidated { .. }
            | Self::OnlyWhenEmpty { .. }
            | Self::HasBufferPods { .. }
            | Self::UnknownInstanceType { .. }
            | Self::MissingLabel { .. }
            | Self::WouldNotFit { .. }
            | Self::NeedsSeveralNodes { .. }
            | Self::NotCheaper { .. }
            | Self::TooFewTypes { .. }
            | Self::SpotToSpotOff
            | Self::SpotToSpotInflexible { .. }
            | Self::BelowThreshold { .. }
            | Self::Unbalanced { .. }
            | Self::CoolDown { .. }
            | Self::MovesExhausted { .. }
            | Self::PodBudgetJoint { .. } => Some(EventKind::Unconsolidatable),
            Self::Chosen { .. }
            | Self::DryRun { .. }
            | Self::NotDrifted
            | Self::Settling { .. }
            | Self::BudgetExhausted { .. }
            | Self::StaticScalingDown
            | Self::NotNow
            | Self::Stays { .. }
            | Self::Fine => None,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Chosen { method } => write!(f, "Selected for disruption: {}", method.reason().as_str()),
            Self::DryRun { method } => {
                write!(
                    f,
                    "Would be disrupted ({}), but the consolidation dry run of its NodePool is on",
                    method.reason().as_str()
                )
            }
            Self::Blocked(blocked) => write!(f, "{blocked}"),
            Self::NotDrifted => f.write_str("Belongs to a static NodePool and has not drifted"),
            Self::NeverConsolidated { pool } => write!(f, "NodePool \"{pool}\" has consolidation disabled"),
            Self::OnlyWhenEmpty { pool } => {
                write!(f, "NodePool \"{pool}\" has consolidation policy WhenEmpty, but node is not empty")
            }
            Self::HasBufferPods { node } => write!(f, "Node \"{node}\" has buffer pods"),
            Self::UnknownInstanceType { name } => write!(f, "Instance Type \"{name}\" not found"),
            Self::MissingLabel { key } => write!(f, "Node does not have label \"{key}\""),
            Self::Settling { until_secs: Some(until) } => {
                write!(
                    f,
                    "Not consolidated before {}, because pods were bound or removed recently",
                    rfc3339(*until)
                )
            }
            Self::Settling { until_secs: None } => f.write_str("consolidateAfter has not elapsed"),
            Self::CoolDown { until_secs } => {
                write!(
                    f,
                    "Not consolidated before {}, because pods were moved recently (cool-down)",
                    rfc3339(*until_secs)
                )
            }
            Self::BudgetExhausted { pool, reason } => {
                write!(
                    f,
                    "The budgets of NodePool \"{pool}\" allow no further disruption for reason {}",
                    reason.as_str()
                )
            }
            Self::MovesExhausted { pool, per_hour, left, wanted } => write!(
                f,
                "NodePool \"{pool}\" allows {per_hour} pod moves per hour, {left} are left, {wanted} would be needed"
            ),
            Self::WouldNotFit { unschedulable } => write_unplaced(f, unschedulable),
            Self::NeedsSeveralNodes { count } => {
                write!(f, "Can't remove without creating {count} candidates")
            }
            Self::NotCheaper { .. } => f.write_str("Can't replace with a cheaper node"),
            Self::TooFewTypes { key, .. } => write!(
                f,
                "Filtering by price: minValues requirement is not met for label(s) (label(s)=[{key}])"
            ),
            Self::SpotToSpotOff => {
                f.write_str("SpotToSpotConsolidation is disabled, can't replace a spot node with a spot node")
            }
            Self::SpotToSpotInflexible { wanted, found } => write!(
                f,
                "SpotToSpotConsolidation requires {wanted} cheaper instance type options than the current candidate to consolidate, got {found}"
            ),
            Self::BelowThreshold { saving_per_hour, wanted_per_hour } => {
                write!(f, "Would save {saving_per_hour:.4} $/h, the minimum is {wanted_per_hour:.4} $/h")
            }
            Self::Unbalanced { score, threshold } => {
                write!(
                    f,
                    "Saving too low for the disruption cost: score {score:.2} < threshold {threshold:.2}"
                )
            }
            Self::PodBudgetJoint { name, wanted, allowed } => {
                let evictions = if *allowed == 1 { "eviction" } else { "evictions" };
                write!(
                    f,
                    "PodDisruptionBudget {name} allows {allowed} {evictions}, {wanted} would be needed together"
                )
            }
            Self::RepairHalted { pool } => {
                write!(f, "more than 20% of nodes in nodepool \"{pool}\" are unhealthy")
            }
            Self::StaticScalingDown => f.write_str("static NodePool is scaling down"),
            Self::StaticAtLimit => {
                f.write_str("static NodePool is at its node limit and cannot stage a replacement")
            }
            Self::StaticReservationsFull => {
                f.write_str("static NodePool's capacity reservations are full and cannot stage a replacement")
            }
            Self::LaunchesFail { pool } => {
                write!(f, "launches of NodePool \"{pool}\" failed repeatedly and cannot stage a replacement")
            }
            Self::NotNow => f.write_str("Another command has priority"),
            Self::Stays {
                price_per_hour,
                pods_elsewhere_per_hour,
                free_capacity_per_hour,
                pods,
                disruption_price_per_hour,
            } => write!(
                f,
                "Costs {price_per_hour:.4} $/h; its pods would cost {pods_elsewhere_per_hour:.4} elsewhere, its free capacity is worth {free_capacity_per_hour:.4}, moving {pods} pods is priced at {disruption_price_per_hour:.4}: stays"
            ),
            Self::Fine => f.write_str("No command was found"),
        }
    }
}

/// RFC 3339.
fn rfc3339(secs: i64) -> String {
    Timestamp::from_second(secs).map_or_else(|_| "an unknown time".to_owned(), |time| time.to_string())
}

const UNPLACED_SHOWN_MAX: usize = 5;

fn write_unplaced(f: &mut fmt::Formatter<'_>, unschedulable: &[UnschedulablePod]) -> fmt::Result {
    f.write_str("Not all pods would schedule, ")?;
    for one in unschedulable.iter().take(UNPLACED_SHOWN_MAX) {
        write!(f, "{} => ", one.pod)?;
        match &one.uninitialized {
            Some(state_node) => write!(f, "would schedule against uninitialized {state_node}")?,
            None => {
                let reasons: Vec<String> = one.reasons.iter().map(ToString::to_string).collect();
                f.write_str(&reasons.join("; "))?;
            }
        }
        f.write_str(" ")?;
    }
    if unschedulable.len() > UNPLACED_SHOWN_MAX {
        write!(f, " and {} other(s)", unschedulable.len() - UNPLACED_SHOWN_MAX)?;
    }
    Ok(())
}
