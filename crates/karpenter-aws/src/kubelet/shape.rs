//! Compares settings with the fields of the KubeletConfiguration, to find unknown fields and wrong types.

use karpenter_api::runtime::kubelet_fields::{Field, KUBELET, Kind};
use karpenter_api::types::KubeletValues;
use karpenter_model::duration::parse_go_duration;
use karpenter_model::quantity::Quantity;
use serde_json::Value;

/// Returns all errors, in the order of the fields, whereas upstream stops at the first wrong type.
pub(super) fn problems(values: &KubeletValues) -> Vec<String> {
    let mut problems = Vec::new();
    for (name, value) in values {
        // An expression is checked when it is evaluated.
        if name == "maxPods" && value.is_string() {
            continue;
        }
        field(name, value, KUBELET, "", &mut problems);
    }
    problems
}

fn field(name: &str, value: &Value, fields: &'static [Field], parent: &str, problems: &mut Vec<String>) {
    let path = if parent.is_empty() { name.to_owned() } else { format!("{parent}.{name}") };
    match fields.iter().find(|(known, _)| *known == name) {
        None => problems.push(format!("spec.kubelet: unknown field {path:?}")),
        Some((_, kind)) => check(value, kind, &path, problems),
    }
}

/// Checks one value and the values in it. Null counts as absent at any depth.
fn check(value: &Value, kind: &'static Kind, path: &str, problems: &mut Vec<String>) {
    if value.is_null() {
        return;
    }
    match (kind, value) {
        (Kind::List(item), Value::Array(items)) => {
            for (position, value) in items.iter().enumerate() {
                check(value, item, &format!("{path}[{position}]"), problems);
            }
        }
        (Kind::Map(item), Value::Object(entries)) => {
            for (key, value) in entries {
                check(value, item, &format!("{path}[{key}]"), problems);
            }
        }
        (Kind::Record(fields), Value::Object(entries)) => {
            for (name, value) in entries {
                field(name, value, fields, path, problems);
            }
        }
        _ => {
            if let Some(expected) = mismatch(value, kind) {
                problems.push(format!("spec.kubelet.{path}: must be {expected}, not {}", found(value)));
            }
        }
    }
}

fn mismatch(value: &Value, kind: &Kind) -> Option<&'static str> {
    let whole = value.as_i64();
    let is_duration = || value.as_str().is_some_and(|text| parse_go_duration(text).is_ok());
    let is_quantity = || value.as_str().is_some_and(|text| text.parse::<Quantity>().is_ok());
    let is_time = || value.as_str().is_some_and(|text| text.parse::<jiff::Timestamp>().is_ok());
    let (fits, expected) = match kind {
        Kind::Bool => (value.is_boolean(), "true or false"),
        Kind::Int32 => (whole.is_some_and(|number| i32::try_from(number).is_ok()), "a 32-bit whole number"),
        Kind::Int64 => (whole.is_some(), "a whole number"),
        Kind::Uint32 => {
            (whole.is_some_and(|number| u32::try_from(number).is_ok()), "a whole number that is not negative")
        }
        Kind::Number => (value.is_number(), "a number"),
        Kind::Text => (value.is_string(), "text"),
        Kind::Duration => (is_duration(), "a duration such as 30s"),
        Kind::DurationOrNumber => (whole.is_some() || is_duration(), "a duration such as 30s"),
        Kind::Quantity => (value.is_number() || is_quantity(), "a quantity such as 1Gi"),
        Kind::Time => (is_time(), "a time such as 2006-01-02T15:04:05Z"),
        Kind::List(_) => (false, "a list"),
        Kind::Map(_) | Kind::Record(_) => (false, "an object"),
    };
    (!fits).then_some(expected)
}

fn found(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(value) => value.to_string(),
        Value::String(value) => format!("{value:?}"),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}
