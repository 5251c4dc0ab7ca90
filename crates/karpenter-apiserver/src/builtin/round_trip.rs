//! Has the same effect as decoding an object into Go types and encoding it: unknown fields are dropped, empty fields
//! are omitted or written according to their Go tags, and quantities and times get their canonical form.
//!
//! kube-apiserver does this with every object of a built-in kind. So clients get `resources: {}` even if they sent
//! nothing, and no `labels` if they sent `{}`. Managed fields are computed from the resulting object.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{FieldInfo, FieldType, TypeForm, TypeId, TypeInfo, quantity, type_id_of, type_named};

/// Normalizes an object of a built-in kind; other objects are not changed. Values of a wrong type are kept, and
/// `strict::decode_error` reports them.
///
/// An empty `managedFields` is kept, because with it a client requests that ownership is reset (`apply::record_update`
/// removes it).
pub fn round_trip(object: &mut Value, group: &str, version: &str, kind: &str) {
    let Some(id) = type_id_of(group, version, kind) else { return };
    let gives_up = object.pointer("/metadata/managedFields") == Some(&json!([]));
    named(id.info(), object);
    if gives_up && let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("managedFields".to_string(), json!([]));
    }
}

fn named(info: &TypeInfo, value: &mut Value) {
    match info.form {
        TypeForm::Struct => structure(info, value),
        TypeForm::Quantity => {
            if value.as_str().is_some_and(quantity::is_canonical) {
                return;
            }
            let text = match value {
                Value::String(text) => text.trim().to_string(),
                Value::Number(number) => number.to_string(),
                _ => return,
            };
            if let Some(canonical) = quantity::canonical(&text) {
                *value = Value::String(canonical);
            }
        }
        TypeForm::Time => reformat_time(value, "%Y-%m-%dT%H:%M:%SZ"),
        TypeForm::MicroTime => reformat_time(value, "%Y-%m-%dT%H:%M:%S%.6fZ"),
        TypeForm::SchemaOrArray | TypeForm::SchemaOrBool | TypeForm::SchemaOrStrings => nested_schema(value),
        _ => {}
    }
}

fn reformat_time(value: &mut Value, format: &str) {
    if let Some(time) = value.as_str().and_then(|text| text.parse::<Timestamp>().ok()) {
        *value = Value::String(time.strftime(format).to_string());
    }
}

fn nested_schema(value: &mut Value) {
    const SCHEMA: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";
    let Some(info) = type_named(SCHEMA) else { return };
    match value {
        Value::Object(_) => structure(info, value),
        Value::Array(items) => {
            items.iter_mut().filter(|item| item.is_object()).for_each(|item| structure(info, item));
        }
        _ => {}
    }
}

fn structure(info: &TypeInfo, value: &mut Value) {
    if value.is_null() {
        *value = Value::Object(Map::new());
    }
    let Value::Object(object) = value else { return };
    let absent: Vec<&FieldInfo> = info
        .always_written
        .iter()
        .map(|index| &info.fields[usize::from(*index)])
        .filter(|field| object.get(field.name).is_none_or(Value::is_null))
        .collect();
    object.retain(|name, value| {
        let Some(field) = info.field(name) else { return false };
        if value.is_null() {
            return false;
        }
        typed(&field.field_type, value);
        !is_omitted(field, value)
    });
    for field in absent {
        object.insert(field.name.to_string(), absent_value(field));
    }
}

fn typed(field_type: &FieldType, value: &mut Value) {
    match (field_type, value) {
        (FieldType::Named(id), value) => named(id.info(), value),
        // Go encodes a float that has no fraction as an integer.
        (FieldType::Double, value) => {
            if let Some(number) = value.as_f64().filter(|number| number.fract() == 0.0 && number.abs() < 1e15)
            {
                *value = json!(number as i64);
            }
        }
        (FieldType::List(element), Value::Array(items)) => {
            items.iter_mut().for_each(|item| element_value(element, item));
        }
        (FieldType::Map(element), Value::Object(entries)) => {
            entries.values_mut().for_each(|entry| element_value(element, entry));
        }
        _ => {}
    }
}

/// Normalizes a list item. Items are never omitted; null becomes the zero value of the item's type.
fn element_value(field_type: &FieldType, value: &mut Value) {
    if value.is_null()
        && let Some(zero) = zero(field_type)
    {
        *value = zero;
    }
    typed(field_type, value);
}

/// Whether the encoding omits a field because its value is empty.
fn is_omitted(field: &FieldInfo, value: &Value) -> bool {
    if field.omit_zero && !field.pointer && is_zero(&field.field_type, value) {
        return true;
    }
    if !field.omit_empty || field.pointer {
        return false;
    }
    match value {
        Value::String(text) => {
            text.is_empty() && matches!(field.field_type, FieldType::String | FieldType::Bytes)
        }
        Value::Bool(value) => !value,
        Value::Number(number) => {
            number.as_f64() == Some(0.0) && !matches!(field.field_type, FieldType::Named(_))
        }
        Value::Array(items) => items.is_empty(),
        Value::Object(entries) => entries.is_empty() && matches!(field.field_type, FieldType::Map(_)),
        Value::Null => false,
    }
}

fn is_zero(field_type: &FieldType, value: &Value) -> bool {
    value.is_null() || zero(field_type).is_some_and(|zero| zero == *value)
}

/// The value with which a field is encoded if it was not set but is always encoded.
fn absent_value(field: &FieldInfo) -> Value {
    match &field.field_type {
        _ if field.pointer => Value::Null,
        FieldType::Named(id) => named_zero(*id),
        FieldType::List(_) | FieldType::Map(_) | FieldType::Bytes => Value::Null,
        plain => zero(plain).unwrap_or_default(),
    }
}

fn named_zero(id: TypeId) -> Value {
    match id.info().form {
        TypeForm::Struct => {
            let mut value = Value::Object(Map::new());
            structure(id.info(), &mut value);
            value
        }
        TypeForm::Quantity => json!("0"),
        TypeForm::IntOrString => json!(0),
        TypeForm::Duration => json!("0s"),
        TypeForm::Fields => json!({}),
        _ => Value::Null,
    }
}

fn zero(field_type: &FieldType) -> Option<Value> {
    match field_type {
        FieldType::String | FieldType::Bytes => Some(json!("")),
        FieldType::Int32 | FieldType::Int64 | FieldType::Double => Some(json!(0)),
        FieldType::Boolean => Some(json!(false)),
        FieldType::Named(id) => Some(named_zero(*id)),
        FieldType::List(_) | FieldType::Map(_) => None,
    }
}
