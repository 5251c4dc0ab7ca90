//! Default values and the status of a CustomResourceDefinition.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::clock::rfc3339_seconds;

/// Sets missing names and the missing conversion strategy to their defaults.
pub fn default_definition(crd: &mut Value) {
    let Some(spec) = crd.get_mut("spec").and_then(Value::as_object_mut) else { return };
    if let Some(names) = spec.get_mut("names").and_then(Value::as_object_mut) {
        let kind = names.get("kind").and_then(Value::as_str).unwrap_or_default().to_string();
        let is_missing = |names: &Map<String, Value>, name: &str| {
            names.get(name).and_then(Value::as_str).unwrap_or_default().is_empty()
        };
        if is_missing(names, "singular") && !kind.is_empty() {
            names.insert("singular".into(), Value::from(kind.to_lowercase()));
        }
        if is_missing(names, "listKind") && !kind.is_empty() {
            names.insert("listKind".into(), Value::from(format!("{kind}List")));
        }
    }
    let conversion = spec.entry("conversion").or_insert(Value::Null);
    if conversion.is_null() {
        *conversion = json!({"strategy": "None"});
    }
}

/// Sets the status of a CRD: names accepted, established, and the stored versions. Conditions that were true before
/// keep their times.
pub fn established_status(crd: &mut Value, now: Timestamp) {
    let accepted = accepted_names(crd);
    let mut stored: Vec<Value> =
        crd.pointer("/status/storedVersions").and_then(Value::as_array).cloned().unwrap_or_default();
    let storage = crd.pointer("/spec/versions").and_then(Value::as_array).and_then(|versions| {
        let storage = versions.iter().find(|version| version["storage"] == json!(true))?;
        storage.get("name").cloned()
    });
    if let Some(storage) = storage.filter(|storage| !stored.contains(storage)) {
        stored.push(storage);
    }
    let mut conditions: Vec<Value> =
        crd.pointer("/status/conditions").and_then(Value::as_array).cloned().unwrap_or_default();
    for (name, reason, message) in [
        ("NamesAccepted", "NoConflicts", "no conflicts found"),
        ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
    ] {
        let known =
            conditions.iter().any(|condition| condition["type"] == name && condition["status"] == "True");
        if !known {
            conditions.retain(|condition| condition["type"] != name);
            conditions.push(json!({
                "type": name, "status": "True", "reason": reason, "message": message,
                "lastTransitionTime": rfc3339_seconds(now),
            }));
        }
    }
    if let Some(crd) = crd.as_object_mut() {
        let status = json!({"acceptedNames": accepted, "conditions": conditions, "storedVersions": stored});
        crd.insert("status".into(), status);
    }
}

fn accepted_names(crd: &Value) -> Value {
    let mut names = crd.pointer("/spec/names").and_then(Value::as_object).cloned().unwrap_or_default();
    names.retain(|_, value| !value.is_null() && value.as_array().is_none_or(|list| !list.is_empty()));
    Value::Object(names)
}
