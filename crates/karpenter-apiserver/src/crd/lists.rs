//! Checks that concern several values: unique items of sets and keyed lists, and the type and metadata of embedded
//! resources.
//!
//! Upstream: k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype/validation.go,
//! k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta/validation.go

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::schema::{ListType, Schema};
use crate::field::FieldError;

/// The errors for duplicate items of sets and keyed lists.
pub(crate) fn duplicates(schema: &Schema, value: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    walk(schema, value, &mut String::new(), &mut errors, check_list);
    errors
}

/// The errors for embedded resources that have no valid type or invalid metadata.
pub(crate) fn embedded(schema: &Schema, value: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    walk(schema, value, &mut String::new(), &mut errors, check_embedded);
    errors
}

type Check = fn(&Schema, &Value, &str, &mut Vec<FieldError>);

fn walk(schema: &Schema, value: &Value, path: &mut String, errors: &mut Vec<FieldError>, check: Check) {
    if !schema.has_invariants_inside {
        return;
    }
    check(schema, value, path, errors);
    let length = path.len();
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                if let Some(child) = schema.properties.get(name) {
                    push_field(path, name);
                    walk(child, field, path, errors, check);
                } else if let Some(child) = schema.additional_schema() {
                    path.push_str(&format!("[{name}]"));
                    walk(child, field, path, errors, check);
                }
                path.truncate(length);
            }
        }
        Value::Array(elements) => {
            let Some(items) = &schema.items else { return };
            for (index, element) in elements.iter().enumerate() {
                path.push_str(&format!("[{index}]"));
                walk(items, element, path, errors, check);
                path.truncate(length);
            }
        }
        _ => {}
    }
}

pub(crate) fn push_field(path: &mut String, name: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(name);
}

fn check_list(schema: &Schema, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let Some(elements) = value.as_array() else { return };
    match &schema.list_type {
        ListType::Atomic => {}
        ListType::Set => report_repeated(elements.clone(), path, errors),
        ListType::Map(keys) => {
            let is_not_object = |element: &&Value| !element.is_null() && !element.is_object();
            if let Some((index, element)) =
                elements.iter().enumerate().find(|(_, element)| is_not_object(element))
            {
                let detail = "must be an object for an array of list-type map";
                errors.push(FieldError::invalid(format!("{path}[{index}]"), element.clone(), detail));
                return;
            }
            let keyed = elements.iter().map(|element| key_of(element, keys)).collect();
            report_repeated(keyed, path, errors);
        }
    }
}

/// The values that an item has in the key fields.
fn key_of(element: &Value, keys: &[String]) -> Value {
    let fields = keys.iter().filter_map(|key| Some((key.clone(), element.get(key)?.clone())));
    Value::Object(fields.collect::<Map<String, Value>>())
}

/// Reports each duplicate value once, at the position of its second occurrence.
fn report_repeated(values: Vec<Value>, path: &str, errors: &mut Vec<FieldError>) {
    if values.len() < 2 {
        return;
    }
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for (index, value) in values.into_iter().enumerate() {
        let times = seen.entry(value.to_string()).or_default();
        *times += 1;
        if *times == 2 {
            errors.push(FieldError::duplicate(format!("{path}[{index}]"), value));
        }
    }
}

fn check_embedded(schema: &Schema, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let (true, Some(fields)) = (schema.embedded_resource, value.as_object()) else { return };
    let at = |name: &str| {
        let mut field = path.to_string();
        push_field(&mut field, name);
        field
    };
    for name in ["apiVersion", "kind"] {
        match fields.get(name) {
            None => errors.push(FieldError::required(at(name), "")),
            Some(Value::String(text)) if text.is_empty() => {
                errors.push(FieldError::invalid(at(name), Value::from(""), "must not be empty"));
            }
            Some(Value::String(text)) if name == "apiVersion" && text.matches('/').count() > 1 => {
                let detail = format!("unexpected GroupVersion string: {text}");
                errors.push(FieldError::invalid(at(name), Value::from(text.as_str()), detail));
            }
            Some(Value::String(text))
                if name == "kind" && !super::names::is_dns1035_label(&text.to_lowercase()) =>
            {
                let detail = format!(
                    "may have mixed case, but should otherwise match: {}",
                    super::names::DNS1035_LABEL_MESSAGE
                );
                errors.push(FieldError::invalid(at(name), Value::from(text.as_str()), detail));
            }
            Some(Value::String(_)) => {}
            Some(other) => errors.push(FieldError::invalid(at(name), other.clone(), "must be a string")),
        }
    }
    if let Some(metadata) = fields.get("metadata").filter(|metadata| !metadata.is_null()) {
        super::names::check_metadata(metadata, &at("metadata"), errors);
    }
}
