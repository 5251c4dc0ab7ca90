//! Brings an object into the form a Go server gives it by decoding into typed structs and encoding again: unknown
//! fields, nulls and empty optional values are gone, fields that are always written are there, quantities and times
//! are in canonical form.
//!
//! The types come from `go-types.txt` (made by `tools/go-types`). Lines starting with `@` name the struct of a kind;
//! the others are structs, counted from zero, one `name=type` per field. Types: `s`tring, `b`ool, `n`umber,
//! `q`uantity, `t`ime, `u` micro time, `i`nt or string, b`y`tes, `r`aw, `#` struct, `*` pointer, `[` list, `{` map;
//! after it `?` for omitempty and `~` for omitzero. Values of the wrong type are left alone: decoding reports them.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::quantity::Quantity;
use crate::clock::rfc3339_seconds;

#[derive(Debug)]
enum Type {
    String,
    Bool,
    Number,
    Quantity,
    Time,
    MicroTime,
    IntOrString,
    Bytes,
    Raw,
    Struct(usize),
    Pointer(Box<Type>),
    List(Box<Type>),
    Map(Box<Type>),
}

#[derive(Debug)]
struct Field {
    name: &'static str,
    kind: Type,
    omit_empty: bool,
    omit_zero: bool,
}

#[derive(Debug, Default)]
struct Struct {
    /// Sorted by name.
    fields: Vec<Field>,
    /// Positions of the fields that are written even when nobody set them.
    always_written: Vec<usize>,
}

struct Types {
    roots: BTreeMap<&'static str, usize>,
    structs: Vec<Struct>,
}

static TYPES: LazyLock<Types> = LazyLock::new(|| read_types(include_str!("go-types.txt")));

fn read_types(text: &'static str) -> Types {
    let mut types = Types { roots: BTreeMap::new(), structs: Vec::new() };
    for line in text.lines() {
        if let Some(root) = line.strip_prefix('@') {
            if let Some((name, number)) = root.split_once(' ') {
                types.roots.insert(name, number.parse().unwrap_or(usize::MAX));
            }
            continue;
        }
        let mut described = Struct::default();
        for field in line.split_ascii_whitespace() {
            let Some((name, rest)) = field.split_once('=') else { continue };
            let expression = rest.trim_end_matches(['?', '~']);
            let flags = &rest[expression.len()..];
            described.fields.push(Field {
                name,
                kind: read_type(expression),
                omit_empty: flags.contains('?'),
                omit_zero: flags.contains('~'),
            });
        }
        described.fields.sort_by_key(|field| field.name);
        described.always_written = (0..described.fields.len())
            .filter(|&index| {
                let field = &described.fields[index];
                // `omitempty` does nothing for Go structs, and these are structs in Go.
                let is_struct =
                    matches!(field.kind, Type::Struct(_) | Type::IntOrString | Type::Quantity | Type::Time);
                !field.omit_zero && (!field.omit_empty || is_struct)
            })
            .collect();
        types.structs.push(described);
    }
    types
}

fn read_type(expression: &str) -> Type {
    let Some(first) = expression.chars().next() else { return Type::Raw };
    let rest = &expression[first.len_utf8()..];
    match first {
        's' => Type::String,
        'b' => Type::Bool,
        'n' => Type::Number,
        'q' => Type::Quantity,
        't' => Type::Time,
        'u' => Type::MicroTime,
        'i' => Type::IntOrString,
        'y' => Type::Bytes,
        '#' => rest.parse().map_or(Type::Raw, Type::Struct),
        '*' => Type::Pointer(Box::new(read_type(rest))),
        '[' => Type::List(Box::new(read_type(rest))),
        '{' => Type::Map(Box::new(read_type(rest))),
        _ => Type::Raw,
    }
}

fn root(group: &str, version: &str, kind: &str) -> Option<usize> {
    TYPES.roots.get(format!("{group}/{version}/{kind}").as_str()).copied()
}

/// Rewrites an object of a known kind; others are left as they are.
pub(crate) fn canonicalize(group: &str, version: &str, kind: &str, object: &mut Value) {
    if let (Some(number), Value::Object(map)) = (root(group, version, kind), object) {
        canonicalize_struct(number, map);
    }
}

/// The value of a top-level field when nobody set anything in it, e.g. a fresh `status`; `Null` if it is not written.
pub(crate) fn zero_field(group: &str, version: &str, kind: &str, field: &str) -> Value {
    root(group, version, kind)
        .and_then(|number| TYPES.structs.get(number))
        .and_then(|described| described.fields.iter().find(|candidate| candidate.name == field))
        .map_or(Value::Null, |field| zero(&field.kind))
}

fn canonicalize_struct(number: usize, map: &mut Map<String, Value>) {
    let Some(described) = TYPES.structs.get(number) else { return };
    map.retain(|name, value| {
        let Ok(index) = described.fields.binary_search_by(|field| field.name.cmp(name)) else { return false };
        let field = &described.fields[index];
        canonicalize_value(&field.kind, value);
        !value.is_null()
            && !(field.omit_empty && is_empty(&field.kind, value))
            && !(field.omit_zero && is_zero(value))
    });
    for &index in &described.always_written {
        let field = &described.fields[index];
        if !map.contains_key(field.name) {
            map.insert(field.name.to_string(), zero(&field.kind));
        }
    }
}

fn canonicalize_value(kind: &Type, value: &mut Value) {
    match (kind, value) {
        (Type::Pointer(inner), value) => canonicalize_value(inner, value),
        (Type::Struct(number), Value::Object(map)) => canonicalize_struct(*number, map),
        (Type::List(element), Value::Array(items)) => {
            for item in items {
                if let (Type::Struct(_), Value::Null) = (&**element, &*item) {
                    *item = json!({});
                }
                canonicalize_value(element, item);
            }
        }
        (Type::Map(element), Value::Object(map)) => {
            for item in map.values_mut() {
                canonicalize_value(element, item);
                if let (Type::Quantity, Some(mut quantity)) = (&**element, Quantity::from_json(item)) {
                    quantity.round_up_to_milli();
                    *item = Value::String(quantity.to_string());
                }
            }
        }
        (Type::Quantity, value) => {
            if let Some(quantity) = Quantity::from_json(value) {
                *value = Value::String(quantity.to_string());
            }
        }
        (Type::Time, Value::String(text)) => {
            let is_canonical = text.len() == 20 && text.ends_with('Z');
            if let (false, Ok(time)) = (is_canonical, text.parse::<Timestamp>()) {
                *text = rfc3339_seconds(time);
            }
        }
        (Type::MicroTime, Value::String(text)) => {
            let is_canonical = text.len() == 27 && text.ends_with('Z');
            if let (false, Ok(time)) = (is_canonical, text.parse::<Timestamp>()) {
                *text = time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
            }
        }
        _ => {}
    }
}

/// What Go's `omitempty` calls empty. Pointers are empty only when null, which is dropped anyway.
fn is_empty(kind: &Type, value: &Value) -> bool {
    match (kind, value) {
        (Type::String | Type::Bytes, Value::String(text)) => text.is_empty(),
        (Type::Bool, Value::Bool(flag)) => !flag,
        (Type::Number, Value::Number(number)) => number.as_f64() == Some(0.0),
        (Type::List(_), Value::Array(items)) => items.is_empty(),
        (Type::Map(_), Value::Object(map)) => map.is_empty(),
        _ => false,
    }
}

fn is_zero(value: &Value) -> bool {
    value.as_object().is_some_and(Map::is_empty)
}

fn zero(kind: &Type) -> Value {
    match kind {
        Type::String => json!(""),
        Type::Bool => json!(false),
        Type::Number | Type::IntOrString => json!(0),
        Type::Quantity => json!("0"),
        Type::Struct(number) => {
            let mut map = Map::new();
            canonicalize_struct(*number, &mut map);
            Value::Object(map)
        }
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(group: &str, kind: &str, mut object: Value) -> Value {
        canonicalize(group, "v1", kind, &mut object);
        object
    }

    #[test]
    fn drops_what_is_empty_and_writes_what_is_always_there() {
        let pod = canonical(
            "",
            "Pod",
            json!({
                "metadata": {"name": "a", "labels": {}, "creationTimestamp": null, "bogus": 1},
                "spec": {"hostNetwork": false, "nodeName": "", "enableServiceLinks": false, "volumes": [],
                    "containers": [{"name": "c", "resources": {"limits": {"cpu": "1000m", "memory": 1024}}, "env": null}]},
            }),
        );
        assert_eq!(
            pod,
            json!({
                "metadata": {"name": "a"},
                "spec": {"enableServiceLinks": false,
                    "containers": [{"name": "c", "resources": {"limits": {"cpu": "1", "memory": "1024"}}}]},
                "status": {},
            })
        );
    }

    #[test]
    fn pointers_keep_their_zero() {
        let deployment =
            canonical("apps", "Deployment", json!({"spec": {"replicas": 0, "minReadySeconds": 0}}));
        assert_eq!(deployment["spec"]["replicas"], json!(0));
        assert_eq!(deployment["spec"].get("minReadySeconds"), None);
    }

    #[test]
    fn times_are_utc() {
        let lease = canonical(
            "coordination.k8s.io",
            "Lease",
            json!({"metadata": {"creationTimestamp": "2026-01-01T01:00:00+01:00"}, "spec": {"renewTime": "2026-01-01T00:00:00.5Z"}}),
        );
        assert_eq!(lease["metadata"]["creationTimestamp"], "2026-01-01T00:00:00Z");
        assert_eq!(lease["spec"]["renewTime"], "2026-01-01T00:00:00.500000Z");
    }

    #[test]
    fn a_fresh_status_has_the_fields_that_are_always_written() {
        assert_eq!(
            zero_field("apps", "v1", "DaemonSet", "status"),
            json!({"currentNumberScheduled": 0, "desiredNumberScheduled": 0, "numberMisscheduled": 0, "numberReady": 0})
        );
        assert_eq!(zero_field("", "v1", "Service", "status"), json!({"loadBalancer": {}}));
        assert_eq!(zero_field("apps", "v1", "Nonsense", "status"), Value::Null);
    }
}
