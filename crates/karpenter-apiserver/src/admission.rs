//! What happens to an object of a built-in kind on its way in: defaults, the parts clients may not set, admission
//! plugins, and the rules of each kind, as kube-apiserver v1.35 applies them.
//!
//! The order of a real server, which the caller keeps: [`default_object`]; name, uid and creation time; [`admit`];
//! [`prepare_create`] or [`prepare_update`]; [`validate_create`] or [`validate_update`]; store.
//!
//! Everything is a pure function over JSON. Reading other objects goes through [`Lookup`], time comes in as an
//! argument. Nothing here stores, assigns uids or resource versions, allocates cluster IPs, or checks a custom kind
//! against its schema; only metadata and strategy of custom kinds are here.

mod binding;
mod conditions;
mod defaults;
mod eviction;
#[cfg(test)]
mod fixture;
mod json;
mod plugins;
pub(crate) mod quantity;
mod resources;
mod scale;
mod selector;
mod services;
mod strategy;
mod validation;

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use crate::field::FieldError;
use crate::status::Answer;

/// Read access to stored objects, for the decisions that depend on more than the object itself.
pub trait Lookup {
    /// `namespace` is empty for cluster-scoped objects.
    fn get(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Arc<Value>>;
    /// All objects of a kind; an empty `namespace` means all namespaces. In the order of namespace and name.
    fn list(&self, group: &str, plural: &str, namespace: &str) -> Vec<Arc<Value>>;
    /// One label of an object, if there is such an object and it has the label.
    fn label(&self, group: &str, plural: &str, namespace: &str, name: &str, key: &str) -> Option<String> {
        let object = self.get(group, plural, namespace, name)?;
        object["metadata"]["labels"][key].as_str().map(str::to_string)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    Create,
    Update,
    Delete,
}

/// What is being done, as admission plugins see it.
#[derive(Debug, Clone, Copy)]
pub struct Operation<'a> {
    pub verb: Verb,
    pub group: &'a str,
    pub version: &'a str,
    pub kind: &'a str,
    pub plural: &'a str,
    /// Empty for the object itself.
    pub subresource: &'a str,
    /// Empty for cluster-scoped objects.
    pub namespace: &'a str,
    /// May be empty on create with `generateName`.
    pub name: &'a str,
    /// The stored object, on update and delete.
    pub old: Option<&'a Value>,
    pub now: Timestamp,
}

/// Fills in the static API defaults of a built-in kind. Runs after decoding of every write, also of a merged patch.
pub fn default_object(group: &str, version: &str, kind: &str, object: &mut Value) {
    defaults::default_object(group, version, kind, object);
}

/// Resets what clients may not set when they create: status, generation. Custom kinds: see [`prepare_custom_create`].
pub fn prepare_create(group: &str, version: &str, kind: &str, object: &mut Value, now: Timestamp) {
    strategy::prepare_create(group, version, kind, object, now);
}

/// Keeps what this (sub)resource may not change, and counts the generation. `subresource` is empty for the object
/// itself, else `status`, `ephemeralcontainers`, `resize`, `finalize`, ...
pub fn prepare_update(
    group: &str,
    version: &str,
    kind: &str,
    new: &mut Value,
    old: &Value,
    subresource: &str,
) {
    strategy::prepare_update(group, version, kind, new, old, subresource);
}

/// [`prepare_create`] for a custom kind.
pub fn prepare_custom_create(object: &mut Value, has_status: bool) {
    strategy::prepare_custom_create(object, has_status);
}

/// [`prepare_update`] for a custom kind.
pub fn prepare_custom_update(new: &mut Value, old: &Value, subresource: &str, has_status: bool) {
    strategy::prepare_custom_update(new, old, subresource, has_status);
}

/// Admission plugins: they may change `object` (`Null` on delete) or refuse. Runs after defaulting and before preparing
/// and validation, for built-in and custom kinds.
pub fn admit(operation: &Operation<'_>, object: &mut Value, lookup: &dyn Lookup) -> Answer<()> {
    plugins::admit(operation, object, lookup)
}

/// The rules of a built-in kind for a new object, metadata included.
pub fn validate_create(group: &str, version: &str, kind: &str, object: &Value) -> Vec<FieldError> {
    validation::validate_create(group, version, kind, object)
}

/// The rules of a built-in kind for a changed object, metadata included.
pub fn validate_update(
    group: &str,
    version: &str,
    kind: &str,
    new: &Value,
    old: &Value,
    subresource: &str,
) -> Vec<FieldError> {
    validation::validate_update(group, version, kind, new, old, subresource)
}

/// Metadata of a new custom object.
pub fn validate_custom_metadata(object: &Value, namespaced: bool) -> Vec<FieldError> {
    validation::validate_custom_metadata(object, namespaced)
}

/// Metadata of a changed custom object.
pub fn validate_custom_metadata_update(new: &Value, old: &Value, namespaced: bool) -> Vec<FieldError> {
    validation::validate_custom_metadata_update(new, old, namespaced)
}

/// `autoscaling/v1 Scale` of a built-in kind that has the subresource, or `None`.
pub fn read_scale(group: &str, kind: &str, object: &Value) -> Option<Value> {
    scale::read_scale(group, kind, object)
}

/// Checks a `Scale` and writes its `spec.replicas` (and resource version) into the object. The caller then runs the
/// update pipeline with the changed object (`subresource` "scale").
pub fn write_scale(group: &str, plural: &str, object: &mut Value, scale: &Value) -> Answer<()> {
    scale::write_scale(group, plural, object, scale)
}

/// What an accepted eviction asks the server to do.
#[derive(Debug, Clone, PartialEq)]
pub struct EvictionDecision {
    /// A disruption budget whose status has to be stored (status subresource, at the resource version it carries)
    /// before the pod goes. A conflict there means: decide again.
    pub budget: Option<Value>,
    /// A pod to store first (its status, at the resource version it carries): the `DisruptionTarget` condition.
    pub pod: Option<Value>,
    /// The `DeleteOptions` for the pod, with preconditions.
    pub delete_options: Value,
}

/// Decides over `POST pods/{name}/eviction`.
pub fn decide_eviction(
    pod: &Value,
    eviction: &Value,
    dry_run: bool,
    lookup: &dyn Lookup,
    now: Timestamp,
) -> Answer<EvictionDecision> {
    eviction::decide_eviction(pod, eviction, dry_run, lookup, now)
}

/// The pod with the condition that it is being evicted, unless it has it; refused if it is not what the eviction is
/// meant for.
pub fn mark_evicted(pod: &Value, eviction: &Value, now: Timestamp) -> Answer<Option<Value>> {
    eviction::mark_evicted(pod, eviction, now)
}

/// Carries out `POST pods/{name}/binding` on the stored pod.
pub fn bind_pod(pod: &mut Value, binding: &Value, lookup: &dyn Lookup, now: Timestamp) -> Answer<()> {
    binding::bind_pod(pod, binding, lookup, now)
}
