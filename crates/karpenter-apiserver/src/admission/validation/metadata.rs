//! Validation of object metadata: names, labels, annotations, owner references, finalizers and immutable fields.
//!
//! Upstream: k8s.io/apimachinery/pkg/api/validation/objectmeta.go

use serde_json::{Value, json};

use super::{Errors, check_immutable, check_nonnegative, text, too_long};
use crate::admission::json::{entries, is_set, items, text as string};
use crate::field::FieldError;

const ANNOTATIONS_BYTES_MAX: usize = 256 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NameRule {
    Subdomain,
    Label,
    Label1035,
    /// The name may be any string that is valid in a URL path.
    PathSegment,
}

impl NameRule {
    fn problems(self, name: &str, is_prefix: bool) -> Vec<String> {
        // A `generateName` prefix may end with a dash, because a suffix is appended.
        let masked = match name.strip_suffix('-') {
            Some(rest) if is_prefix && !rest.is_empty() => {
                let mut kept: String = rest.to_string();
                kept.pop();
                kept + "a"
            }
            _ => name.to_string(),
        };
        match self {
            Self::Subdomain => text::subdomain(&masked),
            Self::Label => text::label(&masked),
            Self::Label1035 => text::label_1035(&masked),
            Self::PathSegment => text::path_segment(name, is_prefix),
        }
    }
}

pub(super) fn check(object: &Value, rule: NameRule, namespaced: bool, errors: &mut Errors) {
    let metadata = &object["metadata"];
    let prefix = string(&metadata["generateName"]);
    if !prefix.is_empty() {
        for problem in rule.problems(prefix, true) {
            errors.push(FieldError::invalid("metadata.generateName", json!(prefix), problem));
        }
    }
    let name = string(&metadata["name"]);
    if name.is_empty() {
        errors.push(FieldError::required("metadata.name", "name or generateName is required"));
    } else {
        for problem in rule.problems(name, false) {
            errors.push(FieldError::invalid("metadata.name", json!(name), problem));
        }
    }
    let namespace = string(&metadata["namespace"]);
    match (namespaced, namespace.is_empty()) {
        (true, true) => errors.push(FieldError::required("metadata.namespace", "")),
        (true, false) => {
            for problem in text::label(namespace) {
                errors.push(FieldError::invalid("metadata.namespace", json!(namespace), problem));
            }
        }
        (false, false) => {
            errors.push(FieldError::forbidden("metadata.namespace", "not allowed on this type"))
        }
        (false, true) => {}
    }
    check_nonnegative(&metadata["generation"], "metadata.generation", errors);
    check_labels(&metadata["labels"], "metadata.labels", errors);
    check_annotations(&metadata["annotations"], "metadata.annotations", errors);
    check_owners(&metadata["ownerReferences"], errors);
    check_finalizers(&metadata["finalizers"], errors);
}

/// The error if the resource version is missing. For kinds that allow unconditional updates, it was set from the stored
/// object before.
pub(super) fn missing_version(object: &Value) -> Option<FieldError> {
    string(&object["metadata"]["resourceVersion"])
        .is_empty()
        .then(|| FieldError::invalid("metadata.resourceVersion", json!(0), "must be specified for an update"))
}

pub(super) fn check_update(new: &Value, old: &Value, errors: &mut Errors) {
    let (after, before) = (&new["metadata"], &old["metadata"]);
    if is_set(&before["deletionTimestamp"]) {
        let mut added: Vec<&str> = items(&after["finalizers"])
            .iter()
            .filter(|finalizer| !items(&before["finalizers"]).contains(finalizer))
            .map(string)
            .collect();
        added.sort_unstable();
        added.dedup();
        if !added.is_empty() {
            let quoted: Vec<String> = added.iter().map(|finalizer| format!("\"{finalizer}\"")).collect();
            let why = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                quoted.join(", ")
            );
            errors.push(FieldError::forbidden("metadata.finalizers", why));
        }
    }
    for key in
        ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"]
    {
        check_immutable(&after[key], &before[key], &format!("metadata.{key}"), errors);
    }
    check_labels(&after["labels"], "metadata.labels", errors);
    check_annotations(&after["annotations"], "metadata.annotations", errors);
    check_owners(&after["ownerReferences"], errors);
}

pub(super) fn check_labels(labels: &Value, path: &str, errors: &mut Errors) {
    for (key, value) in entries(labels) {
        check_label_name(key, path, errors);
        let value = string(value);
        for problem in text::label_value(value) {
            errors.push(FieldError::invalid(path, json!(value), problem));
        }
    }
}

pub(super) fn check_label_name(key: &str, path: &str, errors: &mut Errors) {
    for problem in text::qualified_name(key) {
        errors.push(FieldError::invalid(path, json!(key), problem));
    }
}

pub(super) fn check_annotations(annotations: &Value, path: &str, errors: &mut Errors) {
    let mut size = 0;
    for (key, value) in entries(annotations) {
        size += key.len() + string(value).len();
        for problem in text::qualified_name(&key.to_lowercase()) {
            errors.push(FieldError::invalid(path, json!(key), problem));
        }
    }
    if size > ANNOTATIONS_BYTES_MAX {
        errors.push(too_long(path, ANNOTATIONS_BYTES_MAX));
    }
}

fn check_owners(owners: &Value, errors: &mut Errors) {
    let path = "metadata.ownerReferences";
    let mut controller: Option<String> = None;
    for owner in items(owners) {
        let version = string(&owner["apiVersion"]);
        if version.is_empty() || version.ends_with('/') {
            let why = "version must not be empty";
            errors.push(FieldError::invalid(format!("{path}.apiVersion"), json!(version), why));
        }
        for key in ["kind", "name", "uid"] {
            if string(&owner[key]).is_empty() {
                errors.push(FieldError::invalid(format!("{path}.{key}"), json!(""), "must not be empty"));
            }
        }
        if version == "v1" && owner["kind"] == "Event" {
            let why = "/v1, Kind=Event is disallowed from being an owner";
            errors.push(FieldError::invalid(path, owner.clone(), why));
        }
        if owner["controller"] == true {
            let current = format!("{}/{}", string(&owner["kind"]), string(&owner["name"]));
            match &controller {
                Some(first) => {
                    let why = format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {current}"
                    );
                    let keys = ["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"];
                    let shown: Vec<String> =
                        items(owners).iter().map(|owner| in_field_order(owner, &keys)).collect();
                    let mut error = FieldError::invalid(path, owners.clone(), why);
                    error.value_text = Some(format!("[{}]", shown.join(",")));
                    errors.push(error);
                }
                None => controller = Some(current),
            }
        }
    }
}

fn check_finalizers(finalizers: &Value, errors: &mut Errors) {
    let path = "metadata.finalizers";
    for finalizer in items(finalizers) {
        check_label_name(string(finalizer), path, errors);
    }
    let has = |name: &str| items(finalizers).iter().any(|finalizer| finalizer == name);
    if has("orphan") && has("foregroundDeletion") {
        let why = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.push(FieldError::invalid(path, finalizers.clone(), why));
    }
}

/// Checks the names of finalizers. The rule does not apply to custom resources.
pub(super) fn check_finalizer_names(object: &Value, errors: &mut Errors) {
    for (index, finalizer) in items(&object["metadata"]["finalizers"]).iter().enumerate() {
        let name = string(finalizer);
        if !name.contains('/') && !matches!(name, "kubernetes" | "orphan" | "foregroundDeletion") {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(FieldError::invalid(format!("metadata.finalizers[{index}]"), json!(name), why));
        }
    }
}

/// A value as Go encodes a struct: keys in the order of the struct's fields, without empty ones.
pub(super) fn in_field_order(value: &Value, keys: &[&str]) -> String {
    let fields: Vec<String> = keys
        .iter()
        .filter(|key| is_set(&value[**key]))
        .map(|key| format!("\"{key}\":{}", value[*key]))
        .collect();
    format!("{{{}}}", fields.join(","))
}

/// Validates a `LabelSelector`, if it is set.
pub(super) fn check_selector(selector: &Value, path: &str, errors: &mut Errors) {
    check_labels(&selector["matchLabels"], &format!("{path}.matchLabels"), errors);
    for (index, expression) in items(&selector["matchExpressions"]).iter().enumerate() {
        let path = format!("{path}.matchExpressions[{index}]");
        let values = items(&expression["values"]);
        match string(&expression["operator"]) {
            "In" | "NotIn" => {
                if values.is_empty() {
                    let why = "must be specified when `operator` is 'In' or 'NotIn'";
                    errors.push(FieldError::required(format!("{path}.values"), why));
                }
            }
            "Exists" | "DoesNotExist" => {
                if !values.is_empty() {
                    let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                    errors.push(FieldError::forbidden(format!("{path}.values"), why));
                }
            }
            operator => {
                let why = "not a valid selector operator";
                errors.push(FieldError::invalid(format!("{path}.operator"), json!(operator), why));
            }
        }
        check_label_name(string(&expression["key"]), &format!("{path}.key"), errors);
        for (position, value) in values.iter().enumerate() {
            for problem in text::label_value(string(value)) {
                errors.push(FieldError::invalid(
                    format!("{path}.values[{position}]"),
                    value.clone(),
                    problem,
                ));
            }
        }
    }
}
