//! What kube-apiserver v1.35 does with objects of built-in kinds before it stores them: defaults, strategies, admission
//! plugins and validation.
//!
//! The caller must keep kube-apiserver's order: [`default_object`]; setting name, uid and creation time; [`admit`];
//! [`prepare_create`] or [`prepare_update`]; [`validate_create`] or [`validate_update`]; storing.
//!
//! All functions are pure functions of JSON values. They read other objects through [`Lookup`], and the time is an
//! argument. This module does not store objects, assign uids or resource versions, or allocate cluster IPs. Of custom
//! resources, it handles metadata and strategy, but not the schema.

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
use crate::status::ApiResult;

/// Read access to stored objects, for decisions that depend on other objects.
pub trait Lookup {
    /// Reads one object; `namespace` is empty for cluster-scoped objects.
    fn get(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Arc<Value>>;
    /// All objects of a kind, sorted by namespace and name; an empty `namespace` selects all namespaces.
    fn list(&self, group: &str, plural: &str, namespace: &str) -> Vec<Arc<Value>>;
    /// The value of an object's label; `None` if the object or the label does not exist.
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

/// The attributes of a request that admission plugins see.
#[derive(Debug, Clone, Copy)]
pub struct Operation<'a> {
    pub verb: Verb,
    pub group: &'a str,
    pub version: &'a str,
    pub kind: &'a str,
    pub plural: &'a str,
    /// The subresource; empty if the request is for the object itself.
    pub subresource: &'a str,
    /// The namespace; empty for cluster-scoped objects.
    pub namespace: &'a str,
    /// The name of the object; it may be empty for a create with `generateName`.
    pub name: &'a str,
    /// The stored object, if the request is an update or a delete.
    pub old: Option<&'a Value>,
    pub now: Timestamp,
}

/// Applies the API defaults of a built-in kind. Must be called after decoding, and again after a patch was applied.
pub fn default_object(group: &str, version: &str, kind: &str, object: &mut Value) {
    defaults::default_object(group, version, kind, object);
}

/// Resets the fields that clients cannot set on create, such as status and generation. For custom resources see
/// [`prepare_custom_create`].
pub fn prepare_create(group: &str, version: &str, kind: &str, object: &mut Value, now: Timestamp) {
    strategy::prepare_create(group, version, kind, object, now);
}

/// Resets the fields that a write to the object or to its subresource cannot change, and increments the generation.
/// `subresource` is empty, `status`, `ephemeralcontainers`, `resize`, `finalize`, ...
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

/// Like [`prepare_create`], for a custom resource.
pub fn prepare_custom_create(object: &mut Value, has_status: bool) {
    strategy::prepare_custom_create(object, has_status);
}

/// Like [`prepare_update`], for a custom resource.
pub fn prepare_custom_update(new: &mut Value, old: &Value, subresource: &str, has_status: bool) {
    strategy::prepare_custom_update(new, old, subresource, has_status);
}

/// Runs the admission plugins for an object of a built-in kind or a custom resource. They may change `object` (which is
/// `Null` for a delete) or reject the request. Must be called after defaults, and before strategies and validation.
pub fn admit(operation: &Operation<'_>, object: &mut Value, lookup: &dyn Lookup) -> ApiResult<()> {
    plugins::admit(operation, object, lookup)
}

/// Validates a new object of a built-in kind, including its metadata.
pub fn validate_create(group: &str, version: &str, kind: &str, object: &Value) -> Vec<FieldError> {
    validation::validate_create(group, version, kind, object)
}

/// Validates an updated object of a built-in kind, including its metadata.
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

/// Validates the metadata of a new custom resource.
pub fn validate_custom_metadata(object: &Value, namespaced: bool) -> Vec<FieldError> {
    validation::validate_custom_metadata(object, namespaced)
}

/// Validates the metadata of an updated custom resource.
pub fn validate_custom_metadata_update(new: &Value, old: &Value, namespaced: bool) -> Vec<FieldError> {
    validation::validate_custom_metadata_update(new, old, namespaced)
}

/// The `Scale` (`autoscaling/v1`) of an object of a built-in kind; `None` if the kind has no scale subresource.
pub fn read_scale(group: &str, kind: &str, object: &Value) -> Option<Value> {
    scale::read_scale(group, kind, object)
}

/// Validates a `Scale` and writes its `spec.replicas` and resource version into the object. The caller then stores the
/// object as an update with subresource `scale`.
pub fn write_scale(group: &str, plural: &str, object: &mut Value, scale: &Value) -> ApiResult<()> {
    scale::write_scale(group, plural, object, scale)
}

/// What must be written for an accepted eviction.
#[derive(Debug, Clone, PartialEq)]
pub struct EvictionDecision {
    /// The PodDisruptionBudget with its new status. Before the pod is deleted, the caller must store it (subresource
    /// `status`) at its resource version. If that gives a conflict, the caller decides again.
    pub budget: Option<Value>,
    /// The pod with the condition `DisruptionTarget`, which the caller must store first, at the pod's resource version.
    pub pod: Option<Value>,
    /// The `DeleteOptions` for deleting the pod, with preconditions.
    pub delete_options: Value,
}

/// Decides whether a request `POST pods/{name}/eviction` is accepted.
pub fn decide_eviction(
    pod: &Value,
    eviction: &Value,
    dry_run: bool,
    lookup: &dyn Lookup,
    now: Timestamp,
) -> ApiResult<EvictionDecision> {
    eviction::decide_eviction(pod, eviction, dry_run, lookup, now)
}

/// The pod with the condition `DisruptionTarget` added; `None` if it has the condition. An error if the preconditions
/// of the eviction do not hold.
pub fn mark_evicted(pod: &Value, eviction: &Value, now: Timestamp) -> ApiResult<Option<Value>> {
    eviction::mark_evicted(pod, eviction, now)
}

/// Executes a request `POST pods/{name}/binding`: changes the stored pod.
pub fn bind_pod(pod: &mut Value, binding: &Value, lookup: &dyn Lookup, now: Timestamp) -> ApiResult<()> {
    binding::bind_pod(pod, binding, lookup, now)
}
