//! Converts objects between the version in which they are stored and the version or group in which they are served.

use serde_json::{Map, Value, json};

use crate::builtin;
use crate::registry::{Conversion, Resource};

/// Converts an object from the stored version to the version of `served`.
pub fn from_stored(served: &Resource, mut object: Value) -> Value {
    match served.conversion {
        Conversion::None => {}
        Conversion::ApiVersion => object["apiVersion"] = json!(served.api_version()),
        Conversion::Event => {
            rename(&mut object, EVENT_FIELDS);
            if let Some(fields) = object.as_object_mut() {
                fields.retain(|name, value| {
                    !matches!(name.as_str(), "reportingController" | "reportingInstance") || value != ""
                });
            }
            object["apiVersion"] = json!(served.api_version());
        }
        Conversion::Autoscaler => {
            autoscaler_to_v1(&mut object, &served.api_version());
            // The fields that are left, unlike the removed ones, are written even if they are zero.
            builtin::round_trip(&mut object, &served.group, &served.version, &served.kind);
        }
    }
    object
}

/// Converts an object from the version of `served` to `stored_version`, the version in which it is stored.
pub fn to_stored(served: &Resource, mut object: Value, stored_version: &str) -> Value {
    match served.conversion {
        Conversion::None => {}
        Conversion::ApiVersion => object["apiVersion"] = json!(stored_version),
        Conversion::Event => {
            let reversed: Vec<(&str, &str)> = EVENT_FIELDS.iter().map(|(from, to)| (*to, *from)).collect();
            rename(&mut object, &reversed);
            object["apiVersion"] = json!(stored_version);
        }
        Conversion::Autoscaler => autoscaler_to_v2(&mut object, stored_version),
    }
    object
}

/// Fields whose name in core Events (first) differs from their name in Events of `events.k8s.io` (second).
const EVENT_FIELDS: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

fn rename(object: &mut Value, names: &[(&str, &str)]) {
    let Some(fields) = object.as_object_mut() else { return };
    let moved: Vec<(&str, Value)> =
        names.iter().filter_map(|(from, to)| fields.remove(*from).map(|value| (*to, value))).collect();
    for (name, value) in moved {
        fields.insert(name.into(), value);
    }
}

fn autoscaler_to_v1(object: &mut Value, version: &str) {
    object["apiVersion"] = json!(version);
    for (part, metrics, field, value) in [
        ("spec", "metrics", "targetCPUUtilizationPercentage", "/resource/target/averageUtilization"),
        (
            "status",
            "currentMetrics",
            "currentCPUUtilizationPercentage",
            "/resource/current/averageUtilization",
        ),
    ] {
        let Some(fields) = object.get_mut(part).and_then(Value::as_object_mut) else { continue };
        let removed = fields.remove(metrics);
        let cpu = removed
            .as_ref()
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .find(|metric| metric["resource"]["name"] == "cpu")
            .and_then(|metric| metric.pointer(value))
            .cloned();
        if let Some(cpu) = cpu {
            fields.insert(field.into(), cpu);
        }
    }
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("behavior");
    }
}

fn autoscaler_to_v2(object: &mut Value, version: &str) {
    object["apiVersion"] = json!(version);
    let move_cpu = |fields: &mut Map<String, Value>, from: &str, to: &str, target: fn(Value) -> Value| {
        if let Some(percent) = fields.remove(from) {
            fields.insert(to.into(), json!([{"type": "Resource", "resource": target(percent)}]));
        }
    };
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        move_cpu(
            spec,
            "targetCPUUtilizationPercentage",
            "metrics",
            |percent| json!({"name": "cpu", "target": {"type": "Utilization", "averageUtilization": percent}}),
        );
    }
    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
        move_cpu(
            status,
            "currentCPUUtilizationPercentage",
            "currentMetrics",
            |percent| json!({"name": "cpu", "current": {"averageUtilization": percent}}),
        );
    }
}
