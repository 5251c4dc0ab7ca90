//! Validation of ConfigMaps, Secrets and Events.

use serde_json::{Value, json};

use super::metadata::check_label_name;
use super::{Errors, check_immutable, text, too_long};
use crate::admission::json::{entries, integer, is_set, text as string};
use crate::field::FieldError;

const DATA_BYTES_MAX: usize = 1024 * 1024;
const IMMUTABLE: &str = "field is immutable when `immutable` is set";

/// The size that base64 data has after decoding.
fn decoded_length(encoded: &str) -> usize {
    encoded.trim_end_matches('=').len() * 3 / 4
}

pub(super) fn check_config_map(map: &Value, old: Option<&Value>, errors: &mut Errors) {
    if let Some(old) = old {
        check_immutable_data(map, old, &["data", "binaryData"], errors);
    }
    let mut size = 0;
    for (key, value) in entries(&map["data"]) {
        check_key(key, "data", errors);
        if is_set(&map["binaryData"][key]) {
            let why = "duplicate of key present in binaryData";
            errors.push(FieldError::invalid(format!("data[{key}]"), json!(key), why));
        }
        size += string(value).len();
    }
    for (key, value) in entries(&map["binaryData"]) {
        check_key(key, "binaryData", errors);
        size += decoded_length(string(value));
    }
    if size > DATA_BYTES_MAX {
        // Go prints a path that consists of one empty element as `[]`.
        errors.push(too_long("[]", DATA_BYTES_MAX));
    }
}

fn check_key(key: &str, path: &str, errors: &mut Errors) {
    for problem in text::config_key(key) {
        errors.push(FieldError::invalid(format!("{path}[{key}]"), json!(key), problem));
    }
}

fn check_immutable_data(new: &Value, old: &Value, keys: &[&str], errors: &mut Errors) {
    if old["immutable"] != true {
        return;
    }
    if new["immutable"] != true {
        errors.push(FieldError::forbidden("immutable", IMMUTABLE));
    }
    for key in keys {
        if new[*key] != old[*key] {
            errors.push(FieldError::forbidden(*key, IMMUTABLE));
        }
    }
}

pub(super) fn check_secret(secret: &Value, old: Option<&Value>, errors: &mut Errors) {
    if let Some(old) = old {
        check_immutable(&secret["type"], &old["type"], "type", errors);
        check_immutable_data(secret, old, &["data"], errors);
    }
    let mut size = 0;
    for (key, value) in entries(&secret["data"]) {
        check_key(key, "data", errors);
        size += decoded_length(string(value));
    }
    if size > DATA_BYTES_MAX {
        errors.push(too_long("data", DATA_BYTES_MAX));
    }
    let has = |key: &str| is_set(&secret["data"][key]);
    let mut need = |key: &str| errors.push(FieldError::required(format!("data[{key}]"), ""));
    match string(&secret["type"]) {
        "kubernetes.io/service-account-token" => {
            let key = "kubernetes.io/service-account.name";
            if string(&secret["metadata"]["annotations"][key]).is_empty() {
                errors.push(FieldError::required(format!("metadata.annotations[{key}]"), ""));
            }
        }
        "kubernetes.io/dockercfg" if !has(".dockercfg") => need(".dockercfg"),
        "kubernetes.io/dockerconfigjson" if !has(".dockerconfigjson") => need(".dockerconfigjson"),
        "kubernetes.io/basic-auth" if !has("username") && !has("password") => {
            need("username");
            need("password");
        }
        "kubernetes.io/ssh-auth" if string(&secret["data"]["ssh-privatekey"]).is_empty() => {
            need("ssh-privatekey")
        }
        "kubernetes.io/tls" => {
            for key in ["tls.crt", "tls.key"] {
                if !has(key) {
                    need(key);
                }
            }
        }
        _ => {}
    }
}

/// Validates an event. `is_core` states that it is a core `Event`; otherwise it belongs to `events.k8s.io`, which has
/// other field names.
pub(super) fn check_event(event: &Value, old: Option<&Value>, is_core: bool, errors: &mut Errors) {
    let object = &event[if is_core { "involvedObject" } else { "regarding" }];
    let namespace = string(&event["metadata"]["namespace"]);
    let of_object = string(&object["namespace"]);
    let has_time = is_set(&event["eventTime"]);
    let is_wrong = if has_time {
        of_object.is_empty() && !matches!(namespace, "default" | "kube-system")
    } else if of_object.is_empty() {
        !matches!(namespace, "" | "default")
    } else {
        namespace != of_object
    };
    if is_wrong {
        let why = "does not match event.namespace";
        errors.push(FieldError::invalid("involvedObject.namespace", json!(of_object), why));
    }
    if has_time {
        check_new_style(event, is_core, errors);
    }
    if is_core {
        return;
    }
    if let Some(old) = old {
        for (key, path) in [
            ("regarding", "involvedObject"),
            ("reason", "reason"),
            ("note", "message"),
            ("type", "type"),
            ("action", "action"),
        ] {
            check_immutable(&event[key], &old[key], path, errors);
        }
        return;
    }
    if !has_time {
        errors.push(FieldError::required("eventTime", ""));
    }
    let kind = string(&event["type"]);
    if !matches!(kind, "Normal" | "Warning") {
        errors.push(FieldError::invalid("type", json!(""), format!("has invalid value: {kind}")));
    }
    for (key, path) in
        [("deprecatedFirstTimestamp", "firstTimestamp"), ("deprecatedLastTimestamp", "lastTimestamp")]
    {
        if is_set(&event[key]) {
            errors.push(FieldError::invalid(path, json!(""), "needs to be unset"));
        }
    }
    if integer(&event["deprecatedCount"]).unwrap_or(0) != 0 {
        errors.push(FieldError::invalid("count", json!(""), "needs to be unset"));
    }
    let source = &event["deprecatedSource"];
    if !string(&source["component"]).is_empty() || !string(&source["host"]).is_empty() {
        errors.push(FieldError::invalid("source", json!(""), "needs to be unset"));
    }
}

fn check_new_style(event: &Value, is_core: bool, errors: &mut Errors) {
    let controller_key = if is_core { "reportingComponent" } else { "reportingController" };
    let controller = string(&event[controller_key]);
    if controller.is_empty() {
        errors.push(FieldError::required(controller_key, ""));
    }
    check_label_name(controller, controller_key, errors);
    let note_key = if is_core { "message" } else { "note" };
    for (key, path, is_needed, limit) in [
        ("reportingInstance", "reportingInstance", true, 128),
        ("action", "action", true, 128),
        ("reason", "reason", true, 128),
        (note_key, "message", false, 1024),
    ] {
        let value = string(&event[key]);
        if is_needed && value.is_empty() {
            errors.push(FieldError::required(path, ""));
        }
        if value.len() > limit {
            errors.push(FieldError::invalid(path, json!(""), format!("can have at most {limit} characters")));
        }
    }
}
