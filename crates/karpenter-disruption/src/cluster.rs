//! The input: every node with what runs on it, every pool with its rules, at one moment.
//!
//! A `Cluster` is a value. Times are seconds since the epoch.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use karpenter_model::problem::Problem;

use crate::command::Method;

#[derive(Debug, Clone, Default)]
pub struct Cluster {
    /// All nodes that stay for now with their pods, the pools that may launch, and pods that wait anyway (those of
    /// nodes on their way out included). The order of nodes decides between pods that are alike: whoever wants equal
    /// answers lists them by name.
    pub problem: Problem,
    /// Every node of this provider, those on their way in or out included.
    pub state_nodes: Vec<StateNode>,
    /// Every pool by name, static ones included.
    pub pools: BTreeMap<Arc<str>, NodePoolView>,
    /// Pod disruption budgets; pods name them by index.
    pub pod_budgets: Vec<PodBudget>,
    pub now_secs: i64,
    /// The version of the cluster that this was read from.
    pub revision: u64,
    /// Commands that were proposed and wait for their second look; their nodes are not marked yet.
    pub proposed_commands: Vec<ProposedCommand>,
    /// Claims that commands which have begun are taking away.
    pub disrupting_claims: BTreeSet<Arc<str>>,
    /// Claims that are left alone for a while because commands for them failed, with the reasons of those. Other reasons
    /// do not wait, and they block nobody else.
    pub held_off: BTreeMap<Arc<str>, BTreeSet<Reason>>,
    /// Whether commands are wanted that have to wait until budgets open.
    pub plan_beyond_budgets: bool,
    /// Pods are leaving their nodes, and a plan made now would be out of date before it begins: before then no plan for the
    /// whole cluster is made. Times are whole seconds, and this one is rounded up.
    pub churn_ends_at_secs: Option<i64>,
}

impl Cluster {
    /// Whether a claim waits in a proposal that has its share of the budgets.
    pub(crate) fn has_budget_share(&self, claim: &str) -> bool {
        self.proposed_commands.iter().any(|one| !one.awaits_budget && one.claims.contains(claim))
    }

    /// The method whose proposal a claim waits in.
    pub fn proposing_method(&self, claim: &str) -> Option<Method> {
        self.proposed_commands.iter().find(|one| one.claims.contains(claim)).map(|one| one.method)
    }
}

/// A proposed command that was not started yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProposedCommand {
    pub method: Method,
    pub claims: BTreeSet<Arc<str>>,
    /// It waits for budgets to open and takes nothing from them yet.
    pub awaits_budget: bool,
}

/// A claim, its node and what runs there.
#[derive(Debug, Clone, Default)]
pub struct StateNode {
    pub claim: Arc<str>,
    pub uid: Arc<str>,
    pub node: Option<Arc<str>>,
    pub pool: Option<Arc<str>>,
    /// Index into `Problem::nodes`; `None` for nodes on their way out and for those without a node.
    pub at: Option<usize>,
    pub is_registered: bool,
    pub is_initialized: bool,
    pub is_ready: bool,
    /// Its instance is being ended: no budget counts it any more.
    pub is_instance_terminating: bool,
    /// Deleting, or marked for deletion by a command.
    pub is_marked_for_deletion: bool,
    /// Its claim is being deleted, not only marked.
    pub is_deleting: bool,
    pub is_rebooting: bool,
    /// Pods are on their way to it.
    pub is_nominated: bool,
    /// `karpenter.sh/do-not-disrupt: "true"` on the node.
    pub is_do_not_disrupt: bool,
    /// When the condition `Drifted` became true.
    pub drifted_since_secs: Option<i64>,
    /// Since when no pod has come or gone; `None` until it is initialised.
    pub last_pod_event_secs: Option<i64>,
    pub instance_type: Option<Arc<str>>,
    /// The pool's catalog has no such type, so that nothing is known about its price.
    pub is_instance_type_unknown: bool,
    pub zone: Option<Arc<str>>,
    pub capacity_type: Option<Arc<str>>,
    pub reservation_id: Option<Arc<str>>,
    /// Zero if it is not known.
    pub price_per_hour: f64,
    pub created_at_secs: i64,
    /// `None`: never expires.
    pub expire_after_secs: Option<i64>,
    pub termination_grace_period_secs: Option<i64>,
    /// One per pod of `Problem::nodes[at]`, in the same order. Of a node on its way out, those that wait for their
    /// eviction and that budgets select.
    pub pods: Vec<NodePod>,
    /// A condition of its node is one that some repair policy names, tolerated for now or not.
    pub is_unhealthy: bool,
    /// Set when a repair policy applies to the node now.
    pub repair: Option<Repair>,
    /// When a command of ours last moved pods to it.
    pub moved_onto_at_secs: Option<i64>,
    pub legacy_marks: LegacyNodeMarks,
}

/// What a node of a pool with [`LegacyRules`] says in the words of their time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LegacyNodeMarks {
    /// When the Node came to be: its life counts from there.
    pub node_created_at_secs: Option<i64>,
    /// `karpenter.sh/emptiness-timestamp`; one that cannot be read is long ago.
    pub empty_since_secs: Option<i64>,
    /// `karpenter.sh/do-not-consolidate`: `true` keeps the node, any other value offers it whatever its pool says.
    pub do_not_consolidate: Option<bool>,
}

/// What disruption has to know of a pod beyond what the engine knows.
#[derive(Debug, Clone, Default)]
pub struct NodePod {
    /// namespace/name
    pub name: Arc<str>,
    pub uid: Arc<str>,
    /// The uid of the controlling owner.
    pub owner: Option<Arc<str>>,
    /// Neither terminal nor terminating.
    pub is_active: bool,
    /// Would have to run elsewhere if its node went (not a daemon, not a mirror pod…).
    pub is_reschedulable: bool,
    /// Would be evicted by a drain (does not tolerate the disrupted taint, is not a mirror pod…).
    pub is_evictable: bool,
    /// An active do-not-disrupt annotation.
    pub is_do_not_disrupt: bool,
    /// `karpenter.sh/do-not-evict`, which counts on nodes of pools with [`LegacyRules`] only.
    pub is_do_not_evict: bool,
    /// Its condition `Ready` is `False`.
    pub is_unready: bool,
    /// Stands for a capacity buffer.
    pub is_virtual: bool,
    pub eviction_cost: f64,
    /// Indexes into [`Cluster::pod_budgets`] of those that select it.
    pub budgets: Vec<u32>,
    /// When a command of ours last moved it or its predecessor.
    pub moved_at_secs: Option<i64>,
}

/// A PodDisruptionBudget.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodBudget {
    /// namespace/name
    pub name: Arc<str>,
    pub disruptions_allowed: u32,
    /// unhealthyPodEvictionPolicy AlwaysAllow.
    pub always_allows_unready: bool,
    /// maxUnavailable 0 or 0 %, minAvailable 100 %.
    pub is_fully_blocking: bool,
}

/// Why a node is disrupted, as budgets, conditions and metrics know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    Unhealthy,
    Empty,
    Drifted,
    Underutilized,
    /// Too old by the rules before v1, which know no budgets.
    Expired,
}

impl Reason {
    /// Those that budgets are about.
    pub const ALL: [Self; 4] = [Self::Unhealthy, Self::Empty, Self::Drifted, Self::Underutilized];

    /// As conditions, events and budgets spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unhealthy => "Unhealthy",
            Self::Empty => "Empty",
            Self::Drifted => "Drifted",
            Self::Underutilized => "Underutilized",
            Self::Expired => "Expired",
        }
    }

    /// As metrics and labels of claims spell it.
    pub fn label(self) -> &'static str {
        match self {
            Self::Unhealthy => "unhealthy",
            Self::Empty => "empty",
            Self::Drifted => "drifted",
            Self::Underutilized => "underutilized",
            Self::Expired => "expired",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ConsolidationPolicy {
    WhenEmpty,
    #[default]
    WhenEmptyOrUnderutilized,
    Balanced,
}

/// A pool as disruption sees it.
#[derive(Debug, Clone, Default)]
pub struct NodePoolView {
    pub name: Arc<str>,
    /// Index into `Problem::pools` if it may launch for pods.
    pub launches_as: Option<usize>,
    /// `spec.replicas` of a static pool.
    pub replicas: Option<u32>,
    /// What limits.nodes leaves for further nodes of a static pool; `None`: no limit.
    pub nodes_left: Option<u32>,
    /// Set for a static pool whose template can be had from reservations only, all of them full: the ids of those
    /// that are still offered. See [`crate::static_drift::full_reservations`].
    pub full_reservations: Option<BTreeSet<Arc<str>>>,
    /// Ready, and not being deleted.
    pub is_ready: bool,
    /// Launches from it keep failing: nothing is replaced by one of its nodes for now.
    pub is_in_launch_backoff: bool,
    pub policy: ConsolidationPolicy,
    /// `None`: never.
    pub consolidate_after_secs: Option<i64>,
    /// What its budgets allow now for each reason, given its present number of nodes, before those already disrupting
    /// are taken off. A reason that is missing allows nothing.
    pub allowed: BTreeMap<Reason, u32>,
    pub pool_policy: PoolPolicy,
    /// Set for pools that were made from a Provisioner.
    pub legacy_rules: Option<LegacyRules>,
}

/// The rules of the API before v1 where they differ from those of v1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LegacyRules {
    /// Nodes that are older are replaced one at a time, replacement first; `None`: never.
    pub expires_after_secs: Option<i64>,
    /// Nodes that are empty for longer go, whatever pods and budgets say; `None`: emptiness is a matter of consolidation.
    pub empty_after_secs: Option<i64>,
}

/// What a pool's owner asks for beyond upstream's API, by annotation.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolPolicy {
    /// The share of the pool's price that moving all its pods has to save; `None`: as in the settings.
    pub saving_ratio: Option<f64>,
    /// A move must save at least this share of what its nodes cost, and this much.
    pub min_saving_ratio: f64,
    pub min_saving_per_hour: f64,
    /// A node or pod that a command moved is left alone for so long.
    pub cool_down_secs: i64,
    /// The k of policy Balanced.
    pub balanced_k: f64,
    /// Pods that may be moved for savings within an hour; `None`: as many as budgets allow.
    pub max_moves_per_hour: Option<u32>,
    /// Pods moved for savings within the last hour.
    pub moved_last_hour: u32,
    /// Whether several nodes may be launched in place of others.
    pub is_many_to_many_enabled: bool,
    /// Only say what would be done.
    pub is_dry_run: bool,
}

impl Default for PoolPolicy {
    fn default() -> Self {
        Self {
            saving_ratio: None,
            min_saving_ratio: 0.0,
            min_saving_per_hour: 0.0,
            cool_down_secs: 0,
            balanced_k: 2.0,
            max_moves_per_hour: None,
            moved_last_hour: 0,
            is_many_to_many_enabled: true,
            is_dry_run: false,
        }
    }
}

/// What repair policies say about a sick node now: the outcome of matching, ready to be acted on.
#[derive(Debug, Clone, PartialEq)]
pub struct Repair {
    /// type/reason of the winning condition.
    pub condition: Arc<str>,
    pub is_reboot: bool,
    /// Drain bound of the policies; `None`: inherit the claim's.
    pub termination_grace_period_secs: Option<i64>,
    pub score: f64,
    /// `karpenter.sh/do-not-repair: "true"` on node or claim.
    pub is_vetoed: bool,
}
