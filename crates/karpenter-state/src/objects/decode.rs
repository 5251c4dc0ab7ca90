//! Decodes a JSON value into a typed object and reports unknown fields.

use karpenter_api::error::{FieldError, Rule};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::problem::{Problem, Severity};
use super::strict_reader::{self, Read};

pub(super) struct Decoded<T> {
    pub(super) object: Option<T>,
    pub(super) problems: Vec<(Severity, Problem)>,
}

/// An object of a Kubernetes kind.
pub(super) fn kubernetes<T: DeserializeOwned>(value: &Value) -> Decoded<T> {
    let Read { result, unknown } = strict_reader::read::<T>(value);
    // Old clients wrote this field. API servers drop it, so it is not reported as unknown.
    let unknown =
        unknown.into_iter().filter(|place| place != "metadata.selfLink" && place != "metadata.clusterName");
    let mut problems: Vec<(Severity, Problem)> =
        unknown.map(|place| (Severity::Warning, Problem::new(place, "unknown field, ignored"))).collect();
    match result {
        Ok(object) => Decoded { object: Some(object), problems },
        Err((place, words)) => {
            problems.push((Severity::Error, type_problem(place, &words)));
            Decoded { object: None, problems }
        }
    }
}

/// Decodes an object of a kind of this project, with the same defaults and validation as by the API server and the
/// controllers.
pub(super) fn own<T: serde::Serialize + DeserializeOwned>(value: &Value) -> Decoded<T> {
    let mut problems = Vec::new();
    let admitted = match karpenter_api::validate::validate(value, None) {
        Ok(admitted) => Some(admitted),
        Err(errors) if errors.iter().all(|error| error.rule == Rule::UnknownField) => {
            problems.extend(errors.into_iter().map(|error| (Severity::Warning, field_problem(error))));
            // Deserialization drops unknown fields, so that only the known ones are validated.
            let known = strict_reader::read::<T>(value)
                .result
                .ok()
                .and_then(|known| serde_json::to_value(known).ok());
            known.and_then(|known| match karpenter_api::validate::validate(&known, None) {
                Ok(admitted) => Some(admitted),
                Err(errors) => {
                    problems.extend(errors.into_iter().map(|error| (Severity::Error, field_problem(error))));
                    None
                }
            })
        }
        Err(errors) => {
            problems.extend(errors.into_iter().map(|error| {
                let unknown = error.rule == Rule::UnknownField;
                (if unknown { Severity::Warning } else { Severity::Error }, field_problem(error))
            }));
            None
        }
    };
    let object = admitted.and_then(|admitted| match strict_reader::read::<T>(&admitted).result {
        Ok(object) => Some(object),
        Err((path, message)) => {
            problems.push((Severity::Error, type_problem(path, &message)));
            None
        }
    });
    Decoded { object, problems }
}

pub(super) fn field_problem(error: FieldError) -> Problem {
    Problem { path: error.path, message: error.message, valid: error.valid }
}

/// The message of serde is "…, expected …"; its second half states what value would be valid.
fn type_problem(path: String, message: &str) -> Problem {
    match message.split_once(", expected ") {
        // The usual cause of this error is an unquoted `on`, `no` or `1` where a string is required.
        Some((wrong, "a string")) => {
            Problem::new(path, wrong).valid("a string; quote it if it looks like another type")
        }
        Some((wrong, expected)) => Problem::new(path, wrong).valid(manifest_type_name(expected)),
        None => Problem::new(path, message),
    }
}

/// The name of a type in the terms of manifests. The generated types have the names of Rust types.
fn manifest_type_name(expected: &str) -> &str {
    match expected {
        "i32" => "a 32-bit integer",
        "i64" => "a 64-bit integer",
        "f64" => "a number",
        "Quantity" => "a quantity such as 2, 500m or 1.5Gi",
        "IntOrString" => "an integer or a string",
        "a sequence" => "a list",
        other => other,
    }
}

/// Sets defaults like an API server: the namespace, a name for `generateName`, and quantities as text.
pub(super) fn complete(value: &mut Value, kind: &str, namespaced: bool, document: usize) {
    // The field `allocatable` of a CSINode has plain numbers, not quantities.
    if kind != "CSINode" {
        quantities_as_text(value);
    }
    let Some(object) = value.as_object_mut() else { return };
    let metadata = object.entry("metadata").or_insert_with(|| Value::Object(Default::default()));
    let Some(metadata) = metadata.as_object_mut() else { return };
    if !metadata.contains_key("name")
        && let Some(prefix) = metadata.get("generateName").and_then(Value::as_str)
    {
        let name = format!("{prefix}{document}");
        metadata.insert("name".to_owned(), Value::String(name));
    }
    let namespace_is_blank =
        metadata.get("namespace").is_none_or(|namespace| namespace.is_null() || namespace == "");
    if namespaced && namespace_is_blank {
        metadata.insert("namespace".to_owned(), Value::String("default".to_owned()));
    }
}

/// `cpu: 2` is a valid quantity for an API server, but the generated types accept text only.
fn quantities_as_text(value: &mut Value) {
    const MAPS: [&str; 6] =
        ["requests", "limits", "capacity", "allocatable", "overhead", "allocatedResources"];
    match value {
        Value::Object(map) => {
            for (key, field) in map.iter_mut() {
                match field {
                    Value::Object(amounts) if MAPS.contains(&key.as_str()) => {
                        for amount in amounts.values_mut() {
                            number_as_text(amount);
                        }
                    }
                    Value::Number(_) if key == "sizeLimit" || key == "divisor" => number_as_text(field),
                    Value::Object(_) | Value::Array(_) => quantities_as_text(field),
                    _ => {}
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(quantities_as_text),
        _ => {}
    }
}

fn number_as_text(value: &mut Value) {
    if let Value::Number(number) = value {
        *value = Value::String(number.to_string());
    }
}

/// Rewrites a ReplicationController as a ReplicaSet: its map of labels becomes a selector.
pub(super) fn replication_controller(value: &mut Value) -> Result<(), Problem> {
    let Some(object) = value.as_object_mut() else { return Ok(()) };
    object.insert("apiVersion".to_owned(), Value::String("apps/v1".to_owned()));
    object.insert("kind".to_owned(), Value::String("ReplicaSet".to_owned()));
    let Some(spec) = object.get_mut("spec") else { return Ok(()) };
    let Some(spec) = spec.as_object_mut() else {
        return Err(Problem::new("spec", "is not an object").valid("an object"));
    };
    let selector = spec.remove("selector").unwrap_or(Value::Object(Default::default()));
    spec.insert("selector".to_owned(), serde_json::json!({ "matchLabels": selector }));
    Ok(())
}
