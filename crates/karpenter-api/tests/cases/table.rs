//! The tables of cases that must be accepted or rejected: their format, and how each case's object is built. The tests
//! and the comparison with a real API server include this file.

use serde::Deserialize;
use serde_json::{Map, Value};

const TABLES: [(&str, &str); 6] = [
    ("nodepool", include_str!("nodepool.yaml")),
    ("nodeclaim", include_str!("nodeclaim.yaml")),
    ("nodeoverlay", include_str!("nodeoverlay.yaml")),
    ("ec2nodeclass", include_str!("ec2nodeclass.yaml")),
    ("kwoknodeclass", include_str!("kwoknodeclass.yaml")),
    ("capacitybuffer", include_str!("capacitybuffer.yaml")),
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Table {
    /// The valid object from which the object of every case is made.
    pub(crate) base: Value,
    pub(crate) cases: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Case {
    pub(crate) name: String,
    /// Step 1: JSON pointers to values that are removed.
    #[serde(default)]
    remove: Vec<String>,
    /// Step 2: values to set, by JSON pointer. Missing parent objects are created.
    #[serde(default)]
    set: Map<String, Value>,
    /// Step 3: a list that is set to this number of equal elements.
    repeat: Option<Many>,
    /// Step 3: a map to which this number of keys with equal values is added.
    fill: Option<Many>,
    /// If set, the case is an update: the stored object is the base with these values set, by JSON pointer.
    update_from: Option<Map<String, Value>>,
    pub(crate) expect: Expectation,
    /// The path that one of the errors must have.
    pub(crate) path: Option<String>,
    /// Text that the error at `path` must contain, where the error is formatted as `rule: message`.
    pub(crate) contains: Option<String>,
    /// Expected values of the stored object, by JSON pointer.
    #[serde(default)]
    pub(crate) defaulted: Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Many {
    at: String,
    value: Value,
    times: usize,
}

#[derive(Deserialize, PartialEq, Clone, Copy)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Expectation {
    Accept,
    Reject,
}

impl Case {
    pub(crate) fn object(&self, base: &Value) -> Value {
        let mut object = base.clone();
        for pointer in &self.remove {
            remove(&mut object, pointer);
        }
        for (pointer, value) in &self.set {
            *value_at(&mut object, pointer) = value.clone();
        }
        if let Some(many) = &self.repeat {
            *value_at(&mut object, &many.at) = Value::Array(vec![many.value.clone(); many.times]);
        }
        if let Some(many) = &self.fill {
            let map = value_at(&mut object, &many.at);
            for number in 0..many.times {
                map[format!("key-{number}")] = many.value.clone();
            }
        }
        object
    }

    pub(crate) fn old_object(&self, base: &Value) -> Option<Value> {
        self.update_from.as_ref().map(|changes| {
            let mut object = base.clone();
            for (pointer, value) in changes {
                *value_at(&mut object, pointer) = value.clone();
            }
            object
        })
    }
}

fn value_at<'a>(object: &'a mut Value, pointer: &str) -> &'a mut Value {
    pointer.split('/').skip(1).fold(object, |current, name| match current {
        Value::Array(elements) => &mut elements[name.parse::<usize>().expect("an index")],
        _ => &mut current[name],
    })
}

fn remove(object: &mut Value, pointer: &str) {
    let (parent, name) = pointer.rsplit_once('/').expect("a pointer");
    value_at(object, parent)
        .as_object_mut()
        .and_then(|fields| fields.remove(name))
        .expect("something to remove");
}

pub(crate) fn tables() -> Vec<(&'static str, Table)> {
    TABLES
        .iter()
        .map(|(name, text)| {
            let table = serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("table {name}: {error}"));
            (*name, table)
        })
        .collect()
}
