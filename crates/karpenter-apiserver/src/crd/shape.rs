//! The shape of a custom resource, which patches and managed fields need.

use std::sync::Arc;

use serde_json::Value;

use super::schema::{Additional, JsonType, ListType, Schema};
use crate::shape::{FieldShape, KeyedShape, ScalarType, Shape, StructShape};

/// The shape of a whole object: that of its schema, plus the fields of `TypeMeta` and `ObjectMeta`.
pub(crate) fn of_object(schema: &Schema, has_status: bool) -> Shape {
    let mut shape = of_struct(schema, false);
    shape.status_is_plain = !has_status;
    shape.fields.retain(|field| !matches!(field.name.as_str(), "apiVersion" | "kind" | "metadata"));
    shape.fields.extend([
        field("apiVersion", Shape::Atomic),
        field("kind", Shape::Atomic),
        field("metadata", metadata()),
    ]);
    shape.fields.sort_by(|left, right| left.name.cmp(&right.name));
    Shape::Struct(Arc::new(shape))
}

fn of_struct(schema: &Schema, is_resource: bool) -> StructShape {
    let mut fields: Vec<FieldShape> =
        schema.properties.iter().map(|(name, child)| schema_field(name, child)).collect();
    if is_resource {
        fields.retain(|field| field.name != "metadata");
        fields.push(field("metadata", metadata()));
        for name in ["apiVersion", "kind"] {
            if !schema.properties.contains_key(name) {
                fields.push(field(name, Shape::Atomic));
            }
        }
        fields.sort_by(|left, right| left.name.cmp(&right.name));
    }
    StructShape { fields, preserves_unknown: schema.preserve_unknown_fields, status_is_plain: false }
}

fn schema_field(name: &str, schema: &Schema) -> FieldShape {
    let scalar = match schema.json_type {
        Some(JsonType::String) => Some(ScalarType::String),
        Some(JsonType::Integer | JsonType::Number) => Some(ScalarType::Number),
        Some(JsonType::Boolean) => Some(ScalarType::Boolean),
        Some(JsonType::Object | JsonType::Array) | None => None,
    };
    FieldShape { scalar, ..field(name, of(schema)) }
}

fn of(schema: &Schema) -> Shape {
    match schema.json_type {
        Some(JsonType::Object) if schema.atomic_map => Shape::Atomic,
        Some(JsonType::Object) => match &schema.additional {
            Additional::Schema(child) => Shape::Map(Arc::new(of(child))),
            Additional::Allowed => Shape::Map(Arc::new(Shape::Deduced)),
            _ if schema.properties.is_empty()
                && schema.preserve_unknown_fields
                && !schema.embedded_resource =>
            {
                Shape::Deduced
            }
            _ => Shape::Struct(Arc::new(of_struct(schema, schema.embedded_resource))),
        },
        Some(JsonType::Array) => match (&schema.list_type, &schema.items) {
            (ListType::Set, _) => Shape::Set,
            (ListType::Map(keys), Some(items)) => Shape::Keyed(Arc::new(KeyedShape {
                keys: keys.clone(),
                key_defaults: key_defaults(keys, items),
                element: of(items),
            })),
            _ => Shape::Atomic,
        },
        Some(_) => Shape::Atomic,
        None if schema.int_or_string => Shape::Atomic,
        None => Shape::Deduced,
    }
}

fn key_defaults(keys: &[String], items: &Schema) -> Vec<(String, Value)> {
    keys.iter().filter_map(|key| Some((key.clone(), items.properties.get(key)?.default.clone()?))).collect()
}

fn field(name: &str, shape: Shape) -> FieldShape {
    FieldShape { name: name.to_string(), shape, ..FieldShape::default() }
}

fn metadata() -> Shape {
    let owner = StructShape {
        fields: ["apiVersion", "blockOwnerDeletion", "controller", "kind", "name", "uid"]
            .map(|name| field(name, Shape::Atomic))
            .into(),
        ..StructShape::default()
    };
    let owners = KeyedShape {
        keys: vec!["uid".to_string()],
        key_defaults: Vec::new(),
        element: Shape::Struct(Arc::new(owner)),
    };
    let texts = || Shape::Map(Arc::new(Shape::Atomic));
    Shape::Struct(Arc::new(StructShape {
        fields: vec![
            field("annotations", texts()),
            field("creationTimestamp", Shape::Atomic),
            field("deletionGracePeriodSeconds", Shape::Atomic),
            field("deletionTimestamp", Shape::Atomic),
            field("finalizers", Shape::Set),
            field("generateName", Shape::Atomic),
            field("generation", Shape::Atomic),
            field("labels", texts()),
            field("managedFields", Shape::Atomic),
            field("name", Shape::Atomic),
            field("namespace", Shape::Atomic),
            field("ownerReferences", Shape::Keyed(Arc::new(owners))),
            field("resourceVersion", Shape::Atomic),
            field("selfLink", Shape::Atomic),
            field("uid", Shape::Atomic),
        ],
        ..StructShape::default()
    }))
}
