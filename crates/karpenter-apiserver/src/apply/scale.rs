//! The managed fields for the field that an object shares with its `Scale`: the number of replicas.
//!
//! A `Scale` stores no managed fields. For a write to it, those entries of the object that own the replicas are copied
//! to the `Scale`; after the write, the resulting entries are copied back.
//!
//! Upstream: k8s.io/apimachinery/pkg/util/managedfields/scalehandler.go

use serde_json::Value;

use super::managed::ManagedFields;
use super::path::{Element, Path};
use super::set::FieldSet;
use super::{managed_fields, put_managed_fields, take_managed_fields};

const SCALE_VERSION: &str = "autoscaling/v1";
const PATH_IN_SCALE: &[&str] = &["spec", "replicas"];

/// The path of the number of replicas in one version of a kind, such as `spec`, `replicas`; `None` if the version has
/// no scale subresource.
pub struct ReplicasPath {
    pub api_version: String,
    pub path: Option<Vec<String>>,
}

/// Sets the managed fields of `scale` to those entries of `object` that own its replicas.
pub fn copy_owners_to_scale(object: &Value, scale: &mut Value, paths: &[ReplicasPath]) {
    let owners = ManagedFields::decode(managed_fields(object)).unwrap_or_default();
    let mut scale_owners = ManagedFields::default();
    for (id, owned) in &owners.owners {
        let owns = path_in(paths, &owned.api_version).flatten().is_some_and(|path| owned.set.has(&path));
        if owns {
            scale_owners.set(id, FieldSet::of(&[PATH_IN_SCALE]), SCALE_VERSION);
            scale_owners.copy_time(id, &owners);
        }
    }
    put_managed_fields(scale, scale_owners.encode());
}

/// Copies the managed fields of `scale` back to `object`, which has the version `api_version`.
pub fn copy_owners_to_object(object: &mut Value, scale: &Value, paths: &[ReplicasPath], api_version: &str) {
    let Some(own_path) = path_in(paths, api_version).flatten() else { return };
    let before = ManagedFields::decode(managed_fields(object)).unwrap_or_default();
    let mut scale_owners = ManagedFields::decode(managed_fields(scale)).unwrap_or_default();
    let in_scale: Path = PATH_IN_SCALE.iter().map(|name| Element::Field((*name).to_string())).collect();
    let mut after = ManagedFields::default();
    for (id, owned) in &before.owners {
        // The server no longer serves the version, so the path of its replicas is unknown, and the entry is dropped.
        let Some(path) = path_in(paths, &owned.api_version) else { continue };
        let mut set = owned.set.clone();
        if let Some(path) = path.filter(|path| owned.set.has(path)) {
            // The version is part of the identity of an entry with operation `Update`, and entries in `scale` have the
            // version of `Scale`. So the entry is never found there, and it no longer owns the replicas.
            if scale_owners.owners.remove(id).is_none() {
                let mut taken = FieldSet::default();
                taken.insert(&path);
                set.remove_all(&taken);
            }
        }
        if !set.is_empty() {
            after.set(id, set, &owned.api_version);
            after.copy_time(id, &before);
        }
    }
    for (id, owned) in &scale_owners.owners {
        if owned.set.has(&in_scale) {
            let mut set = FieldSet::default();
            set.insert(&own_path);
            // As in kube-apiserver, the time is that of the object's manager; a new manager has no time.
            after.set(id, set, api_version);
            after.copy_time(id, &before);
        }
    }
    take_managed_fields(object);
    put_managed_fields(object, after.encode());
}

/// The path of the replicas in a version. `None` means that the version is unknown, `Some(None)` that the kind has no
/// replicas in this version.
fn path_in(paths: &[ReplicasPath], api_version: &str) -> Option<Option<Path>> {
    let found = paths.iter().find(|path| path.api_version == api_version)?;
    Some(found.path.as_ref().map(|path| path.iter().cloned().map(Element::Field).collect()))
}
