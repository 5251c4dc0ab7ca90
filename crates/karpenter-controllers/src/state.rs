//! What the controllers know and no object says: which pods were planned for which claim, which nodes pods are on
//! their way to, and which claims are about to go.
//!
//! Held in memory and lost with the process. That is safe: without it pods are planned anew onto the nodes that are
//! coming up, and a node that was about to go is found again by whoever wanted it gone. Only what pools bound over time
//! ([`moves`]) is written down as well, see [`crate::disruption`].

pub mod moves;
mod refusal;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use jiff::Timestamp;
use karpenter_cluster::mirror::ObjectKey;
use karpenter_state::pod::Pod;

use self::moves::Moves;
use self::refusal::Refusal;
use crate::mirrors::key_of_pod;

/// A pod's place on a node that is still coming up, or on one that a command moves it to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub pod: ObjectKey,
    pub uid: String,
    /// The claim the pod was planned for, or the node where there is no claim.
    pub claim: String,
    /// Since when it has been the pod's.
    pub since: Timestamp,
    /// A command moves the pod there, or moved its predecessor.
    pub is_move: bool,
    /// The node this process has named in the pod's status, if it has.
    pub nominated: Option<String>,
    /// What makes pods like this one: a pod that comes back under another name takes the place of its predecessor.
    pub owner: Option<String>,
}

/// Clones share everything.
#[derive(Debug, Clone, Default)]
pub struct State {
    shared: Arc<Mutex<Inner>>,
    listeners: Arc<Listeners>,
}

type OfPod = Box<dyn Fn(&str) + Send + Sync>;
type OfRoom = Box<dyn Fn() + Send + Sync>;

#[derive(Default)]
struct Listeners {
    /// Who plans pods that have lost their place.
    on_lost_place: OnceLock<OfPod>,
    /// Who looks for nodes on which no room is kept.
    on_moved_room: OnceLock<OfRoom>,
}

impl fmt::Debug for Listeners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_heard = (self.on_lost_place.get().is_some(), self.on_moved_room.get().is_some());
        f.debug_tuple("Listeners").field(&is_heard).finish()
    }
}

#[derive(Debug, Default)]
struct Inner {
    /// By pod uid.
    places: BTreeMap<String, Place>,
    by_claim: BTreeMap<String, BTreeSet<String>>,
    /// Places of pods that went away, by owner, free for the pods that replace them.
    vacant: BTreeMap<String, Vec<Vacancy>>,
    moves: Moves,
    nominated_until: BTreeMap<String, Timestamp>,
    leaving: BTreeSet<String>,
    /// Claims whose nodes only wait for the pods that commands move there.
    standing_by: BTreeSet<String>,
    /// Since when a claim's node has been open to its pods.
    open_since: BTreeMap<String, Timestamp>,
    bindings: Bindings,
    refusal: Refusal,
    /// Names of nodes in the status of pods that wait, by uid of the pod.
    names: BTreeMap<String, Name>,
    /// Nodes that pods which stand for buffers were planned onto, by uid of the pod.
    buffer_hosts: BTreeMap<String, String>,
}

/// A node's name in a pod's status: it outlives the place that it was written for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Name {
    Ours(String),
    /// Somebody else's, and since when it has been seen.
    Others(String, Timestamp),
}

/// A place whose pod went away.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Vacancy {
    claim: String,
    since: Timestamp,
    is_move: bool,
}

/// How many pods that had a place were bound to it, and how many to another node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bindings {
    pub as_planned: u64,
    pub elsewhere: u64,
}

impl State {
    /// Remembers that a pod was planned for a claim. A new plan replaces the old one.
    pub fn expect(&self, pod: &Pod, claim: &str, now: Timestamp) {
        self.inner().put(pod, claim, now, false);
    }

    /// Counts pods that were moved away from a pool's nodes.
    pub fn count_moves(&self, pool: &str, pods: u32, now: Timestamp) {
        self.inner().moves.left_pool(pool, pods, now);
    }

    /// These are not moved after all.
    pub fn uncount_moves(&self, pool: &str, pods: u32, at: Timestamp) {
        self.inner().moves.stayed(pool, pods, at);
    }

    /// A process before this one moved pods there.
    pub fn recall_moved_onto(&self, claim: &str, at: Timestamp) {
        self.inner().moves.moved_onto(claim, at);
    }

    /// What moved is remembered at least so long.
    pub fn remember_moves_for(&self, cool_down_secs: i64) {
        self.inner().moves.remember_for(cool_down_secs);
    }

    /// Pods are moved for a poor yield.
    pub fn note_thorough(&self, now: Timestamp) {
        self.inner().moves.note_thorough(now);
    }

    /// What was moved lately.
    pub fn moves(&self) -> Moves {
        self.inner().moves.clone()
    }

    pub fn place_of(&self, uid: &str) -> Option<Place> {
        self.inner().places.get(uid).cloned()
    }

    /// Everything planned, by pod uid.
    pub fn places(&self) -> Vec<Place> {
        self.inner().places.values().cloned().collect()
    }

    /// What was planned for a claim, by pod name.
    pub fn places_on(&self, claim: &str) -> Vec<Place> {
        let inner = self.inner();
        let uids = inner.by_claim.get(claim).into_iter().flatten();
        let mut places: Vec<Place> = uids.filter_map(|uid| inner.places.get(uid)).cloned().collect();
        places.sort_by(|one, other| one.pod.cmp(&other.pod));
        places
    }

    /// Claims, or nodes without one, that pods have places on.
    pub fn claims_with_places(&self) -> Vec<String> {
        self.inner().by_claim.keys().cloned().collect()
    }

    /// Remembers that this process named `node` in the pod's status, or took the name back.
    pub fn set_nominated(&self, uid: &str, node: Option<&str>) {
        if let Some(place) = self.inner().places.get_mut(uid) {
            place.nominated = node.map(str::to_owned);
        }
    }

    /// The node that this process named last in the pod's status, whatever became of the place there.
    pub fn name_of_ours(&self, uid: &str) -> Option<String> {
        match self.inner().names.get(uid) {
            Some(Name::Ours(node)) => Some(node.clone()),
            _ => None,
        }
    }

    /// Notes that it does so.
    pub fn set_name_of_ours(&self, uid: &str, node: Option<&str>) {
        let mut inner = self.inner();
        match node {
            Some(node) => inner.names.insert(uid.to_owned(), Name::Ours(node.to_owned())),
            None => inner.names.remove(uid),
        };
    }

    /// Notes that somebody else named the node in the pod's status, and returns since when.
    pub fn named_by_others(&self, uid: &str, node: &str, now: Timestamp) -> Timestamp {
        let mut inner = self.inner();
        match inner.names.get(uid) {
            Some(Name::Others(name, since)) if name == node => *since,
            _ => {
                inner.names.insert(uid.to_owned(), Name::Others(node.to_owned(), now));
                now
            }
        }
    }

    /// Forgets who named nodes in the status of pods that wait no longer.
    pub fn retain_names(&self, is_waiting: impl Fn(&str) -> bool) {
        self.inner().names.retain(|uid, _| is_waiting(uid));
    }

    /// The pod needs its place no longer: it is bound, or planned anew.
    pub fn forget_pod(&self, uid: &str) -> Option<Place> {
        self.inner().remove(uid)
    }

    /// Others took the pod's place: whoever plans hears of it at once.
    pub fn lose_place(&self, uid: &str) {
        if self.forget_pod(uid).is_some()
            && let Some(listener) = self.listeners.on_lost_place.get()
        {
            listener(uid);
        }
    }

    /// There is one who listens, the first.
    pub fn on_lost_place(&self, listener: impl Fn(&str) + Send + Sync + 'static) {
        let _ = self.listeners.on_lost_place.set(Box::new(listener));
    }

    /// The pod was bound: its place is its own now, or free. `is_there` says whether a claim's node is the pod's.
    pub fn bound(&self, uid: &str, is_there: impl FnOnce(&str) -> bool) {
        let Some(place) = self.forget_pod(uid) else { return };
        let is_there = is_there(&place.claim);
        let bindings = &mut self.inner().bindings;
        if is_there {
            bindings.as_planned += 1;
        } else {
            bindings.elsewhere += 1;
        }
    }

    pub fn bindings(&self) -> Bindings {
        self.inner().bindings
    }

    /// The pod is gone for good; a pod that its owner makes in its stead may take the place.
    pub fn vacate(&self, uid: &str, now: Timestamp) {
        let mut inner = self.inner();
        let Some(place) = inner.remove(uid) else { return };
        if let Some(owner) = place.owner {
            let vacancy = Vacancy { claim: place.claim, since: now, is_move: place.is_move };
            inner.vacant.entry(owner).or_default().push(vacancy);
        }
    }

    /// Gives a pod the place of a predecessor, if one is vacant on a claim for which `is_usable`, which is also told
    /// since when it is vacant and whether a command had moved the predecessor there.
    pub fn take_vacancy(
        &self,
        pod: &Pod,
        now: Timestamp,
        is_usable: impl Fn(&str, Timestamp, bool) -> bool,
    ) -> Option<String> {
        let owner = owner_of(pod)?;
        let mut inner = self.inner();
        let vacant = inner.vacant.get_mut(&owner)?;
        vacant.retain(|vacancy| is_usable(&vacancy.claim, vacancy.since, vacancy.is_move));
        let vacancy = (!vacant.is_empty()).then(|| vacant.remove(0));
        if vacant.is_empty() {
            inner.vacant.remove(&owner);
        }
        let Vacancy { claim, is_move, .. } = vacancy?;
        inner.put(pod, &claim, now, is_move);
        if is_move {
            inner.moves.pod_moved(&pod.uid, now);
        }
        Some(claim)
    }

    /// The owners of pods that a command sent there, that are gone, and whose successors are not known yet.
    pub fn vacancies_of_moves(&self, claim: &str) -> BTreeSet<String> {
        let inner = self.inner();
        let is_meant = |vacancy: &Vacancy| vacancy.is_move && vacancy.claim == claim;
        let vacant = inner.vacant.iter().filter(|(_, vacancies)| vacancies.iter().any(is_meant));
        vacant.map(|(owner, _)| owner.clone()).collect()
    }

    /// Claims, or nodes without one, that places are kept on: for pods, or for the successors of pods that commands moved.
    pub fn hosts(&self) -> BTreeSet<String> {
        let inner = self.inner();
        let vacant = inner.vacant.values().flatten().filter(|vacancy| vacancy.is_move);
        inner.by_claim.keys().chain(vacant.map(|vacancy| &vacancy.claim)).cloned().collect()
    }

    /// Notes whether a claim's node is ready and kept closed only until the pods that a command moves there are on
    /// their way.
    pub fn set_standing_by(&self, claim: &str, is_standing_by: bool) {
        let mut inner = self.inner();
        if is_standing_by {
            inner.standing_by.insert(claim.to_owned());
        } else {
            inner.standing_by.remove(claim);
        }
    }

    pub fn is_standing_by(&self, claim: &str) -> bool {
        self.inner().standing_by.contains(claim)
    }

    /// The room of pods that went away from a claim was given to others.
    pub fn drop_vacancies(&self, claim: &str) {
        self.inner().retain_vacancies(|one| one != claim);
    }

    /// Forgets what is known about claims that are gone. Places on them stay until whoever has to act on it did.
    pub fn retain_claims(&self, exists: impl Fn(&str) -> bool) {
        let mut inner = self.inner();
        inner.leaving.retain(|claim| exists(claim));
        inner.open_since.retain(|claim, _| exists(claim));
        inner.standing_by.retain(|claim| exists(claim));
        inner.retain_vacancies(exists);
    }

    /// Pods are on their way to the node (or claim) of this name until then.
    pub fn nominate_node(&self, name: &str, until: Timestamp) {
        let mut inner = self.inner();
        let present = inner.nominated_until.entry(name.to_owned()).or_insert(until);
        *present = until.max(*present);
    }

    pub fn is_node_nominated(&self, name: &str, now: Timestamp) -> bool {
        self.inner().nominated_until.get(name).is_some_and(|until| now < *until)
    }

    /// Names of nodes and claims that pods are on their way to.
    pub fn nominated_nodes(&self, now: Timestamp) -> BTreeSet<String> {
        let inner = self.inner();
        inner
            .nominated_until
            .iter()
            .filter(|(_, until)| now < **until)
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// A command has begun: the claims are about to go and their pods have places elsewhere. At one stroke, so that
    /// nobody plans for these pods in between.
    pub fn depart<'a>(
        &self,
        claims: impl IntoIterator<Item = &'a str>,
        moves: impl IntoIterator<Item = (&'a Pod, &'a str)>,
        now: Timestamp,
    ) {
        let mut inner = self.inner();
        inner.leaving.extend(claims.into_iter().map(str::to_owned));
        for (pod, host) in moves {
            inner.put(pod, host, now, true);
            inner.moves.moved_onto(host, now);
            inner.moves.pod_moved(&pod.uid, now);
        }
    }

    /// Marks a claim as about to go: its node takes no more pods, and the pods on it are planned elsewhere.
    pub fn mark_leaving(&self, claim: &str) {
        self.inner().leaving.insert(claim.to_owned());
    }

    pub fn unmark_leaving(&self, claim: &str) {
        self.inner().leaving.remove(claim);
    }

    pub fn is_leaving(&self, claim: &str) -> bool {
        self.inner().leaving.contains(claim)
    }

    pub fn leaving(&self) -> BTreeSet<String> {
        self.inner().leaving.clone()
    }

    /// Notes that pods could be bound to the claim's node from `now` on, and returns since when.
    pub fn opened(&self, claim: &str, now: Timestamp) -> Timestamp {
        *self.inner().open_since.entry(claim.to_owned()).or_insert(now)
    }

    /// Whether to ask for a node to be named in a pod. After a refusal one asks again after a while, and each time
    /// it takes longer.
    pub fn may_ask_for_nomination(&self, now: Timestamp) -> bool {
        self.inner().refusal.may_ask(now)
    }

    /// Naming a node in a pod was refused. `true` the first time: told once, not for every pod.
    pub fn nomination_refused(&self, now: Timestamp) -> bool {
        self.inner().refusal.refused(now)
    }

    /// It was allowed: the next refusal starts from the beginning.
    pub fn nomination_allowed(&self) {
        self.inner().refusal.allowed();
    }

    /// Remembers the nodes on which room is kept for capacity buffers, by uid of the pod that stands for it.
    pub fn set_buffer_hosts(&self, hosts: BTreeMap<String, String>) {
        let is_moved = self.inner().buffer_hosts != hosts;
        self.inner().buffer_hosts = hosts;
        if is_moved && let Some(listener) = self.listeners.on_moved_room.get() {
            listener();
        }
    }

    /// There is one who listens, the first.
    pub fn on_moved_room(&self, listener: impl Fn() + Send + Sync + 'static) {
        let _ = self.listeners.on_moved_room.set(Box::new(listener));
    }

    pub fn buffer_hosts(&self) -> BTreeMap<String, String> {
        self.inner().buffer_hosts.clone()
    }

    /// Drops nominations that have run out.
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
    fn retain_vacancies(&mut self, is_kept: impl Fn(&str) -> bool) {
        self.vacant.retain(|_, vacancies| {
            vacancies.retain(|vacancy| is_kept(&vacancy.claim));
            !vacancies.is_empty()
        });
    }

    fn put(&mut self, pod: &Pod, claim: &str, since: Timestamp, is_move: bool) {
        let uid = pod.uid.to_string();
        self.remove(&uid);
        let place = Place {
            pod: key_of_pod(pod),
            uid: uid.clone(),
            claim: claim.to_owned(),
            since,
            is_move,
            nominated: None,
            owner: owner_of(pod),
        };
        self.by_claim.entry(claim.to_owned()).or_default().insert(uid.clone());
        self.places.insert(uid, place);
    }

    fn remove(&mut self, uid: &str) -> Option<Place> {
        let place = self.places.remove(uid)?;
        if let Some(uids) = self.by_claim.get_mut(&place.claim) {
            uids.remove(uid);
            if uids.is_empty() {
                self.by_claim.remove(&place.claim);
            }
        }
        Some(place)
    }
}

fn owner_of(pod: &Pod) -> Option<String> {
    pod.controller().map(|owner| owner.uid.clone())
}
