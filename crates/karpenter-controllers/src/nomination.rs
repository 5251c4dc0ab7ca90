//! Pod nomination: writes the planned node to `status.nominatedNodeName` of pending pods right before the node can
//! receive pods.
//!
//! A plan that fills nodes completely fails if the kube-scheduler binds pods to the nodes in another order. From
//! Kubernetes 1.35 on the kube-scheduler tries the nominated node first and reserves its capacity for the pod. A
//! nomination that is written too early is dropped at the next failed scheduling attempt. Therefore it is written just
//! before the last obstacle on the node is removed. Nominations that the kube-scheduler wrote are never changed.
//!
//! To make our own taint the last obstacle, [`RegistrationGate`] keeps `karpenter.sh/unregistered` a little longer on
//! a node that is about to become ready. Where that is not possible, [`NominationController`] nominates again once the
//! node is open.
//!
//! A node is *open* if neither a taint nor its condition `Ready` keeps planned pods from being bound to it.

mod available_capacity;
mod node_access;
mod open_batch;
mod renomination;
mod replacement_hold;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use futures::{StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use karpenter_api::labels;
use karpenter_api::types::NodeClaim;
use karpenter_disruption::cluster::Reason;
use karpenter_model::problem::Mode;
use karpenter_runtime::clock::since;
use karpenter_runtime::object::{ObjectKey, is_deleting, label, name_of, uid_of};
use karpenter_runtime::queue::Queue;
use karpenter_runtime::watch::skip_managed_fields::WithoutManagedFields;
use karpenter_state::pod::{Pod, PodFields};
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

pub(crate) use self::available_capacity::AvailableCapacity;
use self::node_access::NodeAccess;
use self::open_batch::{BatchAnswer, OpenBatch};
pub use self::renomination::NominationController;
use self::replacement_hold::ReplacementHold;
pub(crate) use self::replacement_hold::expects_pods;
use crate::context::Context;
use crate::disruption::created_for;
use crate::nodeclaim::lifecycle::has_all_resources;
use crate::pods;
use crate::state::PodReservation;
use crate::stores::BY_PROVIDER_ID;

/// The number of pods that are patched concurrently.
const CONCURRENT_WRITES_MAX: usize = 64;
/// Attempts to patch a pod that changes at the same time.
const CONFLICT_ATTEMPTS_MAX: usize = 3;
/// How long the gate keeps its record of a node that never opens.
const GATE_RECORD_TTL: Duration = Duration::from_secs(120);
/// How often the gate checks whether the pods that a command moves to a node are pending.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Nominates the claim's node for the pods that have a reservation on it.
///
/// To be called right before the last obstacle on the node is removed. While another obstacle remains, the call does
/// nothing. Pods whose patch fails are left to the kube-scheduler.
pub async fn write_nominations(context: &Context, claim_name: &str) {
    if !context.nominates_pods {
        return;
    }
    let found = reservations_to_nominate(context, claim_name);
    let Some(name) = found.first().map(|(_, name)| name.clone()) else { return };
    nominate_all(context, found.into_iter().map(|(reservation, _)| reservation).collect(), &name).await;
}

async fn nominate_all(context: &Context, reservations: Vec<PodReservation>, node: &str) {
    stream::iter(reservations)
        .map(|reservation| nominate(context, reservation, node))
        .buffered(CONCURRENT_WRITES_MAX)
        .for_each(|()| std::future::ready(()))
        .await;
}

/// Decides when the taint `karpenter.sh/unregistered` is removed from a new node.
///
/// The gate waits until other obstacles are gone, until moved pods are pending, and until nodes that become ready at
/// about the same time can be opened together. Clones share the state.
#[derive(Debug, Clone, Default)]
pub struct RegistrationGate {
    /// When the gate first saw a node, by uid of the claim.
    seen_since: Arc<Mutex<BTreeMap<String, Timestamp>>>,
    /// Nodes that are kept closed for moved pods, by uid of the claim.
    holds: Arc<Mutex<BTreeMap<String, ReplacementHold>>>,
    batch: Arc<Mutex<OpenBatch>>,
    /// The queue of the claim lifecycle.
    claims: Arc<OnceLock<Queue>>,
}

impl RegistrationGate {
    /// Sets the queue through which the gate triggers a reconcile of a claim.
    pub fn connect(&self, claims: &Queue) {
        // Later calls have no effect: there is one controller of claims.
        let _ = self.claims.set(claims.clone());
    }

    /// Nominates the claim's node before it opens. If the claim leads a batch, nominates the nodes of the whole batch and
    /// then triggers the other claims, those with the most pods first.
    pub async fn open(&self, context: &Context, claim_name: &str) {
        if !context.nominates_pods {
            return;
        }
        let together = self.batch().take(claim_name);
        if together.is_empty() {
            // A node whose pods were nominated with its batch is nominated again: since the first node of the batch
            // opened, the kube-scheduler may have tried pods whose node was still closed and dropped their nomination.
            // Pods that still have the nomination need no request. If the node is open already, other pods may have
            // taken its capacity, which [`NominationController`] checks.
            let (is_waiting, was_nominated) = {
                let batch = self.batch();
                (batch.is_waiting(claim_name), batch.was_nominated(claim_name))
            };
            let is_handled_elsewhere = is_waiting || (was_nominated && is_open(context, claim_name));
            if !is_handled_elsewhere {
                write_nominations(context, claim_name).await;
            }
            return;
        }
        let found: Vec<(PodReservation, String)> =
            together.iter().flat_map(|claim| reservations_to_nominate(context, claim)).collect();
        stream::iter(found)
            .map(|(reservation, node)| async move { nominate(context, reservation, &node).await })
            .buffered(CONCURRENT_WRITES_MAX)
            .for_each(|()| std::future::ready(()))
            .await;
        self.batch().record_nominated(claim_name, &together, context.clock.now());
        if let Some(claims) = self.claims.get() {
            together.into_iter().for_each(|claim| claims.add(ObjectKey::new("", claim)));
        }
    }

    /// How long to keep the unregistered taint before this function is called again; `None` if it should be removed
    /// now. Only nodes with pod reservations are held. The caller also calls it whenever the node changes.
    pub fn hold(&self, context: &Context, claim: &NodeClaim, node: &Node) -> Option<Duration> {
        context.state.set_held_for_moved_pods(name_of(claim), false);
        let is_planned_for = || {
            !context.state.reservations_on(name_of(claim)).is_empty()
                || !context.state.owners_of_moved_slots(name_of(claim)).is_empty()
        };
        if !context.nominates_pods || !is_planned_for() {
            return None;
        }
        let now = context.clock.now();
        let mut seen_since = self.seen_since.lock().unwrap_or_else(PoisonError::into_inner);
        let since_when = *seen_since.entry(uid_of(claim).to_owned()).or_insert(now);
        let wait = node_access::hold(node, claim, since(now, since_when));
        if wait.is_some() {
            return wait;
        }
        seen_since.remove(uid_of(claim));
        seen_since.retain(|_, at| since(now, *at) < GATE_RECORD_TTL);
        drop(seen_since);
        if node_access::node_access(node, Some(claim)) != NodeAccess::OnlyOurTaint {
            return None;
        }
        if self.waits_for_moved_pods(context, claim, node, now) {
            context.state.set_held_for_moved_pods(name_of(claim), true);
            return Some(POLL_INTERVAL);
        }
        let pods = context.state.reservations_on(name_of(claim)).len();
        let is_another_node_expected =
            |there: &BTreeMap<String, usize>| is_another_node_expected(context, there);
        match self.batch().ask(name_of(claim), pods, now, is_another_node_expected) {
            BatchAnswer::Wait(wait) => Some(wait),
            BatchAnswer::Lead | BatchAnswer::Open => None,
        }
    }

    /// Whether the node is ready except for our taint, and keeps the taint until the pods that a command moves there
    /// are pending.
    fn waits_for_moved_pods(
        &self,
        context: &Context,
        claim: &NodeClaim,
        node: &Node,
        now: Timestamp,
    ) -> bool {
        let is_initializable =
            claim.spec.startup_taints.iter().flatten().next().is_none() && has_all_resources(claim, node);
        // Unhealthy and expired nodes are deleted only when their replacement is open.
        let can_wait = matches!(created_for(claim), Some(Reason::Underutilized | Reason::Drifted));
        if !is_initializable || !can_wait || context.settings.planner.mode != Mode::Cost {
            return false;
        }
        let moved_pods = replacement_hold::moved_pods(context, name_of(claim), now);
        let mut holds = self.holds.lock().unwrap_or_else(PoisonError::into_inner);
        holds.retain(|_, hold| since(now, hold.since()) < GATE_RECORD_TTL);
        let hold = holds.entry(uid_of(claim).to_owned()).or_insert_with(|| ReplacementHold::from(now));
        hold.is_still_needed(moved_pods, now)
    }

    fn batch(&self) -> MutexGuard<'_, OpenBatch> {
        self.batch.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a node with reservations exists that is not open yet and not in the batch.
fn is_another_node_expected(context: &Context, batch: &BTreeMap<String, usize>) -> bool {
    let others = context.state.hosts_with_pod_reservations().into_iter();
    let others = others.filter(|claim| !batch.contains_key(claim));
    others.filter(|name| !context.state.is_held_for_moved_pods(name)).any(|name| {
        let claim = context.stores.node_claims.get("", &name);
        let node = node_of(context, &name, claim.as_deref());
        node.is_some_and(|node| {
            matches!(
                node_access::node_access(&node, claim.as_deref()),
                NodeAccess::NotReady | NodeAccess::OnlyOurTaint
            )
        })
    })
}

fn is_open(context: &Context, claim_name: &str) -> bool {
    let claim = context.stores.node_claims.get("", claim_name);
    node_of(context, claim_name, claim.as_deref())
        .is_some_and(|node| node_access::node_access(&node, claim.as_deref()) == NodeAccess::Open)
}

/// The reservations on a claim whose node is about to open, with the node's name.
fn reservations_to_nominate(context: &Context, claim_name: &str) -> Vec<(PodReservation, String)> {
    let claim = context.stores.node_claims.get("", claim_name);
    let Some(node) = node_of(context, claim_name, claim.as_deref()) else { return Vec::new() };
    if !node_access::is_nomination_due(&node, claim.as_deref()) {
        return Vec::new();
    }
    let name = node.metadata.name.clone().unwrap_or_default();
    context
        .state
        .reservations_on(claim_name)
        .into_iter()
        .map(|reservation| (reservation, name.clone()))
        .collect()
}

/// Removes nominations that this process wrote and that are obsolete. Failures are ignored: the kube-scheduler drops a
/// nomination when the pod does not fit the node.
pub async fn clear(context: &Context, reservations: &[PodReservation]) {
    for reservation in reservations {
        let Some(node) = &reservation.nominated else { continue };
        let is_ours = |pod: &Pod| pods::nominated_node(pod) == Some(node.as_str());
        if let Err(error) = write(context, reservation, is_ours, None).await {
            tracing::debug!(pod = %reservation.pod, node, %error, "failed to clear nomination of pod");
        }
    }
}

async fn nominate(context: &Context, reservation: PodReservation, node: &str) {
    if !context.state.may_nominate(context.clock.now()) {
        return;
    }
    let former = context.state.nominated_by_us(&reservation.uid);
    let is_free = |pod: &Pod| pods::nominated_node(pod).is_none_or(|name| former.as_deref() == Some(name));
    // Recorded before it is written: the kube-scheduler may drop the nomination before the response arrives, and
    // [`NominationController`] only restores nominations that are recorded.
    context.state.set_nominated(&reservation.uid, Some(node));
    context.state.set_nominated_by_us(&reservation.uid, Some(node));
    let outcome = write(context, &reservation, is_free, Some(node)).await;
    if !matches!(outcome, Ok(true)) {
        context.state.set_nominated(&reservation.uid, reservation.nominated.as_deref());
        context.state.set_nominated_by_us(&reservation.uid, former.as_deref());
    }
    match outcome {
        Ok(true) => context.state.nomination_succeeded(),
        Ok(false) => {}
        Err(kube::Error::Api(status)) if status.code == 403 => {
            if context.state.nomination_forbidden(context.clock.now()) {
                let error = &status.message;
                tracing::warn!(error, "cannot patch pods/status, pod nomination is disabled");
            }
        }
        Err(error) => {
            tracing::debug!(pod = %reservation.pod, node, %error, "failed to nominate node for pod");
        }
    }
}

/// Patches the nomination if the pod is still pending and `may` allows it. The patch carries the resource version that was
/// checked. Returns whether the pod has the nomination now.
async fn write(
    context: &Context,
    reservation: &PodReservation,
    may: impl Fn(&Pod) -> bool,
    node: Option<&str>,
) -> kube::Result<bool> {
    let api = Api::<WithoutManagedFields<PodFields>>::namespaced(
        context.client.clone(),
        &reservation.pod.namespace,
    );
    let mut pod = context.stores.pods.get(&reservation.pod.namespace, &reservation.pod.name);
    for _ in 0..CONFLICT_ATTEMPTS_MAX {
        let Some(current) = pod.filter(|pod| pods::uid_of(pod) == reservation.uid) else { return Ok(false) };
        if pods::is_bound(&current) || !pods::is_active(&current) || !may(&current) {
            return Ok(false);
        }
        if pods::nominated_node(&current) == node {
            return Ok(true);
        }
        let patch = json!({
            "metadata": {"uid": reservation.uid, "resourceVersion": current.resource_version()},
            "status": {"nominatedNodeName": node},
        });
        let patch = Patch::Merge(patch);
        match api.patch_status(&reservation.pod.name, &PatchParams::default(), &patch).await {
            Ok(WithoutManagedFields(written)) => {
                context.stores.pods.apply(written.into());
                return Ok(true);
            }
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(false),
            Err(kube::Error::Api(status)) if status.code == 409 => {
                pod = api
                    .get_opt(&reservation.pod.name)
                    .await?
                    .map(|WithoutManagedFields(pod)| Arc::new(pod.into()));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

/// The Node of a claim that is not terminating; if there is no claim, the Node of that name.
fn node_of(context: &Context, name: &str, claim: Option<&NodeClaim>) -> Option<Arc<Node>> {
    let nodes = &context.stores.nodes;
    let Some(claim) = claim else {
        // A node of a NodePool without a claim will be deleted, so it does not count.
        let is_ours = |node: &Arc<Node>| label(&**node, labels::NODEPOOL).is_some();
        return nodes.get("", name).filter(|node| !is_ours(node));
    };
    if is_deleting(claim) {
        return None;
    }
    let status = claim.status.as_ref()?;
    let by_name = || nodes.get("", status.node_name.as_deref()?);
    let id = status.provider_id.as_deref().filter(|id| !id.is_empty());
    let by_id = id.and_then(|id| nodes.by(BY_PROVIDER_ID, id).into_iter().next());
    by_id.or_else(by_name)
}
