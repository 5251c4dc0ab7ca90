//! Patches of EC2NodeClasses. A patch has only changed fields, and applies only if the uid is still that of the object
//! that was read. Its result is put into the store at once.
//!
//! The functions correspond to `karpenter_controllers::writes`, but work on untyped objects, so that a node class that
//! cannot be parsed can be patched.

use karpenter_runtime::object::{is_not_found, name_of, uid_of};
use karpenter_runtime::store::Store;
use karpenter_runtime::write::difference;
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde::Serialize;
use serde_json::{Value, json};

use crate::provider::NODE_CLASS_KIND as CLASS_KIND;

#[derive(Clone)]
pub(crate) struct ClassWrites {
    api: Api<DynamicObject>,
    store: Store<DynamicObject>,
}

impl ClassWrites {
    pub(crate) fn new(client: Client, store: Store<DynamicObject>) -> Self {
        let kind = GroupVersionKind::gvk(CLASS_KIND.group, CLASS_KIND.version, CLASS_KIND.kind);
        let resource = ApiResource::from_gvk_with_plural(&kind, CLASS_KIND.plural);
        Self { api: Api::all_with(client, &resource), store }
    }

    /// Merges `patch` into the node class. Returns `None` if the node class does not exist.
    pub(crate) async fn merge(
        &self,
        object: &DynamicObject,
        patch: Value,
    ) -> kube::Result<Option<DynamicObject>> {
        let patch = Patch::Merge(with_uid(object, patch));
        self.apply_answer(self.api.patch(name_of(object), &PatchParams::default(), &patch).await)
    }

    /// Like [`Self::merge`], but fails with a conflict if the node class changed after it was read.
    pub(crate) async fn merge_unchanged(
        &self,
        object: &DynamicObject,
        patch: Value,
    ) -> kube::Result<Option<DynamicObject>> {
        self.merge(object, with_version(object, patch)).await
    }

    /// Patches the changed parts of the status; fails with a conflict if the node class changed after it was read.
    /// Returns `None` if nothing changed or the node class does not exist.
    pub(crate) async fn status_unchanged<S: Serialize>(
        &self,
        object: &DynamicObject,
        old: &S,
        new: &S,
    ) -> kube::Result<Option<DynamicObject>> {
        let Some(difference) = difference(old, new) else { return Ok(None) };
        let patch = with_version(object, with_uid(object, json!({ "status": difference })));
        let parameters = PatchParams::default();
        self.apply_answer(self.api.patch_status(name_of(object), &parameters, &Patch::Merge(patch)).await)
    }

    fn apply_answer(&self, answer: kube::Result<DynamicObject>) -> kube::Result<Option<DynamicObject>> {
        match answer {
            Ok(object) => {
                let meta = &object.metadata;
                let has_finalizers = meta.finalizers.as_ref().is_some_and(|names| !names.is_empty());
                if meta.deletion_timestamp.is_some() && !has_finalizers {
                    // The patch removed the last finalizer, so the API server deleted the object.
                    self.store.forget("", name_of(&object), Some(uid_of(&object)));
                } else {
                    self.store.apply(object.clone());
                }
                Ok(Some(object))
            }
            Err(error) if is_not_found(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn with_uid(object: &DynamicObject, mut patch: Value) -> Value {
    if let Some(uid) = &object.metadata.uid {
        patch["metadata"]["uid"] = json!(uid);
    }
    patch
}

fn with_version(object: &DynamicObject, mut patch: Value) -> Value {
    if let Some(version) = &object.metadata.resource_version {
        patch["metadata"]["resourceVersion"] = json!(version);
    }
    patch
}
