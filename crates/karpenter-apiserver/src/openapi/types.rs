//! The schemas in a document: those of built-in types come from their field tables, those of custom resources from
//! their CRDs.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::ServedKind;
use crate::builtin::{self, FieldInfo, FieldType, ListType, TypeForm, TypeInfo};

pub(super) const SCHEMA_REF_PREFIX: &str = "#/components/schemas/";
pub(super) const META_PREFIX: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";

/// The name of a built-in type in OpenAPI documents.
pub(super) fn name_of([group, version, kind]: [&str; 3]) -> Option<String> {
    builtin::type_of(group, version, kind).map(|known| known.name.clone())
}

/// The name of a custom type in OpenAPI documents; its group is reversed: `sh.karpenter.v1.NodePool`.
fn custom_name(kind: &ServedKind, name: &str) -> String {
    let mut parts: Vec<&str> = kind.group.split('.').rev().collect();
    parts.extend([kind.version, name]);
    parts.join(".")
}

/// A `$ref` to the schema of a request or response body.
pub(super) fn reference(kind: &ServedKind, body: [&str; 3]) -> Value {
    let [group, version, name] = body;
    let is_own = group == kind.group && version == kind.version;
    let name = match kind.schema {
        Some(_) if is_own && (name == kind.kind || name == kind.list_kind) => custom_name(kind, name),
        _ => name_of(body).unwrap_or_else(|| format!("{META_PREFIX}Status")),
    };
    json!({"$ref": format!("{SCHEMA_REF_PREFIX}{name}")})
}

/// The schemas of a custom resource and of its list. The names of the built-in types that they refer to are added to
/// `wanted`.
pub(super) fn custom(
    kind: &ServedKind,
    schema: &Value,
    wanted: &mut BTreeSet<String>,
) -> [(String, Value); 2] {
    let [api_version, kind_name] = type_fields();
    wanted.extend(["ObjectMeta", "ListMeta"].map(|name| format!("{META_PREFIX}{name}")));

    let mut object = schema.clone();
    if !object.is_object() {
        object = json!({"type": "object"});
    }
    expand_extensions(&mut object);
    add_type_and_metadata(&mut object);
    if !kind.selectable_fields.is_empty() {
        let fields = kind.selectable_fields.iter().map(|path| json!({"fieldPath": path}));
        object["x-kubernetes-selectable-fields"] = Value::Array(fields.collect());
    }
    object["x-kubernetes-group-version-kind"] = json!([kind.group_version_kind()]);
    let list = json!({
        "description": format!("{} is a list of {}", kind.list_kind, kind.kind),
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": api_version,
            "items": {
                "type": "array",
                "items": {"$ref": format!("{SCHEMA_REF_PREFIX}{}", custom_name(kind, kind.kind))},
            },
            "kind": kind_name,
            "metadata": metadata("ListMeta", "What every list has."),
        },
        "x-kubernetes-group-version-kind": [
            {"group": kind.group, "version": kind.version, "kind": kind.list_kind},
        ],
    });
    [(custom_name(kind, kind.kind), object), (custom_name(kind, kind.list_kind), list)]
}

fn metadata(name: &str, description: &str) -> Value {
    json!({"description": description, "allOf": [{"$ref": format!("{SCHEMA_REF_PREFIX}{META_PREFIX}{name}")}]})
}

/// `apiVersion` and `kind`.
fn type_fields() -> [Value; 2] {
    [
        json!({"type": "string", "description": "The version of the schema of this object: group and version."}),
        json!({"type": "string", "description": "What kind of object this is."}),
    ]
}

fn add_type_and_metadata(schema: &mut Value) {
    let [api_version, kind] = type_fields();
    schema["properties"]["apiVersion"] = api_version;
    schema["properties"]["kind"] = kind;
    schema["properties"]["metadata"] = metadata("ObjectMeta", "Name, labels and what else every object has.");
}

/// In all parts of a schema, adds in plain OpenAPI what the `x-kubernetes-` extensions imply.
fn expand_extensions(schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else { return };
    for (name, below) in fields.iter_mut() {
        match name.as_str() {
            "properties" => {
                below.as_object_mut().into_iter().flat_map(Map::values_mut).for_each(expand_extensions)
            }
            "items" | "additionalProperties" => expand_extensions(below),
            _ => {}
        }
    }
    let is_set = |name: &str| fields.get(name) == Some(&Value::Bool(true));
    let has_types = fields.contains_key("anyOf")
        || fields.get("allOf").is_some_and(|parts| parts[0].get("anyOf").is_some());
    if is_set("x-kubernetes-int-or-string") && !has_types {
        fields.insert("anyOf".into(), json!([{"type": "integer"}, {"type": "string"}]));
    } else if is_set("x-kubernetes-embedded-resource") {
        let mut required = fields.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
        for name in ["kind", "apiVersion"] {
            if !required.iter().any(|given| given == name) {
                required.push(Value::from(name));
            }
        }
        fields.insert("required".into(), Value::Array(required));
        add_type_and_metadata(schema);
    }
}

/// Adds the types named in `wanted`, and all types that they refer to.
pub(super) fn add_builtin(wanted: BTreeSet<String>, schemas: &mut Map<String, Value>) {
    let mut pending: Vec<String> = wanted.into_iter().collect();
    while let Some(name) = pending.pop() {
        if schemas.contains_key(&name) {
            continue;
        }
        let Some(known) = builtin::type_named(&name) else { continue };
        schemas.insert(name, of_type(known, &mut pending));
    }
}

fn of_type(known: &TypeInfo, pending: &mut Vec<String>) -> Value {
    let mut schema = match known.form {
        TypeForm::Struct => of_struct(known, pending),
        TypeForm::Time | TypeForm::MicroTime => json!({"type": "string", "format": "date-time"}),
        TypeForm::Duration => json!({"type": "string"}),
        TypeForm::Quantity => json!({"oneOf": [{"type": "string"}, {"type": "number"}]}),
        TypeForm::IntOrString => {
            json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]})
        }
        TypeForm::Fields | TypeForm::Raw | TypeForm::Patch => json!({"type": "object"}),
        TypeForm::Json | TypeForm::SchemaOrArray | TypeForm::SchemaOrBool | TypeForm::SchemaOrStrings => {
            json!({})
        }
    };
    if known.atomic {
        schema["x-kubernetes-map-type"] = Value::from("atomic");
    }
    if let Some((group, version, kind)) = known.group_version_kind {
        schema["x-kubernetes-group-version-kind"] =
            json!([{"group": group, "version": version, "kind": kind}]);
    }
    schema
}

fn of_struct(known: &TypeInfo, pending: &mut Vec<String>) -> Value {
    let mut schema = json!({"type": "object"});
    let required: Vec<&str> =
        known.fields.iter().filter(|field| field.required).map(|field| field.name).collect();
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    let properties: Map<String, Value> =
        known.fields.iter().map(|field| (field.name.to_string(), of_field(field, pending))).collect();
    if !properties.is_empty() {
        schema["properties"] = Value::Object(properties);
    }
    schema
}

fn of_field(field: &FieldInfo, pending: &mut Vec<String>) -> Value {
    let mut schema = of_field_type(&field.field_type, pending);
    if let Some(default) = &field.default {
        schema["default"] = default.clone();
    }
    match &field.list_type {
        None => {}
        Some(ListType::Atomic) => schema["x-kubernetes-list-type"] = Value::from("atomic"),
        Some(ListType::Set) => schema["x-kubernetes-list-type"] = Value::from("set"),
        Some(ListType::Map(keys)) => {
            schema["x-kubernetes-list-type"] = Value::from("map");
            schema["x-kubernetes-list-map-keys"] = json!(keys);
        }
    }
    if let Some(is_atomic) = field.map_atomic {
        schema["x-kubernetes-map-type"] = Value::from(if is_atomic { "atomic" } else { "granular" });
    }
    if let Some(key) = field.patch_merge_key {
        schema["x-kubernetes-patch-merge-key"] = Value::from(key);
    }
    if let Some(strategy) = field.patch_strategy {
        schema["x-kubernetes-patch-strategy"] = Value::from(strategy);
    }
    schema
}

fn of_field_type(field_type: &FieldType, pending: &mut Vec<String>) -> Value {
    match field_type {
        FieldType::String => json!({"type": "string"}),
        FieldType::Bytes => json!({"type": "string", "format": "byte"}),
        FieldType::Int32 => json!({"type": "integer", "format": "int32"}),
        FieldType::Int64 => json!({"type": "integer", "format": "int64"}),
        FieldType::Double => json!({"type": "number", "format": "double"}),
        FieldType::Boolean => json!({"type": "boolean"}),
        FieldType::List(element) => json!({"type": "array", "items": of_field_type(element, pending)}),
        FieldType::Map(element) => {
            json!({"type": "object", "additionalProperties": of_field_type(element, pending)})
        }
        FieldType::Named(id) => {
            let name = &id.info().name;
            pending.push(name.clone());
            json!({"allOf": [{"$ref": format!("{SCHEMA_REF_PREFIX}{name}")}]})
        }
    }
}
