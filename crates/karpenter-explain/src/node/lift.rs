//! Blockers of a node's disruption that a simulation can remove: each is a change of a copy of the cluster.

use std::sync::Arc;

use karpenter_disruption::candidate::Blocked;
use karpenter_disruption::cluster::{Cluster, ConsolidationPolicy, Reason, StateNode};
use karpenter_disruption::settings::Settings;
use karpenter_disruption::verdict::Verdict;
use karpenter_model::problem::Mobility;

/// A removable blocker. The functions below identify the node by its index in `Cluster::state_nodes`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Lift {
    /// The PodDisruptionBudget allows this many evictions; `None`: any number.
    PodBudget {
        name: Arc<str>,
        allowed: Option<u32>,
    },
    /// `karpenter.sh/do-not-disrupt` of the node is removed.
    NodeAnnotation,
    /// `karpenter.sh/do-not-disrupt` of the pod is removed.
    PodAnnotation {
        pod: Arc<str>,
    },
    /// `consolidateAfter` is 0s instead of Never.
    ConsolidateAfter {
        pool: Arc<str>,
    },
    ConsolidationPolicy {
        pool: Arc<str>,
    },
    /// `consolidateAfter` has elapsed.
    Settled {
        until_secs: Option<i64>,
    },
    /// The cool-down after moves has elapsed.
    CooledDown {
        until_secs: i64,
    },
    /// The budgets of the NodePool allow one more node.
    Budget {
        pool: Arc<str>,
        reason: Reason,
    },
    /// The NodePool has no limit of moves per hour.
    MovesPerHour {
        pool: Arc<str>,
    },
    DryRun {
        pool: Arc<str>,
    },
    /// The limit of the NodePool is raised, or, without an amount, removed.
    Limit {
        pool: Arc<str>,
        resource: Arc<str>,
        amount: Option<i64>,
    },
    SpotToSpot,
}

/// The change that removes the cause of the verdict; `None` if no simulated change would remove it.
pub(crate) fn lift_for(state_node: &StateNode, verdict: &Verdict) -> Option<Lift> {
    Some(match verdict {
        Verdict::Blocked(Blocked::PodBudget(name)) | Verdict::PodBudgetJoint { name, .. } => {
            Lift::PodBudget { name: name.clone(), allowed: None }
        }
        Verdict::Blocked(Blocked::Annotated) => Lift::NodeAnnotation,
        Verdict::Blocked(Blocked::PodAnnotated(pod)) => Lift::PodAnnotation { pod: pod.clone() },
        Verdict::NeverConsolidated { pool } => Lift::ConsolidateAfter { pool: pool.clone() },
        Verdict::OnlyWhenEmpty { pool } => Lift::ConsolidationPolicy { pool: pool.clone() },
        Verdict::Settling { until_secs } => Lift::Settled { until_secs: *until_secs },
        Verdict::CoolDown { until_secs } => Lift::CooledDown { until_secs: *until_secs },
        Verdict::BudgetExhausted { pool, reason } => Lift::Budget { pool: pool.clone(), reason: *reason },
        Verdict::MovesExhausted { pool, .. } => Lift::MovesPerHour { pool: pool.clone() },
        Verdict::DryRun { .. } => Lift::DryRun { pool: state_node.pool.clone()? },
        Verdict::SpotToSpotOff => Lift::SpotToSpot,
        Verdict::Chosen { .. }
        | Verdict::Blocked(_)
        | Verdict::NotDrifted
        | Verdict::HasBufferPods { .. }
        | Verdict::UnknownInstanceType { .. }
        | Verdict::MissingLabel { .. }
        | Verdict::WouldNotFit { .. }
        | Verdict::NeedsSeveralNodes { .. }
        | Verdict::NotCheaper { .. }
        | Verdict::TooFewTypes { .. }
        | Verdict::SpotToSpotInflexible { .. }
        | Verdict::BelowThreshold { .. }
        | Verdict::Unbalanced { .. }
        | Verdict::RepairHalted { .. }
        | Verdict::StaticScalingDown
        | Verdict::StaticAtLimit
        | Verdict::StaticReservationsFull
        | Verdict::LaunchesFail { .. }
        | Verdict::NotNow
        | Verdict::Stays { .. }
        | Verdict::Fine => return None,
    })
}

impl Lift {
    pub(crate) fn apply(&self, cluster: &mut Cluster, settings: &mut Settings, index: usize) {
        match self {
            Self::PodBudget { name, allowed } => {
                let Some(position) = cluster.pod_budgets.iter().position(|one| one.name == *name) else {
                    return;
                };
                let budget = &mut cluster.pod_budgets[position];
                budget.disruptions_allowed = allowed.unwrap_or(u32::MAX);
                budget.is_fully_blocking = false;
                unblock(cluster, |pod| pod.budgets.contains(&(position as u32)));
            }
            Self::NodeAnnotation => {
                if let Some(state_node) = cluster.state_nodes.get_mut(index) {
                    state_node.is_do_not_disrupt = false;
                }
            }
            Self::PodAnnotation { pod } => {
                if let Some(state_node) = cluster.state_nodes.get_mut(index) {
                    for one in state_node.pods.iter_mut().filter(|one| one.name == *pod) {
                        one.is_do_not_disrupt = false;
                        // Without the annotation, the pod can also be evicted.
                        one.is_evictable |= one.is_reschedulable;
                    }
                }
                unblock(cluster, |one| one.name == *pod);
            }
            Self::ConsolidateAfter { pool } => {
                if let Some(pool) = cluster.pools.get_mut(pool) {
                    pool.consolidate_after_secs = Some(0);
                }
            }
            Self::ConsolidationPolicy { pool } => {
                if let Some(pool) = cluster.pools.get_mut(pool) {
                    pool.policy = ConsolidationPolicy::WhenEmptyOrUnderutilized;
                }
            }
            Self::Settled { .. } => {
                cluster.churn_ends_at_secs = None;
                for state_node in &mut cluster.state_nodes {
                    state_node.last_pod_event_secs = Some(0);
                }
                cluster.problem.nodes.iter_mut().for_each(|node| node.is_settling = false);
            }
            Self::CooledDown { .. } => {
                if let Some(state_node) = cluster.state_nodes.get_mut(index) {
                    state_node.moved_onto_at_secs = None;
                    state_node.pods.iter_mut().for_each(|one| one.moved_at_secs = None);
                }
            }
            Self::Budget { pool, reason } => {
                if let Some(pool) = cluster.pools.get_mut(pool) {
                    pool.allowed.insert(*reason, u32::MAX);
                }
            }
            Self::MovesPerHour { pool } => {
                if let Some(pool) = cluster.pools.get_mut(pool) {
                    pool.pool_policy.max_moves_per_hour = None;
                }
            }
            Self::DryRun { pool } => {
                if let Some(pool) = cluster.pools.get_mut(pool) {
                    pool.pool_policy.is_dry_run = false;
                }
            }
            Self::Limit { pool, resource, amount } => {
                let found = cluster.problem.pools.iter_mut().find(|one| one.name == *pool);
                if let Some(pool) = found {
                    match amount {
                        Some(amount) => pool.limits.set(resource.clone(), *amount),
                        None => pool.limits.remove(resource),
                    }
                }
            }
            Self::SpotToSpot => settings.spot_to_spot = true,
        }
    }

    /// Whether the blocker disappears by itself, and when.
    pub(crate) fn passes(&self) -> Option<Option<i64>> {
        match self {
            Self::Settled { until_secs } => Some(*until_secs),
            Self::CooledDown { until_secs } => Some(Some(*until_secs)),
            Self::MovesPerHour { .. } => Some(None),
            Self::PodBudget { .. }
            | Self::NodeAnnotation
            | Self::PodAnnotation { .. }
            | Self::ConsolidateAfter { .. }
            | Self::ConsolidationPolicy { .. }
            | Self::Budget { .. }
            | Self::DryRun { .. }
            | Self::Limit { .. }
            | Self::SpotToSpot => None,
        }
    }
}

/// Marks pods as evictable that a PodDisruptionBudget or an annotation blocked.
fn unblock(cluster: &mut Cluster, is_meant: impl Fn(&karpenter_disruption::cluster::NodePod) -> bool) {
    for state_node in &cluster.state_nodes {
        let Some(node) = state_node.at.and_then(|at| cluster.problem.nodes.get_mut(at)) else { continue };
        for (node_pod, bound) in state_node.pods.iter().zip(&mut node.pods) {
            if bound.mobility == Mobility::Blocked && is_meant(node_pod) {
                bound.mobility = Mobility::Moves;
            }
        }
    }
}
