//! The shape of a kind: for each field of its JSON, what patches and field ownership need to know.
//!
//! `builtin` has the shapes of built-in kinds, and `crd` derives those of custom resources from their schemas. A shape
//! does not state which values are valid.
//!
//! Upstream: sigs.k8s.io/structured-merge-diff/v6/schema/elements.go

use std::sync::Arc;

/// How a value is merged, and whether managers own it as a whole or in parts.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Shape {
    /// A value that is replaced as a whole: a scalar, or a list or object that is marked as atomic.
    #[default]
    Atomic,
    /// An object with known fields. The `Arc` makes recursive types possible.
    Struct(Arc<StructShape>),
    /// An object with arbitrary keys, whose values all have the same shape.
    Map(Arc<Shape>),
    /// A list of scalars that is treated as a set.
    Set,
    /// A list of objects that are identified by key fields.
    Keyed(Arc<KeyedShape>),
    /// A value without a schema. Its shape is deduced from the value: objects are merged field by field, everything
    /// else is atomic.
    Deduced,
}

#[derive(Debug, PartialEq, Default)]
pub struct StructShape {
    /// Sorted by name.
    pub fields: Vec<FieldShape>,
    /// Whether unknown fields are kept; their shape is deduced from their values.
    pub preserves_unknown: bool,
    /// At the root of an object: whether `status` is an ordinary field, because the kind has no status subresource.
    pub status_is_plain: bool,
}

/// The shape of one field. The members for patches are used only for built-in kinds, because custom resources have no
/// strategic merge patch.
#[derive(Debug, PartialEq, Default)]
pub struct FieldShape {
    pub name: String,
    pub shape: Shape,
    /// The JSON type of a scalar, if it is known. Server-side apply rejects values of other types.
    pub scalar: Option<ScalarType>,
    /// The `patchMergeKey` of strategic merge patch, which may differ from the first key of server-side apply. `None`
    /// means that the list is replaced; an empty key, that it is a list of scalars merged as a set.
    pub patch_merge_key: Option<String>,
    /// Whether the field has `patchStrategy=retainKeys` for strategic merge patch.
    pub patch_retains_keys: bool,
    /// Whether the field has `patchStrategy=replace` for strategic merge patch, so that its object is not merged.
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
    /// The default values of key fields, such as `protocol: TCP` for container ports.
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
