//! The built-in kinds: names, verbs, subresources and the types of their fields.
//!
//! The data comes from `data/kinds.txt`, which `tools/kinds/generate.py` generates from the sources of Kubernetes. The
//! header of that script describes the format. The file is parsed on first use. It contains no validation rules, and
//! only the defaults that OpenAPI has.

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

/// A served resource, as in discovery.
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
    /// Group, version and kind of the body, e.g. `autoscaling/v1 Scale` of `deployments/scale`.
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

/// The JSON representation of a type.
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
    /// A JSON schema or an alternative form that some fields allow: a list of schemas, a boolean, or a list of strings.
    SchemaOrArray,
    SchemaOrBool,
    SchemaOrStrings,
}

/// A named type.
#[derive(Debug, PartialEq)]
pub struct TypeInfo {
    /// The name in OpenAPI documents, e.g. `io.k8s.api.core.v1.Pod`.
    pub name: String,
    pub form: TypeForm,
    /// `x-kubernetes-map-type: atomic`: replaced as a whole by server-side apply.
    pub atomic: bool,
    /// Group, version and kind, for types that are bodies of requests or responses of one kind.
    pub group_version_kind: Option<(&'static str, &'static str, &'static str)>,
    /// Sorted by name.
    pub fields: Vec<FieldInfo>,
    /// Indices of the fields that are encoded even if they are not set.
    pub(crate) always_written: Vec<u16>,
}

impl TypeInfo {
    pub fn field(&self, name: &str) -> Option<&FieldInfo> {
        self.fields.binary_search_by(|field| field.name.cmp(name)).ok().map(|index| &self.fields[index])
    }

    /// The name without its package: `Pod`.
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
    /// An atomic list: server-side apply replaces it as a whole. Lists without a list type in OpenAPI are atomic too.
    Atomic,
    Set,
    Map(Vec<&'static str>),
}

#[derive(Debug, Clone, PartialEq)]
pub struct FieldInfo {
    pub name: &'static str,
    pub field_type: FieldType,
    pub required: bool,
    /// The Go field is a pointer, so that a zero value differs from an absent one.
    pub pointer: bool,
    pub omit_empty: bool,
    pub omit_zero: bool,
    /// The `default` in OpenAPI.
    pub default: Option<Value>,
    /// `None` if OpenAPI has no list type; such lists are atomic.
    pub list_type: Option<ListType>,
    /// `x-kubernetes-map-type` of the field: `Some(true)` atomic, `Some(false)` granular.
    pub map_atomic: Option<bool>,
    pub patch_merge_key: Option<&'static str>,
    /// `x-kubernetes-patch-strategy`, e.g. `merge,retainKeys`.
    pub patch_strategy: Option<&'static str>,
    /// Protobuf field numbers, outermost first; several if Go embeds a struct. Empty if the field is not in protobuf.
    pub protobuf: Vec<u32>,
    /// Go's name of a named scalar type, e.g. `v1.Protocol`.
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

/// All resources, grouped by group and version in the order of discovery.
pub fn kinds() -> &'static [BuiltinKind] {
    &DATA.kinds
}

/// All groups in the order of discovery, each with its versions, the preferred one first.
pub fn groups() -> &'static [(&'static str, Vec<&'static str>)] {
    &DATA.groups
}

/// All types, sorted by name.
pub fn types() -> &'static [TypeInfo] {
    &DATA.types
}

pub fn kind(group: &str, version: &str, kind: &str) -> Option<&'static BuiltinKind> {
    DATA.kinds.iter().find(|known| known.kind == kind && known.group == group && known.version == version)
}

/// The type of a kind, including kinds without a resource, e.g. `PodList`, `Scale`, `DeleteOptions`.
pub fn type_of(group: &str, version: &str, kind: &str) -> Option<&'static TypeInfo> {
    type_id_of(group, version, kind).map(TypeId::info)
}

/// The type with an OpenAPI name.
pub fn type_named(name: &str) -> Option<&'static TypeInfo> {
    DATA.by_name.get(name).map(|id| id.info())
}

pub(crate) fn type_id_of(group: &str, version: &str, kind: &str) -> Option<TypeId> {
    if let Some(id) = DATA.by_kind.get(&(group, version, kind)) {
        return Some(*id);
    }
    // These kinds exist in every group and version.
    match kind {
        "DeleteOptions" | "Status" | "WatchEvent" => {
            DATA.by_name.get(&format!("io.k8s.apimachinery.pkg.apis.meta.v1.{kind}")).copied()
        }
        _ => None,
    }
}

static ZERO_VALUES: LazyLock<Vec<OnceLock<Value>>> =
    LazyLock::new(|| DATA.types.iter().map(|_| OnceLock::new()).collect());

/// The JSON of the zero value of a kind's Go type, without kind and version.
pub fn zero_value(group: &str, version: &str, kind: &str) -> Option<&'static Value> {
    let id = type_id_of(group, version, kind)?;
    Some(ZERO_VALUES[usize::from(id.0)].get_or_init(|| {
        let mut zero = Value::Object(Map::new());
        round_trip(&mut zero, group, version, kind);
        zero
    }))
}

/// The shape of a kind.
pub fn shape(group: &str, version: &str, kind: &str) -> Option<&'static Shape> {
    type_id_of(group, version, kind).map(shapes::shape_of)
}
