//! What the controllers know and no object says: which pods were planned for which claim, which nodes pods are on
//! their way to, and which claims are about to go.
//!
//! Held in memory and lost with the process. That is safe: without it pods are planned anew onto the nodes that are
//! coming up, and a node that was about to go is found again by whoever wanted it gone.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use karpenter_cluster::mirror::ObjectKey;

/// A pod's place on a node that is still coming up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub pod: ObjectKey,
    pub uid: String,
    /// The claim the pod was planned for.
    pub claim: String,
    /// The node this process has named in the pod's status, if it has.
    pub nominated: Option<String>,
    /// What makes pods like this one: a pod that comes back under another name takes the place of its predecessor.
    pub owner: Option<String>,
}

/// Clones share everything.
#[derive(Debug, Clone, Default)]
pub struct State {
    shared: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    /// By pod uid.
    places: BTreeMap<String, Place>,
    by_claim: BTreeMap<String, BTreeSet<String>>,
    /// Places of pods that went away, by owner, free for the pods that replace them.
    vacant: BTreeMap<String, Vec<String>>,
    nominated_until: BTreeMap<String, Timestamp>,
    leaving: BTreeSet<String>,
    /// Since when a claim's node has been open to its pods.
    open_since: BTreeMap<String, Timestamp>,
    bindings: Bindings,
    has_been_refused: bool,
}

/// How many pods that had a place were bound to it, and how many to another node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bindings {
    pub as_planned: u64,
    pub elsewhere: u64,
}

impl State {
    /// Remembers that a pod was planned for a claim. A new plan replaces the old one.
    pub fn expect(&self, pod: &Pod, claim: &str) {
        let mut inner = self.inner();
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        inner.remove(&uid);
        let place = Place {
            pod: ObjectKey::of(&pod.metadata),
            uid: uid.clone(),
            claim: claim.to_owned(),
            nominated: None,
            owner: owner_of(pod),
        };
        inner.by_claim.entry(claim.to_owned()).or_default().insert(uid.clone());
        inner.places.insert(uid, place);
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

    /// Remembers that this process named `node` in the pod's status, or took the name back.
    pub fn set_nominated(&self, uid: &str, node: Option<&str>) {
        if let Some(place) = self.inner().places.get_mut(uid) {
            place.nominated = node.map(str::to_owned);
        }
    }

    /// The pod needs its place no longer: it is bound, or planned anew.
    pub fn forget_pod(&self, uid: &str) -> Option<Place> {
        self.inner().remove(uid)
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
    pub fn vacate(&self, uid: &str) {
        let mut inner = self.inner();
        let Some(place) = inner.remove(uid) else { return };
        if let Some(owner) = place.owner {
            inner.vacant.entry(owner).or_default().push(place.claim);
        }
    }

    /// Gives a pod the place of a predecessor, if one is vacant on a claim for which `is_usable`.
    pub fn take_vacancy(&self, pod: &Pod, is_usable: impl Fn(&str) -> bool) -> Option<String> {
        let owner = owner_of(pod)?;
        let claim = {
            let mut inner = self.inner();
            let vacant = inner.vacant.get_mut(&owner)?;
            vacant.retain(|claim| is_usable(claim));
            let claim = (!vacant.is_empty()).then(|| vacant.remove(0));
            if vacant.is_empty() {
                inner.vacant.remove(&owner);
            }
            claim?
        };
        self.expect(pod, &claim);
        Some(claim)
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

    /// Whether this is the first time that naming nodes in pods was refused: told once, not for every pod.
    pub fn is_first_refusal(&self) -> bool {
        !std::mem::replace(&mut self.inner().has_been_refused, true)
    }

    /// Drops nominations that have run out.
    pub fn expire(&self, now: Timestamp) {
        self.inner().nominated_until.retain(|_, until| now < *until);
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn retain_vacancies(&mut self, is_kept: impl Fn(&str) -> bool) {
        self.vacant.retain(|_, claims| {
            claims.retain(|claim| is_kept(claim));
            !claims.is_empty()
        });
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
    let mut owners = pod.metadata.owner_references.iter().flatten();
    owners.find(|owner| owner.controller == Some(true)).map(|owner| owner.uid.clone())
}
