//! For every node: why it is, or is not, being disrupted now. Events, the journal and the command line render it.
//!
//! Nothing is decided here.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use karpenter_model::reason::Refusal;

use crate::candidate::Blocked;
use crate::cluster::Reason;
use crate::command::Method;

/// How it stands with one node.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeVerdict {
    /// Index into `Cluster::state_nodes`.
    pub state_node: usize,
    pub claim: Arc<str>,
    /// Who says so; `None` if nobody had anything to say.
    pub method: Option<Method>,
    pub verdict: Verdict,
}

impl NodeVerdict {
    /// Upstream's event for it, if it has one; the text is the `Display` of `verdict`.
    pub fn event(&self) -> Option<EventKind> {
        let has_to_be = matches!(
            self.method,
            Some(Method::Repair | Method::Expiration | Method::StaticDrift | Method::Drift)
        );
        match self.verdict {
            // What keeps a node that has to go is not a matter of savings.
            Verdict::WouldNotFit { .. } | Verdict::PodBudgetJoint { .. } if has_to_be => {
                Some(EventKind::DisruptionBlocked)
            }
            _ => self.verdict.event(),
        }
    }
}

/// A pod that would have no place if its node went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnschedulablePod {
    /// namespace/name
    pub pod: Arc<str>,
    /// Empty when it would only fit a node that is not initialised, see `uninitialized`.
    pub reasons: Vec<Refusal>,
    /// It would go there, which is not initialised yet.
    pub uninitialized: Option<UninitializedNode>,
}

/// A node that is coming up, by whatever of it is there.
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
    /// Part of a command of this proposal.
    Chosen {
        method: Method,
    },
    /// Would be part of a command if its pool were not on a dry run.
    DryRun {
        method: Method,
    },
    Blocked(Blocked),
    /// Its pool is static, and it has not drifted.
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
    /// Its pool wants it to be left alone for a while after pods came or went. `None`: the wait has not begun.
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
        /// Pods that may still be moved within this hour, and pods that would have to be.
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
    /// Cheaper types exist, but too few for minValues.
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
    /// One budget of pods does not allow all evictions that the command would need together.
    PodBudgetJoint {
        name: Arc<str>,
        wanted: u32,
        allowed: u32,
    },
    /// Too many nodes of the pool are sick at once.
    RepairHalted {
        pool: Arc<str>,
    },
    StaticScalingDown,
    StaticAtLimit,
    StaticReservationsFull,
    /// Launches from its static pool failed repeatedly.
    LaunchesFail {
        pool: Arc<str>,
    },
    /// Something else goes first in this pass.
    NotNow,
    /// It costs less than what its removal would: what its pods would cost elsewhere, what its free capacity is worth for
    /// pods of other nodes, and the price of moving its pods.
    Stays {
        price_per_hour: f64,
        pods_elsewhere_per_hour: f64,
        free_capacity_per_hour: f64,
        pods: usize,
        disruption_price_per_hour: f64,
    },
    /// Nothing cheaper was found for it.
    Fine,
}

/// The kind of event that upstream would send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventKind {
    DisruptionBlocked,
    Unconsolidatable,
    NodeRepairBlocked,
}

impl Verdict {
    /// Whether nothing but the objective keeps the node.
    pub fn is_unexplained(&self) -> bool {
        matches!(self, Self::Fine | Self::Stays { .. })
    }

    /// Upstream's event for it when it is said about savings.
    pub fn event(&self) -> Option<EventKind> {
        match self {
            // Either is over in a moment, and a cluster that grows would tell it of every node.
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
            Self::Chosen { method } => write!(f, "Goes now: {}", method.reason().as_str()),
            Self::DryRun { method } => {
                write!(f, "Would go now ({}), but its pool is on a dry run", method.reason().as_str())
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
                write!(f, "Pods came or went; left alone until {}", moment(*until))
            }
            Self::Settling { until_secs: None } => {
                f.write_str("Not yet left alone for as long as its pool asks")
            }
            Self::CoolDown { until_secs } => {
                write!(f, "Pods were moved here or from here; left alone until {}", moment(*until_secs))
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
                "NodePool \"{pool}\" lets {per_hour} pods be moved per hour, {left} of them now; {wanted} would be moved"
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
                write!(f, "Would save {saving_per_hour:.4} $/h, but {wanted_per_hour:.4} are asked for")
            }
            Self::Unbalanced { score, threshold } => {
                write!(
                    f,
                    "Saves too small a share of its pool's cost for the pods it moves: score {score:.2} < threshold {threshold:.2}"
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
            Self::StaticScalingDown => f.write_str("Its static NodePool is still scaling down"),
            Self::StaticAtLimit => {
                f.write_str("static NodePool is at its node limit and cannot stage a replacement")
            }
            Self::StaticReservationsFull => {
                f.write_str("static NodePool's capacity reservations are full and cannot stage a replacement")
            }
            Self::LaunchesFail { pool } => {
                write!(f, "launches of NodePool \"{pool}\" failed repeatedly, so nothing can take its place")
            }
            Self::NotNow => f.write_str("Something else goes first"),
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
            Self::Fine => f.write_str("Nothing cheaper was found"),
        }
    }
}

/// As people read it.
fn moment(secs: i64) -> String {
    Timestamp::from_second(secs).map_or_else(|_| "the end of time".to_owned(), |time| time.to_string())
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
