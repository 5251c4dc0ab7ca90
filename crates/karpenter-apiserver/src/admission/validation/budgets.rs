//! Validation of PodDisruptionBudgets, PriorityClasses, LimitRanges, ResourceQuotas, HorizontalPodAutoscalers and
//! Leases.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::metadata::{check_label_name, check_selector};
use super::{Errors, check_immutable, check_nonnegative, quantities, text, with_struct_text};
use crate::admission::json::{entries, integer, is_set, items, name, text as string};
use crate::admission::quantity::Quantity;
use crate::field::FieldError;

/// Checks a number or a percentage, neither of which may be negative.
pub(super) fn check_int_or_percent(value: &Value, path: &str, errors: &mut Errors) {
    match value {
        Value::String(given) => {
            if let Some(problem) = text::percent(given) {
                errors.push(FieldError::invalid(path, value.clone(), problem));
            }
        }
        _ => check_nonnegative(value, path, errors),
    }
}

pub(super) fn check_at_most_all(value: &Value, path: &str, errors: &mut Errors) {
    let percent: Option<i64> = value.as_str().and_then(|given| given.strip_suffix('%')?.parse().ok());
    if percent.is_some_and(|percent| percent > 100) {
        errors.push(FieldError::invalid(path, value.clone(), "must not be greater than 100%"));
    }
}

pub(super) fn check_disruption_budget(budget: &Value, errors: &mut Errors) {
    let spec = &budget["spec"];
    if is_set(&spec["minAvailable"]) && is_set(&spec["maxUnavailable"]) {
        let why = "minAvailable and maxUnavailable cannot be both set";
        let shown = [
            ("MinAvailable", &spec["minAvailable"]),
            ("Selector", &spec["selector"]),
            ("MaxUnavailable", &spec["maxUnavailable"]),
            ("UnhealthyPodEvictionPolicy", &spec["unhealthyPodEvictionPolicy"]),
        ];
        errors.push(with_struct_text(FieldError::invalid("spec", spec.clone(), why), &shown));
    }
    for key in ["minAvailable", "maxUnavailable"] {
        if is_set(&spec[key]) {
            check_int_or_percent(&spec[key], &format!("spec.{key}"), errors);
            check_at_most_all(&spec[key], &format!("spec.{key}"), errors);
        }
    }
    check_selector(&spec["selector"], "spec.selector", errors);
    let policy = &spec["unhealthyPodEvictionPolicy"];
    if is_set(policy) && !matches!(string(policy), "AlwaysAllow" | "IfHealthyBudget") {
        let supported = ["AlwaysAllow", "IfHealthyBudget"];
        errors.push(FieldError::not_supported("spec.unhealthyPodEvictionPolicy", policy.clone(), &supported));
    }
}

const HIGHEST_USER_PRIORITY: i64 = 1_000_000_000;

pub(super) fn check_priority_class(class: &Value, old: Option<&Value>, errors: &mut Errors) {
    let value = integer(&class["value"]).unwrap_or(0);
    if let Some(old) = old {
        if value != integer(&old["value"]).unwrap_or(0) {
            errors.push(FieldError::forbidden("value", "may not be changed in an update."));
        }
        check_immutable(&class["preemptionPolicy"], &old["preemptionPolicy"], "preemptionPolicy", errors);
        return;
    }
    let own = name(class);
    if own.starts_with("system-") {
        let expected = match own {
            "system-node-critical" => Some(2_000_001_000),
            "system-cluster-critical" => Some(2_000_000_000),
            _ => None,
        };
        let problem = match expected {
            None => Some(format!("{own} is not a known system priority class")),
            Some(expected) if expected != value => {
                Some(format!("value of {own} PriorityClass must be {expected}"))
            }
            Some(_) if class["globalDefault"] == true => {
                Some(format!("globalDefault of {own} PriorityClass must be false"))
            }
            Some(_) => None,
        };
        if let Some(problem) = problem {
            let why = format!(
                "priority class names with 'system-' prefix are reserved for system use only. error: {problem}"
            );
            errors.push(FieldError::forbidden("metadata.name", why));
        }
    } else if value > HIGHEST_USER_PRIORITY {
        let why = format!("maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}");
        errors.push(FieldError::forbidden("value", why));
    }
    let policy = &class["preemptionPolicy"];
    if is_set(policy) && !matches!(string(policy), "PreemptLowerPriority" | "Never") {
        let supported = ["PreemptLowerPriority", "Never"];
        errors.push(FieldError::not_supported("preemptionPolicy", policy.clone(), &supported));
    }
}

pub(super) fn check_lease(lease: &Value, errors: &mut Errors) {
    let spec = &lease["spec"];
    if let Some(seconds) = integer(&spec["leaseDurationSeconds"])
        && seconds <= 0
    {
        errors.push(FieldError::invalid(
            "spec.leaseDurationSeconds",
            json!(seconds),
            "must be greater than 0",
        ));
    }
    check_nonnegative(&spec["leaseTransitions"], "spec.leaseTransitions", errors);
    if !string(&spec["preferredHolder"]).is_empty() && string(&spec["strategy"]).is_empty() {
        let why = "may only be specified if `strategy` is defined";
        errors.push(FieldError::forbidden("spec.preferredHolder", why));
    }
}

pub(super) fn check_autoscaler(version: &str, autoscaler: &Value, errors: &mut Errors) {
    let spec = &autoscaler["spec"];
    let (least, most) = (integer(&spec["minReplicas"]), integer(&spec["maxReplicas"]).unwrap_or(0));
    if let Some(least) = least
        && least < 1
    {
        errors.push(FieldError::invalid(
            "spec.minReplicas",
            json!(least),
            "must be greater than or equal to 1",
        ));
    }
    if most < 1 {
        errors.push(FieldError::invalid("spec.maxReplicas", json!(most), "must be greater than 0"));
    }
    if least.is_some_and(|least| most < least) {
        let why = "must be greater than or equal to `minReplicas`";
        errors.push(FieldError::invalid("spec.maxReplicas", json!(most), why));
    }
    for key in ["kind", "name"] {
        if string(&spec["scaleTargetRef"][key]).is_empty() {
            errors.push(FieldError::required(format!("spec.scaleTargetRef.{key}"), ""));
        }
    }
    if !string(&spec["scaleTargetRef"]["apiVersion"]).contains('/') {
        let shown = json!(string(&spec["scaleTargetRef"]["apiVersion"]));
        let why = "apiVersion must specify API group";
        errors.push(FieldError::invalid("spec.scaleTargetRef.apiVersion", shown, why));
    }
    let is_outside = |metric: &Value| matches!(string(&metric["type"]), "Object" | "External");
    if least == Some(0) && !items(&spec["metrics"]).iter().any(is_outside) {
        let why = "must specify at least one Object or External metric to support scaling to zero replicas";
        errors.push(FieldError::forbidden("spec.metrics", why));
    }
    if version == "v2" {
        for (index, metric) in items(&spec["metrics"]).iter().enumerate() {
            if string(&metric["type"]).is_empty() {
                let why = "must specify a metric source type";
                errors.push(FieldError::required(format!("spec.metrics[{index}].type"), why));
            }
        }
    }
}

fn check_resource_name(resource: &str, path: &str, errors: &mut Errors) {
    let before = errors.len();
    check_label_name(resource, path, errors);
    if errors.len() == before && !resource.contains('/') && !quantities::is_standard(resource) {
        let why = "must be a standard resource type or fully qualified";
        errors.push(FieldError::invalid(path, json!(resource), why));
    }
}

pub(super) fn check_quota(quota: &Value, old: Option<&Value>, errors: &mut Errors) {
    let spec = &quota["spec"];
    for (resource, value) in entries(&spec["hard"]) {
        let path = format!("spec.hard[{resource}]");
        if !resource.starts_with("count/") {
            check_resource_name(resource, &path, errors);
            if !resource.contains('/') && !quantities::is_standard(resource) {
                errors.push(FieldError::invalid(
                    &path,
                    json!(resource),
                    "must be a standard resource for quota",
                ));
            }
        }
        if let Some(quantity) = Quantity::from_json(value) {
            quantities::check_amount(resource, &quantity, &path, errors);
        }
    }
    let scopes: BTreeSet<&str> = items(&spec["scopes"]).iter().map(string).collect();
    let known = [
        "Terminating",
        "NotTerminating",
        "BestEffort",
        "NotBestEffort",
        "PriorityClass",
        "CrossNamespacePodAffinity",
    ];
    for scope in &scopes {
        if !known.contains(scope) && *scope != "VolumeAttributesClass" {
            errors.push(FieldError::invalid("spec.scopes", spec["scopes"].clone(), "unsupported scope"));
        }
    }
    for (one, other) in [("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating")] {
        if scopes.contains(one) && scopes.contains(other) {
            errors.push(FieldError::invalid("spec.scopes", spec["scopes"].clone(), "conflicting scopes"));
        }
    }
    if let Some(old) = old {
        let sorted = |quota: &Value| -> BTreeSet<String> {
            items(&quota["spec"]["scopes"]).iter().map(|scope| string(scope).to_string()).collect()
        };
        if sorted(quota) != sorted(old) {
            errors.push(FieldError::invalid("spec.scopes", spec["scopes"].clone(), "field is immutable"));
        }
    }
}

pub(super) fn check_limit_range(range: &Value, errors: &mut Errors) {
    let mut kinds = BTreeSet::new();
    for (index, item) in items(&range["spec"]["limits"]).iter().enumerate() {
        let own = format!("spec.limits[{index}]");
        let kind = string(&item["type"]);
        let before = errors.len();
        check_label_name(kind, &format!("{own}.type"), errors);
        let is_standard = matches!(kind, "Pod" | "Container" | "PersistentVolumeClaim");
        if errors.len() == before && !kind.contains('/') && !is_standard {
            let why = "must be a standard limit type or fully qualified";
            errors.push(FieldError::invalid(format!("{own}.type"), json!(kind), why));
        }
        if !kinds.insert(kind) {
            errors.push(FieldError::duplicate(format!("{own}.type"), json!(kind)));
        }
        if kind == "Pod" {
            for key in ["default", "defaultRequest"] {
                if entries(&item[key]).next().is_some() {
                    let why = "may not be specified when `type` is 'Pod'";
                    errors.push(FieldError::forbidden(format!("{own}.{key}"), why));
                }
            }
        }
        check_limit_item(item, &own, errors);
    }
}

fn check_limit_item(item: &Value, own: &str, errors: &mut Errors) {
    let lists = ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"];
    let mut values: BTreeMap<&str, BTreeMap<&str, Quantity>> = BTreeMap::new();
    for list in lists {
        for (resource, value) in entries(&item[list]) {
            let path = format!("{own}.{list}[{resource}]");
            if matches!(string(&item["type"]), "Pod" | "Container") {
                quantities::check_container_resource_name(resource, &path, errors);
            } else {
                check_resource_name(resource, &path, errors);
            }
            if let Some(quantity) = Quantity::from_json(value) {
                values.entry(resource).or_default().insert(list, quantity);
            }
        }
    }
    if item["type"] == "PersistentVolumeClaim" {
        let has = |list: &str| values.get("storage").is_some_and(|found| found.contains_key(list));
        if !has("min") && !has("max") {
            let why = "either minimum or maximum storage value is required, but neither was provided";
            errors.push(FieldError::required(format!("{own}.limits"), why));
        }
    }
    for (resource, found) in &values {
        // Columns: field with the lower value, field with the higher value, field of the error, field whose value the
        // error shows, message.
        let pairs = [
            ("min", "max", "min", "min", "min value {} is greater than max value {}"),
            (
                "min",
                "defaultRequest",
                "defaultRequest",
                "defaultRequest",
                "min value {} is greater than default request value {}",
            ),
            (
                "defaultRequest",
                "max",
                "defaultRequest",
                "defaultRequest",
                "default request value {} is greater than max value {}",
            ),
            (
                "defaultRequest",
                "default",
                "defaultRequest",
                "defaultRequest",
                "default request value {} is greater than default limit value {}",
            ),
            ("min", "default", "default", "min", "min value {} is greater than default value {}"),
            ("default", "max", "default", "max", "default value {} is greater than max value {}"),
        ];
        for (low, high, error_field, shown, message) in pairs {
            if let (Some(least), Some(most), Some(shown)) =
                (found.get(low), found.get(high), found.get(shown))
                && least > most
            {
                let why = message.replacen("{}", &least.to_string(), 1).replacen("{}", &most.to_string(), 1);
                errors.push(FieldError::invalid(
                    format!("{own}.{error_field}[{resource}]"),
                    json!(shown.to_string()),
                    why,
                ));
            }
        }
        if let Some(ratio) = found.get("maxLimitRequestRatio")
            && ratio.millis() < 1000
        {
            let why = format!("ratio {ratio} is less than 1");
            let path = format!("{own}.maxLimitRequestRatio[{resource}]");
            errors.push(FieldError::invalid(path, json!(ratio.to_string()), why));
        }
    }
}
