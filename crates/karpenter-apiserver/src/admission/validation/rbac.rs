//! Validation of roles and role bindings. The embedded API server stores these objects, but does not enforce them.

use serde_json::{Value, json};

use super::{Errors, text};
use crate::admission::json::{items, text as string};
use crate::field::FieldError;

const GROUP: &str = "rbac.authorization.k8s.io";

pub(super) fn check_role(role: &Value, namespaced: bool, errors: &mut Errors) {
    for (index, rule) in items(&role["rules"]).iter().enumerate() {
        let own = format!("rules[{index}]");
        let is_empty = |key: &str| items(&rule[key]).is_empty();
        if is_empty("verbs") {
            errors
                .push(FieldError::required(format!("{own}.verbs"), "verbs must contain at least one value"));
        }
        if !is_empty("nonResourceURLs") {
            let path = format!("{own}.nonResourceURLs");
            if namespaced {
                let why = "namespaced rules cannot apply to non-resource URLs";
                errors.push(FieldError::invalid(&path, rule["nonResourceURLs"].clone(), why));
            }
            if !is_empty("apiGroups") || !is_empty("resources") || !is_empty("resourceNames") {
                let why = "rules cannot apply to both regular resources and non-resource URLs";
                errors.push(FieldError::invalid(path, rule["nonResourceURLs"].clone(), why));
            }
            continue;
        }
        if is_empty("apiGroups") {
            let why = "resource rules must supply at least one api group";
            errors.push(FieldError::required(format!("{own}.apiGroups"), why));
        }
        if is_empty("resources") {
            let why = "resource rules must supply at least one resource";
            errors.push(FieldError::required(format!("{own}.resources"), why));
        }
    }
}

pub(super) fn check_binding(binding: &Value, old: Option<&Value>, namespaced: bool, errors: &mut Errors) {
    let reference = &binding["roleRef"];
    if reference["apiGroup"] != GROUP {
        errors.push(FieldError::not_supported(
            "roleRef.apiGroup",
            json!(string(&reference["apiGroup"])),
            &[GROUP],
        ));
    }
    let kinds: &[&str] = if namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    if !kinds.contains(&string(&reference["kind"])) {
        errors.push(FieldError::not_supported("roleRef.kind", json!(string(&reference["kind"])), kinds));
    }
    let role = string(&reference["name"]);
    if role.is_empty() {
        errors.push(FieldError::required("roleRef.name", ""));
    }
    for problem in text::path_segment(role, false) {
        errors.push(FieldError::invalid("roleRef.name", json!(role), problem));
    }
    for (index, subject) in items(&binding["subjects"]).iter().enumerate() {
        check_subject(subject, namespaced, &format!("subjects[{index}]"), errors);
    }
    if let Some(old) = old
        && *reference != old["roleRef"]
    {
        let shown =
            json!({"APIGroup": reference["apiGroup"], "Kind": reference["kind"], "Name": reference["name"]});
        errors.push(FieldError::invalid("roleRef", shown, "cannot change roleRef"));
    }
}

fn check_subject(subject: &Value, namespaced: bool, path: &str, errors: &mut Errors) {
    let (name, group) = (string(&subject["name"]), string(&subject["apiGroup"]));
    if name.is_empty() {
        errors.push(FieldError::required(format!("{path}.name"), ""));
    }
    match string(&subject["kind"]) {
        "ServiceAccount" => {
            if !name.is_empty() {
                for problem in text::subdomain(name) {
                    errors.push(FieldError::invalid(format!("{path}.name"), json!(name), problem));
                }
            }
            if !group.is_empty() {
                errors.push(FieldError::not_supported(format!("{path}.apiGroup"), json!(group), &[""]));
            }
            if !namespaced && string(&subject["namespace"]).is_empty() {
                errors.push(FieldError::required(format!("{path}.namespace"), ""));
            }
        }
        "User" | "Group" => {
            if group != GROUP {
                errors.push(FieldError::not_supported(format!("{path}.apiGroup"), json!(group), &[GROUP]));
            }
        }
        kind => {
            let supported = ["ServiceAccount", "User", "Group"];
            errors.push(FieldError::not_supported(format!("{path}.kind"), json!(kind), &supported));
        }
    }
}
