//! The input of disruption: all nodes with their pods and all NodePools with their rules, at one moment.
//!
//! A `Cluster` is a value; no decisions are made here. Times are seconds since the epoch.
//!
//! Upstream: pkg/controllers/state/cluster.go, statenode.go.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use karpenter_model::problem::Problem;

use crate::command::Method;

#[derive(Debug, Clone, Default)]
pub struct Cluster {
    /// The nodes that are not being disrupted, with their pods; the NodePools that may launch nodes; and the pending
    /// pods, including the pods of nodes that are being deleted. If several nodes are equally good, the first one is
    /// used, so the caller sorts nodes by name for reproducible results.
    pub problem: Problem,
    /// Every node of this provider, including nodes that are launching or being deleted.
    pub state_nodes: Vec<StateNode>,
    /// Every NodePool by name, including static ones.
    pub pools: BTreeMap<Arc<str>, NodePoolView>,
    /// PodDisruptionBudgets; pods refer to them by index.
    pub pod_budgets: Vec<PodBudget>,
    pub now_secs: i64,
    /// The version of the cluster state that this was read from.
    pub revision: u64,
    /// Commands that await their validation; their nodes are not marked for deletion yet.
    pub proposed_commands: Vec<ProposedCommand>,
    /// Candidates of commands that have started.
    pub disrupting_claims: BTreeSet<Arc<str>>,
    /// Claims for which a command failed, with the reasons of the failed commands. For some time these claims are not
    /// disrupted for the same reason; other reasons and other claims are not affected.
    pub held_off: BTreeMap<Arc<str>, BTreeSet<Reason>>,
    /// Whether commands that exceed the budgets are also returned, to be started when budgets allow it.
    pub plan_beyond_budgets: bool,
    /// Set while pods are leaving their nodes (pod churn): no command of `Rebalance` is planned before this time,
    /// because it would be outdated before it starts. Rounded up to whole seconds.
    pub churn_ends_at_secs: Option<i64>,
}

impl Cluster {
    /// Whether the claim is part of a proposed command that counts against the budgets.
    pub(crate) fn has_budget_share(&self, claim: &str) -> bool {
        self.proposed_commands.iter().any(|one| !one.awaits_budget && one.claims.contains(claim))
    }

    /// The method of the proposed command that the claim is part of.
    pub fn proposing_method(&self, claim: &str) -> Option<Method> {
        self.proposed_commands.iter().find(|one| one.claims.contains(claim)).map(|one| one.method)
    }
}

/// A command that awaits its validation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProposedCommand {
    pub method: Method,
    pub claims: BTreeSet<Arc<str>>,
    /// Whether the command was found beyond the budgets, so that it does not count against them yet.
    pub awaits_budget: bool,
}

/// A NodeClaim, its node and the pods of the node.
#[derive(Debug, Clone, Default)]
pub struct StateNode {
    pub claim: Arc<str>,
    pub uid: Arc<str>,
    pub node: Option<Arc<str>>,
    pub pool: Option<Arc<str>>,
    /// Index into `Problem::nodes`; `None` if the NodeClaim has no node or its node is being deleted.
    pub at: Option<usize>,
    pub is_registered: bool,
    pub is_initialized: bool,
    pub is_ready: bool,
    /// The condition `InstanceTerminating` is true. Budgets do not count such a node.
    pub is_instance_terminating: bool,
    /// Whether the node is being deleted or is selected by a command.
    pub is_marked_for_deletion: bool,
    /// Whether the NodeClaim has a deletion timestamp.
    pub is_deleting: bool,
    pub is_rebooting: bool,
    /// Whether pods are nominated for the node.
    pub is_nominated: bool,
    /// Whether the node has the annotation `karpenter.sh/do-not-disrupt: "true"`.
    pub is_do_not_disrupt: bool,
    /// When the condition `Drifted` became true.
    pub drifted_since_secs: Option<i64>,
    /// The last time a pod was bound or removed; `None` before initialization.
    pub last_pod_event_secs: Option<i64>,
    pub instance_type: Option<Arc<str>>,
    /// Whether the catalog of the NodePool lacks the instance type, so that the price is unknown.
    pub is_instance_type_unknown: bool,
    pub zone: Option<Arc<str>>,
    pub capacity_type: Option<Arc<str>>,
    pub reservation_id: Option<Arc<str>>,
    /// The price of the node; zero if unknown.
    pub price_per_hour: f64,
    pub created_at_secs: i64,
    /// The maximum lifetime of the node; `None`: unlimited.
    pub expire_after_secs: Option<i64>,
    pub termination_grace_period_secs: Option<i64>,
    /// The pods of the node, in the order of `Problem::nodes[at]`. For a node that is being deleted: the pods that a
    /// PodDisruptionBudget selects and that are not evicted yet.
    pub pods: Vec<NodePod>,
    /// Whether a repair policy names a condition of the node, even if its toleration has not elapsed yet.
    pub is_unhealthy: bool,
    /// Set if a repair policy applies to the node now.
    pub repair: Option<Repair>,
    /// When a command last moved pods to the node.
    pub moved_onto_at_secs: Option<i64>,
    pub legacy_marks: LegacyNodeMarks,
}

/// Annotations and times of a node that matter for pools with [`LegacyRules`] only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LegacyNodeMarks {
    /// The creation time of the Node, from which its age is measured.
    pub node_created_at_secs: Option<i64>,
    /// The value of `karpenter.sh/emptiness-timestamp`; an invalid value counts as a time long ago.
    pub empty_since_secs: Option<i64>,
    /// The value of `karpenter.sh/do-not-consolidate`: `true` protects the node from consolidation; any other value
    /// allows consolidation even if the NodePool does not.
    pub do_not_consolidate: Option<bool>,
}

/// The properties of a pod that disruption needs in addition to the planner's.
#[derive(Debug, Clone, Default)]
pub struct NodePod {
    /// namespace/name
    pub name: Arc<str>,
    pub uid: Arc<str>,
    /// The uid of the controlling owner.
    pub owner: Option<Arc<str>>,
    /// Whether the pod is neither terminal nor terminating.
    pub is_active: bool,
    /// Whether the pod has to run on another node if its node is deleted; false for DaemonSet pods, mirror pods, and
    /// pods that are terminating.
    pub is_reschedulable: bool,
    /// Whether a drain evicts the pod; false for mirror pods and pods that tolerate the taint `karpenter.sh/disrupted`.
    pub is_evictable: bool,
    /// Whether the pod has a do-not-disrupt annotation that is in effect.
    pub is_do_not_disrupt: bool,
    /// Whether the pod has `karpenter.sh/do-not-evict`, which is in effect on nodes of pools with [`LegacyRules`] only.
    pub is_do_not_evict: bool,
    /// Whether the condition `Ready` of the pod is `False`.
    pub is_unready: bool,
    /// Whether this is a virtual pod of a CapacityBuffer.
    pub is_virtual: bool,
    pub eviction_cost: f64,
    /// The PodDisruptionBudgets that select the pod: indexes into [`Cluster::pod_budgets`].
    pub budgets: Vec<u32>,
    /// When a command last moved the pod or its predecessor.
    pub moved_at_secs: Option<i64>,
}

/// A PodDisruptionBudget.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodBudget {
    /// namespace/name
    pub name: Arc<str>,
    pub disruptions_allowed: u32,
    /// `unhealthyPodEvictionPolicy: AlwaysAllow`.
    pub always_allows_unready: bool,
    /// Whether the PodDisruptionBudget never allows an eviction: `maxUnavailable` is 0 or 0 %, or `minAvailable` is 100
    /// %.
    pub is_fully_blocking: bool,
}

/// The reason of a disruption, as in budgets, conditions and metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    Unhealthy,
    Empty,
    Drifted,
    Underutilized,
    /// The node is older than `ttlSecondsUntilExpired` of its Provisioner (v1alpha5 API). Budgets do not have this
    /// reason.
    Expired,
}

impl Reason {
    /// The reasons that budgets may name.
    pub const ALL: [Self; 4] = [Self::Unhealthy, Self::Empty, Self::Drifted, Self::Underutilized];

    /// The reason as it is spelled in conditions, events and budgets.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unhealthy => "Unhealthy",
            Self::Empty => "Empty",
            Self::Drifted => "Drifted",
            Self::Underutilized => "Underutilized",
            Self::Expired => "Expired",
        }
    }

    /// The reason as it is spelled in metrics and labels.
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

/// A NodePool as disruption sees it.
#[derive(Debug, Clone, Default)]
pub struct NodePoolView {
    pub name: Arc<str>,
    /// Index into `Problem::pools`; `None` if no nodes are launched from this NodePool for pending pods.
    pub launches_as: Option<usize>,
    /// `spec.replicas` of a static NodePool.
    pub replicas: Option<u32>,
    /// How many more nodes `limits.nodes` allows a static NodePool; `None`: no limit.
    pub nodes_left: Option<u32>,
    /// Set for a static NodePool whose template allows only reserved offerings that are all full: the ids of the
    /// reservations. See [`crate::static_drift::full_reservations`].
    pub full_reservations: Option<BTreeSet<Arc<str>>>,
    /// Whether the condition `Ready` is true and the NodePool is not being deleted.
    pub is_ready: bool,
    /// Whether launches of the NodePool failed repeatedly, so that no replacements are launched from it for now.
    pub is_in_launch_backoff: bool,
    pub policy: ConsolidationPolicy,
    /// `None`: never.
    pub consolidate_after_secs: Option<i64>,
    /// Nodes that its budgets allow to be disrupted for each reason, before those that are disrupted already are
    /// subtracted. Without an entry, nothing is allowed.
    pub allowed: BTreeMap<Reason, u32>,
    pub pool_policy: PoolPolicy,
    /// Set for NodePools that are derived from a Provisioner.
    pub legacy_rules: Option<LegacyRules>,
}

/// The rules of the v1alpha5 API that differ from those of v1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LegacyRules {
    /// Nodes older than this are replaced one at a time, and the replacement is launched before the node is deleted.
    /// `None`: nodes never expire.
    pub expires_after_secs: Option<i64>,
    /// Nodes that are empty for longer than this are deleted regardless of PodDisruptionBudgets and budgets. `None`:
    /// empty nodes are consolidated.
    pub empty_after_secs: Option<i64>,
}

/// Settings of a NodePool beyond upstream's API, from annotations.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolPolicy {
    /// The share of the lowest price of the pool's pods that moving all of them has to save; `None`: as in the settings.
    pub saving_ratio: Option<f64>,
    /// The smallest saving of a command: as a share of the price of its candidates, and in dollars per hour.
    pub min_saving_ratio: f64,
    pub min_saving_per_hour: f64,
    /// How long a node and its pods are not disrupted after pods were moved.
    pub cool_down_secs: i64,
    /// The factor k of the policy `Balanced`.
    pub balanced_k: f64,
    /// Pods that consolidation may move within an hour; `None`: no limit.
    pub max_moves_per_hour: Option<u32>,
    /// Pods that consolidation moved within the last hour.
    pub moved_last_hour: u32,
    /// Whether a command may launch more than one replacement.
    pub is_many_to_many_enabled: bool,
    /// Whether commands are only reported, and not executed.
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

/// The repair policy that matches an unhealthy node.
#[derive(Debug, Clone, PartialEq)]
pub struct Repair {
    /// The condition with the highest score, as `type/reason`.
    pub condition: Arc<str>,
    pub is_reboot: bool,
    /// The maximum drain duration of the matching policies. `None`: the termination grace period of the claim applies.
    pub termination_grace_period_secs: Option<i64>,
    pub score: f64,
    /// Whether the node or claim has the annotation `karpenter.sh/do-not-repair: "true"`.
    pub is_vetoed: bool,
}
