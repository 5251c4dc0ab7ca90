//! Decides which nodes may be disrupted, or what blocks their disruption.
//!
//! Whether there is a reason to disrupt a node is decided by the methods, such as drift or consolidation.
//!
//! Upstream: pkg/controllers/disruption/types.go (NewCandidate), pkg/controllers/state/statenode.go.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use crate::cluster::{Cluster, NodePod, Reason, StateNode};
use crate::command::Candidate;

/// Which protections of a node and of its pods a method respects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DisruptionClass {
    /// All protections of node and pods apply.
    Graceful,
    /// The protections of the node apply. Those of its pods apply only if the claim has no termination grace period.
    Eventual,
    /// Of the protections of pods, only do-not-disrupt applies. This class is for emptiness in the v1alpha5 API.
    Emptied,
    /// The protections of the node do not apply. Those of its pods apply only if there is no termination grace period.
    Repair,
}

/// What blocks the disruption of a node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Blocked {
    /// The node is part of a running or proposed command. No event is published.
    InCommand,
    /// A command with the same reason failed for this node, and the replacements of that command are not initialized
    /// yet.
    Resting,
    RepairWithoutPool,
    NoNode,
    Rebooting,
    Leaving,
    NotRegistered,
    NotInitialized,
    Nominated,
    Annotated,
    NoPoolLabel,
    NoPool(Arc<str>),
    /// A do-not-disrupt annotation protects the pod with this namespace/name.
    PodAnnotated(Arc<str>),
    /// The annotation `karpenter.sh/do-not-evict` protects the pod with this namespace/name.
    PodHeld(Arc<str>),
    /// The annotation `karpenter.sh/do-not-consolidate` protects the node.
    Unconsolidated,
    /// The PodDisruptionBudget with this namespace/name does not allow the eviction of a pod.
    PodBudget(Arc<str>),
    /// Several PodDisruptionBudgets select a pod.
    PodBudgets(Vec<Arc<str>>),
    /// The annotation `karpenter.sh/do-not-repair` protects the node.
    RepairVetoed,
    /// Protections of pods block the drain, and no termination grace period limits how long.
    RepairUnbounded,
}

/// The messages are those of upstream's event `DisruptionBlocked`.
impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InCommand => f.write_str("Candidate is already being disrupted"),
            Self::Resting => {
                f.write_str("A command for it failed, and its replacement is not initialized yet")
            }
            Self::RepairWithoutPool => {
                f.write_str("repair requires a NodePool to construct and budget a safe replacement")
            }
            Self::NoNode => f.write_str("Nodeclaim does not have an associated node"),
            Self::Rebooting => f.write_str("Node is rebooting"),
            Self::Leaving => f.write_str("Node is deleting or marked for deletion"),
            Self::NotRegistered => f.write_str("Node isn't initialized nor registered"),
            Self::NotInitialized => f.write_str("Node isn't initialized"),
            Self::Nominated => f.write_str("Node is nominated for a pending pod"),
            Self::Annotated => {
                f.write_str("Disruption is blocked through the \"karpenter.sh/do-not-disrupt\" annotation")
            }
            Self::NoPoolLabel => {
                f.write_str("Node doesn't have required label (label=karpenter.sh/nodepool)")
            }
            Self::NoPool(pool) => write!(f, "NodePool not found (NodePool={pool})"),
            Self::PodAnnotated(pod) => {
                write!(f, "Pod has \"karpenter.sh/do-not-disrupt\" annotation (Pod={pod})")
            }
            Self::PodHeld(pod) => {
                write!(f, "Pod has \"karpenter.sh/do-not-evict\" annotation (Pod={pod})")
            }
            Self::Unconsolidated => f.write_str(
                "Consolidation is blocked through the \"karpenter.sh/do-not-consolidate\" annotation",
            ),
            Self::PodBudget(budget) => {
                write!(f, "Pdb prevents pod evictions (PodDisruptionBudget=[{budget}])")
            }
            Self::PodBudgets(budgets) => {
                write!(
                    f,
                    "Eviction does not support multiple PDBs (PodDisruptionBudget(s)=[{}])",
                    budgets.join(" ")
                )
            }
            Self::RepairVetoed => {
                f.write_str("repair is blocked through the \"karpenter.sh/do-not-repair\" annotation")
            }
            Self::RepairUnbounded => {
                f.write_str("repair requires a termination grace period to bypass blocking pods")
            }
        }
    }
}

/// Returns the node as a candidate, or the first obstacle to its disruption.
pub fn candidate(
    cluster: &Cluster,
    state_node: usize,
    class: DisruptionClass,
    reason: Reason,
) -> Result<Candidate, Blocked> {
    candidate_excluding(cluster, state_node, class, reason, &BTreeSet::new())
}

/// Like [`candidate`], but does not treat nodes with these claims as part of a proposed command.
pub(crate) fn candidate_excluding(
    cluster: &Cluster,
    index: usize,
    class: DisruptionClass,
    reason: Reason,
    own: &BTreeSet<Arc<str>>,
) -> Result<Candidate, Blocked> {
    let Some(state_node) = cluster.state_nodes.get(index) else { return Err(Blocked::NoNode) };
    let has_budget_share =
        !own.contains(&state_node.claim) && cluster.proposing_method(&state_node.claim).is_some();
    if has_budget_share || cluster.disrupting_claims.contains(&state_node.claim) {
        return Err(Blocked::InCommand);
    }
    // After a failed command, the node is not disrupted for the same reason for some time. Other reasons still apply:
    // an unhealthy node is repaired even if a drift command for it failed.
    if cluster.held_off.get(&state_node.claim).is_some_and(|failed| failed.contains(&reason)) {
        return Err(Blocked::Resting);
    }
    if class == DisruptionClass::Repair && state_node.pool.is_none() {
        return Err(Blocked::RepairWithoutPool);
    }
    let node = state_node.node.as_ref().ok_or(Blocked::NoNode)?;
    check_node(state_node, class)?;
    let name = state_node.pool.as_ref().ok_or(Blocked::NoPoolLabel)?;
    if !cluster.pools.contains_key(name) {
        return Err(Blocked::NoPool(name.clone()));
    }
    // Blocking pods are not checked here for repair, which determines later whether a termination grace period bounds
    // the drain.
    let is_bounded = state_node.termination_grace_period_secs.is_some();
    let is_waived = class == DisruptionClass::Repair || (class == DisruptionClass::Eventual && is_bounded);
    if !is_waived && let Some(blocked) = blocking_pod(cluster, state_node, class) {
        return Err(blocked);
    }
    // The planner can simulate only nodes of the problem.
    if state_node.at.is_none_or(|at| at >= cluster.problem.nodes.len()) {
        return Err(Blocked::NoNode);
    }
    let reschedule_cost = reschedule_cost(state_node);
    Ok(Candidate {
        state_node: index,
        claim: state_node.claim.clone(),
        uid: state_node.uid.clone(),
        node: node.clone(),
        pool: name.clone(),
        price_per_hour: state_node.price_per_hour,
        reschedule_cost,
        is_empty: reschedule_cost <= NODE_COST,
    })
}

fn check_node(state_node: &StateNode, class: DisruptionClass) -> Result<(), Blocked> {
    if state_node.is_rebooting {
        return Err(Blocked::Rebooting);
    }
    if state_node.is_marked_for_deletion {
        return Err(Blocked::Leaving);
    }
    if !state_node.is_initialized {
        if !state_node.is_registered {
            return Err(Blocked::NotRegistered);
        }
        // Only repair replaces a node that never initializes; pending pods may keep it nominated indefinitely.
        return if class == DisruptionClass::Repair { Ok(()) } else { Err(Blocked::NotInitialized) };
    }
    if state_node.is_nominated {
        return Err(Blocked::Nominated);
    }
    if state_node.is_do_not_disrupt && class != DisruptionClass::Repair {
        return Err(Blocked::Annotated);
    }
    Ok(())
}

/// The first pod that blocks the drain. DaemonSet pods are checked like others, because their annotation protects the
/// node, too.
pub(crate) fn blocking_pod(
    cluster: &Cluster,
    state_node: &StateNode,
    class: DisruptionClass,
) -> Option<Blocked> {
    let kept = state_node.pods.iter().find(|one| one.is_active && one.is_do_not_disrupt);
    if let Some(pod) = kept {
        return Some(Blocked::PodAnnotated(pod.name.clone()));
    }
    if class == DisruptionClass::Emptied {
        return None;
    }
    let pool = state_node.pool.as_ref().and_then(|name| cluster.pools.get(name));
    let has_legacy_rules = pool.is_some_and(|pool| pool.legacy_rules.is_some());
    let held =
        state_node.pods.iter().find(|one| one.is_active && one.is_do_not_evict).filter(|_| has_legacy_rules);
    if let Some(pod) = held {
        return Some(Blocked::PodHeld(pod.name.clone()));
    }
    state_node.pods.iter().filter(|one| one.is_evictable).find_map(|one| blocking_budget(cluster, one))
}

fn blocking_budget(cluster: &Cluster, node_pod: &NodePod) -> Option<Blocked> {
    let budgets: Vec<_> =
        node_pod.budgets.iter().filter_map(|index| cluster.pod_budgets.get(*index as usize)).collect();
    match budgets.as_slice() {
        [] => None,
        [only] => {
            let lets_go = only.always_allows_unready && node_pod.is_unready;
            (only.disruptions_allowed == 0 && !lets_go).then(|| Blocked::PodBudget(only.name.clone()))
        }
        // The eviction API rejects pods with several PodDisruptionBudgets.
        several => Some(Blocked::PodBudgets(several.iter().map(|budget| budget.name.clone()).collect())),
    }
}

/// The disruption cost of an empty node.
pub(crate) const NODE_COST: f64 = 1.0;

/// The disruption cost: 1 for the node, plus the eviction cost of each pod that has to be rescheduled.
pub fn reschedule_cost(state_node: &StateNode) -> f64 {
    let moving = state_node.pods.iter().filter(|one| one.is_reschedulable);
    NODE_COST + moving.map(|one| one.eviction_cost.max(0.0)).sum::<f64>()
}
