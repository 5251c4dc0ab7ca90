//! Validation of pod updates.

use serde_json::{Value, json};

use super::{Errors, check_immutable, metadata, pods, scheduling, text};
use crate::admission::json::{
    Object, child_mut, entries, integer, is_set, items, objects_mut, set_or_remove, text as string,
};
use crate::field::FieldError;

const UPDATABLE: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

pub(super) fn check(new: &Value, old: &Value, errors: &mut Errors) {
    pods::check_pod(new, true, errors);
    check_annotation_updates(new, old, errors);
    let (after, before) = (&new["spec"], &old["spec"]);
    for list in ["containers", "initContainers"] {
        if items(&after[list]).len() != items(&before[list]).len() {
            let why = "pod updates may not add or remove containers";
            errors.push(FieldError::forbidden(format!("spec.{list}"), why));
            return;
        }
        for (index, container) in items(&after[list]).iter().enumerate() {
            let image = string(&container["image"]);
            let own = format!("spec.{list}[{index}].image");
            if image.is_empty() {
                errors.push(FieldError::required(&own, ""));
            }
            if image.trim() != image {
                let why = "must not have leading or trailing whitespace";
                errors.push(FieldError::invalid(own, json!(image), why));
            }
        }
    }
    if !check_deadline(&after["activeDeadlineSeconds"], &before["activeDeadlineSeconds"], errors) {
        return;
    }
    check_added_tolerations(after, before, errors);
    check_removed_gates(after, before, errors);
    if after != before {
        check_other_fields(after, before, errors);
    }
}

/// Checks `activeDeadlineSeconds`. Returns false if the remaining checks must be skipped.
fn check_deadline(after: &Value, before: &Value, errors: &mut Errors) -> bool {
    let path = "spec.activeDeadlineSeconds";
    match (integer(after), integer(before)) {
        (Some(seconds), _) if !(0..=i64::from(i32::MAX)).contains(&seconds) => {
            let why = "must be between 0 and 2147483647, inclusive";
            errors.push(FieldError::invalid(path, json!(seconds), why));
            false
        }
        (Some(seconds), Some(previous)) if previous < seconds => {
            let why = "must be less than or equal to previous value";
            errors.push(FieldError::invalid(path, json!(seconds), why));
            false
        }
        (None, Some(_)) => {
            let why = "must not update from a positive integer to nil value";
            errors.push(FieldError::invalid(path, Value::Null, why));
            true
        }
        _ => true,
    }
}

fn check_added_tolerations(after: &Value, before: &Value, errors: &mut Errors) {
    let path = "spec.tolerations";
    let without_seconds = |toleration: &Value| {
        let mut bare = toleration.clone();
        if let Some(map) = bare.as_object_mut() {
            map.remove("tolerationSeconds");
        }
        bare
    };
    let kept = |old: &Value| {
        items(&after["tolerations"]).iter().any(|new| without_seconds(new) == without_seconds(old))
    };
    if !items(&before["tolerations"]).iter().all(kept) {
        let why = "existing toleration can not be modified except its tolerationSeconds";
        errors.push(FieldError::forbidden(path, why));
        return;
    }
    scheduling::check_tolerations(&after["tolerations"], path, errors);
}

fn check_removed_gates(after: &Value, before: &Value, errors: &mut Errors) {
    for (index, gate) in items(&after["schedulingGates"]).iter().enumerate() {
        let name = &gate["name"];
        if !items(&before["schedulingGates"]).iter().any(|old| old["name"] == *name) {
            let why = format!("only deletion is allowed, but found new scheduling gate '{}'", string(name));
            errors.push(FieldError::forbidden(format!("spec.schedulingGates[{index}].name"), why));
        }
    }
}

/// Checks that no other field changes: resets the fields that may change, then compares the pods.
fn check_other_fields(after: &Value, before: &Value, errors: &mut Errors) {
    let Value::Object(mut munged) = after.clone() else { return };
    for list in ["containers", "initContainers"] {
        for (index, container) in objects_mut(&mut munged, list).enumerate() {
            set_or_remove(container, "image", before[list][index].get("image").cloned());
        }
    }
    for key in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        set_or_remove(&mut munged, key, before.get(key).cloned());
    }
    let grace = "terminationGracePeriodSeconds";
    if integer(&before[grace]).is_some_and(|seconds| seconds < 0) && munged.get(grace) == Some(&json!(1)) {
        set_or_remove(&mut munged, grace, before.get(grace).cloned());
    }
    if !items(&before["schedulingGates"]).is_empty() {
        check_gated(&mut munged, before, errors);
    }
    if Value::Object(munged) != *before {
        errors.push(FieldError::forbidden("spec", format!("{UPDATABLE}\n")));
    }
}

/// Checks a pod with scheduling gates: its node selector and node affinity may be narrowed.
fn check_gated(munged: &mut Object, before: &Value, errors: &mut Errors) {
    let selector = munged.get("nodeSelector").cloned().unwrap_or_default();
    if selector != before["nodeSelector"] {
        if entries(&before["nodeSelector"]).any(|(key, value)| selector.get(key) != Some(value)) {
            let why = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
            errors.push(FieldError::invalid("spec.nodeSelector", selector, why));
        }
        set_or_remove(munged, "nodeSelector", before.get("nodeSelector").cloned());
    }
    let old = &before["affinity"]["nodeAffinity"];
    let new = munged.get("affinity").map(|affinity| affinity["nodeAffinity"].clone()).unwrap_or_default();
    if new == *old {
        return;
    }
    check_affinity_additions(&new, old, errors);
    match child_mut(munged, "affinity") {
        None => {
            if is_set(old) {
                munged.insert("affinity".into(), json!({"nodeAffinity": old}));
            }
        }
        Some(affinity) => {
            set_or_remove(affinity, "nodeAffinity", Some(old.clone()));
            if affinity.is_empty() && !is_set(&before["affinity"]) {
                munged.remove("affinity");
            }
        }
    }
}

fn check_affinity_additions(new: &Value, old: &Value, errors: &mut Errors) {
    let path = format!("spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms");
    let (old_terms, new_terms) =
        (items(&old[REQUIRED]["nodeSelectorTerms"]), &new[REQUIRED]["nodeSelectorTerms"]);
    if old_terms.is_empty() {
        return;
    }
    if old_terms.len() != items(new_terms).len() {
        let why = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        errors.push(FieldError::invalid(path, new_terms.clone(), why));
        return;
    }
    for (index, (before, after)) in old_terms.iter().zip(items(new_terms)).enumerate() {
        let is_empty = |term: &Value| {
            items(&term["matchExpressions"]).is_empty() && items(&term["matchFields"]).is_empty()
        };
        let starts = |key: &str| items(&after[key]).starts_with(items(&before[key]));
        // An empty term matches nothing, so an expression added to it would make the term match more.
        let is_valid = if is_empty(before) {
            is_empty(after)
        } else {
            starts("matchExpressions") && starts("matchFields")
        };
        if !is_valid {
            let why = "only additions are allowed (no mutations or deletions)";
            errors.push(FieldError::invalid(format!("{path}[{index}]"), after.clone(), why));
        }
    }
}

fn check_annotation_updates(new: &Value, old: &Value, errors: &mut Errors) {
    let key = "kubernetes.io/config.mirror";
    let (after, before) = (&new["metadata"]["annotations"][key], &old["metadata"]["annotations"][key]);
    let path = format!("metadata.annotations[{key}]");
    if is_set(before) && after != before {
        errors.push(FieldError::forbidden(path, "may not remove or update mirror pod annotation"));
    } else if is_set(after) && !is_set(before) {
        errors.push(FieldError::forbidden(path, "may not add mirror pod annotation"));
    }
    pods::check_pod_annotations(
        &new["metadata"]["annotations"],
        &new["spec"],
        "metadata.annotations",
        errors,
    );
}

pub(super) fn check_status(new: &Value, old: &Value, errors: &mut Errors) {
    check_annotation_updates(new, old, errors);
    let (after, before) = (&new["status"], &old["status"]);
    for (index, condition) in items(&after["conditions"]).iter().enumerate() {
        let kind = string(&condition["type"]);
        let is_system = matches!(kind, "PodScheduled" | "Ready" | "Initialized");
        if !is_system {
            let own = format!("status.conditions[{index}].Type");
            metadata::check_label_name(kind, &own, errors);
        }
    }
    let nominated = string(&after["nominatedNodeName"]);
    if after["nominatedNodeName"] != before["nominatedNodeName"] && !nominated.is_empty() {
        for problem in text::subdomain(nominated) {
            errors.push(FieldError::invalid("status.nominatedNodeName", json!(nominated), problem));
        }
        if !string(&old["spec"]["nodeName"]).is_empty() {
            let why = "may not be set on pods that are already bound to a node";
            errors.push(FieldError::forbidden("status.nominatedNodeName", why));
        }
    }
    check_immutable(&after["qosClass"], &before["qosClass"], "status.qosClass", errors);
    let policy = string(&old["spec"]["restartPolicy"]);
    if policy == "Always" {
        return;
    }
    for (index, status) in items(&before["containerStatuses"]).iter().enumerate() {
        let ended = &status["state"]["terminated"];
        let may_restart = policy == "OnFailure" && ended["exitCode"] != 0;
        if !is_set(ended) || may_restart {
            continue;
        }
        let runs_again = items(&after["containerStatuses"])
            .iter()
            .any(|now| now["name"] == status["name"] && !is_set(&now["state"]["terminated"]));
        if runs_again {
            let why = "may not be transitioned to non-terminated state";
            errors.push(FieldError::forbidden(format!("status.containerStatuses[{index}].state"), why));
        }
    }
}

pub(super) fn check_ephemeral_containers(new: &Value, old: &Value, errors: &mut Errors) {
    pods::check_pod(new, true, errors);
    if is_set(&old["metadata"]["annotations"]["kubernetes.io/config.mirror"]) {
        errors.push(FieldError::forbidden("[]", "static pods do not support ephemeral containers"));
        return;
    }
    for container in items(&old["spec"]["ephemeralContainers"]) {
        let name = string(&container["name"]);
        let now = items(&new["spec"]["ephemeralContainers"]).iter().find(|other| other["name"] == name);
        let verb = match now {
            None => "removed",
            Some(now) if now != container => "changed",
            Some(_) => continue,
        };
        let why = format!("existing ephemeral containers \"{name}\" may not be {verb}\n");
        errors.push(FieldError::forbidden("spec.ephemeralContainers", why));
    }
}
