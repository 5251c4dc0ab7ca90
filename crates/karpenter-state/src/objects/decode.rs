//! From a plain value to a typed object, with every unknown field named.
//!
//! The common case reads once; only an object that fails is read a second time to learn which field was at fault.

use karpenter_api::error::{FieldError, Rule};
use std::hash::BuildHasher;

use rustc_hash::{FxBuildHasher, FxHashSet};
use serde::de::DeserializeOwned;
use serde_ignored::Path;
use serde_json::Value;

use super::problem::{Problem, Severity};

pub(super) struct Decoded<T> {
    pub(super) object: Option<T>,
    pub(super) problems: Vec<(Severity, Problem)>,
}

/// Places of fields that are known to be read, per kind.
///
/// Looking for unknown fields costs more than reading. Objects of one kind mostly have the same fields, so an object
/// whose fields have all been seen before, in objects without an unknown one, is read without looking.
#[derive(Debug, Default)]
pub(super) struct KnownFields {
    hashes: FxHashSet<u64>,
}

impl KnownFields {
    fn cover(&self, kind: &str, value: &Value) -> bool {
        visit_fields(value, FxBuildHasher.hash_one(kind), &mut |place| self.hashes.contains(&place))
    }

    fn learn(&mut self, kind: &str, value: &Value) {
        visit_fields(value, FxBuildHasher.hash_one(kind), &mut |place| {
            self.hashes.insert(place);
            true
        });
    }
}

/// Calls `visit` with a hash of the place of every field, positions in lists aside, until it says no.
fn visit_fields(value: &Value, place: u64, visit: &mut impl FnMut(u64) -> bool) -> bool {
    match value {
        Value::Object(fields) => fields.iter().all(|(key, field)| {
            let place = FxBuildHasher.hash_one((place, key.as_str()));
            visit(place) && visit_fields(field, place, visit)
        }),
        Value::Array(items) => items.iter().all(|item| visit_fields(item, place, visit)),
        _ => true,
    }
}

/// An object of one of Kubernetes' own kinds.
pub(super) fn kubernetes<T: DeserializeOwned>(
    value: &Value,
    kind: &str,
    known: &mut KnownFields,
) -> Decoded<T> {
    if known.cover(kind, value)
        && let Ok(object) = T::deserialize(value)
    {
        return Decoded { object: Some(object), problems: Vec::new() };
    }
    let decoded = kubernetes_with_care(value);
    if decoded.problems.is_empty() {
        known.learn(kind, value);
    }
    decoded
}

fn kubernetes_with_care<T: DeserializeOwned>(value: &Value) -> Decoded<T> {
    let mut problems = Vec::new();
    let mut note = |path: Path<'_>| {
        let mut text = String::new();
        write_path(&path, &mut text);
        // Written by old clients, dropped by every server for years.
        if text != "metadata.selfLink" && text != "metadata.clusterName" {
            problems.push((Severity::Warning, Problem::new(text, "unknown field, not looked at")));
        }
    };
    let result: Result<T, _> = read_erased(serde_ignored::Deserializer::new(value, &mut note));
    match result {
        Ok(object) => Decoded { object: Some(object), problems },
        Err(error) => {
            let path = located::<T>(value).err().map(|(path, _)| path).unwrap_or_default();
            problems.push((Severity::Error, type_problem(path, &error.to_string())));
            Decoded { object: None, problems }
        }
    }
}

/// Reads through a pointer: readers within readers are generated anew for every type of every object otherwise, which
/// was most of what this crate took to build.
fn read_erased<'de, T: DeserializeOwned, D: serde::Deserializer<'de>>(
    reader: D,
) -> Result<T, erased_serde::Error> {
    erased_serde::deserialize(&mut <dyn erased_serde::Deserializer<'_>>::erase(reader))
}

/// An object, or the place and the words of what is wrong with it.
fn located<T: DeserializeOwned>(value: &Value) -> Result<T, (String, String)> {
    let mut track = serde_path_to_error::Track::new();
    let read = read_erased(serde_path_to_error::Deserializer::new(value, &mut track));
    read.map_err(|error| {
        let path = track.path().to_string();
        (if path == "." { String::new() } else { path }, error.to_string())
    })
}

/// An object of one of this project's kinds: defaulted and checked as the API server and the controllers would.
pub(super) fn own<T: serde::Serialize + DeserializeOwned>(value: &Value) -> Decoded<T> {
    let mut problems = Vec::new();
    let admitted = match karpenter_api::validate::validate(value, None) {
        Ok(admitted) => Some(admitted),
        Err(errors) if errors.iter().all(|error| error.rule == Rule::UnknownField) => {
            problems.extend(errors.into_iter().map(|error| (Severity::Warning, field_problem(error))));
            // The types drop what they do not know, so what is left is checked without it.
            let known = serde_json::from_value::<T>(value.clone()).and_then(serde_json::to_value);
            known.ok().and_then(|known| match karpenter_api::validate::validate(&known, None) {
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
    let object = admitted.and_then(|admitted| match located::<T>(&admitted) {
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

/// serde says "…, expected …"; the second half is what would be valid.
fn type_problem(path: String, message: &str) -> Problem {
    match message.split_once(", expected ") {
        // An unquoted `on`, `no` or `1` is the usual cause.
        Some((wrong, "a string")) => {
            Problem::new(path, wrong).valid("a string, in quotes where it looks like something else")
        }
        Some((wrong, expected)) => Problem::new(path, wrong).valid(in_plain_words(expected)),
        None => Problem::new(path, message),
    }
}

/// The generated types name Rust's types; a manifest has others.
fn in_plain_words(expected: &str) -> &str {
    match expected {
        "i32" => "a whole number of at most 32 bits",
        "i64" => "a whole number of at most 64 bits",
        "f64" => "a number",
        "Quantity" => "a quantity such as 2, 500m or 1.5Gi",
        "IntOrString" => "a whole number or a string",
        "a sequence" => "a list",
        other => other,
    }
}

fn write_path(path: &Path<'_>, text: &mut String) {
    match path {
        Path::Root => {}
        Path::Seq { parent, index } => {
            write_path(parent, text);
            text.push_str(&format!("[{index}]"));
        }
        Path::Map { parent, key } => {
            write_path(parent, text);
            if !text.is_empty() {
                text.push('.');
            }
            text.push_str(key);
        }
        Path::Some { parent } | Path::NewtypeStruct { parent } | Path::NewtypeVariant { parent } => {
            write_path(parent, text);
        }
    }
}

/// Fills in what an API server would: the namespace, a name for `generateName`, quantities written as numbers.
pub(super) fn complete(value: &mut Value, kind: &str, namespaced: bool, document: usize) {
    // `allocatable` of a CSINode holds plain numbers.
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

/// `cpu: 2` is a valid quantity for an API server, but the generated types take only text.
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

/// Rewrites a ReplicationController as a ReplicaSet: a plain map of labels becomes a selector.
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
