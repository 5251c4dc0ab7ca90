//! Writes objects and applies the response to the store at once.
//!
//! Objects in stores may lack fields, so writes are patches and never replace an object. Every write has the UID as a
//! precondition, so that a new object with the same name is not changed. If the object no longer exists, the write
//! counts as successful.

use std::fmt::Debug;

use karpenter_runtime::object::{is_conflict, is_not_found, name_of, namespace_of, uid_of};
use karpenter_runtime::store::Store;
use karpenter_runtime::watch::skip_managed_fields::WithoutManagedFields;
use karpenter_runtime::write::difference;
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// A cluster-scoped kind that the controllers write.
pub trait ClusterKind:
    Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static
{
}

impl ClusterKind for k8s_openapi::api::core::v1::Node {}
impl ClusterKind for karpenter_api::types::NodeClaim {}
impl ClusterKind for karpenter_api::types::NodePool {}
impl ClusterKind for karpenter_api::types::NodeOverlay {}

/// Sends a merge patch. Returns `None` if the object no longer exists.
pub async fn merge<K: ClusterKind>(
    client: &Client,
    store: &Store<K>,
    object: &K,
    patch: Value,
) -> kube::Result<Option<K>> {
    let api = Api::<WithoutManagedFields<K>>::all(client.clone());
    let patch = Patch::Merge(with_uid(object, patch));
    apply_response(store, api.patch(name_of(object), &PatchParams::default(), &patch).await)
}

/// Like [`merge`], but fails with a conflict if the object has changed since it was read. Needed for patches that
/// contain lists, because a merge patch replaces a list as a whole.
pub async fn merge_unchanged<K: ClusterKind>(
    client: &Client,
    store: &Store<K>,
    object: &K,
    patch: Value,
) -> kube::Result<Option<K>> {
    merge(client, store, object, with_version(object, patch)).await
}

/// Patches the changed fields of the status. Fails with a conflict if the object has changed since it was read. Returns
/// `None` if nothing differs or the object no longer exists.
pub async fn status_unchanged<K: ClusterKind, S: Serialize>(
    client: &Client,
    store: &Store<K>,
    object: &K,
    old: &S,
    new: &S,
) -> kube::Result<Option<K>> {
    let Some(difference) = difference(old, new) else { return Ok(None) };
    let api = Api::<WithoutManagedFields<K>>::all(client.clone());
    let patch = Patch::Merge(with_version(object, with_uid(object, json!({ "status": difference }))));
    apply_response(store, api.patch_status(name_of(object), &PatchParams::default(), &patch).await)
}

/// Deletes the object.
pub async fn delete<K: ClusterKind>(client: &Client, store: &Store<K>, object: &K) -> kube::Result<()> {
    match delete_if(client, store, object, None).await {
        Err(error) if is_conflict(&error) => {
            let present = Api::<K>::all(client.clone()).get_metadata_opt(name_of(object)).await?;
            let is_same_object = present.is_some_and(|present| present.metadata.uid == object.meta().uid);
            // A new object has the name of the object to delete, which therefore no longer exists.
            if is_same_object { Err(error) } else { Ok(()) }
        }
        outcome => outcome,
    }
}

/// Like [`delete`], but fails with a conflict if the object has changed since it was read.
pub async fn delete_unchanged<K: ClusterKind>(
    client: &Client,
    store: &Store<K>,
    object: &K,
) -> kube::Result<()> {
    delete_if(client, store, object, object.meta().resource_version.clone()).await
}

async fn delete_if<K: ClusterKind>(
    client: &Client,
    store: &Store<K>,
    object: &K,
    resource_version: Option<String>,
) -> kube::Result<()> {
    let api = Api::<K>::all(client.clone());
    let uid = uid_of(object);
    let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
    match api.delete(name_of(object), &params).await {
        Ok(outcome) => {
            let held = outcome.left().filter(|left| {
                let meta = left.meta();
                let has_finalizers = meta.finalizers.as_ref().is_some_and(|names| !names.is_empty());
                meta.deletion_timestamp.is_some() && has_finalizers
            });
            match held {
                Some(left) => store.apply(left),
                None => store.forget(namespace_of(object), name_of(object), Some(uid)),
            }
            Ok(())
        }
        Err(error) if is_not_found(&error) => Ok(()),
        Err(error) => Err(error),
    }
}

fn apply_response<K: ClusterKind>(
    store: &Store<K>,
    response: kube::Result<WithoutManagedFields<K>>,
) -> kube::Result<Option<K>> {
    match response {
        Ok(WithoutManagedFields(object)) => {
            let has_finalizers = object.meta().finalizers.as_ref().is_some_and(|names| !names.is_empty());
            if object.meta().deletion_timestamp.is_some() && !has_finalizers {
                // The API server has deleted the object if the write removed its last finalizer.
                store.forget(namespace_of(&object), name_of(&object), Some(uid_of(&object)));
            } else {
                store.apply(object.clone());
            }
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

fn with_version<K: Resource>(object: &K, mut patch: Value) -> Value {
    if let Some(version) = &object.meta().resource_version {
        patch["metadata"]["resourceVersion"] = json!(version);
    }
    patch
}
