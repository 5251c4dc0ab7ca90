//! Validation of the status of workloads.

use serde_json::{Value, json};

use crate::admission::json::integer;
use crate::admission::validation::{Errors, check_nonnegative};
use crate::field::FieldError;

pub(in crate::admission::validation) fn check(
    group: &str,
    kind: &str,
    new: &Value,
    old: &Value,
    errors: &mut Errors,
) {
    let status = &new["status"];
    let counts: &[&str] = match (group, kind) {
        ("apps", "Deployment") => &[
            "observedGeneration",
            "replicas",
            "updatedReplicas",
            "readyReplicas",
            "availableReplicas",
            "unavailableReplicas",
            "terminatingReplicas",
            "collisionCount",
        ],
        ("apps", "ReplicaSet") | ("", "ReplicationController") => &[
            "replicas",
            "fullyLabeledReplicas",
            "readyReplicas",
            "availableReplicas",
            "observedGeneration",
            "terminatingReplicas",
        ],
        ("apps", "StatefulSet") => &[
            "replicas",
            "readyReplicas",
            "currentReplicas",
            "updatedReplicas",
            "availableReplicas",
            "observedGeneration",
            "collisionCount",
        ],
        ("apps", "DaemonSet") => &[
            "currentNumberScheduled",
            "numberMisscheduled",
            "desiredNumberScheduled",
            "numberReady",
            "observedGeneration",
            "updatedNumberScheduled",
            "numberAvailable",
            "numberUnavailable",
            "collisionCount",
        ],
        ("policy", "PodDisruptionBudget") => {
            &["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"]
        }
        _ => return,
    };
    for key in counts {
        check_nonnegative(&status[*key], &format!("status.{key}"), errors);
    }
    if status_has_replicas(kind) {
        check_parts(kind, status, errors);
    }
    let collisions = |object: &Value| integer(&object["status"]["collisionCount"]).unwrap_or(0);
    if counts.contains(&"collisionCount") && collisions(new) < collisions(old) {
        let path = "status.collisionCount";
        errors.push(FieldError::invalid(path, json!(collisions(new)), "cannot be decremented"));
    }
}

fn status_has_replicas(kind: &str) -> bool {
    matches!(kind, "Deployment" | "ReplicaSet" | "StatefulSet" | "ReplicationController")
}

/// Checks that no count is larger than the total, and that there are no more available pods than ready pods.
fn check_parts(kind: &str, status: &Value, errors: &mut Errors) {
    let count = |key: &str| integer(&status[key]).unwrap_or(0);
    let parts: &[&str] = match kind {
        "Deployment" => &["updatedReplicas", "readyReplicas", "availableReplicas"],
        "StatefulSet" => &["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"],
        _ => &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"],
    };
    for part in parts {
        if count(part) > count("replicas") {
            let why = "cannot be greater than status.replicas";
            errors.push(FieldError::invalid(format!("status.{part}"), json!(count(part)), why));
        }
    }
    if count("availableReplicas") > count("readyReplicas") {
        let of = if kind == "StatefulSet" { "status.readyReplicas" } else { "readyReplicas" };
        let why = format!("cannot be greater than {of}");
        errors.push(FieldError::invalid("status.availableReplicas", json!(count("availableReplicas")), why));
    }
}
