//! Shared dependencies of the controllers: the client, the stores, the clock, and writes that update the store with the
//! response.
//!
//! The stores keep only some fields of an object, so no write replaces a whole object: writes are creates, merge
//! patches of the difference, strategic merge patches of lists that other clients also write, and deletes.

use std::fmt::Debug;

use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{
    ConfigMap, Event, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, ServiceAccount,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::{CSINode, StorageClass, VolumeAttachment};
use karpenter_runtime::clock::Clock;
use karpenter_runtime::object::{is_conflict, is_not_found, name_of, namespace_of};
use karpenter_runtime::store::Store;
use karpenter_runtime::write::difference;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::stores::Stores;

/// A kind whose objects the control plane writes.
pub trait Kind:
    Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static
{
    /// The API of a namespace; the namespace is empty for cluster-scoped kinds.
    fn api(client: Client, namespace: &str) -> Api<Self>;
}

macro_rules! namespaced {
    ($($kind:ty),*) => { $(impl Kind for $kind {
        fn api(client: Client, namespace: &str) -> Api<Self> {
            Api::namespaced(client, namespace)
        }
    })* };
}

macro_rules! cluster_wide {
    ($($kind:ty),*) => { $(impl Kind for $kind {
        fn api(client: Client, _: &str) -> Api<Self> {
            Api::all(client)
        }
    })* };
}

namespaced!(
    ConfigMap,
    ControllerRevision,
    CronJob,
    DaemonSet,
    Deployment,
    Event,
    Job,
    Lease,
    PersistentVolumeClaim,
    Pod,
    PodDisruptionBudget,
    ReplicaSet,
    ServiceAccount,
    StatefulSet
);
cluster_wide!(CSINode, Namespace, Node, PersistentVolume, StorageClass, VolumeAttachment);

/// The client, the stores and the clock.
#[derive(Clone)]
pub struct Context {
    pub client: Client,
    pub stores: Stores,
    pub clock: Clock,
}

impl Context {
    pub fn api<K: Kind>(&self, object: &K) -> Api<K> {
        K::api(self.client.clone(), namespace_of(object))
    }

    /// Creates the object and puts it into the store without waiting for the watch event.
    pub async fn create<K: Kind>(&self, store: &Store<K>, object: &K) -> kube::Result<K> {
        let created = self.api(object).create(&PostParams::default(), object).await?;
        store.apply(created.clone());
        Ok(created)
    }

    /// Sends a merge patch for the object, but not for another object with the same name (the uid differs). `None` if
    /// the object is gone.
    pub async fn merge<K: Kind>(
        &self,
        store: &Store<K>,
        object: &K,
        patch: Value,
    ) -> kube::Result<Option<K>> {
        let patch = Patch::Merge(with_uid(object, patch));
        let answer = self.api(object).patch(name_of(object), &PatchParams::default(), &patch).await;
        apply_response(store, answer)
    }

    /// Like [`Self::merge`], but fails with a conflict if the object changed since the store read it.
    pub async fn merge_unchanged<K: Kind>(
        &self,
        store: &Store<K>,
        object: &K,
        mut patch: Value,
    ) -> kube::Result<Option<K>> {
        if let Some(version) = &object.meta().resource_version {
            patch["metadata"]["resourceVersion"] = json!(version);
        }
        self.merge(store, object, patch).await
    }

    /// Patches the parts of the status that differ; sends no request if none does.
    pub async fn merge_status<K: Kind, S: Serialize>(
        &self,
        store: &Store<K>,
        object: &K,
        old: &S,
        new: &S,
    ) -> kube::Result<()> {
        let Some(difference) = difference(old, new) else { return Ok(()) };
        let patch = Patch::Merge(with_uid(object, json!({ "status": difference })));
        let answer = self.api(object).patch_status(name_of(object), &PatchParams::default(), &patch).await;
        apply_response(store, answer).map(drop)
    }

    /// Sends a strategic merge patch, for keyed lists that other clients also write.
    pub async fn strategic<K: Kind>(
        &self,
        store: &Store<K>,
        object: &K,
        patch: Value,
    ) -> kube::Result<Option<K>> {
        let patch = Patch::Strategic(with_uid(object, patch));
        let answer = self.api(object).patch(name_of(object), &PatchParams::default(), &patch).await;
        apply_response(store, answer)
    }

    /// Sends a strategic merge patch of the status.
    pub async fn strategic_status<K: Kind>(
        &self,
        store: &Store<K>,
        object: &K,
        patch: Value,
    ) -> kube::Result<Option<K>> {
        let patch = Patch::Strategic(with_uid(object, patch));
        let answer = self.api(object).patch_status(name_of(object), &PatchParams::default(), &patch).await;
        apply_response(store, answer)
    }

    /// Deletes the object, but not another object with the same name (the uid differs), with its default grace period.
    pub async fn delete<K: Kind>(&self, store: &Store<K>, object: &K) -> kube::Result<()> {
        self.delete_with(store, object, DeleteParams::background()).await
    }

    /// Deletes the object, but not another object with the same name (the uid differs).
    pub async fn delete_with<K: Kind>(
        &self,
        store: &Store<K>,
        object: &K,
        mut params: DeleteParams,
    ) -> kube::Result<()> {
        let uid = object.meta().uid.clone();
        params.preconditions = Some(Preconditions { uid: uid.clone(), resource_version: None });
        match self.api(object).delete(name_of(object), &params).await {
            Ok(outcome) => {
                let waiting = outcome.left().filter(|left| {
                    let meta = left.meta();
                    let graceful = meta.deletion_grace_period_seconds.unwrap_or(0) > 0;
                    let held = meta.finalizers.as_ref().is_some_and(|finalizers| !finalizers.is_empty());
                    meta.deletion_timestamp.is_some() && (graceful || held)
                });
                match waiting {
                    Some(left) => store.apply(left),
                    None => store.forget(namespace_of(object), name_of(object), uid.as_deref()),
                }
                Ok(())
            }
            // The object is gone, or another object has its name, so there is nothing to delete.
            Err(error) if is_not_found(&error) || is_conflict(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

fn apply_response<K: Kind>(store: &Store<K>, answer: kube::Result<K>) -> kube::Result<Option<K>> {
    match answer {
        Ok(object) => {
            store.apply(object.clone());
            Ok(Some(object))
        }
        Err(error) if is_not_found(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

fn with_uid<K: Resource>(object: &K, mut patch: Value) -> Value {
    if let Some(uid) = &object.meta().uid {
        patch["metadata"]["uid"] = json!(uid);
    }
    patch
}

/// The value of a count in a status: the field is omitted if the count is zero.
pub fn unless_zero(count: i32) -> Option<i32> {
    Some(count).filter(|count| *count != 0)
}
