//! The output: nodes to take away together, what is launched in their place, and where every pod is to go.

use std::sync::Arc;

use karpenter_model::plan::PlannedNode;
use karpenter_scheduling::simulate::BoundAt;

use crate::cluster::Reason;

/// A way to find nodes that may go, in the order in which they are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Method {
    Repair,
    /// Nodes beyond the age that the rules before v1 give them.
    Expiration,
    Emptiness,
    StaticDrift,
    Drift,
    /// m nodes for none or one, as upstream.
    MultiNodeConsolidation,
    /// One node for none or one, as upstream.
    SingleNodeConsolidation,
    /// m nodes for the cheapest n, planned for the whole cluster.
    Rebalance,
}

impl Method {
    pub const ORDER: [Self; 8] = [
        Self::Repair,
        Self::Expiration,
        Self::Emptiness,
        Self::StaticDrift,
        Self::Drift,
        Self::MultiNodeConsolidation,
        Self::SingleNodeConsolidation,
        Self::Rebalance,
    ];

    pub fn reason(self) -> Reason {
        match self {
            Self::Repair => Reason::Unhealthy,
            Self::Expiration => Reason::Expired,
            Self::Emptiness => Reason::Empty,
            Self::StaticDrift | Self::Drift => Reason::Drifted,
            Self::MultiNodeConsolidation | Self::SingleNodeConsolidation | Self::Rebalance => {
                Reason::Underutilized
            }
        }
    }

    /// Whether a node goes because that is cheaper, not because it has to.
    pub fn is_for_savings(self) -> bool {
        matches!(self.reason(), Reason::Empty | Reason::Underutilized)
    }

    /// The label `consolidation_type` of metrics.
    pub fn consolidation_type(self) -> &'static str {
        match self {
            Self::Repair | Self::Expiration | Self::StaticDrift | Self::Drift => "",
            Self::Emptiness => "empty",
            Self::MultiNodeConsolidation | Self::Rebalance => "multi",
            Self::SingleNodeConsolidation => "single",
        }
    }

    /// Whether a proposal is looked at again after a delay before it is carried out.
    pub fn is_validated(self) -> bool {
        match self {
            Self::Repair | Self::Expiration | Self::StaticDrift | Self::Drift => false,
            Self::Emptiness
            | Self::MultiNodeConsolidation
            | Self::SingleNodeConsolidation
            | Self::Rebalance => true,
        }
    }
}

/// How it is done, as metrics spell it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Decision {
    Delete,
    Replace,
    /// Deleted first, because nothing can be launched before.
    TerminateFirst,
    Reboot,
}

impl Decision {
    pub fn label(self) -> &'static str {
        match self {
            Self::Delete => "delete",
            Self::Replace => "replace",
            Self::TerminateFirst => "terminate-first",
            Self::Reboot => "reboot",
        }
    }
}

/// A node that may go.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// Index into `Cluster::state_nodes`.
    pub state_node: usize,
    pub claim: Arc<str>,
    pub uid: Arc<str>,
    pub node: Arc<str>,
    pub pool: Arc<str>,
    pub price_per_hour: f64,
    /// One, and what each pod adds that has to move.
    pub reschedule_cost: f64,
    pub is_empty: bool,
}

impl Candidate {
    /// What is saved per trouble: nodes with more go first.
    pub fn savings_ratio(&self) -> f64 {
        self.price_per_hour / self.reschedule_cost
    }
}

/// Where a pod that has to move is to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Destination {
    /// Index into `Cluster::problem.nodes`.
    Existing(usize),
    /// Index into `Command::replacements`.
    New(usize),
}

#[derive(Debug, Clone)]
pub struct Command {
    pub method: Method,
    pub decision: Decision,
    pub candidates: Vec<Candidate>,
    /// Pool and catalog indexes are those of `Cluster::problem`. Their `pods` are empty; see `moves`.
    pub replacements: Vec<PlannedNode>,
    /// Set when one node per candidate is made from this static pool's template; then `replacements` are empty.
    pub static_pool: Option<Arc<str>>,
    pub moves: Vec<(BoundAt, Destination)>,
    pub price_before_per_hour: f64,
    pub price_after_per_hour: f64,
    /// Bound for the drain that the command itself sets (repair).
    pub termination_grace_period_secs: Option<i64>,
}

impl Command {
    pub fn saving_per_hour(&self) -> f64 {
        self.price_before_per_hour - self.price_after_per_hour
    }

    pub fn pods_moved(&self) -> usize {
        self.moves.len()
    }
}
