//! Nominations of pods: writes `status.nominatedNodeName`, and determines which pods are expected on a host.
//!
//! [`crate::nomination`] decides when pods can be bound to a new node. [`crate::provisioning`] nominates nodes for pods
//! that inherit a reservation. Nominations that the kube-scheduler wrote are never changed.

pub(crate) mod available_capacity;
pub(crate) mod node_access;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Node;
use karpenter_api::labels;
use karpenter_api::types::NodeClaim;
use karpenter_runtime::object::{is_deleting, label};
use karpenter_runtime::watch::skip_managed_fields::WithoutManagedFields;
use karpenter_state::pod::{Pod, PodFields};
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use crate::inputs::Reads;
use crate::pods;
use crate::state::PodReservation;
use crate::stores::{BY_PROVIDER_ID, UNBOUND_BY_OWNER};

/// The maximum number of pods that are patched concurrently.
pub(crate) const CONCURRENT_WRITES_MAX: usize = 64;
/// The maximum number of attempts to patch a pod that other clients change at the same time.
const CONFLICT_ATTEMPTS_MAX: usize = 3;

/// The inputs of functions that write nominations. Clones share all state.
#[derive(Clone)]
pub struct Nominator {
    pub reads: Reads,
    pub client: Client,
    /// Whether to write the planned node to `status.nominatedNodeName` of pending pods.
    pub is_enabled: bool,
}

/// Nominates the claim's node for the pods that have a reservation on it.
///
/// Call this function right before the last obstacle on the node is removed; while there are other obstacles, it does
/// nothing. If the patch of a pod fails, the kube-scheduler chooses the pod's node.
pub async fn write_nominations(nominator: &Nominator, claim_name: &str) {
    if !nominator.is_enabled {
        return;
    }
    let found = reservations_to_nominate(&nominator.reads, claim_name);
    let Some(name) = found.first().map(|(_, name)| name.clone()) else { return };
    nominate_all(nominator, found.into_iter().map(|(reservation, _)| reservation).collect(), &name).await;
}

pub(crate) async fn nominate_all(nominator: &Nominator, reservations: Vec<PodReservation>, node: &str) {
    stream::iter(reservations)
        .map(|reservation| nominate(nominator, reservation, node))
        .buffered(CONCURRENT_WRITES_MAX)
        .for_each(|()| std::future::ready(()))
        .await;
}

/// The reservations on a claim whose node can receive pods now or after its next change, each with the name of the
/// node.
pub(crate) fn reservations_to_nominate(reads: &Reads, claim_name: &str) -> Vec<(PodReservation, String)> {
    let claim = reads.stores.node_claims.get("", claim_name);
    let Some(node) = node_of(reads, claim_name, claim.as_deref()) else { return Vec::new() };
    if !node_access::is_nomination_due(&node, claim.as_deref()) {
        return Vec::new();
    }
    let name = node.metadata.name.clone().unwrap_or_default();
    reads
        .state
        .reservations_on(claim_name)
        .into_iter()
        .map(|reservation| (reservation, name.clone()))
        .collect()
}

/// Removes nominations that this process wrote and that are obsolete. Failures are ignored, because the kube-scheduler
/// drops a nomination itself when the pod does not fit the node.
pub async fn clear(nominator: &Nominator, reservations: &[PodReservation]) {
    for reservation in reservations {
        let Some(node) = &reservation.nominated else { continue };
        let is_ours = |pod: &Pod| pods::nominated_node(pod) == Some(node.as_str());
        if let Err(error) = write(nominator, reservation, is_ours, None).await {
            tracing::debug!(pod = %reservation.pod, node, %error, "failed to clear nomination of pod");
        }
    }
}

pub(crate) async fn nominate(nominator: &Nominator, reservation: PodReservation, node: &str) {
    if !nominator.reads.state.may_nominate(nominator.reads.clock.now()) {
        return;
    }
    let former = nominator.reads.state.nominated_by_us(&reservation.uid);
    let is_free = |pod: &Pod| pods::nominated_node(pod).is_none_or(|name| former.as_deref() == Some(name));
    // The nomination is recorded before it is written: the kube-scheduler may drop it before the response arrives, and
    // [`NominationController`] restores only nominations that are recorded.
    nominator.reads.state.set_nominated(&reservation.uid, Some(node));
    nominator.reads.state.set_nominated_by_us(&reservation.uid, Some(node));
    let outcome = write(nominator, &reservation, is_free, Some(node)).await;
    if !matches!(outcome, Ok(true)) {
        nominator.reads.state.set_nominated(&reservation.uid, reservation.nominated.as_deref());
        nominator.reads.state.set_nominated_by_us(&reservation.uid, former.as_deref());
    }
    match outcome {
        Ok(true) => nominator.reads.state.nomination_succeeded(),
        Ok(false) => {}
        Err(kube::Error::Api(status)) if status.code == 403 => {
            if nominator.reads.state.nomination_forbidden(nominator.reads.clock.now()) {
                let error = &status.message;
                tracing::warn!(error, "cannot patch pods/status, pod nomination is disabled");
            }
        }
        Err(error) => {
            tracing::debug!(pod = %reservation.pod, node, %error, "failed to nominate node for pod");
        }
    }
}

/// Patches the nomination if the pod is still pending and `may` returns true for it. The patch contains the resource
/// version of the checked pod, so that it fails if the pod has changed. Returns whether the pod has the nomination now.
async fn write(
    nominator: &Nominator,
    reservation: &PodReservation,
    may: impl Fn(&Pod) -> bool,
    node: Option<&str>,
) -> kube::Result<bool> {
    let api = Api::<WithoutManagedFields<PodFields>>::namespaced(
        nominator.client.clone(),
        &reservation.pod.namespace,
    );
    let mut pod = nominator.reads.stores.pods.get(&reservation.pod.namespace, &reservation.pod.name);
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
                nominator.reads.stores.pods.apply(written.into());
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

/// The Node of a claim; `None` if the claim is terminating. If there is no claim, the Node with this name.
pub(crate) fn node_of(reads: &Reads, name: &str, claim: Option<&NodeClaim>) -> Option<Arc<Node>> {
    let nodes = &reads.stores.nodes;
    let Some(claim) = claim else {
        // A node of a NodePool whose claim does not exist will be deleted, so no pods are expected on it.
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

/// Whether a pod will still come to the host: a pod that has a reservation on it and is not bound elsewhere, or one
/// that may inherit such a reservation.
pub(crate) fn expects_pods(reads: &Reads, host: &str) -> bool {
    let mut owners = reads.state.owners_of_moved_slots(host);
    for reservation in reads.state.reservations_on(host) {
        match pod_of(reads, &reservation) {
            Some(pod) if pods::is_reschedulable(&pod) => return true,
            _ if reservation.is_move => owners.extend(reservation.owner),
            _ => {}
        }
    }
    has_unreserved_pod_of(reads, &owners)
}

pub(crate) fn pod_of(reads: &Reads, reservation: &PodReservation) -> Option<Arc<Pod>> {
    reads.stores.pods.get_key(&reservation.pod).filter(|pod| pods::uid_of(pod) == reservation.uid)
}

/// Whether one of these controllers has an unbound pod without a reservation. Only such a pod can inherit a
/// reservation.
pub(crate) fn has_unreserved_pod_of(reads: &Reads, owners: &BTreeSet<String>) -> bool {
    let is_unreserved =
        |pod: &Arc<Pod>| pods::is_active(pod) && reads.state.reservation_of(pods::uid_of(pod)).is_none();
    owners.iter().any(|owner| reads.stores.pods.by(UNBOUND_BY_OWNER, owner).iter().any(is_unreserved))
}
