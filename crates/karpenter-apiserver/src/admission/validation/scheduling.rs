//! Validation of the scheduling fields of pods: affinity, tolerations, topology spread constraints and scheduling
//! gates.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::metadata::{check_label_name, check_selector};
use super::{Errors, text, with_struct_text};
use crate::admission::json::{entries, integer, is_set, items, text as string};
use crate::field::FieldError;

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

pub(super) fn check_tolerations(tolerations: &Value, path: &str, errors: &mut Errors) {
    for (index, toleration) in items(tolerations).iter().enumerate() {
        let own = format!("{path}[{index}]");
        let (key, operator, value, effect) = (
            string(&toleration["key"]),
            string(&toleration["operator"]),
            string(&toleration["value"]),
            string(&toleration["effect"]),
        );
        if !key.is_empty() {
            check_label_name(key, &format!("{own}.key"), errors);
        } else if operator != "Exists" {
            let why =
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.push(FieldError::invalid(format!("{own}.operator"), json!(operator), why));
        }
        if is_set(&toleration["tolerationSeconds"]) && effect != "NoExecute" {
            let why = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.push(FieldError::invalid(format!("{own}.effect"), json!(effect), why));
        }
        match operator {
            "Equal" | "" => {
                let problems = text::label_value(value);
                if !problems.is_empty() {
                    let why = problems.join(";");
                    errors.push(FieldError::invalid(format!("{own}.operator"), json!(value), why));
                }
            }
            "Exists" => {
                if !value.is_empty() {
                    let why = "value must be empty when `operator` is 'Exists'";
                    errors.push(FieldError::invalid(format!("{own}.operator"), json!(value), why));
                }
            }
            "Lt" | "Gt" => {
                let supported = ["Equal", "Exists", "Lt", "Gt"];
                errors.push(FieldError::not_supported(
                    format!("{own}.operator"),
                    json!(operator),
                    &supported,
                ));
            }
            _ => {
                let supported = ["Equal", "Exists"];
                errors.push(FieldError::not_supported(
                    format!("{own}.operator"),
                    json!(operator),
                    &supported,
                ));
            }
        }
        if !effect.is_empty() && !EFFECTS.contains(&effect) {
            errors.push(FieldError::not_supported(format!("{own}.effect"), json!(effect), &EFFECTS));
        }
    }
}

pub(super) fn check_taints(taints: &Value, path: &str, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for (index, taint) in items(taints).iter().enumerate() {
        let own = format!("{path}[{index}]");
        let (key, value, effect) = (string(&taint["key"]), string(&taint["value"]), string(&taint["effect"]));
        check_label_name(key, &format!("{own}.key"), errors);
        let problems = text::label_value(value);
        if !problems.is_empty() {
            errors.push(FieldError::invalid(format!("{own}.value"), json!(value), problems.join(";")));
        }
        if effect.is_empty() {
            errors.push(FieldError::required(format!("{own}.effect"), ""));
        } else if !EFFECTS.contains(&effect) {
            errors.push(FieldError::not_supported(format!("{own}.effect"), json!(effect), &EFFECTS));
        }
        if !seen.insert((effect, key)) {
            let mut error = FieldError::duplicate(own, taint.clone());
            error.detail = "taints must be unique by key and effect pair".to_string();
            let shown = [
                ("Key", &json!(key)),
                ("Value", &json!(value)),
                ("Effect", &json!(effect)),
                ("TimeAdded", &taint["timeAdded"]),
            ];
            errors.push(with_struct_text(error, &shown));
        }
    }
}

pub(super) fn check_spread(constraints: &Value, path: &str, errors: &mut Errors) {
    let all = items(constraints);
    for (index, constraint) in all.iter().enumerate() {
        let own = format!("{path}[{index}]");
        let skew = integer(&constraint["maxSkew"]).unwrap_or(0);
        if skew <= 0 {
            errors.push(FieldError::invalid(
                format!("{own}.maxSkew"),
                json!(skew),
                "must be greater than zero",
            ));
        }
        if string(&constraint["topologyKey"]).is_empty() {
            errors.push(FieldError::required(format!("{own}.topologyKey"), "can not be empty"));
        }
        let action = string(&constraint["whenUnsatisfiable"]);
        if !matches!(action, "DoNotSchedule" | "ScheduleAnyway") {
            let supported = ["DoNotSchedule", "ScheduleAnyway"];
            errors.push(FieldError::not_supported(
                format!("{own}.whenUnsatisfiable"),
                json!(action),
                &supported,
            ));
        }
        let repeats = all[index + 1..].iter().any(|other| {
            other["topologyKey"] == constraint["topologyKey"]
                && other["whenUnsatisfiable"] == constraint["whenUnsatisfiable"]
        });
        if repeats {
            let shown = format!("{{{}, {action}}}", string(&constraint["topologyKey"]));
            errors.push(FieldError::duplicate(
                format!("{own}.{{topologyKey, whenUnsatisfiable}}"),
                json!(shown),
            ));
        }
        if let Some(domains) = integer(&constraint["minDomains"]) {
            let own = format!("{own}.minDomains");
            if domains <= 0 {
                errors.push(FieldError::invalid(own.clone(), json!(domains), "must be greater than zero"));
            }
            if action != "DoNotSchedule" {
                let why = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}");
                errors.push(FieldError::invalid(own, json!(domains), why));
            }
        }
        for key in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            let policy = &constraint[key];
            if is_set(policy) && !matches!(string(policy), "Honor" | "Ignore") {
                errors.push(FieldError::not_supported(
                    format!("{own}.{key}"),
                    policy.clone(),
                    &["Honor", "Ignore"],
                ));
            }
        }
        check_label_keys(constraint, &own, errors);
        check_selector(&constraint["labelSelector"], &format!("{own}.labelSelector"), errors);
    }
}

/// Validates `matchLabelKeys` and `mismatchLabelKeys`, whose values the server adds to the selector when the pod is
/// created.
fn check_label_keys(term: &Value, path: &str, errors: &mut Errors) {
    let selector = &term["labelSelector"];
    for list in ["matchLabelKeys", "mismatchLabelKeys"] {
        let keys = items(&term[list]);
        if !keys.is_empty() && !is_set(selector) {
            let why = "must not be specified when labelSelector is not set";
            errors.push(FieldError::forbidden(format!("{path}.{list}"), why));
            continue;
        }
        for (index, key) in keys.iter().enumerate() {
            check_label_name(string(key), &format!("{path}.{list}[{index}]"), errors);
        }
    }
    let keys = items(&term["matchLabelKeys"]);
    let mut seen: BTreeSet<&str> = entries(&selector["matchLabels"]).map(|(key, _)| key.as_str()).collect();
    for expression in items(&selector["matchExpressions"]) {
        let key = string(&expression["key"]);
        let position = keys.iter().position(|candidate| string(candidate) == key);
        if let (Some(index), true) = (position, seen.contains(key)) {
            let why = "exists in both matchLabelKeys and labelSelector";
            errors.push(FieldError::invalid(format!("{path}[{index}]"), json!(key), why));
        }
        seen.insert(key);
    }
    for (index, key) in keys.iter().enumerate() {
        if items(&term["mismatchLabelKeys"]).contains(key) {
            let why = "exists in both matchLabelKeys and mismatchLabelKeys";
            errors.push(FieldError::invalid(format!("{path}.matchLabelKeys[{index}]"), key.clone(), why));
        }
    }
}

pub(super) fn check_affinity(affinity: &Value, path: &str, errors: &mut Errors) {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
    let node = &affinity["nodeAffinity"];
    let own = format!("{path}.nodeAffinity");
    if is_set(&node[REQUIRED]) {
        check_node_selector(&node[REQUIRED], &format!("{own}.{REQUIRED}"), errors);
    }
    for (index, preferred) in items(&node[PREFERRED]).iter().enumerate() {
        let own = format!("{own}.{PREFERRED}[{index}]");
        check_weight(&preferred["weight"], &own, errors);
        check_node_term(&preferred["preference"], true, &format!("{own}.preference"), errors);
    }
    for side in ["podAffinity", "podAntiAffinity"] {
        let own = format!("{path}.{side}");
        for (index, term) in items(&affinity[side][REQUIRED]).iter().enumerate() {
            check_pod_term(term, &format!("{own}.{REQUIRED}[{index}]"), errors);
        }
        for (index, weighted) in items(&affinity[side][PREFERRED]).iter().enumerate() {
            let own = format!("{own}.{PREFERRED}[{index}]");
            check_weight(&weighted["weight"], &own, errors);
            check_pod_term(&weighted["podAffinityTerm"], &format!("{own}.podAffinityTerm"), errors);
        }
    }
}

fn check_weight(weight: &Value, path: &str, errors: &mut Errors) {
    let number = integer(weight).unwrap_or(0);
    if !(1..=100).contains(&number) {
        errors.push(FieldError::invalid(
            format!("{path}.weight"),
            json!(number),
            "must be in the range 1-100",
        ));
    }
}

/// Validates a node selector, which must have at least one term.
pub(super) fn check_node_selector(selector: &Value, path: &str, errors: &mut Errors) {
    let terms = items(&selector["nodeSelectorTerms"]);
    let own = format!("{path}.nodeSelectorTerms");
    if terms.is_empty() {
        errors.push(FieldError::required(&own, "must have at least one node selector term"));
    }
    for (index, term) in terms.iter().enumerate() {
        check_node_term(term, false, &format!("{own}[{index}]"), errors);
    }
}

fn check_node_term(term: &Value, allows_any_value: bool, path: &str, errors: &mut Errors) {
    for (index, requirement) in items(&term["matchExpressions"]).iter().enumerate() {
        let own = format!("{path}.matchExpressions[{index}]");
        let values = items(&requirement["values"]);
        let operator = string(&requirement["operator"]);
        match operator {
            "In" | "NotIn" if values.is_empty() => {
                let why = "must be specified when `operator` is 'In' or 'NotIn'";
                errors.push(FieldError::required(format!("{own}.values"), why));
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                errors.push(FieldError::forbidden(format!("{own}.values"), why));
            }
            "Gt" | "Lt" if values.len() != 1 => {
                let why = "must be specified single value when `operator` is 'Lt' or 'Gt'";
                errors.push(FieldError::required(format!("{own}.values"), why));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
            _ => {
                let why = "not a valid selector operator";
                errors.push(FieldError::invalid(format!("{own}.operator"), json!(operator), why));
            }
        }
        check_label_name(string(&requirement["key"]), &format!("{own}.key"), errors);
        if allows_any_value {
            continue;
        }
        for (position, value) in values.iter().enumerate() {
            for problem in text::label_value(string(value)) {
                errors.push(FieldError::invalid(format!("{own}.values[{position}]"), value.clone(), problem));
            }
        }
    }
    for (index, requirement) in items(&term["matchFields"]).iter().enumerate() {
        let own = format!("{path}.matchFields[{index}]");
        let operator = string(&requirement["operator"]);
        let values = items(&requirement["values"]);
        match operator {
            "In" | "NotIn" => {
                if values.len() != 1 {
                    let why =
                        "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
                    errors.push(FieldError::required(format!("{own}.values"), why));
                }
            }
            _ => {
                let why = "not a valid selector operator";
                errors.push(FieldError::invalid(format!("{own}.operator"), json!(operator), why));
            }
        }
        if string(&requirement["key"]) == "metadata.name" {
            for (position, value) in values.iter().enumerate() {
                for problem in text::subdomain(string(value)) {
                    errors.push(FieldError::invalid(
                        format!("{own}.values[{position}]"),
                        value.clone(),
                        problem,
                    ));
                }
            }
        } else {
            let why = "not a valid field selector key";
            errors.push(FieldError::invalid(format!("{own}.key"), json!(string(&requirement["key"])), why));
        }
    }
}

fn check_pod_term(term: &Value, path: &str, errors: &mut Errors) {
    check_selector(&term["labelSelector"], &format!("{path}.labelSelector"), errors);
    check_selector(&term["namespaceSelector"], &format!("{path}.namespaceSelector"), errors);
    for namespace in items(&term["namespaces"]) {
        for problem in text::label(string(namespace)) {
            errors.push(FieldError::invalid(format!("{path}.namespace"), namespace.clone(), problem));
        }
    }
    check_label_keys(term, path, errors);
    let key = string(&term["topologyKey"]);
    if key.is_empty() {
        errors.push(FieldError::required(format!("{path}.topologyKey"), "can not be empty"));
    }
    check_label_name(key, &format!("{path}.topologyKey"), errors);
}

pub(super) fn check_gates(gates: &Value, path: &str, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for (index, gate) in items(gates).iter().enumerate() {
        let own = format!("{path}[{index}]");
        let name = string(&gate["name"]);
        check_label_name(name, &own, errors);
        if !seen.insert(name) {
            errors.push(FieldError::duplicate(own, json!(name)));
        }
    }
}
