//! Functions that set status conditions.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::json::{Object, items};
use crate::clock::rfc3339_seconds;

/// Sets a condition of a pod. Its transition time changes only if its status changes.
pub(crate) fn set_pod_condition(
    status: &mut Object,
    kind: &str,
    value: &str,
    reason: &str,
    message: &str,
    now: Timestamp,
) {
    let mut condition = json!({"type": kind, "status": value, "lastProbeTime": null,
        "lastTransitionTime": rfc3339_seconds(now)});
    if !reason.is_empty() {
        condition["reason"] = json!(reason);
    }
    if !message.is_empty() {
        condition["message"] = json!(message);
    }
    put(status, kind, value, condition);
}

/// Sets a condition of type `metav1.Condition`, with an empty message.
pub(crate) fn set_condition(
    status: &mut Object,
    kind: &str,
    value: &str,
    reason: &str,
    generation: i64,
    now: Timestamp,
) {
    let mut condition = json!({"type": kind, "status": value, "reason": reason, "message": "",
        "lastTransitionTime": rfc3339_seconds(now)});
    if generation != 0 {
        condition["observedGeneration"] = json!(generation);
    }
    put(status, kind, value, condition);
}

fn put(status: &mut Object, kind: &str, value: &str, mut condition: Value) {
    let conditions = status.entry("conditions").or_insert_with(|| json!([]));
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Some(list) = conditions.as_array_mut() else { return };
    match list.iter_mut().find(|existing| existing["type"] == kind) {
        Some(existing) => {
            if existing["status"] == value {
                condition["lastTransitionTime"] = existing["lastTransitionTime"].clone();
            }
            *existing = condition;
        }
        None => list.push(condition),
    }
}

pub(crate) fn find<'a>(status: &'a Value, kind: &str) -> Option<&'a Value> {
    items(&status["conditions"]).iter().find(|condition| condition["type"] == kind)
}
