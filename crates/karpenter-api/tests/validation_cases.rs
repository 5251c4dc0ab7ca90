//! Runs the accept/reject tables in `cases/` against the embedded CRDs. The tables are data, so that the same
//! cases can be sent to a real API server: build the object as `Case::object` does, send it, compare the
//! verdict.

use std::fmt::Write as _;

use karpenter_api::validate;
use serde::Deserialize;
use serde_json::{Map, Value};

const TABLES: [(&str, &str); 6] = [
    ("nodepool", include_str!("cases/nodepool.yaml")),
    ("nodeclaim", include_str!("cases/nodeclaim.yaml")),
    ("nodeoverlay", include_str!("cases/nodeoverlay.yaml")),
    ("ec2nodeclass", include_str!("cases/ec2nodeclass.yaml")),
    ("kwoknodeclass", include_str!("cases/kwoknodeclass.yaml")),
    ("capacitybuffer", include_str!("cases/capacitybuffer.yaml")),
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    /// An acceptable object that every case starts from.
    base: Value,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    /// JSON pointers to remove, first.
    #[serde(default)]
    remove: Vec<String>,
    /// JSON pointers to set, second. Missing objects on the way are created.
    #[serde(default)]
    set: Map<String, Value>,
    /// A list of equal elements to set, third.
    repeat: Option<Many>,
    /// A map of that many keys with equal values to add to, third.
    fill: Option<Many>,
    /// Makes the case an update: the stored object is the base with these pointers set.
    update_from: Option<Map<String, Value>>,
    expect: Expectation,
    /// Where one of the errors must be.
    path: Option<String>,
    /// Text that the `rule: message` of that error must contain.
    contains: Option<String>,
    /// Pointers into the stored object and what must be there.
    #[serde(default)]
    defaulted: Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Many {
    at: String,
    value: Value,
    times: usize,
}

#[derive(Deserialize, PartialEq, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum Expectation {
    Accept,
    Reject,
}

impl Case {
    fn object(&self, base: &Value) -> Value {
        let mut object = base.clone();
        for pointer in &self.remove {
            remove(&mut object, pointer);
        }
        for (pointer, value) in &self.set {
            *place(&mut object, pointer) = value.clone();
        }
        if let Some(many) = &self.repeat {
            *place(&mut object, &many.at) = Value::Array(vec![many.value.clone(); many.times]);
        }
        if let Some(many) = &self.fill {
            let map = place(&mut object, &many.at);
            for number in 0..many.times {
                map[format!("key-{number}")] = many.value.clone();
            }
        }
        object
    }

    fn old_object(&self, base: &Value) -> Option<Value> {
        self.update_from.as_ref().map(|changes| {
            let mut object = base.clone();
            for (pointer, value) in changes {
                *place(&mut object, pointer) = value.clone();
            }
            object
        })
    }
}

fn place<'a>(object: &'a mut Value, pointer: &str) -> &'a mut Value {
    pointer.split('/').skip(1).fold(object, |current, name| match current {
        Value::Array(elements) => &mut elements[name.parse::<usize>().expect("an index")],
        _ => &mut current[name],
    })
}

fn remove(object: &mut Value, pointer: &str) {
    let (parent, name) = pointer.rsplit_once('/').expect("a pointer");
    place(object, parent)
        .as_object_mut()
        .and_then(|fields| fields.remove(name))
        .expect("something to remove");
}

/// What is wrong with the outcome of a case, if anything.
fn complaint(case: &Case, base: &Value) -> Option<String> {
    let object = case.object(base);
    match (validate::admit(&object, case.old_object(base).as_ref()), case.expect) {
        (Ok(stored), Expectation::Accept) => case.defaulted.iter().find_map(|(pointer, expected)| {
            let actual = stored.pointer(pointer);
            (actual != Some(expected)).then(|| format!("{pointer} is {actual:?}, expected {expected}"))
        }),
        (Ok(_), Expectation::Reject) => Some("was accepted".to_string()),
        (Err(errors), Expectation::Accept) => Some(format!("was rejected: {errors:#?}")),
        (Err(errors), Expectation::Reject) => {
            let path = case.path.as_deref().expect("a rejected case names its path");
            let text = case.contains.as_deref().expect("a rejected case names its message");
            let found = errors.iter().any(|error| {
                error.path == path && format!("{}: {}", error.rule, error.message).contains(text)
            });
            (!found).then(|| format!("no error at {path} with {text:?} in {errors:#?}"))
        }
    }
}

fn tables() -> Vec<(&'static str, Table)> {
    TABLES
        .iter()
        .map(|(name, text)| {
            let table = serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("table {name}: {error}"));
            (*name, table)
        })
        .collect()
}

#[test]
fn every_case_has_the_expected_verdict() {
    let mut report = String::new();
    for (name, table) in tables() {
        for case in &table.cases {
            if let Some(complaint) = complaint(case, &table.base) {
                writeln!(report, "{name}: {}: {complaint}", case.name).expect("writing to a string");
            }
        }
    }
    assert!(report.is_empty(), "{report}");
}

#[test]
fn every_rejected_error_says_what_would_be_valid() {
    let mut report = String::new();
    for (name, table) in tables() {
        for case in table.cases.iter().filter(|case| case.expect == Expectation::Reject) {
            let errors = validate::admit(&case.object(&table.base), case.old_object(&table.base).as_ref())
                .expect_err("a rejected case");
            for error in errors {
                if error.valid.is_none() || error.message.is_empty() || error.message.ends_with('.') {
                    writeln!(report, "{name}: {}: {error:?}", case.name).expect("writing to a string");
                }
            }
        }
    }
    assert!(report.is_empty(), "{report}");
}

/// A rule without a case that breaks it could be deleted unnoticed.
#[test]
fn every_cel_rule_is_broken_by_some_case() {
    let mut broken = std::collections::BTreeSet::new();
    for (_, table) in tables() {
        for case in &table.cases {
            let object = case.object(&table.base);
            let kind = object["kind"].as_str().unwrap_or_default().to_string();
            if let Err(errors) = validate::admit(&object, case.old_object(&table.base).as_ref()) {
                for error in errors.iter().filter(|error| error.rule == karpenter_api::error::Rule::Cel) {
                    broken.insert((kind.clone(), error.path.clone(), error.message.clone()));
                }
            }
        }
    }
    let mut missing = Vec::new();
    for crd in karpenter_api::crds::all() {
        let document: Value = serde_saphyr::from_str(crd.yaml).expect("an embedded CRD");
        let mut messages = Vec::new();
        collect_messages(&document["spec"]["versions"][0]["schema"]["openAPIV3Schema"], "", &mut messages);
        for (path, message) in messages {
            // Rules of list elements are reported at an index; compare without indices.
            let is_broken = broken.iter().any(|(kind, broken_path, broken_message)| {
                kind == crd.kind && without_indices(broken_path) == path && *broken_message == message
            });
            if !is_broken {
                missing.push(format!("{} {path}: {message}", crd.kind));
            }
        }
    }
    assert!(missing.is_empty(), "rules that no case breaks: {missing:#?}");
}

fn without_indices(path: &str) -> String {
    path.split('.').map(|part| part.split('[').next().unwrap_or_default()).collect::<Vec<_>>().join(".")
}

fn collect_messages(schema: &Value, path: &str, messages: &mut Vec<(String, String)>) {
    for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
        messages.push((path.to_string(), rule["message"].as_str().unwrap_or_default().to_string()));
    }
    for (name, child) in schema["properties"].as_object().into_iter().flatten() {
        let child_path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        collect_messages(child, &child_path, messages);
    }
    if schema["items"].is_object() {
        collect_messages(&schema["items"], path, messages);
    }
}
