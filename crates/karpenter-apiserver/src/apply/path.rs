//! The elements of field paths, encoded and ordered as in `managedFields`.
//!
//! Upstream: sigs.k8s.io/structured-merge-diff/v6/fieldpath/element.go

use std::cmp::Ordering;
use std::fmt;

use serde_json::{Map, Value};

use crate::field::{go_json, go_quote};

pub(super) type Path = Vec<Element>;

/// One step of a field path: from an object to one of its fields, or from a list to one of its items.
#[derive(Debug, Clone)]
pub(super) enum Element {
    Field(String),
    /// An item of a keyed list, identified by the values of its key fields, which are sorted by name.
    Key(Vec<(String, Value)>),
    /// An item of a set, identified by its value.
    Value(Value),
    Index(i64),
}

impl Element {
    /// Parses an element such as `f:name`, `k:{...}`, `v:...` or `i:0`. An element of unknown type gives `Ok(None)`.
    pub(super) fn parse(text: &str) -> Result<Option<Self>, String> {
        let Some((kind, body)) = text.split_once(':').filter(|(kind, _)| kind.len() == 1) else {
            return Err(if text.len() < 2 {
                "key must be 2 characters long:".to_string()
            } else {
                format!("missing colon: {text}")
            });
        };
        let json = |body: &str| serde_json::from_str::<Value>(body).map_err(|error| error.to_string());
        Ok(match kind {
            "f" => Some(Self::Field(body.to_string())),
            "v" => Some(Self::Value(json(body)?)),
            "k" => match json(body)? {
                Value::Object(keys) => Some(Self::Key(keys.into_iter().collect())),
                _ => return Err(format!("not an object: {body}")),
            },
            "i" => Some(Self::Index(body.parse().map_err(|_| format!("not an index: {body}"))?)),
            _ => None,
        })
    }

    pub(super) fn encode(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Key(keys) => {
                let keys: Map<String, Value> = keys.iter().cloned().collect();
                format!("k:{}", go_json(&Value::Object(keys)))
            }
            Self::Value(value) => format!("v:{}", go_json(value)),
            Self::Index(index) => format!("i:{index}"),
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Value(_) => 2,
            Self::Index(_) => 3,
        }
    }
}

impl fmt::Display for Element {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(formatter, ".{name}"),
            Self::Key(keys) => {
                let keys: Vec<String> =
                    keys.iter().map(|(name, value)| format!("{name}={}", shown(value))).collect();
                write!(formatter, "[{}]", keys.join(","))
            }
            Self::Value(value) => write!(formatter, "[={}]", shown(value)),
            Self::Index(index) => write!(formatter, "[{index}]"),
        }
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => go_quote(text),
        other => other.to_string(),
    }
}

impl Ord for Element {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Field(left), Self::Field(right)) => left.cmp(right),
            (Self::Key(left), Self::Key(right)) => {
                for ((left_name, left_value), (right_name, right_value)) in left.iter().zip(right) {
                    let order = left_name.cmp(right_name).then_with(|| compare(left_value, right_value));
                    if order != Ordering::Equal {
                        return order;
                    }
                }
                left.len().cmp(&right.len())
            }
            (Self::Value(left), Self::Value(right)) => compare(left, right),
            (Self::Index(left), Self::Index(right)) => left.cmp(right),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for Element {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Element {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Element {}

/// Orders values: numbers, strings, booleans, lists, objects, null. The numbers 1 and 1.0 are equal.
pub(super) fn compare(left: &Value, right: &Value) -> Ordering {
    fn rank(value: &Value) -> u8 {
        match value {
            Value::Number(_) => 0,
            Value::String(_) => 1,
            Value::Bool(_) => 2,
            Value::Array(_) => 3,
            Value::Object(_) => 4,
            Value::Null => 5,
        }
    }
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => match (left.as_i64(), right.as_i64()) {
            (Some(left), Some(right)) => left.cmp(&right),
            _ => left.as_f64().unwrap_or(0.0).total_cmp(&right.as_f64().unwrap_or(0.0)),
        },
        (Value::String(left), Value::String(right)) => left.cmp(right),
        (Value::Bool(left), Value::Bool(right)) => left.cmp(right),
        (Value::Array(left), Value::Array(right)) => {
            for (left, right) in left.iter().zip(right) {
                let order = compare(left, right);
                if order != Ordering::Equal {
                    return order;
                }
            }
            left.len().cmp(&right.len())
        }
        (Value::Object(left), Value::Object(right)) => {
            for ((left_key, left), (right_key, right)) in left.iter().zip(right) {
                let order = left_key.cmp(right_key).then_with(|| compare(left, right));
                if order != Ordering::Equal {
                    return order;
                }
            }
            left.len().cmp(&right.len())
        }
        _ => rank(left).cmp(&rank(right)),
    }
}

pub(super) fn equal(left: &Value, right: &Value) -> bool {
    compare(left, right) == Ordering::Equal
}
