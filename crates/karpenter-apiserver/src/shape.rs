//! The structure of a kind's JSON: for each field, what patches and field ownership need to know.
//!
//! `builtin` has the shapes of built-in kinds; `crd` derives those of custom resources from their schema. A shape does
//! not say which values are valid.
//!
//! Upstream: sigs.k8s.io/structured-merge-diff/v6/schema/elements.go

use std::sync::Arc;

/// How a value is merged, and at which granularity it has field owners.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Shape {
    /// Replaced as a whole: a scalar, or a list or object that is marked atomic.
    #[default]
    Atomic,
    /// An object with known fields. The `Arc` allows recursive types.
    Struct(Arc<StructShape>),
    /// An object with arbitrary keys of one shape.
    Map(Arc<Shape>),
    /// A list of scalars that behaves as a set.
    Set,
    /// A list of objects identified by key fields.
    Keyed(Arc<KeyedShape>),
    /// No schema; the shape is deduced from the value: objects merge field by field, everything else is atomic.
    Deduced,
}

#[derive(Debug, PartialEq, Default)]
pub struct StructShape {
    /// Sorted by name.
    pub fields: Vec<FieldShape>,
    /// Whether unknown fields are kept and their shape is deduced.
    pub preserves_unknown: bool,
    /// On the root of an object: the kind has no status subresource, so `status` is an ordinary field.
    pub status_is_plain: bool,
}

/// The shape of one field. The patch fields apply to built-in kinds only: custom resources have no strategic merge
/// patch.
#[derive(Debug, PartialEq, Default)]
pub struct FieldShape {
    pub name: String,
    pub shape: Shape,
    /// The JSON type of a scalar, if known. Apply rejects values of other types.
    pub scalar: Option<ScalarType>,
    /// `patchMergeKey` of strategic merge patch, which may differ from the first key of server-side apply. `None`: the
    /// list is replaced. Empty: a list of scalars that is merged as a set.
    pub patch_merge_key: Option<String>,
    /// `patchStrategy=retainKeys` of strategic merge patch.
    pub patch_retains_keys: bool,
    /// `patchStrategy=replace` of strategic merge patch: the object is not merged.
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
