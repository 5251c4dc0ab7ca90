//! The shape of a kind's JSON: what merging and field ownership need to know about each field.
//!
//! Built-in kinds get theirs from `builtin`, custom kinds from their schema (`crd`). A shape says nothing about
//! which values are valid.

use std::sync::Arc;

/// How one value merges and who may own parts of it.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Shape {
    /// One value, replaced as a whole: a scalar, or anything marked atomic.
    #[default]
    Atomic,
    /// An object with known fields. Types refer to each other (and to themselves), hence the `Arc`.
    Struct(Arc<StructShape>),
    /// An object with arbitrary keys of one shape.
    Map(Arc<Shape>),
    /// A list of scalars that behaves as a set.
    Set,
    /// A list of objects identified by key fields.
    Keyed(Arc<KeyedShape>),
    /// No schema: the shape follows the value (objects merge field by field, everything else is atomic).
    Deduced,
}

#[derive(Debug, PartialEq, Default)]
pub struct StructShape {
    /// Sorted by name.
    pub fields: Vec<FieldShape>,
    /// Whether fields that are not listed are kept and deduced.
    pub preserves_unknown: bool,
    /// Of a whole object: the kind has no status endpoint, so that `status` is a field as any other.
    pub status_is_plain: bool,
}

/// Custom kinds leave the patch fields at their defaults: they have no strategic merge patch.
#[derive(Debug, PartialEq, Default)]
pub struct FieldShape {
    pub name: String,
    pub shape: Shape,
    /// What a plain value must be, where that is known: apply refuses others.
    pub scalar: Option<ScalarType>,
    /// The merge key of strategic merge patch, which is not always the first of the apply keys. `None`: a list is
    /// replaced; empty: a list of plain values that merges as a set.
    pub patch_merge_key: Option<String>,
    /// `retainKeys` of strategic merge patch.
    pub patch_retains_keys: bool,
    /// `replace` of strategic merge patch: an object that is not merged.
    pub patch_replaces: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScalarType {
    String,
    Number,
    Boolean,
}

#[derive(Debug, PartialEq)]
pub struct KeyedShape {
    pub keys: Vec<String>,
    /// Defaults of key fields, e.g. `protocol: TCP` of container ports.
    pub key_defaults: Vec<(String, serde_json::Value)>,
    pub element: Shape,
}

impl StructShape {
    pub fn field(&self, name: &str) -> Option<&FieldShape> {
        self.fields
            .binary_search_by(|field| field.name.as_str().cmp(name))
            .ok()
            .map(|index| &self.fields[index])
    }
}
