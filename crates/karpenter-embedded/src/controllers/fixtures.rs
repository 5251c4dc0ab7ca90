//! Builds objects for tests from JSON, so that a test states only the fields that matter.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The current time in tests.
pub(crate) const NOW: &str = "2026-01-01T12:00:00Z";

pub(crate) fn at(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

pub(crate) fn now() -> Timestamp {
    at(NOW)
}

pub(crate) fn from<K: DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).expect("an object of the kind")
}

/// A pod with default metadata, changed by `patch`.
pub(crate) fn pod(name: &str, patch: Value) -> Arc<Pod> {
    let mut pod = json!({
        "metadata": {
            "name": name, "namespace": "default", "uid": format!("uid-{name}"),
            "creationTimestamp": "2026-01-01T11:00:00Z",
        },
        "spec": {"containers": [{"name": "main", "image": "main"}], "nodeName": "n1"},
        "status": {"phase": "Running", "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T11:30:00Z"},
        ]},
    });
    merge(&mut pod, &patch);
    Arc::new(from(pod))
}

/// Applies a JSON merge patch.
pub(crate) fn merge(target: &mut Value, patch: &Value) {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => {
            for (key, value) in patch {
                if value.is_null() {
                    target.remove(key);
                } else {
                    merge(target.entry(key.clone()).or_insert(Value::Null), value);
                }
            }
        }
        (target, patch) => *target = patch.clone(),
    }
}
