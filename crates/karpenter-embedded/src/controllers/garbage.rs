//! Garbage collector: deletes objects whose owners are all gone. If the deletion of an owner requests it, the collector
//! deletes the dependents before the owner (foreground deletion), or removes their references to the owner (orphaning).
//! It handles every kind that the API server serves.
//!
//! Objects of a kind with a store are read from the store; of all other kinds only metadata is watched. A
//! [`graph::Graph`] holds the objects and their owners. Before an object is deleted because an owner is missing, the
//! owner is read from the API server.
//!
//! Upstream: pkg/controller/garbagecollector/garbagecollector.go

mod graph;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use karpenter_runtime::object::{ObjectKey, is_conflict, is_not_found};
use karpenter_runtime::queue::Queue;
use karpenter_runtime::store::{Change, Store};
use karpenter_runtime::worker::{Reconcile, Requeue, Shutdown};
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, Preconditions, PropagationPolicy};
use kube::core::PartialObjectMeta;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Resource, ResourceExt};
use serde_json::json;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use self::graph::{Graph, Item, Verdict};
use super::context::Context;
use super::kinds::{self, ServedKind};

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";
/// How often discovery runs although no CRD changed.
const DISCOVERY_INTERVAL: Duration = Duration::from_secs(300);

/// The garbage collector. The keys of its queue are uids.
pub struct GarbageCollector {
    context: Context,
    graph: Arc<Mutex<Graph>>,
    kinds: Mutex<Vec<Arc<ServedKind>>>,
}

type Metadata = PartialObjectMeta<DynamicObject>;

/// The queue key of the object with this uid.
fn key(uid: &str) -> ObjectKey {
    ObjectKey::new("", uid)
}

impl GarbageCollector {
    pub fn new(context: Context) -> Self {
        Self { context, graph: Arc::default(), kinds: Mutex::new(Vec::new()) }
    }

    fn graph(&self) -> MutexGuard<'_, Graph> {
        self.graph.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches all kinds that the API server serves, until shutdown.
    pub async fn watch_kinds(self: Arc<Self>, queue: Queue, shutdown: Shutdown) {
        let definitions_changed = Arc::new(Notify::new());
        let mut watches: BTreeMap<String, (Arc<ServedKind>, Option<JoinHandle<()>>)> = BTreeMap::new();
        while !shutdown.is_requested() {
            if let Ok(kinds) = kinds::discover(&self.context.client).await {
                self.follow(kinds, &queue, &definitions_changed, &mut watches).await;
            }
            tokio::select! {
                () = shutdown.requested() => {}
                () = definitions_changed.notified() => {}
                () = self.context.clock.sleep(DISCOVERY_INTERVAL) => {}
            }
        }
        for (_, watch) in watches.into_values() {
            if let Some(watch) = watch {
                watch.abort();
            }
        }
    }

    async fn follow(
        &self,
        kinds: Vec<Arc<ServedKind>>,
        queue: &Queue,
        definitions_changed: &Arc<Notify>,
        watches: &mut BTreeMap<String, (Arc<ServedKind>, Option<JoinHandle<()>>)>,
    ) {
        let served: BTreeSet<String> = kinds.iter().map(|kind| kind.full_name()).collect();
        let gone: Vec<String> = watches
            .iter()
            .filter(|(name, (kind, _))| {
                !served.contains(*name) || !kinds.iter().any(|served| served.resource == kind.resource)
            })
            .map(|(name, _)| name.clone())
            .collect();
        for name in gone {
            if let Some((kind, Some(watch))) = watches.remove(&name) {
                watch.abort();
                for uid in self.graph().remove_kind(&kind) {
                    queue.add(key(&uid));
                }
            }
        }
        let mut new = Vec::new();
        for kind in &kinds {
            // Events are not watched: they own nothing, nothing owns them, and there are many.
            if kind.resource.kind == "Event" || watches.contains_key(&kind.full_name()) {
                continue;
            }
            let watch = match self.observe_store(kind, queue) {
                true => None,
                false => {
                    let (store, task) = self.watch_metadata(kind);
                    new.push((kind.clone(), store));
                    Some(task)
                }
            };
            watches.insert(kind.full_name(), (kind.clone(), watch));
        }
        *self.kinds.lock().unwrap_or_else(PoisonError::into_inner) = kinds;
        for (kind, store) in new {
            // A kind that cannot be listed must not delay the collection of the other kinds.
            let _ = tokio::time::timeout(Duration::from_secs(10), store.synced()).await;
            if kind.is("apiextensions.k8s.io", "CustomResourceDefinition") {
                let changed = definitions_changed.clone();
                store.observe(move |_| changed.notify_one());
            }
            self.observe(&store, &kind, queue);
        }
    }

    fn watch_metadata(&self, kind: &ServedKind) -> (Store<Metadata>, JoinHandle<()>) {
        let store = Store::<Metadata>::empty(trim, &[]);
        let api = Api::<Metadata>::all_with(self.context.client.clone(), &kind.resource);
        let events = watcher(api, watcher::Config::default()).default_backoff();
        let task = tokio::spawn(store.clone().apply_events(events));
        (store, task)
    }

    /// Adds the objects of a store to the graph, and enqueues objects that may have become garbage.
    fn observe<K>(&self, store: &Store<K>, kind: &Arc<ServedKind>, queue: &Queue)
    where
        K: Resource + Clone + std::fmt::Debug + Send + Sync + 'static,
    {
        let (graph, kind, queue) = (self.graph.clone(), kind.clone(), queue.clone());
        store.observe(move |change: &Change<K>| {
            let meta = change.object().meta();
            let Some(uid) = &meta.uid else { return };
            let mut graph = graph.lock().unwrap_or_else(PoisonError::into_inner);
            let affected = match change {
                Change::Applied { old, .. } => {
                    // If another object (another uid) has this name now, the former object is gone.
                    let replaced =
                        old.as_ref().and_then(|old| old.meta().uid.clone()).filter(|old| old != uid);
                    let mut affected = replaced.map(|old| graph.remove(&old)).unwrap_or_default();
                    affected.extend(graph.put(uid, Item::of(&kind, meta)));
                    affected
                }
                Change::Deleted { .. } => graph.remove(uid),
            };
            drop(graph);
            for uid in affected {
                queue.add(key(&uid));
            }
        });
    }

    /// Observes the objects of the kind in a store that the controllers share, if there is one.
    fn observe_store(&self, kind: &Arc<ServedKind>, queue: &Queue) -> bool {
        let stores = &self.context.stores;
        match (kind.resource.group.as_str(), kind.resource.kind.as_str()) {
            ("", "Pod") => self.observe(&stores.pods, kind, queue),
            ("", "Node") => self.observe(&stores.nodes, kind, queue),
            ("", "Namespace") => self.observe(&stores.namespaces, kind, queue),
            ("", "ServiceAccount") => self.observe(&stores.service_accounts, kind, queue),
            ("", "PersistentVolumeClaim") => self.observe(&stores.claims, kind, queue),
            ("", "PersistentVolume") => self.observe(&stores.volumes, kind, queue),
            ("apps", "Deployment") => self.observe(&stores.deployments, kind, queue),
            ("apps", "ReplicaSet") => self.observe(&stores.replica_sets, kind, queue),
            ("apps", "StatefulSet") => self.observe(&stores.stateful_sets, kind, queue),
            ("apps", "DaemonSet") => self.observe(&stores.daemon_sets, kind, queue),
            ("apps", "ControllerRevision") => self.observe(&stores.controller_revisions, kind, queue),
            ("batch", "Job") => self.observe(&stores.jobs, kind, queue),
            ("batch", "CronJob") => self.observe(&stores.cron_jobs, kind, queue),
            ("policy", "PodDisruptionBudget") => self.observe(&stores.budgets, kind, queue),
            ("storage.k8s.io", "StorageClass") => self.observe(&stores.storage_classes, kind, queue),
            ("storage.k8s.io", "VolumeAttachment") => self.observe(&stores.attachments, kind, queue),
            ("storage.k8s.io", "CSINode") => self.observe(&stores.csi_nodes, kind, queue),
            ("coordination.k8s.io", "Lease") => self.observe(&stores.leases, kind, queue),
            _ => return false,
        }
        true
    }

    /// Whether the owner exists. `None` if its kind is not served.
    async fn exists(&self, item: &Item, owner: &OwnerReference) -> kube::Result<Option<bool>> {
        let (group, version) = owner.api_version.split_once('/').unwrap_or(("", &owner.api_version));
        let found = {
            let kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
            kinds.iter().find(|kind| kind.is(group, &owner.kind)).cloned()
        };
        let Some(kind) = found else { return Ok(None) };
        if kind.namespaced && !item.kind.namespaced {
            // A cluster-scoped object cannot have a namespaced owner, so the reference is invalid.
            return Ok(None);
        }
        let mut kind = ServedKind::clone(&kind);
        kind.resource.version = version.to_string();
        kind.resource.api_version = owner.api_version.clone();
        let found = kind.api(&self.context.client, &item.namespace).get_metadata_opt(&owner.name).await?;
        Ok(Some(found.is_some_and(|found| found.uid().as_ref() == Some(&owner.uid))))
    }

    /// Removes owner references from an object.
    async fn remove_owner_references(
        &self,
        uid: &str,
        item: &Item,
        owners: &BTreeSet<String>,
    ) -> kube::Result<()> {
        let api = item.kind.api(&self.context.client, &item.namespace);
        let Some(fresh) = api.get_metadata_opt(&item.name).await? else { return Ok(()) };
        if fresh.uid().as_deref() != Some(uid) {
            return Ok(());
        }
        let left: Vec<&OwnerReference> =
            fresh.owner_references().iter().filter(|owner| !owners.contains(&owner.uid)).collect();
        if left.len() == fresh.owner_references().len() {
            return Ok(());
        }
        let patch =
            json!({"metadata": {"ownerReferences": left, "resourceVersion": fresh.resource_version()}});
        let patched = api.patch_metadata(&item.name, &PatchParams::default(), &Patch::Merge(patch)).await;
        patched.map(drop).or_else(ignore_not_found)
    }

    async fn remove_finalizer(&self, uid: &str, item: &Item, finalizer: &str) -> kube::Result<()> {
        let api = item.kind.api(&self.context.client, &item.namespace);
        let Some(fresh) = api.get_metadata_opt(&item.name).await? else { return Ok(()) };
        if fresh.uid().as_deref() != Some(uid) {
            return Ok(());
        }
        let left: Vec<&String> = fresh.finalizers().iter().filter(|known| *known != finalizer).collect();
        let patch = json!({"metadata": {"finalizers": left, "resourceVersion": fresh.resource_version()}});
        let patched = api.patch_metadata(&item.name, &PatchParams::default(), &Patch::Merge(patch)).await;
        patched.map(drop).or_else(ignore_not_found)
    }

    async fn delete(&self, uid: &str, item: &Item, policy: PropagationPolicy) -> kube::Result<()> {
        let params = DeleteParams {
            propagation_policy: Some(policy),
            preconditions: Some(Preconditions { uid: Some(uid.to_string()), resource_version: None }),
            ..DeleteParams::default()
        };
        let api = item.kind.api(&self.context.client, &item.namespace);
        match api.delete(&item.name, &params).await {
            Err(error) if is_conflict(&error) => Ok(()),
            outcome => outcome.map(drop).or_else(ignore_not_found),
        }
    }
}

fn ignore_not_found(error: kube::Error) -> kube::Result<()> {
    if is_not_found(&error) { Ok(()) } else { Err(error) }
}

fn trim(object: &mut Metadata) {
    object.metadata.labels = None;
    object.metadata.annotations = None;
}

impl Reconcile for GarbageCollector {
    async fn reconcile(&self, key: &ObjectKey) -> kube::Result<Requeue> {
        let uid = key.name.as_str();
        loop {
            let Some((item, verdict)) = self.graph().decide(uid) else { return Ok(Requeue::No) };
            match verdict {
                Verdict::Keep => return Ok(Requeue::No),
                Verdict::LookUpOwner(owner) => match self.exists(&item, &owner).await? {
                    Some(false) => self.graph().record_absent(&owner.uid),
                    Some(true) => self.graph().record_present(uid, &owner.uid),
                    None => {
                        // The kind of the owner is not served, but may be served later, so the owner counts as present.
                        self.graph().record_present(uid, &owner.uid);
                        return Ok(Requeue::After(DISCOVERY_INTERVAL));
                    }
                },
                Verdict::RemoveOwnerReferences(owners) => {
                    self.remove_owner_references(uid, &item, &owners).await?;
                    return Ok(Requeue::No);
                }
                Verdict::Delete(policy) => {
                    self.delete(uid, &item, policy).await?;
                    return Ok(Requeue::No);
                }
                Verdict::Orphan(dependents) => {
                    let owners: BTreeSet<String> = [uid.to_string()].into();
                    for (dependent, item) in dependents {
                        self.remove_owner_references(&dependent, &item, &owners).await?;
                    }
                    self.remove_finalizer(uid, &item, ORPHAN).await?;
                    return Ok(Requeue::No);
                }
                Verdict::Finish => {
                    self.remove_finalizer(uid, &item, FOREGROUND).await?;
                    return Ok(Requeue::No);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
