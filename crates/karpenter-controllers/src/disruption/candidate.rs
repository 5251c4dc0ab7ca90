//! Which nodes may be disrupted at all, whoever asks.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use karpenter_api::labels;
use karpenter_api::types::{ConsolidationPolicy, NodeClaim};
use karpenter_cluster::clock::since;
use karpenter_cluster::controllers::context::{annotation, name_of, namespace_of};
use karpenter_cluster::controllers::pods::condition as pod_condition;

use super::cost::reschedule_cost;
use super::snapshot::{Machine, Pool, Snapshot};
use crate::pods;

/// A node that may go.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    pub claim: String,
    pub uid: String,
    pub node: String,
    pub pool: String,
    pub policy: ConsolidationPolicy,
    pub price_per_hour: f64,
    pub reschedule_cost: f64,
}

impl Candidate {
    /// What is saved per trouble: nodes with more go first.
    pub fn savings_ratio(&self) -> f64 {
        self.price_per_hour / self.reschedule_cost
    }
}

/// Why a node may not go, in the words of its event.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Blocked {
    #[error("Nodeclaim does not have an associated node")]
    NoNode,
    #[error("Node is rebooting")]
    Rebooting,
    #[error("Node is deleting or marked for deletion")]
    Leaving,
    #[error("Node isn't initialized")]
    NotInitialized,
    #[error("Node isn't initialized nor registered")]
    NotRegistered,
    #[error("Node is nominated for a pending pod")]
    Nominated,
    #[error("Disruption is blocked through the \"karpenter.sh/do-not-disrupt\" annotation")]
    Annotated,
    #[error("Node doesn't have required label \"karpenter.sh/nodepool\"")]
    NoPoolLabel,
    #[error("NodePool not found (NodePool={0})")]
    NoPool(String),
    #[error("Pod has \"karpenter.sh/do-not-disrupt\" annotation (Pod={0})")]
    PodAnnotated(String),
    #[error("Pdb prevents pod evictions (PodDisruptionBudget=[{0}])")]
    PodBudget(String),
}

impl Blocked {
    /// What is merely on its way, in or out, is not worth an event.
    pub fn is_told(&self) -> bool {
        match self {
            Self::NoNode | Self::Rebooting | Self::Leaving | Self::NotInitialized | Self::NotRegistered => {
                false
            }
            Self::Nominated
            | Self::Annotated
            | Self::NoPoolLabel
            | Self::NoPool(_)
            | Self::PodAnnotated(_)
            | Self::PodBudget(_) => true,
        }
    }
}

/// The pool of a machine, if it is known.
pub fn pool_of<'a>(machine: &Machine, snapshot: &'a Snapshot) -> Option<&'a Pool> {
    machine.pool().and_then(|name| snapshot.pools.get(name))
}

/// The machine as a candidate, or what stands against it.
pub fn candidate(machine: &Machine, snapshot: &Snapshot, now: Timestamp) -> Result<Candidate, Blocked> {
    let node = machine.node.as_deref().ok_or(Blocked::NoNode)?;
    if machine.is_true("Rebooting") {
        return Err(Blocked::Rebooting);
    }
    if machine.is_leaving || node.metadata.deletion_timestamp.is_some() {
        return Err(Blocked::Leaving);
    }
    if !machine.is_initialized() {
        let is_registered = machine.is_registered();
        return Err(if is_registered { Blocked::NotInitialized } else { Blocked::NotRegistered });
    }
    if machine.is_nominated {
        return Err(Blocked::Nominated);
    }
    if annotation(node, labels::ANNOTATION_DO_NOT_DISRUPT) == Some("true") {
        return Err(Blocked::Annotated);
    }
    let name = machine.pool().ok_or(Blocked::NoPoolLabel)?;
    let pool = snapshot.pools.get(name).ok_or_else(|| Blocked::NoPool(name.to_owned()))?;
    if let Some(pod) = machine.pods.iter().find(|pod| is_kept(pod, now)) {
        return Err(Blocked::PodAnnotated(full_name(&**pod)));
    }
    if let Some(budgets) = machine.pods.iter().find_map(|pod| blocking_budgets(pod, snapshot, now)) {
        return Err(Blocked::PodBudget(budgets));
    }
    let disruption = pool.pool.spec.disruption.as_ref();
    Ok(Candidate {
        claim: machine.name().to_owned(),
        uid: machine.claim.metadata.uid.clone().unwrap_or_default(),
        node: name_of(node).to_owned(),
        pool: name.to_owned(),
        policy: disruption.and_then(|one| one.consolidation_policy.clone()).unwrap_or_default(),
        price_per_hour: pool.price_of(&machine.claim),
        reschedule_cost: reschedule_cost(machine.pods.iter().map(Arc::as_ref)),
    })
}

/// Daemons and static pods count as well: whoever annotates them means their node.
fn is_kept(pod: &Pod, now: Timestamp) -> bool {
    pods::is_active(pod) && pods::is_do_not_disrupt_active(pod, now)
}

/// The budgets that would refuse the pod's eviction now. Pods that need not be evicted never block.
fn blocking_budgets(pod: &Pod, snapshot: &Snapshot, now: Timestamp) -> Option<String> {
    let in_namespace = snapshot.pod_budgets.get(namespace_of(pod))?;
    if !pods::is_evictable(pod, now) {
        return None;
    }
    let of_pod: Vec<_> = in_namespace.iter().filter(|budget| pods::budget_selects(budget, pod)).collect();
    let names = || of_pod.iter().map(|budget| full_name(&***budget)).collect::<Vec<_>>().join(" ");
    match of_pod.as_slice() {
        [] => None,
        [only] => {
            let allowed = only.status.as_ref().map_or(0, |status| status.disruptions_allowed);
            let policy = only.spec.as_ref().and_then(|spec| spec.unhealthy_pod_eviction_policy.as_deref());
            let is_unready = pod_condition(pod, "Ready").is_some_and(|condition| condition.status == "False");
            let lets_unready_go = policy == Some("AlwaysAllow") && is_unready;
            (allowed == 0 && !lets_unready_go).then(names)
        }
        _ => Some(names()),
    }
}

fn full_name<K: kube::Resource>(object: &K) -> String {
    format!("{}/{}", namespace_of(object), name_of(object))
}

/// Whether nothing has come or gone on the node for as long as its pool asks for. `None`: the pool never consolidates.
///
/// The condition `Consolidatable` says the same to users; here the clock counts, not when it was written.
pub fn is_quiet(machine: &Machine, pool: &Pool, now: Timestamp) -> Option<bool> {
    let disruption = pool.pool.spec.disruption.as_ref();
    let after = disruption.and_then(|disruption| disruption.consolidate_after.as_ref());
    // Absent is the default of the API, zero.
    let after_nanos = after.map_or(Some(0), |after| after.nanos())?;
    let Some(since_when) = quiet_since(&machine.claim, machine) else { return Some(false) };
    let quiet_nanos = since(now, since_when).as_nanos();
    Some(quiet_nanos >= u128::try_from(after_nanos).unwrap_or(0))
}

fn quiet_since(claim: &NodeClaim, machine: &Machine) -> Option<Timestamp> {
    let initialized = machine.condition("Initialized").filter(|_| machine.is_true("Initialized"))?;
    let last_event = claim.status.as_ref().and_then(|status| status.last_pod_event_time.as_ref());
    last_event.or(initialized.last_transition_time.as_ref()).map(|time| time.0)
}
