//! Ownership of the one field that an object and its scale share: the number of replicas.
//!
//! A scale has no managedFields of its own. A write to it sees those owners of the object that own the replicas, and what
//! becomes of them is carried back into the object.

use serde_json::Value;

use super::managed::Managed;
use super::path::{Element, Path};
use super::set::FieldSet;
use super::{managed_fields, put_managed_fields, take_managed_fields};

const SCALE_VERSION: &str = "autoscaling/v1";
const PATH_IN_SCALE: &[&str] = &["spec", "replicas"];

/// Where the replicas are in one version of a kind, e.g. `spec`, `replicas`; nowhere, if that version has no scale.
pub struct ReplicasPath {
    pub api_version: String,
    pub path: Option<Vec<String>>,
}

/// Gives `scale`, read from `object`, the owners of its replicas.
pub fn lend_ownership(object: &Value, scale: &mut Value, paths: &[ReplicasPath]) {
    let owners = Managed::decode(managed_fields(object)).unwrap_or_default();
    let mut lent = Managed::default();
    for (id, owned) in &owners.owners {
        let owns = path_in(paths, &owned.api_version).flatten().is_some_and(|path| owned.set.has(&path));
        if owns {
            lent.set(id, FieldSet::of(&[PATH_IN_SCALE]), SCALE_VERSION);
            lent.copy_time(id, &owners);
        }
    }
    put_managed_fields(scale, lent.encode());
}

/// Carries the owners of `scale` back into `object`, whose version is `api_version`.
pub fn return_ownership(object: &mut Value, scale: &Value, paths: &[ReplicasPath], api_version: &str) {
    let Some(own_path) = path_in(paths, api_version).flatten() else { return };
    let before = Managed::decode(managed_fields(object)).unwrap_or_default();
    let mut lent = Managed::decode(managed_fields(scale)).unwrap_or_default();
    let in_scale: Path = PATH_IN_SCALE.iter().map(|name| Element::Field((*name).to_string())).collect();
    let mut after = Managed::default();
    for (id, owned) in &before.owners {
        // A version that is no longer served: nobody can tell what it owned.
        let Some(path) = path_in(paths, &owned.api_version) else { continue };
        let mut set = owned.set.clone();
        if let Some(path) = path.filter(|path| owned.set.has(path)) {
            // Those that update are known by their version, which is that of the scale there: never the same.
            if lent.owners.remove(id).is_none() {
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
    for (id, owned) in &lent.owners {
        if owned.set.has(&in_scale) {
            let mut set = FieldSet::default();
            set.insert(&own_path);
            // A real server looks for the time among the owners of the object, too, and finds none for new ones.
            after.set(id, set, api_version);
            after.copy_time(id, &before);
        }
    }
    take_managed_fields(object);
    put_managed_fields(object, after.encode());
}

/// `None`: an unknown version; `Some(None)`: a version without replicas.
fn path_in(paths: &[ReplicasPath], api_version: &str) -> Option<Option<Path>> {
    let found = paths.iter().find(|path| path.api_version == api_version)?;
    Some(found.path.as_ref().map(|path| path.iter().cloned().map(Element::Field).collect()))
}
