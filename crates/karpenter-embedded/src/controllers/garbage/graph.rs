//! The owner graph of all objects, and the decision for each object.
//!
//! Upstream: pkg/controller/garbagecollector/graph.go

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::PropagationPolicy;

use super::{FOREGROUND, ORPHAN};
use crate::controllers::kinds::ServedKind;

/// Maximum number of uids of deleted objects that are remembered.
const ABSENT_MAX: usize = 100_000;

/// The relevant metadata of an object.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Item {
    pub(super) kind: Arc<ServedKind>,
    pub(super) namespace: String,
    pub(super) name: String,
    owners: Vec<OwnerReference>,
    deleting: bool,
    foreground: bool,
    orphan: bool,
}

impl Item {
    pub(super) fn of(kind: &Arc<ServedKind>, meta: &ObjectMeta) -> Self {
        let has = |wanted: &str| meta.finalizers.iter().flatten().any(|finalizer| finalizer == wanted);
        Self {
            kind: kind.clone(),
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            owners: meta.owner_references.clone().unwrap_or_default(),
            deleting: meta.deletion_timestamp.is_some(),
            foreground: has(FOREGROUND),
            orphan: has(ORPHAN),
        }
    }

    fn waits_for_dependents(&self) -> bool {
        self.deleting && self.foreground
    }
}

/// The action for an object.
#[derive(Debug, PartialEq)]
pub(super) enum Verdict {
    Keep,
    /// It is unknown whether this owner exists; ask the API server.
    LookUpOwner(OwnerReference),
    /// Remove the references to these owners.
    RemoveOwnerReferences(BTreeSet<String>),
    Delete(PropagationPolicy),
    /// Remove the owner references of these dependents, then the object's finalizer.
    Orphan(Vec<(String, Item)>),
    /// All blocking dependents are gone, so the finalizer is removed.
    Finish,
}

#[derive(Debug, Default)]
pub(super) struct Graph {
    items: BTreeMap<String, Item>,
    dependents: BTreeMap<String, BTreeSet<String>>,
    absent: BTreeSet<String>,
    /// Pairs of an object and one of its owners that is not watched, but exists according to the API server.
    present: BTreeSet<(String, String)>,
}

impl Graph {
    /// Adds or updates an object; returns the uids to reconcile.
    pub(super) fn put(&mut self, uid: &str, item: Item) -> Vec<String> {
        let mut affected = Vec::new();
        let old = self.items.get(uid);
        if old == Some(&item) {
            return affected;
        }
        let begins_to_wait = item.waits_for_dependents() && !old.is_some_and(Item::waits_for_dependents);
        let owners_of =
            |item: &Item| -> BTreeSet<String> { item.owners.iter().map(|owner| owner.uid.clone()).collect() };
        let before = old.map(owners_of).unwrap_or_default();
        let after = owners_of(&item);
        for owner in before.difference(&after) {
            if let Some(dependents) = self.dependents.get_mut(owner) {
                dependents.remove(uid);
            }
            // The owner may have been waiting for the deletion of this object.
            affected.push(owner.clone());
        }
        for owner in &after {
            self.dependents.entry(owner.clone()).or_default().insert(uid.to_string());
        }
        if !item.owners.is_empty() || item.deleting {
            affected.push(uid.to_string());
        }
        if begins_to_wait {
            affected.extend(self.dependents.get(uid).into_iter().flatten().cloned());
        }
        self.items.insert(uid.to_string(), item);
        affected
    }

    /// Removes an object; returns the uids to reconcile.
    pub(super) fn remove(&mut self, uid: &str) -> Vec<String> {
        let Some(item) = self.items.remove(uid) else { return Vec::new() };
        let mut affected = Vec::new();
        for owner in &item.owners {
            if let Some(dependents) = self.dependents.get_mut(&owner.uid) {
                dependents.remove(uid);
                if dependents.is_empty() {
                    self.dependents.remove(&owner.uid);
                }
            }
            self.present.remove(&(uid.to_string(), owner.uid.clone()));
            affected.push(owner.uid.clone());
        }
        if let Some(dependents) = self.dependents.get(uid) {
            affected.extend(dependents.iter().cloned());
            self.record_absent(uid);
        }
        affected
    }

    /// Removes all objects of a kind that is no longer served.
    pub(super) fn remove_kind(&mut self, kind: &ServedKind) -> Vec<String> {
        let gone: Vec<String> =
            self.items.iter().filter(|(_, item)| *item.kind == *kind).map(|(uid, _)| uid.clone()).collect();
        gone.iter().flat_map(|uid| self.remove(uid)).collect()
    }

    /// Records that the object does not exist. A uid is never reused.
    pub(super) fn record_absent(&mut self, uid: &str) {
        if self.absent.len() >= ABSENT_MAX {
            self.absent.clear();
        }
        self.absent.insert(uid.to_string());
    }

    pub(super) fn record_present(&mut self, uid: &str, owner: &str) {
        self.present.insert((uid.to_string(), owner.to_string()));
    }

    pub(super) fn decide(&self, uid: &str) -> Option<(Item, Verdict)> {
        let item = self.items.get(uid)?;
        Some((item.clone(), self.verdict(uid, item)))
    }

    fn verdict(&self, uid: &str, item: &Item) -> Verdict {
        let no_dependents = BTreeSet::new();
        let dependents = self.dependents.get(uid).unwrap_or(&no_dependents);
        if item.deleting && item.orphan {
            let dependents = dependents.iter().filter_map(|dependent| {
                self.items.get(dependent).map(|item| (dependent.clone(), item.clone()))
            });
            return Verdict::Orphan(dependents.collect());
        }
        if item.waits_for_dependents() {
            let blocked =
                dependents.iter().filter_map(|dependent| self.items.get(dependent)).any(|dependent| {
                    let owners = dependent.owners.iter();
                    owners
                        .into_iter()
                        .any(|owner| owner.uid == uid && owner.block_owner_deletion == Some(true))
                });
            return if blocked { Verdict::Keep } else { Verdict::Finish };
        }
        if item.deleting || item.owners.is_empty() {
            return Verdict::Keep;
        }
        let (mut solid, mut waiting, mut dangling) = (0, BTreeSet::new(), BTreeSet::new());
        for owner in &item.owners {
            match self.items.get(&owner.uid) {
                Some(found) if found.waits_for_dependents() && owner.block_owner_deletion == Some(true) => {
                    waiting.insert(owner.uid.clone());
                }
                Some(_) => solid += 1,
                None if self.absent.contains(&owner.uid) => {
                    dangling.insert(owner.uid.clone());
                }
                None if self.present.contains(&(uid.to_string(), owner.uid.clone())) => solid += 1,
                None => return Verdict::LookUpOwner(owner.clone()),
            }
        }
        if solid > 0 {
            dangling.append(&mut waiting);
            return if dangling.is_empty() {
                Verdict::Keep
            } else {
                Verdict::RemoveOwnerReferences(dangling)
            };
        }
        if !waiting.is_empty() && !dependents.is_empty() {
            return Verdict::Delete(PropagationPolicy::Foreground);
        }
        Verdict::Delete(if item.orphan {
            PropagationPolicy::Orphan
        } else if item.foreground {
            PropagationPolicy::Foreground
        } else {
            PropagationPolicy::Background
        })
    }
}
