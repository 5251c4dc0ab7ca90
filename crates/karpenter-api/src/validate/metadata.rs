//! The `metadata` of an object. CRDs cannot describe it; an API server has these fields and rules built in.
//!
//! Fields that only a server writes (uid, managedFields, ...) are known but hardly checked, so that an object
//! read from a cluster can be checked again.

use serde_json::{Value, json};

use crate::error::{FieldError, Rule};
use crate::schema::{Schema, SchemaError, short_text};

const NAME_CHARS_MAX: usize = 253;
const WORD_CHARS_MAX: usize = 63;

pub(super) fn schema() -> Result<Schema, SchemaError> {
    let texts = json!({"type": "object", "additionalProperties": {"type": "string"}});
    let time = json!({"type": "string", "format": "date-time"});
    Schema::parse(&json!({
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "generateName": {"type": "string"},
            "namespace": {"type": "string"},
            "selfLink": {"type": "string"},
            "uid": {"type": "string"},
            "resourceVersion": {"type": "string"},
            "generation": {"type": "integer", "format": "int64"},
            "creationTimestamp": time,
            "deletionTimestamp": time,
            "deletionGracePeriodSeconds": {"type": "integer", "format": "int64"},
            "labels": texts,
            "annotations": texts,
            "finalizers": {"type": "array", "items": {"type": "string"}},
            "ownerReferences": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["apiVersion", "kind", "name", "uid"],
                    "properties": {
                        "apiVersion": {"type": "string"},
                        "kind": {"type": "string"},
                        "name": {"type": "string"},
                        "uid": {"type": "string"},
                        "controller": {"type": "boolean"},
                        "blockOwnerDeletion": {"type": "boolean"},
                    },
                },
            },
            "managedFields": {
                "type": "array",
                "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            },
        },
    }))
}

/// Lower case letters, digits and inner dashes, in parts separated by dots.
fn is_subdomain(text: &str) -> bool {
    let is_end =
        |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    text.len() <= NAME_CHARS_MAX
        && text.as_bytes().split(|byte| *byte == b'.').all(|part| {
            is_end(part.first())
                && is_end(part.last())
                && part.iter().all(|byte| is_end(Some(byte)) || *byte == b'-')
        })
}

/// Letters, digits and inner dashes, underscores and dots; not empty.
fn is_word(text: &str) -> bool {
    let is_end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= WORD_CHARS_MAX
        && is_end(bytes.first())
        && is_end(bytes.last())
        && bytes.iter().all(|byte| is_end(Some(byte)) || matches!(byte, b'-' | b'_' | b'.'))
}

/// Errors beyond the types of the fields: names, label keys and values, annotation keys.
pub fn errors(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let metadata = object.get("metadata");
    let field = |name: &str| metadata.and_then(|metadata| metadata.get(name));
    let text = |name: &str| field(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    match text("name") {
        Some(name) if !is_subdomain(name) => errors.push(
            FieldError::new(
                "metadata.name",
                Rule::Pattern,
                format!("invalid value: \"{}\": must be a lower case DNS subdomain", short_text(name)),
            )
            .with_valid("at most 253 lower case letters, digits, '-' and '.', starting and ending with a letter or digit"),
        ),
        Some(_) => {}
        None if text("generateName").is_some() => {}
        None => errors.push(
            FieldError::new("metadata.name", Rule::Required, "required value: name or generateName is required")
                .with_valid("a lower case DNS subdomain"),
        ),
    }
    for (map, is_labels) in [("labels", true), ("annotations", false)] {
        for (key, value) in field(map).and_then(Value::as_object).into_iter().flatten() {
            let path = format!("metadata.{map}[{}]", short_text(key));
            let is_valid_key =
                if is_labels { is_qualified_name(key) } else { is_qualified_name(&key.to_lowercase()) };
            if !is_valid_key {
                errors.push(
                    FieldError::new(&path, Rule::Pattern, "invalid key: must be a qualified name").with_valid(
                        "an optional DNS subdomain and '/', then at most 63 letters, digits, '-', '_' and '.'",
                    ),
                );
            }
            let value = value.as_str().unwrap_or_default();
            if is_labels && !is_label_value(value) {
                errors.push(
                    FieldError::new(
                        &path,
                        Rule::Pattern,
                        format!("invalid value: \"{}\": must be a label value", short_text(value)),
                    )
                    .with_valid("at most 63 letters, digits, '-', '_' and '.', starting and ending with a letter or digit"),
                );
            }
        }
    }
    errors
}

/// Whether the text can be the value of a label.
pub fn is_label_value(value: &str) -> bool {
    value.is_empty() || is_word(value)
}

/// Whether the text can be the key of a label or the name of a resource.
pub fn is_qualified_name(key: &str) -> bool {
    let (prefix, name) = match key.split_once('/') {
        None => (None, key),
        Some((prefix, name)) => (Some(prefix), name),
    };
    prefix.is_none_or(is_subdomain) && is_word(name)
}
