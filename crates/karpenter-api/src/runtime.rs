//! Validation that controllers do beyond the schema. An object that the API server accepts may fail it; then its
//! condition `ValidationSucceeded` is false.
//!
//! The checks read JSON and skip values of the wrong type, which the schema reports. Rules that need a cluster or a
//! cloud API are in other crates.
//!
//! Upstream: `pkg/apis/v1/nodepool_validation.go` and `nodeclaim_validation.go`.

mod kubelet;
pub mod kubelet_fields;
mod names;
mod requirement;
#[cfg(test)]
mod tests;

pub use kubelet::kubelet_errors;
pub use names::{label_value_problem, qualified_name_problem};
pub use requirement::{SUPPORTED_OPERATORS, requirement_errors, requirement_errors_with};

use std::collections::BTreeSet;

use serde_json::Value;

use crate::error::{FieldError, Rule};
use crate::labels::{LabelRules, NODEPOOL, Provider, RestrictedLabel, label_domain};
use crate::types::EC2NodeClassSpec;

const TAINT_EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// The errors that controllers report for an object that the API server accepts.
pub fn runtime_errors(kind: &str, object: &Value) -> Vec<FieldError> {
    match kind {
        "NodePool" => node_pool_errors(object),
        "NodeOverlay" => {
            let rules = LabelRules::for_all_providers();
            requirement_list_errors(&rules, &object["spec"]["requirements"], "spec.requirements")
        }
        "EC2NodeClass" => ec2_node_class_errors(object),
        _ => Vec::new(),
    }
}

fn runtime_error(path: impl Into<String>, message: impl Into<String>) -> FieldError {
    FieldError::new(path, Rule::Runtime, message)
}

fn node_pool_errors(object: &Value) -> Vec<FieldError> {
    let template = &object["spec"]["template"];
    let spec = &template["spec"];
    let provider = spec["nodeClassRef"]["group"].as_str().and_then(Provider::from_group);
    let rules = provider.map_or_else(LabelRules::for_all_providers, LabelRules::for_provider);
    let mut errors = label_errors(&rules, &template["metadata"]["labels"]);
    errors.extend(taint_errors(spec));
    let path = "spec.template.spec.requirements";
    for (index, requirement) in array(&spec["requirements"]).iter().enumerate() {
        if requirement["key"] == NODEPOOL {
            let message = format!("{NODEPOOL} is set by the NodePool itself and cannot be required");
            errors.push(runtime_error(format!("{path}[{index}].key"), message));
        }
    }
    errors.extend(requirement_list_errors(&rules, &spec["requirements"], path));
    errors
}

fn label_errors(rules: &LabelRules, labels: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (key, value) in labels.as_object().into_iter().flatten() {
        let path = format!("spec.template.metadata.labels[{key}]");
        if key == NODEPOOL {
            let message = format!("{NODEPOOL} is set by the NodePool itself and cannot be configured");
            errors.push(runtime_error(&path, message));
        }
        if let Some(problem) = qualified_name_problem(key) {
            errors.push(runtime_error(&path, format!("label key {problem}")));
        }
        if let Some(problem) = value.as_str().and_then(label_value_problem) {
            errors.push(runtime_error(&path, format!("label value {problem}")));
        }
        if let Err(restricted) = rules.check_unrestricted(key) {
            errors.push(restricted_label_error(rules, &path, &restricted));
        }
    }
    errors
}

fn restricted_label_error(rules: &LabelRules, path: &str, restricted: &RestrictedLabel) -> FieldError {
    let valid = match restricted {
        RestrictedLabel::Domain { domain, .. } => {
            let is_choice = |key: &&str| label_domain(key) == *domain && *key != NODEPOOL;
            let choices: Vec<_> = rules.well_known().filter(is_choice).collect();
            format!("a key of another domain, or {}", choices.join(", "))
        }
        RestrictedLabel::Reserved { .. } => "another key".to_owned(),
    };
    runtime_error(path, restricted.to_string()).with_valid(valid)
}

fn taint_errors(spec: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut seen = BTreeSet::new();
    for field in ["taints", "startupTaints"] {
        for (index, taint) in array(&spec[field]).iter().enumerate() {
            let path = format!("spec.template.spec.{field}[{index}]");
            let text = |name: &str| taint[name].as_str().unwrap_or_default();
            let (key, value, effect) = (text("key"), text("value"), text("effect"));
            if key.is_empty() {
                errors.push(runtime_error(format!("{path}.key"), "taint key is empty"));
            } else if let Some(problem) = qualified_name_problem(key) {
                errors.push(runtime_error(format!("{path}.key"), format!("taint key {problem}")));
            }
            if !value.is_empty()
                && let Some(problem) = qualified_name_problem(value)
            {
                errors.push(runtime_error(format!("{path}.value"), format!("taint value {problem}")));
            }
            if !effect.is_empty() && !TAINT_EFFECTS.contains(&effect) {
                let message = format!("taint effect {effect:?} is unknown");
                errors.push(
                    runtime_error(format!("{path}.effect"), message).with_valid(TAINT_EFFECTS.join(", ")),
                );
            }
            if !seen.insert((key, effect)) {
                let message = format!(
                    "taint {key}:{effect} occurs more than once in taints and startupTaints together"
                );
                errors.push(runtime_error(path, message));
            }
        }
    }
    errors
}

fn requirement_list_errors(rules: &LabelRules, requirements: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (index, requirement) in array(requirements).iter().enumerate() {
        let text = |name: &str| requirement[name].as_str().unwrap_or_default();
        let values: Vec<&str> = array(&requirement["values"]).iter().filter_map(Value::as_str).collect();
        errors.extend(requirement_errors_with(
            rules,
            text("key"),
            text("operator"),
            &values,
            requirement["minValues"].as_i64(),
            &format!("{path}[{index}]"),
        ));
    }
    errors
}

fn ec2_node_class_errors(object: &Value) -> Vec<FieldError> {
    let Some(kubelet) = object["spec"]["kubelet"].as_object() else {
        return Vec::new();
    };
    // The AMI family depends only on these two fields, which the schema validates.
    let family_fields = serde_json::json!({
        "amiFamily": object["spec"]["amiFamily"],
        "amiSelectorTerms": object["spec"]["amiSelectorTerms"],
    });
    let spec: EC2NodeClassSpec = serde_json::from_value(family_fields).unwrap_or_default();
    // kubelet settings may contain expressions only if a feature gate is on; it is off by default.
    kubelet_errors(kubelet, spec.resolved_ami_family(), false)
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
