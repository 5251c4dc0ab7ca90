//! The output of disruption: candidates that are disrupted together, their replacements, and the target of every pod.
//!
//! Upstream: pkg/controllers/disruption/types.go (Command, Candidate).

use std::sync::Arc;

use karpenter_model::plan::PlannedNode;
use karpenter_scheduling::simulate::BoundAt;

use crate::cluster::Reason;

/// A rule that finds candidates; variants are in the order of evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Method {
    Repair,
    /// Nodes older than `ttlSecondsUntilExpired` of their Provisioner (v1alpha5 API).
    Expiration,
    Emptiness,
    StaticDrift,
    Drift,
    /// Several nodes are deleted, or replaced by one, as upstream does.
    MultiNodeConsolidation,
    /// One node is deleted or replaced by one, as upstream does.
    SingleNodeConsolidation,
    /// Several nodes are replaced by several cheaper ones, planned for the whole cluster.
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

    /// Whether the method lowers cost; false for repair, drift and expiration.
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

    /// Whether a command is validated after a delay before it starts.
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

/// How the candidates are disrupted, as spelled in metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Decision {
    Delete,
    Replace,
    /// The candidate is deleted before its replacement is launched, because its capacity is needed for the launch.
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

/// A node that may be disrupted.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// Index into `Cluster::state_nodes`.
    pub state_node: usize,
    pub claim: Arc<str>,
    pub uid: Arc<str>,
    pub node: Arc<str>,
    pub pool: Arc<str>,
    pub price_per_hour: f64,
    /// The disruption cost: 1, plus the eviction cost of each pod that has to be rescheduled.
    pub reschedule_cost: f64,
    pub is_empty: bool,
}

impl Candidate {
    /// Price divided by disruption cost; candidates with a higher ratio are disrupted first.
    pub fn savings_ratio(&self) -> f64 {
        self.price_per_hour / self.reschedule_cost
    }
}

/// The target of a pod that is rescheduled.
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
    /// NodePool and catalog indexes refer to `Cluster::problem`. Their `pods` are empty; see `moves`.
    pub replacements: Vec<PlannedNode>,
    /// Set if each candidate is replaced by a node from the template of this static NodePool; `replacements` is empty
    /// then.
    pub static_pool: Option<Arc<str>>,
    pub moves: Vec<(BoundAt, Destination)>,
    pub price_before_per_hour: f64,
    pub price_after_per_hour: f64,
    /// What the moves of the pods are priced at. The method Rebalance requires a higher saving.
    pub disruption_price_per_hour: f64,
    /// Termination grace period that the command sets (repair).
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
