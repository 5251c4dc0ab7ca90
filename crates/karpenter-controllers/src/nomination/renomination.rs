//! Nominates an open node again for planned pods that lost their nomination or never had one.
//!
//! If another process removes the last obstacle on a node, the nomination was written too early: the kube-scheduler
//! tried the pod before that and dropped the nomination. A pod is nominated again only while its node is open and the
//! pod fits, at most [`NOMINATION_ATTEMPTS_MAX`] times, and never if the kube-scheduler nominated a node for it. If
//! other pods took the capacity, the pod loses its reservation and its nomination by this process, and is planned
//! again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use karpenter_api::types::NodeClaim;
use karpenter_runtime::object::ObjectKey;
use karpenter_runtime::queue::Queue;
use karpenter_runtime::store::Change;
use karpenter_runtime::worker::{Reconcile, Requeue};
use karpenter_state::pod::Pod;

use crate::nominations::available_capacity::AvailableCapacity;
use crate::nominations::node_access::{NodeAccess, node_access};
use crate::nominations::{Nominator, clear, node_of, nominate_all};
use crate::pods;
use crate::state::PodReservation;
use crate::stores::{BY_NODE, BY_PROVIDER_ID};

/// How often this controller nominates a node again for the same pod.
const NOMINATION_ATTEMPTS_MAX: u32 = 4;
/// How long after a nomination the controller checks whether the pod still has it.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The controller that nominates again. Its keys are claims whose nodes have reservations.
pub struct NominationController {
    nominator: Nominator,
    /// The number of attempts for each pod uid, by claim.
    attempts: Mutex<BTreeMap<String, BTreeMap<String, u32>>>,
}

impl NominationController {
    pub fn new(nominator: Nominator) -> Self {
        Self { nominator, attempts: Mutex::default() }
    }

    /// Triggers a reconcile when a pod loses its nomination, when a node opens, and when a pod is bound to a node with
    /// reservations.
    pub fn watch(&self, queue: &Queue) {
        if !self.nominator.is_enabled {
            return;
        }
        let (to, state) = (queue.clone(), self.nominator.reads.state.clone());
        let (nodes, claims) =
            (self.nominator.reads.stores.nodes.clone(), self.nominator.reads.stores.node_claims.clone());
        self.nominator.reads.stores.pods.observe(move |change: &Change<Pod>| {
            let pod = change.object();
            if let Change::Applied { old: Some(old), new } = change
                && !pods::is_bound(old)
                && let Some(node) = pods::node_name(new).and_then(|name| nodes.get("", name))
            {
                let id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
                let claims = id.map(|id| claims.by(BY_PROVIDER_ID, id)).unwrap_or_default();
                let keys = claims.iter().map(|claim| ObjectKey::of(&claim.metadata));
                keys.filter(|key| !state.reservations_on(&key.name).is_empty()).for_each(|key| to.add(key));
            }
            if change.is_deleted() || pods::is_bound(pod) || pods::nominated_node(pod).is_some() {
                return;
            }
            if let Some(reservation) =
                state.reservation_of(pods::uid_of(pod)).filter(|reservation| reservation.nominated.is_some())
            {
                to.add(ObjectKey::new("", reservation.host));
            }
        });
        let to = queue.clone();
        self.nominator.reads.stores.node_claims.observe(move |change: &Change<NodeClaim>| {
            if change.is_deleted() {
                to.add(ObjectKey::of(&change.object().metadata));
            }
        });
        let (to, reads) = (queue.clone(), self.nominator.reads.clone());
        self.nominator.reads.stores.nodes.observe(move |change: &Change<Node>| {
            let Change::Applied { old: Some(old), new } = change else { return };
            let id = new.spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
            for claim in id.map(|id| reads.stores.node_claims.by(BY_PROVIDER_ID, id)).unwrap_or_default() {
                if node_access(old, Some(&claim)) != NodeAccess::Open
                    && node_access(new, Some(&claim)) == NodeAccess::Open
                {
                    to.add(ObjectKey::of(&claim.metadata));
                }
            }
        });
    }

    fn attempts(&self) -> MutexGuard<'_, BTreeMap<String, BTreeMap<String, u32>>> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reconcile for NominationController {
    async fn reconcile(&self, key: &ObjectKey) -> kube::Result<Requeue> {
        let (reads, claim_name) = (&self.nominator.reads, key.name.as_str());
        let claim = reads.stores.node_claims.get("", claim_name);
        let node = node_of(reads, claim_name, claim.as_deref());
        let reservations = reads.state.reservations_on(claim_name);
        let Some(node) = node.filter(|_| !reservations.is_empty()) else {
            self.attempts().remove(claim_name);
            return Ok(Requeue::No);
        };
        if node_access(&node, claim.as_deref()) != NodeAccess::Open {
            return Ok(Requeue::No);
        }
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let bound = reads.stores.pods.by(BY_NODE, name);
        let pending = reservations.into_iter().filter_map(|reservation| {
            let pod = reads.stores.pods.get_key(&reservation.pod)?;
            (pods::uid_of(&pod) == reservation.uid && pods::is_provisionable(&pod))
                .then_some((reservation, pod))
        });
        let RenominationDecision { to_renominate, no_capacity } = decide(&node, &bound, pending.collect());
        // Nominations of pods that do not fit are removed, because the kube-scheduler would try the nominated node
        // first each time.
        clear(&self.nominator, &no_capacity).await;
        for reservation in no_capacity {
            tracing::debug!(pod = %reservation.pod, node = name, "other pods took the reserved capacity");
            reads.state.revoke_reservation(&reservation.uid);
        }
        let to_renominate = count_attempts(&mut self.attempts(), claim_name, to_renominate);
        if to_renominate.is_empty() {
            return Ok(Requeue::No);
        }
        nominate_all(&self.nominator, to_renominate, name).await;
        Ok(Requeue::After(POLL_INTERVAL))
    }
}

/// Counts an attempt for each pod, and returns the pods whose attempts are within the limit. If there are no pods,
/// nothing is recorded for the claim.
fn count_attempts(
    attempts: &mut BTreeMap<String, BTreeMap<String, u32>>,
    claim: &str,
    to_renominate: Vec<PodReservation>,
) -> Vec<PodReservation> {
    if to_renominate.is_empty() {
        return to_renominate;
    }
    let attempts = attempts.entry(claim.to_owned()).or_default();
    let is_below_limit = |reservation: &PodReservation| {
        let tried = attempts.entry(reservation.uid.clone()).or_insert(0);
        *tried += 1;
        *tried <= NOMINATION_ATTEMPTS_MAX
    };
    to_renominate.into_iter().filter(is_below_limit).collect()
}

#[derive(Debug, Default, PartialEq, Eq)]
struct RenominationDecision {
    /// Pods that fit and have no nomination.
    to_renominate: Vec<PodReservation>,
    /// Pods that do not fit. If a pod still has its nomination, pods that are terminating on the node do not count
    /// against it.
    no_capacity: Vec<PodReservation>,
}

/// Decides for each pending pod with a reservation on an open node whether to nominate the node again. Pods that still
/// have the nomination are placed first, because the kube-scheduler reserves their capacity.
fn decide(node: &Node, bound: &[Arc<Pod>], pending: Vec<(PodReservation, Arc<Pod>)>) -> RenominationDecision {
    let mut decision = RenominationDecision::default();
    let name = node.metadata.name.as_deref();
    let (named, others): (Vec<_>, Vec<_>) =
        pending.into_iter().partition(|(_, pod)| name.is_some() && pods::nominated_node(pod) == name);
    let mut available = AvailableCapacity::of(node, bound);
    let mut available_after_terminations = AvailableCapacity::after_terminations(node, bound);
    for (reservation, pod) in named {
        available.try_reserve(&pod);
        if !available_after_terminations.try_reserve(&pod) {
            decision.no_capacity.push(reservation);
        }
    }
    for (reservation, pod) in others {
        if pods::nominated_node(&pod).is_some() {
            // The kube-scheduler itself nominated a node for this pod. That nomination is never changed.
            continue;
        }
        if available.try_reserve(&pod) {
            decision.to_renominate.push(reservation);
        } else {
            decision.no_capacity.push(reservation);
        }
    }
    decision
}

#[cfg(test)]
mod tests;
