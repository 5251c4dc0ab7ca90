//! Cluster state that is not in any API object: pod reservations, node nominations, and claims that are marked for
//! deletion.
//!
//! The state is kept in memory and lost when the process ends. That is safe: without it, pending pods are planned again
//! onto the in-flight nodes, and disruption finds its candidates again. Only the move history ([`move_history`]) is
//! also written to objects, because NodePools limit moves over time; see [`crate::disruption`].
//!
//! A *host* is the name of a NodeClaim, or of a Node that has no NodeClaim.
//!
//! Upstream: pkg/controllers/state/cluster.go.

pub mod launch_backoff;
pub mod move_history;
pub mod node_limit_grants;
mod permission_backoff;
pub mod reboot_history;
pub mod repairs;
#[cfg(test)]
mod tests;
pub mod unconfirmed_creates;
pub mod verdicts;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use jiff::Timestamp;
use karpenter_runtime::object::ObjectKey;
use karpenter_state::pod::Pod;

use self::move_history::MoveHistory;
use self::permission_backoff::PermissionBackoff;
use crate::pods::key_of_pod;

/// Capacity of a host that is set aside for a planned pod until the pod is bound.
///
/// The host is a node that is in flight, or one to which a command moves the pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodReservation {
    pub pod: ObjectKey,
    pub uid: String,
    /// The name of the claim that the pod was planned for. If the node has no claim, the name of the node.
    pub host: String,
    pub since: Timestamp,
    /// Whether a command moves the pod to the host, or moved the pod that this one replaces.
    pub is_move: bool,
    /// The node that this process wrote to the pod's `status.nominatedNodeName`, if any.
    pub nominated: Option<String>,
    /// Uid of the pod's controller. If the pod is deleted, a new pod of the same controller inherits the reservation.
    pub owner: Option<String>,
}

/// Clones share the state.
#[derive(Debug, Clone, Default)]
pub struct ClusterState {
    shared: Arc<Mutex<Inner>>,
    listeners: Arc<Listeners>,
}

type PodListener = Box<dyn Fn(&str) + Send + Sync>;
type BufferListener = Box<dyn Fn() + Send + Sync>;

#[derive(Default)]
struct Listeners {
    /// Called when a reservation is revoked. The provisioner sets it, to plan the pod again.
    on_reservation_revoked: OnceLock<PodListener>,
    /// Called when the nodes of virtual pods change. Disruption sets it, to evaluate nodes that no longer hold capacity
    /// for buffers.
    on_buffer_hosts_changed: OnceLock<BufferListener>,
}

impl fmt::Debug for Listeners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_set =
            (self.on_reservation_revoked.get().is_some(), self.on_buffer_hosts_changed.get().is_some());
        f.debug_tuple("Listeners").field(&is_set).finish()
    }
}

#[derive(Debug, Default)]
struct Inner {
    /// The reservations, by pod uid.
    reservations: BTreeMap<String, PodReservation>,
    /// Uids of pods with a reservation, by host.
    by_host: BTreeMap<String, BTreeSet<String>>,
    /// Reservations of deleted pods, by uid of the deleted pod's controller. A new pod of that controller inherits one
    /// of them.
    successor_slots: BTreeMap<String, Vec<SuccessorSlot>>,
    moves: MoveHistory,
    /// Until when each node or claim is protected from disruption because pods were planned onto it, by name.
    nominated_until: BTreeMap<String, Timestamp>,
    /// Claims that a command has selected for deletion and that still exist.
    marked_for_deletion: BTreeSet<String>,
    /// Claims whose nodes are ready and keep the unregistered taint only until the pods that commands move to them are
    /// pending.
    held_for_moved_pods: BTreeSet<String>,
    /// Since when pods can be bound to the node of a claim.
    open_since: BTreeMap<String, Timestamp>,
    bindings: BindingCounts,
    nomination_backoff: PermissionBackoff,
    /// Who wrote `status.nominatedNodeName` of each pending pod, by uid of the pod.
    nominations: BTreeMap<String, NominationRecord>,
    /// The nodes that virtual pods of buffers were planned onto, by uid of the pod.
    buffer_hosts: BTreeMap<String, String>,
}

/// The node in `status.nominatedNodeName` of a pod, and who wrote it. The record remains when the reservation of the
/// pod is removed.
#[derive(Debug, Clone, PartialEq, Eq)]
enum NominationRecord {
    /// This process wrote the nomination.
    Ours(String),
    /// Another process, usually the kube-scheduler, wrote the nomination. The time is when this process first saw it.
    Others(String, Timestamp),
}

/// The reservation of a deleted pod, kept for a new pod of the same controller.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SuccessorSlot {
    host: String,
    since: Timestamp,
    is_move: bool,
}

/// How many pods with a reservation were bound to the reserved host, and how many to another node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BindingCounts {
    pub as_planned: u64,
    pub elsewhere: u64,
}

impl ClusterState {
    /// Reserves capacity of the host for the pod. Replaces an earlier reservation of the pod.
    pub fn reserve(&self, pod: &Pod, host: &str, now: Timestamp) {
        self.inner().put(pod, host, now, false);
    }

    /// Adds pods that a command moves away from nodes of this NodePool to the move history.
    pub fn count_moves(&self, pool: &str, pods: u32, now: Timestamp) {
        self.inner().moves.count_moves_from_pool(pool, pods, now);
    }

    /// Subtracts the pods that [`Self::count_moves`] added, after a rollback.
    pub fn uncount_moves(&self, pool: &str, pods: u32, at: Timestamp) {
        self.inner().moves.uncount_moves_from_pool(pool, pods, at);
    }

    /// Restores from an annotation that a command of an earlier process moved pods onto the claim at this time.
    pub fn restore_moved_onto(&self, claim: &str, at: Timestamp) {
        self.inner().moves.moved_onto(claim, at);
    }

    /// Sets how long the move history must be kept: for the longest cool-down of any NodePool.
    pub fn keep_moves_for(&self, cool_down_secs: i64) {
        self.inner().moves.keep_for(cool_down_secs);
    }

    pub fn move_history(&self) -> MoveHistory {
        self.inner().moves.clone()
    }

    pub fn reservation_of(&self, uid: &str) -> Option<PodReservation> {
        self.inner().reservations.get(uid).cloned()
    }

    /// All reservations, by pod uid.
    pub fn reservations(&self) -> Vec<PodReservation> {
        self.inner().reservations.values().cloned().collect()
    }

    /// The reservations on a host, sorted by pod name.
    pub fn reservations_on(&self, host: &str) -> Vec<PodReservation> {
        let inner = self.inner();
        let uids = inner.by_host.get(host).into_iter().flatten();
        let mut reservations: Vec<PodReservation> =
            uids.filter_map(|uid| inner.reservations.get(uid)).cloned().collect();
        reservations.sort_by(|one, other| one.pod.cmp(&other.pod));
        reservations
    }

    /// Hosts with reservations of pods that exist.
    pub fn hosts_with_pod_reservations(&self) -> Vec<String> {
        self.inner().by_host.keys().cloned().collect()
    }

    /// Records in the reservation which node this process nominated for the pod; `None` after it removed the
    /// nomination.
    pub fn set_nominated(&self, uid: &str, node: Option<&str>) {
        if let Some(reservation) = self.inner().reservations.get_mut(uid) {
            reservation.nominated = node.map(str::to_owned);
        }
    }

    /// The node that this process last nominated for the pod, even if the pod's reservation was removed since.
    pub fn nominated_by_us(&self, uid: &str) -> Option<String> {
        match self.inner().nominations.get(uid) {
            Some(NominationRecord::Ours(node)) => Some(node.clone()),
            _ => None,
        }
    }

    /// Records the node that [`Self::nominated_by_us`] returns for the pod; `None` removes the record.
    pub fn set_nominated_by_us(&self, uid: &str, node: Option<&str>) {
        let mut inner = self.inner();
        match node {
            Some(node) => inner.nominations.insert(uid.to_owned(), NominationRecord::Ours(node.to_owned())),
            None => inner.nominations.remove(uid),
        };
    }

    /// Records that another process nominated this node for the pod, and returns when that was first seen.
    pub fn nominated_by_others_since(&self, uid: &str, node: &str, now: Timestamp) -> Timestamp {
        let mut inner = self.inner();
        match inner.nominations.get(uid) {
            Some(NominationRecord::Others(name, since)) if name == node => *since,
            _ => {
                inner.nominations.insert(uid.to_owned(), NominationRecord::Others(node.to_owned(), now));
                now
            }
        }
    }

    /// Removes the records of nominations of pods that are not pending any more.
    pub fn retain_nomination_records(&self, is_pending: impl Fn(&str) -> bool) {
        self.inner().nominations.retain(|uid, _| is_pending(uid));
    }

    /// Removes the reservation of a pod that is bound or will be planned again.
    pub fn remove_reservation(&self, uid: &str) -> Option<PodReservation> {
        self.inner().remove(uid)
    }

    /// Removes the reservation of a pod because other pods took the capacity, and triggers planning of the pod.
    pub fn revoke_reservation(&self, uid: &str) {
        if self.remove_reservation(uid).is_some()
            && let Some(listener) = self.listeners.on_reservation_revoked.get()
        {
            listener(uid);
        }
    }

    /// Sets the function that is called with the uid of a pod whose reservation is revoked. Only the first call has an
    /// effect.
    pub fn on_reservation_revoked(&self, listener: impl Fn(&str) + Send + Sync + 'static) {
        let _ = self.listeners.on_reservation_revoked.set(Box::new(listener));
    }

    /// Removes the reservation of a pod that was bound, and counts whether the pod was bound to the host of the
    /// reservation. `is_there` returns whether the pod's node is the node of a host.
    pub fn record_binding(&self, uid: &str, is_there: impl FnOnce(&str) -> bool) {
        let Some(reservation) = self.remove_reservation(uid) else { return };
        let is_there = is_there(&reservation.host);
        let bindings = &mut self.inner().bindings;
        if is_there {
            bindings.as_planned += 1;
        } else {
            bindings.elsewhere += 1;
        }
    }

    pub fn bindings(&self) -> BindingCounts {
        self.inner().bindings
    }

    /// Keeps the reservation of a deleted pod for a new pod of the same controller.
    pub fn release_to_successor(&self, uid: &str, now: Timestamp) {
        let mut inner = self.inner();
        let Some(reservation) = inner.remove(uid) else { return };
        if let Some(owner) = reservation.owner {
            let slot = SuccessorSlot { host: reservation.host, since: now, is_move: reservation.is_move };
            inner.successor_slots.entry(owner).or_default().push(slot);
        }
    }

    /// Gives the pod the reservation of a deleted pod of the same controller, and returns the host.
    ///
    /// Reservations of deleted pods for which `is_usable(host, since, is_move)` is false are removed.
    pub fn inherit_slot(
        &self,
        pod: &Pod,
        now: Timestamp,
        is_usable: impl Fn(&str, Timestamp, bool) -> bool,
    ) -> Option<String> {
        let owner = owner_of(pod)?;
        let mut inner = self.inner();
        let slots = inner.successor_slots.get_mut(&owner)?;
        slots.retain(|slot| is_usable(&slot.host, slot.since, slot.is_move));
        let slot = (!slots.is_empty()).then(|| slots.remove(0));
        if slots.is_empty() {
            inner.successor_slots.remove(&owner);
        }
        let SuccessorSlot { host, is_move, .. } = slot?;
        inner.put(pod, &host, now, is_move);
        if is_move {
            inner.moves.pod_moved(&pod.uid, now);
        }
        Some(host)
    }

    /// The controllers of deleted pods that a command was to move to the claim and whose reservations no new pod has
    /// inherited yet.
    pub fn owners_of_moved_slots(&self, claim: &str) -> BTreeSet<String> {
        let inner = self.inner();
        let is_move_to_claim = |slot: &SuccessorSlot| slot.is_move && slot.host == claim;
        let owners = inner.successor_slots.iter().filter(|(_, slots)| slots.iter().any(is_move_to_claim));
        owners.map(|(owner, _)| owner.clone()).collect()
    }

    /// Hosts with reservations: those of existing pods, and those of deleted pods that commands were to move.
    pub fn hosts_with_reservations(&self) -> BTreeSet<String> {
        let inner = self.inner();
        let slots = inner.successor_slots.values().flatten().filter(|slot| slot.is_move);
        inner.by_host.keys().chain(slots.map(|slot| &slot.host)).cloned().collect()
    }

    /// Records whether the claim's node is ready and keeps the unregistered taint only until the pods that a command
    /// moves to it are pending.
    pub fn set_held_for_moved_pods(&self, claim: &str, is_held: bool) {
        let mut inner = self.inner();
        if is_held {
            inner.held_for_moved_pods.insert(claim.to_owned());
        } else {
            inner.held_for_moved_pods.remove(claim);
        }
    }

    pub fn is_held_for_moved_pods(&self, claim: &str) -> bool {
        self.inner().held_for_moved_pods.contains(claim)
    }

    /// Removes the reservations of deleted pods on a host, because its capacity was planned for other pods.
    pub fn drop_successor_slots(&self, host: &str) {
        self.inner().retain_successor_slots(|one| one != host);
    }

    /// Removes the records about hosts that no longer exist. Pod reservations on them stay, because the provisioner
    /// still has to handle these.
    pub fn retain_claims(&self, exists: impl Fn(&str) -> bool) {
        let mut inner = self.inner();
        inner.marked_for_deletion.retain(|claim| exists(claim));
        inner.open_since.retain(|claim, _| exists(claim));
        inner.held_for_moved_pods.retain(|claim| exists(claim));
        inner.retain_successor_slots(exists);
    }

    /// Protects a node or claim from disruption until this time, because pods were planned onto it.
    pub fn nominate_node(&self, name: &str, until: Timestamp) {
        let mut inner = self.inner();
        let present = inner.nominated_until.entry(name.to_owned()).or_insert(until);
        *present = until.max(*present);
    }

    pub fn is_node_nominated(&self, name: &str, now: Timestamp) -> bool {
        self.inner().nominated_until.get(name).is_some_and(|until| now < *until)
    }

    /// The names of nodes and claims that are protected from disruption because pods were planned onto them.
    pub fn nominated_nodes(&self, now: Timestamp) -> BTreeSet<String> {
        let inner = self.inner();
        inner
            .nominated_until
            .iter()
            .filter(|(_, until)| now < **until)
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// Records that a command started: its claims are marked for deletion and its pods get reservations on other hosts.
    /// Both changes are made under one lock, so that the provisioner never sees marked claims whose pods have no
    /// reservations.
    pub fn start_command<'a>(
        &self,
        claims: impl IntoIterator<Item = &'a str>,
        moves: impl IntoIterator<Item = (&'a Pod, &'a str)>,
        now: Timestamp,
    ) {
        let mut inner = self.inner();
        inner.marked_for_deletion.extend(claims.into_iter().map(str::to_owned));
        for (pod, host) in moves {
            inner.put(pod, host, now, true);
            inner.moves.moved_onto(host, now);
            inner.moves.pod_moved(&pod.uid, now);
        }
    }

    /// Marks a claim for deletion, so that no pods are planned onto its node and its pods are planned onto other nodes.
    pub fn mark_for_deletion(&self, claim: &str) {
        self.inner().marked_for_deletion.insert(claim.to_owned());
    }

    pub fn unmark_for_deletion(&self, claim: &str) {
        self.inner().marked_for_deletion.remove(claim);
    }

    pub fn is_marked_for_deletion(&self, claim: &str) -> bool {
        self.inner().marked_for_deletion.contains(claim)
    }

    pub fn marked_for_deletion(&self) -> BTreeSet<String> {
        self.inner().marked_for_deletion.clone()
    }

    /// Records that pods can be bound to the claim's node, and returns when that was first recorded.
    pub fn record_open(&self, claim: &str, now: Timestamp) -> Timestamp {
        *self.inner().open_since.entry(claim.to_owned()).or_insert(now)
    }

    /// Whether to try to patch `pods/status` now. After a response with status 403, further attempts wait for a
    /// back-off that increases.
    pub fn may_nominate(&self, now: Timestamp) -> bool {
        self.inner().nomination_backoff.may_try(now)
    }

    /// Records that a patch of `pods/status` was rejected with status 403. Returns `true` only the first time, so that
    /// the caller logs it once.
    pub fn nomination_forbidden(&self, now: Timestamp) -> bool {
        self.inner().nomination_backoff.forbidden(now)
    }

    /// Records a successful patch of `pods/status`: the back-off ends.
    pub fn nomination_succeeded(&self) {
        self.inner().nomination_backoff.allowed();
    }

    /// Records the nodes that virtual pods of buffers were planned onto, by uid of the virtual pod.
    pub fn set_buffer_hosts(&self, hosts: BTreeMap<String, String>) {
        let is_changed = self.inner().buffer_hosts != hosts;
        self.inner().buffer_hosts = hosts;
        if is_changed && let Some(listener) = self.listeners.on_buffer_hosts_changed.get() {
            listener();
        }
    }

    /// Sets the function that is called when the nodes of virtual pods change. Only the first call has an effect.
    pub fn on_buffer_hosts_changed(&self, listener: impl Fn() + Send + Sync + 'static) {
        let _ = self.listeners.on_buffer_hosts_changed.set(Box::new(listener));
    }

    pub fn buffer_hosts(&self) -> BTreeMap<String, String> {
        self.inner().buffer_hosts.clone()
    }

    /// Removes expired node nominations, and moves that are too old to matter.
    pub fn expire(&self, now: Timestamp) {
        let mut inner = self.inner();
        inner.nominated_until.retain(|_, until| now < *until);
        inner.moves.expire(now);
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn retain_successor_slots(&mut self, is_kept: impl Fn(&str) -> bool) {
        self.successor_slots.retain(|_, slots| {
            slots.retain(|slot| is_kept(&slot.host));
            !slots.is_empty()
        });
    }

    fn put(&mut self, pod: &Pod, host: &str, since: Timestamp, is_move: bool) {
        let uid = pod.uid.to_string();
        self.remove(&uid);
        let reservation = PodReservation {
            pod: key_of_pod(pod),
            uid: uid.clone(),
            host: host.to_owned(),
            since,
            is_move,
            nominated: None,
            owner: owner_of(pod),
        };
        self.by_host.entry(host.to_owned()).or_default().insert(uid.clone());
        self.reservations.insert(uid, reservation);
    }

    fn remove(&mut self, uid: &str) -> Option<PodReservation> {
        let reservation = self.reservations.remove(uid)?;
        if let Some(uids) = self.by_host.get_mut(&reservation.host) {
            uids.remove(uid);
            if uids.is_empty() {
                self.by_host.remove(&reservation.host);
            }
        }
        Some(reservation)
    }
}

fn owner_of(pod: &Pod) -> Option<String> {
    pod.controller().map(|owner| owner.uid.clone())
}
