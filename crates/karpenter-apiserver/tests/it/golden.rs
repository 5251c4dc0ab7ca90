//! Compares results with those of Kubernetes' own Go code for the same input; `tools/kinds/README.md` describes how
//! they are generated.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use karpenter_apiserver::apply::{ApplyRequest, apply, record_update};
use karpenter_apiserver::status::Failure;
use karpenter_apiserver::{builtin, patch, protobuf, strict};
use serde_json::{Value, json};

fn answers(part: &str) -> Vec<Value> {
    let all: Value = serde_json::from_str(include_str!("../golden/answers.json")).unwrap();
    let cases = all[part].as_array().unwrap().clone();
    assert!(cases.len() > 20, "{part}: {} cases", cases.len());
    cases
}

fn text<'value>(value: &'value Value, name: &str) -> &'value str {
    value[name].as_str().unwrap_or("")
}

fn kind_of(case: &Value) -> (&str, &str, &str) {
    let mut parts = text(case, "Kind").split('/');
    (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap())
}

/// Only in encoded form does Go distinguish integers from floats without a fraction.
fn assert_same(actual: &Value, expected: &Value, about: &str) {
    assert!(
        actual == expected,
        "{about}\n  actual: {actual}\nexpected: {expected}\n   diff: {:?}",
        difference("", actual, expected)
    );
}

fn difference(path: &str, actual: &Value, expected: &Value) -> Vec<String> {
    match (actual, expected) {
        (Value::Object(left), Value::Object(right)) => {
            let mut keys: Vec<&String> = left.keys().chain(right.keys()).collect();
            keys.sort();
            keys.dedup();
            keys.into_iter()
                .flat_map(|key| {
                    let missing = json!("(missing)");
                    let (left, right) =
                        (left.get(key).unwrap_or(&missing), right.get(key).unwrap_or(&missing));
                    difference(&format!("{path}.{key}"), left, right)
                })
                .collect()
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => left
            .iter()
            .zip(right)
            .enumerate()
            .flat_map(|(index, (left, right))| difference(&format!("{path}[{index}]"), left, right))
            .collect(),
        (left, right) if left == right => Vec::new(),
        (left, right) => vec![format!("{path}: {left} instead of {right}")],
    }
}

fn group_version_kind(object: &Value) -> (String, String, String) {
    let version = text(object, "apiVersion");
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    (group.to_string(), version.to_string(), text(object, "kind").to_string())
}

#[test]
fn round_trip_through_go_types() {
    for case in answers("round_trip") {
        let mut object = case["Object"].clone();
        let (group, version, kind) = group_version_kind(&object);
        builtin::round_trip(&mut object, &group, &version, &kind);
        assert_same(&object, &case["Answer"], &kind);
    }
}

#[test]
fn strategic_merge_patches() {
    for case in answers("strategic") {
        let (group, version, kind) = kind_of(&case);
        let shape = builtin::shape(group, version, kind).unwrap();
        let answer = patch::strategic_merge(&case["Current"], &case["Patch"], shape);
        let about = format!("{} to {}", case["Patch"], case["Current"]);
        match (answer, text(&case, "Error")) {
            (Ok(answer), "") => assert_same(&answer, &case["Answer"], &about),
            (Err(failure), error) if !error.is_empty() => {
                // Clients do not get the message of an error with code 422, so it is not compared.
                if failure.code != 422 {
                    assert_eq!(failure.message, error, "{about}");
                }
            }
            (answer, error) => panic!("{about}: {answer:?} instead of {error:?}"),
        }
    }
}

/// Removes times, and the order that depends on them, because they differ between runs.
fn without_times(mut object: Value) -> Value {
    if let Some(entries) = object.pointer_mut("/metadata/managedFields").and_then(Value::as_array_mut) {
        for entry in &mut *entries {
            entry.as_object_mut().unwrap().remove("time");
        }
        entries.sort_by_key(Value::to_string);
    }
    object
}

/// As on the Go side, defaults are not applied. The uid marks the object as existing.
fn run(case: &Value, operation: &Value, live: Option<&Value>) -> Result<Value, Box<Failure>> {
    let (group, version, kind) = kind_of(case);
    let shape = builtin::shape(group, version, kind).unwrap();
    let api_version = if group.is_empty() { version.to_string() } else { format!("{group}/{version}") };
    let now = jiff::Timestamp::from_second(1_700_000_000).unwrap();
    let (manager, subresource) = (text(operation, "Manager"), text(operation, "Subresource"));
    let mut new = if operation["Verb"] == "apply" {
        apply(ApplyRequest {
            live,
            applied: &operation["Object"],
            shape,
            manager,
            api_version: &api_version,
            subresource,
            force: operation["Force"] == true,
            now,
        })?
    } else {
        let mut new = operation["Object"].clone();
        builtin::round_trip(&mut new, group, version, kind);
        record_update(live, &mut new, shape, manager, &api_version, subresource, now);
        new
    };
    new["metadata"]["uid"] = json!("u");
    Ok(new)
}

#[test]
fn server_side_apply_and_ownership() {
    for case in answers("apply") {
        let mut live: Option<Value> = None;
        for (index, operation) in case["Operations"].as_array().unwrap().iter().enumerate() {
            let about = format!("{}, operation {index}", text(&case, "Name"));
            match run(&case, operation, live.as_ref()) {
                Ok(object) => {
                    assert_eq!("", text(operation, "Error"), "{about}");
                    let expected = without_times(operation["Answer"].clone());
                    assert_same(&without_times(object.clone()), &expected, &about);
                    live = Some(object);
                }
                Err(failure) => {
                    assert_eq!(failure.message, text(operation, "Error"), "{about}");
                    let mut causes: Vec<String> = failure
                        .causes
                        .iter()
                        .map(|cause| {
                            let field = cause.field.as_deref().unwrap_or("");
                            format!("{}|{}|{field}", cause.reason, cause.message)
                        })
                        .collect();
                    causes.sort();
                    assert_eq!(
                        json!(causes),
                        operation.get("Causes").cloned().unwrap_or(json!([])),
                        "{about}"
                    );
                }
            }
        }
    }
}

#[test]
fn protobuf_bodies() {
    for case in answers("round_trip") {
        let body = STANDARD.decode(text(&case, "Protobuf")).unwrap();
        assert!(protobuf::is_protobuf(&body));
        let object = protobuf::decode(&body).unwrap();
        let expected = case.get("FromProtobuf").unwrap_or(&case["Answer"]);
        assert_same(&object, expected, text(&case["Object"], "kind"));
        // A truncated body must be rejected or decoded into a part of the object; decoding must not panic.
        for length in (0..body.len()).step_by(7) {
            let _ = protobuf::decode(&body[..length]);
        }
    }
}

#[test]
fn strict_decoding() {
    for case in answers("strict") {
        let (group, version, kind) = kind_of(&case);
        let (body, expected) = (text(&case, "Body"), text(&case, "Error"));
        let object: Value = serde_json::from_str(body).unwrap();
        let problems = strict::body_problems(body.as_bytes(), group, version, kind);
        let error = strict::decode_error(&object, group, version, kind);
        if case["Strict"] == true {
            assert_eq!(strict::strict_error(&problems), expected, "{body}");
            assert_eq!(error, None, "{body}");
        } else if object.is_object() {
            assert_eq!(error.as_deref(), Some(expected), "{body}");
        }
    }
}

/// Decodes bodies that kubectl 1.32 sent, and compares them with the output of the same commands with `--dry-run=client
/// -o json`. For a token and an access review there is no dry run, so these are compared with the requested values.
#[test]
fn bodies_from_kubectl() {
    let cases: Vec<Value> = serde_json::from_str(include_str!("../golden/kubectl.json")).unwrap();
    assert!(cases.len() > 10);
    for case in cases {
        let mut object = protobuf::decode(&STANDARD.decode(text(&case, "Body")).unwrap()).unwrap();
        let mut expected = case["Object"].clone();
        let (group, version, kind) = group_version_kind(&expected);
        builtin::round_trip(&mut expected, &group, &version, &kind);
        // The namespace is in the path of the request, and only some commands repeat it in the body.
        object["metadata"].as_object_mut().unwrap().remove("namespace");
        expected["metadata"].as_object_mut().unwrap().remove("namespace");
        assert_same(&object, &expected, text(&case, "Command"));
    }
}
