//! The columns of built-in kinds, by group and kind; all versions of a kind have the same columns.
//!
//! As in kube-apiserver, a kind without an entry has columns for name and creation time.
//!
//! Upstream: k8s.io/kubernetes/pkg/printers/internalversion/printers.go

mod nodes;
mod operations;
mod other;
mod pods;
mod storage;
mod workloads;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use jiff::Timestamp;
use serde_json::Value;

pub(super) use pods::row_conditions;

use super::{AGE_DESCRIPTION, Cells, CellsOf, ColumnDefinition, Columns, NAME_DESCRIPTION, age, name_of};

/// A column: its name, its type, and its priority.
type Column = (&'static str, &'static str, i64);

const NAME: Column = ("Name", "string", 0);
const AGE: Column = ("Age", "string", 0);
const CONTAINERS: Column = ("Containers", "string", 1);
const IMAGES: Column = ("Images", "string", 1);
const SELECTOR: Column = ("Selector", "string", 1);

/// The columns of a kind, and the function that computes their cells for an object.
#[derive(Clone, Copy)]
struct Kind {
    group: &'static str,
    kind: &'static str,
    columns: &'static [Column],
    cells: CellsOf,
}

/// The columns of a kind.
pub fn builtin_columns(group: &str, _version: &str, kind: &str) -> &'static Columns {
    // Kinds in different groups can have the same name, such as Event.
    static KINDS: LazyLock<BTreeMap<&str, Vec<(&str, Columns)>>> = LazyLock::new(|| {
        let mut by_kind: BTreeMap<&str, Vec<(&str, Columns)>> = BTreeMap::new();
        for kind in
            [pods::KINDS, nodes::KINDS, workloads::KINDS, storage::KINDS, other::KINDS, operations::KINDS]
                .concat()
        {
            by_kind.entry(kind.kind).or_default().push((kind.group, columns_of(&kind)));
        }
        by_kind
    });
    static OTHER: LazyLock<Columns> = LazyLock::new(|| {
        let columns = &[NAME, ("Created At", "date", 0)];
        columns_of(&Kind { group: "", kind: "", columns, cells: created_at })
    });
    let found = KINDS.get(kind).and_then(|groups| groups.iter().find(|(known, _)| *known == group));
    found.map_or(&OTHER, |(_, columns)| columns)
}

fn columns_of(kind: &Kind) -> Columns {
    let definitions = kind.columns.iter().map(|(name, column_type, priority)| ColumnDefinition {
        name: (*name).to_string(),
        column_type: (*column_type).to_string(),
        format: if is_name(kind, name) { "name".to_string() } else { String::new() },
        description: match *name {
            "Name" => NAME_DESCRIPTION.to_string(),
            "Age" | "Created At" => AGE_DESCRIPTION.to_string(),
            other => format!("{other} of the {}.", kind.kind),
        },
        priority: *priority,
    });
    Columns { definitions: definitions.collect(), cells: Cells::Builtin(kind.cells) }
}

fn is_name(kind: &Kind, column: &str) -> bool {
    column == "Name" && kind.kind != "Scale" || (kind.kind == "VolumeAttachment" && column == "Attacher")
}

fn created_at(object: &Value, _now: Timestamp) -> Vec<Value> {
    vec![name(object), text(object, "/metadata/creationTimestamp").into()]
}

fn name_and_age(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(object), created(object, now)]
}

fn name(object: &Value) -> Value {
    Value::from(name_of(object))
}

/// How long ago the object was created.
fn created(object: &Value, now: Timestamp) -> Value {
    Value::from(age(object, "/metadata/creationTimestamp", now))
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The text at a JSON pointer; `missing` if there is none.
fn text_or<'a>(object: &'a Value, pointer: &str, missing: &'a str) -> &'a str {
    match text(object, pointer) {
        "" => missing,
        found => found,
    }
}

fn integer(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or_default()
}

fn flag(object: &Value, pointer: &str) -> bool {
    object.pointer(pointer).and_then(Value::as_bool).unwrap_or_default()
}

fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The length of the list or object at a JSON pointer.
fn count(object: &Value, pointer: &str) -> i64 {
    match object.pointer(pointer) {
        Some(Value::Array(elements)) => elements.len() as i64,
        Some(Value::Object(fields)) => fields.len() as i64,
        _ => 0,
    }
}

/// A string or number as text.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_string)
}

fn is_deleting(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null())
}

/// Whether the first condition with this type is true.
fn condition_is_true(object: &Value, condition_type: &str) -> bool {
    list(object, "/status/conditions")
        .iter()
        .find(|condition| condition["type"] == condition_type)
        .is_some_and(|condition| condition["status"] == "True")
}

/// The names and the images of the containers in a pod spec.
fn containers(object: &Value, pointer: &str) -> [Value; 2] {
    ["name", "image"].map(|field| {
        let texts: Vec<&str> = list(object, pointer)
            .iter()
            .map(|container| container.get(field).and_then(Value::as_str).unwrap_or_default())
            .collect();
        Value::from(texts.join(","))
    })
}

/// Labels as `a=1,b=2`; `<none>` if there are none.
fn labels(object: &Value, pointer: &str) -> String {
    let labels = object.pointer(pointer).and_then(Value::as_object).filter(|labels| !labels.is_empty());
    labels.map_or_else(
        || "<none>".to_string(),
        |labels| {
            let pairs: Vec<String> = labels
                .iter()
                .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
                .collect();
            pairs.join(",")
        },
    )
}

/// A label selector as text, sorted by key.
fn selector_text(object: &Value, pointer: &str) -> String {
    let Some(selector) = object.pointer(pointer).filter(|selector| selector.is_object()) else {
        return String::new();
    };
    let mut requirements: Vec<(String, String)> = Vec::new();
    for (key, value) in selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten() {
        requirements.push((key.clone(), format!("{key}={}", value.as_str().unwrap_or_default())));
    }
    for expression in list(selector, "/matchExpressions") {
        let key = text(expression, "/key").to_string();
        let mut values: Vec<&str> = list(expression, "/values").iter().filter_map(Value::as_str).collect();
        values.sort_unstable();
        let values = values.join(",");
        let term = match text(expression, "/operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.clone(),
            "DoesNotExist" => format!("!{key}"),
            _ => continue,
        };
        requirements.push((key, term));
    }
    requirements.sort_by(|left, right| left.0.cmp(&right.0));
    requirements.into_iter().map(|(_, term)| term).collect::<Vec<_>>().join(",")
}

/// A label selector as text; `<none>` if it is empty.
fn selector_or_none(object: &Value, pointer: &str) -> String {
    match selector_text(object, pointer) {
        empty if empty.is_empty() => "<none>".to_string(),
        term => term,
    }
}

/// At most `limit` of the parts, followed by how many were left out.
fn with_more(parts: &[String], limit: usize, separator: &str) -> String {
    let shown = parts[..parts.len().min(limit)].join(separator);
    if parts.len() > limit { format!("{shown} + {} more...", parts.len() - limit) } else { shown }
}
