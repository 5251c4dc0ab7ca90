//! What happens to an object of a built-in kind on its way in: defaults, the parts clients may not set, admission
//! plugins, and the rules of each kind, as kube-apiserver v1.35 applies them.
//!
//! Everything is a pure function over JSON. Reading other objects goes through [`Lookup`], time comes in as an
//! argument. Nothing here stores, assigns uids or resource versions, allocates cluster IPs, or checks a custom kind
//! against its schema; only metadata and strategy of custom kinds are here.

use jiff::Timestamp;
use serde_json::Value;

use crate::field::FieldError;
use crate::status::Answer;

/// Read access to stored objects, for the decisions that depend on more than the object itself.
pub trait Lookup {
    /// `namespace` is empty for cluster-scoped objects.
    fn get(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Value>;
    /// All objects of a kind; an empty `namespace` means all namespaces. In the order of namespace and name.
    fn list(&self, group: &str, plural: &str, namespace: &str) -> Vec<Value>;
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
pub fn default_object(_group: &str, _version: &str, _kind: &str, _object: &mut Value) {}

/// Resets what clients may not set when they create: status, generation. Custom kinds: see [`prepare_custom_create`].
pub fn prepare_create(_group: &str, _version: &str, _kind: &str, _object: &mut Value, _now: Timestamp) {}

/// Keeps what this (sub)resource may not change, and counts the generation. `subresource` is empty for the object
/// itself, else `status`, `ephemeralcontainers`, `resize`, `finalize`, ...
pub fn prepare_update(
    _group: &str,
    _version: &str,
    _kind: &str,
    _new: &mut Value,
    _old: &Value,
    _subresource: &str,
) {
}

/// [`prepare_create`] for a custom kind.
pub fn prepare_custom_create(_object: &mut Value, _has_status: bool) {}

/// [`prepare_update`] for a custom kind.
pub fn prepare_custom_update(_new: &mut Value, _old: &Value, _subresource: &str, _has_status: bool) {}

/// Admission plugins: they may change `object` (`Null` on delete) or refuse. Runs after defaulting and preparing and
/// before validation, for built-in and custom kinds.
pub fn admit(_operation: &Operation<'_>, _object: &mut Value, _lookup: &dyn Lookup) -> Answer<()> {
    Ok(())
}

/// The rules of a built-in kind for a new object, metadata included.
pub fn validate_create(_group: &str, _version: &str, _kind: &str, _object: &Value) -> Vec<FieldError> {
    Vec::new()
}

/// The rules of a built-in kind for a changed object, metadata included.
pub fn validate_update(
    _group: &str,
    _version: &str,
    _kind: &str,
    _new: &Value,
    _old: &Value,
    _subresource: &str,
) -> Vec<FieldError> {
    Vec::new()
}

/// Metadata of a new custom object.
pub fn validate_custom_metadata(_object: &Value, _namespaced: bool) -> Vec<FieldError> {
    Vec::new()
}

/// Metadata of a changed custom object.
pub fn validate_custom_metadata_update(_new: &Value, _old: &Value, _namespaced: bool) -> Vec<FieldError> {
    Vec::new()
}

/// `autoscaling/v1 Scale` of a built-in kind that has the subresource, or `None`.
pub fn read_scale(_group: &str, _kind: &str, _object: &Value) -> Option<Value> {
    None
}

/// Checks a `Scale` and writes its `spec.replicas` into the object. The caller then runs the update pipeline with
/// the changed object (`subresource` "scale").
pub fn write_scale(_object: &mut Value, _scale: &Value) -> Answer<()> {
    Ok(())
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
    _pod: &Value,
    _eviction: &Value,
    _dry_run: bool,
    _lookup: &dyn Lookup,
    _now: Timestamp,
) -> Answer<EvictionDecision> {
    Ok(EvictionDecision { budget: None, pod: None, delete_options: Value::Null })
}

/// Carries out `POST pods/{name}/binding` on the stored pod.
pub fn bind_pod(_pod: &mut Value, _binding: &Value, _lookup: &dyn Lookup, _now: Timestamp) -> Answer<()> {
    Ok(())
}
