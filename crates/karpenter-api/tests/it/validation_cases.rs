//! Runs the cases of the tables in `cases/` with the embedded CRDs. `e2e/validation` sends the same cases to a real API
//! server.

#[path = "../cases/table.rs"]
mod table;

use std::fmt::Write as _;

use karpenter_api::validate;
use serde_json::Value;
use table::{Case, Expectation, tables};

/// How the actual result of a case differs from the expected one; `None` if it does not.
fn difference(case: &Case, base: &Value) -> Option<String> {
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

#[test]
fn every_case_has_the_expected_verdict() {
    let mut report = String::new();
    for (name, table) in tables() {
        for case in &table.cases {
            if let Some(difference) = difference(case, &table.base) {
                writeln!(report, "{name}: {}: {difference}", case.name).expect("writing to a string");
            }
        }
    }
    assert!(report.is_empty(), "{report}");
}

#[test]
fn every_error_contains_valid_values() {
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

/// Every CEL rule must be violated by a case; otherwise the rule could be deleted without a failing test.
#[test]
fn every_cel_rule_is_violated_by_a_case() {
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
            // Rules of list elements are reported with the element's index, which is removed before the comparison.
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
