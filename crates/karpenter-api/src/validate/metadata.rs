//! The schema and the rules of `metadata`. CRDs cannot describe its fields; the API server has them built in.
//!
//! Fields that only the API server writes (uid, managedFields, ...) are hardly validated, so that objects read from a
//! cluster are accepted.

use serde_json::{Value, json};

use crate::error::{FieldError, Rule};
use crate::schema::{Schema, SchemaError, short_text};

const NAME_CHARS_MAX: usize = 253;
const WORD_CHARS_MAX: usize = 63;
/// The API server truncates a `generateName` prefix to this length before it appends the generated part.
const GENERATED_PREFIX_CHARS_MAX: usize = 58;
/// The maximum total size of the keys and values of all annotations.
const ANNOTATION_BYTES_MAX: usize = 256 * 1024;
/// Finalizers that determine how dependent objects are deleted; an object may have only one of them.
const DELETION_POLICIES: [&str; 2] = ["orphan", "foregroundDeletion"];
const SUBDOMAIN: &str =
    "at most 253 lower case letters, digits, '-' and '.', starting and ending with a letter or digit";
const QUALIFIED_NAME: &str =
    "an optional DNS subdomain and '/', then at most 63 letters, digits, '-', '_' and '.'";

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

/// Whether the text is a DNS subdomain: lower case letters, digits and inner dashes, in parts separated by dots.
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

/// Whether the text consists of letters, digits, and inner dashes, underscores and dots, and is not empty.
fn is_word(text: &str) -> bool {
    let is_end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= WORD_CHARS_MAX
        && is_end(bytes.first())
        && is_end(bytes.last())
        && bytes.iter().all(|byte| is_end(Some(byte)) || matches!(byte, b'-' | b'_' | b'.'))
}

/// The errors in names, labels, annotations, finalizers and owner references, beyond wrong types.
pub fn errors(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let metadata = object.get("metadata");
    let field = |name: &str| metadata.and_then(|metadata| metadata.get(name));
    let text = |name: &str| field(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    let not_a_subdomain = |field: &str, name: &str| {
        FieldError::new(
            format!("metadata.{field}"),
            Rule::Pattern,
            format!("invalid value: \"{}\": must be a lower case DNS subdomain", short_text(name)),
        )
        .with_valid(SUBDOMAIN)
    };
    if let Some(prefix) = text("generateName") {
        let generates_valid_names = text("name").is_some() || generates_valid_names(prefix);
        if !is_name_prefix(prefix) || !generates_valid_names {
            errors.push(not_a_subdomain("generateName", prefix));
        }
    }
    match text("name") {
        Some(name) if !is_subdomain(name) => errors.push(not_a_subdomain("name", name)),
        Some(_) => {}
        None if text("generateName").is_some() => {}
        None => errors.push(
            FieldError::new(
                "metadata.name",
                Rule::Required,
                "required value: name or generateName is required",
            )
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
                    FieldError::new(&path, Rule::Pattern, "invalid key: must be a qualified name")
                        .with_valid(QUALIFIED_NAME),
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
    errors.extend(annotation_size_error(field("annotations")));
    errors.extend(finalizer_errors(field("finalizers")));
    errors.extend(owner_errors(field("ownerReferences")));
    errors
}

/// Whether the text is a valid `generateName` prefix. As in the API server, the last two characters of a prefix with a
/// trailing dash are replaced by a letter before the check.
fn is_name_prefix(prefix: &str) -> bool {
    let mut characters: Vec<char> = prefix.chars().collect();
    if characters.len() > 1 && characters.last() == Some(&'-') {
        characters.truncate(characters.len() - 2);
        characters.push('a');
    }
    is_subdomain(&characters.into_iter().collect::<String>())
}

/// Whether a name made of the prefix and five letters or digits is valid.
fn generates_valid_names(prefix: &str) -> bool {
    let kept: String = prefix.chars().take(GENERATED_PREFIX_CHARS_MAX).collect();
    is_subdomain(&format!("{kept}aaaaa"))
}

fn annotation_size_error(annotations: Option<&Value>) -> Option<FieldError> {
    let annotations = annotations?.as_object()?;
    let bytes: usize =
        annotations.iter().map(|(key, value)| key.len() + value.as_str().unwrap_or_default().len()).sum();
    (bytes > ANNOTATION_BYTES_MAX).then(|| {
        FieldError::new("metadata.annotations", Rule::Bound, format!("too long: {bytes} bytes in all"))
            .with_valid(format!("at most {ANNOTATION_BYTES_MAX} bytes"))
    })
}

fn finalizer_errors(finalizers: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let finalizers: Vec<&str> =
        finalizers.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    for (index, finalizer) in finalizers.iter().enumerate() {
        if !is_qualified_name(finalizer) {
            errors.push(
                FieldError::new(
                    format!("metadata.finalizers[{index}]"),
                    Rule::Pattern,
                    format!("invalid value: \"{}\": must be a qualified name", short_text(finalizer)),
                )
                .with_valid(QUALIFIED_NAME),
            );
        }
    }
    if DELETION_POLICIES.iter().all(|policy| finalizers.contains(policy)) {
        let [one, other] = DELETION_POLICIES;
        errors.push(
            FieldError::new(
                "metadata.finalizers",
                Rule::Duplicate,
                format!("invalid value: {one} and {other} cannot both be set"),
            )
            .with_valid("at most one of the two"),
        );
    }
    errors
}

fn owner_errors(owners: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let owners = owners.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    for (index, owner) in owners.iter().enumerate() {
        let path = format!("metadata.ownerReferences[{index}]");
        // Absent fields are reported by the schema.
        for name in ["apiVersion", "kind", "name", "uid"] {
            if owner[name].as_str() == Some("") {
                errors.push(
                    FieldError::new(format!("{path}.{name}"), Rule::Required, "required value")
                        .with_valid("a non-empty string"),
                );
            }
        }
        let api_version = owner["apiVersion"].as_str().unwrap_or_default();
        if api_version.ends_with('/') || api_version.matches('/').count() > 1 {
            errors.push(
                FieldError::new(
                    format!("{path}.apiVersion"),
                    Rule::Pattern,
                    format!("invalid value: \"{}\": must name one version", short_text(api_version)),
                )
                .with_valid("a version, or a group, '/' and a version"),
            );
        }
        if api_version == "v1" && owner["kind"] == "Event" {
            errors.push(
                FieldError::new(path, Rule::Enum, "invalid value: an Event cannot own objects")
                    .with_valid("an owner of another kind"),
            );
        }
    }
    if owners.iter().filter(|owner| owner["controller"] == true).count() > 1 {
        errors.push(
            FieldError::new(
                "metadata.ownerReferences",
                Rule::Duplicate,
                "invalid value: only one owner can be the controller",
            )
            .with_valid("controller: true for at most one owner"),
        );
    }
    errors
}

/// Whether the string is a valid label value.
pub fn is_label_value(value: &str) -> bool {
    value.is_empty() || is_word(value)
}

/// Whether the string is a valid label key or resource name.
pub fn is_qualified_name(key: &str) -> bool {
    let (prefix, name) = match key.split_once('/') {
        None => (None, key),
        Some((prefix, name)) => (Some(prefix), name),
    };
    prefix.is_none_or(is_subdomain) && is_word(name)
}
