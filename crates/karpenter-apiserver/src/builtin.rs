//! The built-in kinds of Kubernetes: names, verbs, subresources and the types of their fields.
//!
//! The data is in `data/kinds.txt`, which `tools/kinds/generate.py` generates from the sources of Kubernetes; the
//! header of that script describes the format. The file is parsed when it is first needed. It contains no validation
//! rules, and no defaults except those in OpenAPI.

mod data;
mod quantity;
mod round_trip;
mod shapes;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{LazyLock, OnceLock};

use serde_json::{Map, Value};

use crate::shape::Shape;

pub use quantity::canonical as canonical_quantity;
pub(crate) use quantity::is_canonical as is_canonical_quantity;
pub use round_trip::round_trip;

/// A resource that the server serves, as listed by discovery.
#[derive(Debug, Clone, PartialEq)]
pub struct BuiltinKind {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
    pub singular: &'static str,
    pub short_names: Vec<&'static str>,
    pub categories: Vec<&'static str>,
    pub namespaced: bool,
    pub verbs: Vec<&'static str>,
    pub storage_version_hash: Option<&'static str>,
    pub subresources: Vec<BuiltinSubresource>,
    pub type_id: TypeId,
}

#[derive(Debug, Clone, PartialEq)]
pub struct BuiltinSubresource {
    pub name: &'static str,
    /// Group, version and kind of the request and response bodies, such as `autoscaling/v1 Scale` for
    /// `deployments/scale`.
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub verbs: Vec<&'static str>,
}

/// A type, as an index into [`types`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TypeId(pub(crate) u16);

impl TypeId {
    pub fn info(self) -> &'static TypeInfo {
        &DATA.types[usize::from(self.0)]
    }
}

/// How a type is represented in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TypeForm {
    /// An object with the listed fields.
    Struct,
    /// RFC 3339 with seconds.
    Time,
    /// RFC 3339 with microseconds.
    MicroTime,
    Duration,
    Quantity,
    IntOrString,
    /// The `fieldsV1` of a `managedFields` entry: any object.
    Fields,
    /// Any object (`runtime.RawExtension`).
    Raw,
    /// Any value.
    Json,
    /// The body of a patch request: any object.
    Patch,
    /// A JSON schema, or an alternative that some fields allow: a list of schemas, a boolean, or a list of strings.
    SchemaOrArray,
    SchemaOrBool,
    SchemaOrStrings,
}

/// A named type.
#[derive(Debug, PartialEq)]
pub struct TypeInfo {
    /// The name of the type in OpenAPI documents, such as `io.k8s.api.core.v1.Pod`.
    pub name: String,
    pub form: TypeForm,
    /// Whether server-side apply replaces the value as a whole (`x-kubernetes-map-type: atomic`).
    pub atomic: bool,
    /// Group, version and kind, if the type is the body of requests or responses of exactly one kind.
    pub group_version_kind: Option<(&'static str, &'static str, &'static str)>,
    /// Sorted by name.
    pub fields: Vec<FieldInfo>,
    /// Indexes of the fields that are encoded even if they are not set.
    pub(crate) always_written: Vec<u16>,
}

impl TypeInfo {
    pub fn field(&self, name: &str) -> Option<&FieldInfo> {
        self.fields.binary_search_by(|field| field.name.cmp(name)).ok().map(|index| &self.fields[index])
    }

    /// The name of the type without its package, such as `Pod`.
    pub fn short_name(&self) -> &str {
        self.name.rsplit('.').next().unwrap_or(&self.name)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum FieldType {
    String,
    /// Base64 in JSON.
    Bytes,
    Int32,
    Int64,
    Double,
    Boolean,
    List(Box<FieldType>),
    /// String keys.
    Map(Box<FieldType>),
    Named(TypeId),
}

/// `x-kubernetes-list-type`.
#[derive(Debug, Clone, PartialEq)]
pub enum ListType {
    /// An atomic list, which server-side apply replaces as a whole. A list without a list type in OpenAPI is atomic as
    /// well.
    Atomic,
    Set,
    Map(Vec<&'static str>),
}

#[derive(Debug, Clone, PartialEq)]
pub struct FieldInfo {
    pub name: &'static str,
    pub field_type: FieldType,
    pub required: bool,
    /// Whether the Go field is a pointer, so that a zero value differs from an absent one.
    pub pointer: bool,
    pub omit_empty: bool,
    pub omit_zero: bool,
    /// The value of `default` in OpenAPI.
    pub default: Option<Value>,
    /// The list type; `None` if OpenAPI states none, so that the list is atomic.
    pub list_type: Option<ListType>,
    /// The value of `x-kubernetes-map-type` on the field: `Some(true)` for atomic, `Some(false)` for granular.
    pub map_atomic: Option<bool>,
    pub patch_merge_key: Option<&'static str>,
    /// The value of `x-kubernetes-patch-strategy`, such as `merge,retainKeys`.
    pub patch_strategy: Option<&'static str>,
    /// The field's number in protobuf. If Go embeds the struct in others, there is one number per level, outermost
    /// first. Empty if the field is not in protobuf.
    pub protobuf: Vec<u32>,
    /// The Go name of the field's type, if it is a named scalar type such as `v1.Protocol`.
    pub go_type: Option<&'static str>,
}

pub(crate) struct Data {
    pub(crate) groups: Vec<(&'static str, Vec<&'static str>)>,
    pub(crate) kinds: Vec<BuiltinKind>,
    pub(crate) types: Vec<TypeInfo>,
    pub(crate) by_kind: HashMap<(&'static str, &'static str, &'static str), TypeId>,
    pub(crate) by_name: HashMap<String, TypeId>,
}

static DATA: LazyLock<Data> = LazyLock::new(|| data::parse(include_str!("../data/kinds.txt")));

/// All resources, grouped by group and version, in the order in which discovery lists them.
pub fn kinds() -> &'static [BuiltinKind] {
    &DATA.kinds
}

/// All groups in the order in which discovery lists them, each with its versions, the preferred version first.
pub fn groups() -> &'static [(&'static str, Vec<&'static str>)] {
    &DATA.groups
}

/// All types of built-in kinds, sorted by name.
pub fn types() -> &'static [TypeInfo] {
    &DATA.types
}

pub fn kind(group: &str, version: &str, kind: &str) -> Option<&'static BuiltinKind> {
    DATA.kinds.iter().find(|known| known.kind == kind && known.group == group && known.version == version)
}

/// The type of a kind, including kinds that are not resources, such as `PodList`, `Scale` or `DeleteOptions`.
pub fn type_of(group: &str, version: &str, kind: &str) -> Option<&'static TypeInfo> {
    type_id_of(group, version, kind).map(TypeId::info)
}

/// The type that has this name in OpenAPI documents.
pub fn type_named(name: &str) -> Option<&'static TypeInfo> {
    DATA.by_name.get(name).map(|id| id.info())
}

pub(crate) fn type_id_of(group: &str, version: &str, kind: &str) -> Option<TypeId> {
    if let Some(id) = DATA.by_kind.get(&(group, version, kind)) {
        return Some(*id);
    }
    // Every group and version has these kinds.
    match kind {
        "DeleteOptions" | "Status" | "WatchEvent" => {
            DATA.by_name.get(&format!("io.k8s.apimachinery.pkg.apis.meta.v1.{kind}")).copied()
        }
        _ => None,
    }
}

static ZERO_VALUES: LazyLock<Vec<OnceLock<Value>>> =
    LazyLock::new(|| DATA.types.iter().map(|_| OnceLock::new()).collect());

/// The zero value of a kind's Go type as JSON, without kind and version.
pub fn zero_value(group: &str, version: &str, kind: &str) -> Option<&'static Value> {
    let id = type_id_of(group, version, kind)?;
    Some(ZERO_VALUES[usize::from(id.0)].get_or_init(|| {
        let mut zero = Value::Object(Map::new());
        round_trip(&mut zero, group, version, kind);
        zero
    }))
}

/// The shape of a kind: how its fields and lists are merged.
pub fn shape(group: &str, version: &str, kind: &str) -> Option<&'static Shape> {
    type_id_of(group, version, kind).map(shapes::shape_of)
}
