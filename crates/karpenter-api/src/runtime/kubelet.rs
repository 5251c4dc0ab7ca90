//! Rules for the kubelet settings of an EC2NodeClass.
//!
//! The schema accepts any setting, so that new kubelet fields need no new CRD; the controller validates settings
//! instead. This module recognizes expressions, but does not compile them.
//!
//! Upstream: karpenter-provider-aws `pkg/apis/v1/kubeletconfiguration_validation.go`.

use std::collections::BTreeSet;

use karpenter_model::duration::parse_go_duration;
use karpenter_model::quantity::Quantity;
use serde_json::{Map, Value};

use super::kubelet_fields::{Kind, field_kind};
use super::runtime_error;
use crate::error::FieldError;

/// Settings that Karpenter supports with every AMI family.
const MANAGED_FIELDS: [&str; 12] = [
    "clusterDNS",
    "maxPods",
    "podsPerCore",
    "systemReserved",
    "kubeReserved",
    "evictionHard",
    "evictionSoft",
    "evictionSoftGracePeriod",
    "evictionMaxPodGracePeriod",
    "imageGCHighThresholdPercent",
    "imageGCLowThresholdPercent",
    "cpuCFSQuota",
];
const EVICTION_SIGNALS: [&str; 6] = [
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "pid.available",
];
const RESERVABLE_RESOURCES: [&str; 4] = ["cpu", "memory", "ephemeral-storage", "pid"];
const EXPRESSION_GATE: &str = "NodeClassCEL";

/// The errors of kubelet settings, given the AMI family.
pub fn kubelet_errors(
    kubelet: &Map<String, Value>,
    ami_family: &str,
    expressions_enabled: bool,
) -> Vec<FieldError> {
    let mut check = Check { kubelet, expressions_enabled, errors: Vec::new() };
    check.fields();
    check.evictions();
    check.reserved();
    check.numbers();
    check.family(ami_family);
    check.errors
}

struct Check<'a> {
    kubelet: &'a Map<String, Value>,
    expressions_enabled: bool,
    errors: Vec<FieldError>,
}

fn path(field: &str) -> String {
    format!("spec.kubelet.{field}")
}

impl<'a> Check<'a> {
    fn push(&mut self, path: String, message: impl Into<String>) {
        self.errors.push(runtime_error(path, message));
    }

    fn entries(&self, field: &str) -> Vec<(&'a str, &'a str)> {
        let entries = self.kubelet.get(field).and_then(Value::as_object).into_iter().flatten();
        entries.filter_map(|(key, value)| Some((key.as_str(), value.as_str()?))).collect()
    }

    fn integer(&self, field: &str) -> Option<i64> {
        self.kubelet.get(field).and_then(Value::as_i64)
    }

    /// Checks that every field exists in the kubelet's configuration and has the right type; null counts as absent.
    fn fields(&mut self) {
        for (field, value) in self.kubelet {
            if value.is_null() {
                continue;
            }
            let Some(kind) = field_kind(field) else {
                self.push(path(field), format!("the kubelet has no setting {field:?}"));
                continue;
            };
            if field == "registerWithTaints" {
                self.push(
                    path(field),
                    "registerWithTaints cannot be set, because Karpenter manages node taints",
                );
            }
            if field == "maxPods" && value.is_string() {
                if !self.expressions_enabled {
                    let error = runtime_error(path(field), "maxPods is an expression, which is not enabled");
                    self.errors.push(
                        error.with_valid(format!(
                            "a number; an expression needs feature gate {EXPRESSION_GATE}"
                        )),
                    );
                }
            } else {
                self.shape(path(field), field, kind, value);
            }
        }
    }

    /// Checks a value against its type. Objects are checked field by field; for a list or map of other values, one
    /// error is reported for the whole.
    fn shape(&mut self, path: String, field: &str, kind: &Kind, value: &Value) {
        match (kind, value) {
            (_, Value::Null) => {}
            (Kind::Record(fields), Value::Object(entries)) => {
                for (name, value) in entries {
                    let path = format!("{path}.{name}");
                    match fields.iter().find(|(known, _)| known == name) {
                        Some((_, kind)) => self.shape(path, name, kind, value),
                        None => self.push(path, format!("the kubelet has no setting {name:?} in {field}")),
                    }
                }
            }
            (Kind::List(of), Value::Array(items)) if holds_records(of) => {
                for (position, item) in items.iter().enumerate() {
                    self.shape(format!("{path}[{position}]"), field, of, item);
                }
            }
            (Kind::Map(of), Value::Object(entries)) if holds_records(of) => {
                for (key, item) in entries {
                    self.shape(format!("{path}[{key}]"), field, of, item);
                }
            }
            _ => {
                if let Some(expected) = type_problem(kind, value) {
                    self.push(path, format!("{field} must be {expected}"));
                }
            }
        }
    }

    fn evictions(&mut self) {
        for field in ["evictionHard", "evictionSoft", "evictionMinimumReclaim", "evictionSoftGracePeriod"] {
            for (signal, value) in self.entries(field) {
                let path = format!("spec.kubelet.{field}[{signal}]");
                if !EVICTION_SIGNALS.contains(&signal) {
                    let error = runtime_error(&path, format!("eviction signal {signal:?} is unknown"));
                    self.errors.push(error.with_valid(EVICTION_SIGNALS.join(", ")));
                }
                let problem = match field {
                    "evictionSoftGracePeriod" => grace_period_problem(value),
                    _ => threshold_problem(value),
                };
                self.errors.extend(problem.map(|problem| runtime_error(path, problem)));
            }
        }
        let keys = |field| self.entries(field).into_iter().map(|(signal, _)| signal).collect::<BTreeSet<_>>();
        let (soft, grace) = (keys("evictionSoft"), keys("evictionSoftGracePeriod"));
        for signal in soft.difference(&grace) {
            let message = format!("{signal} has no matching entry in evictionSoftGracePeriod");
            self.push(path("evictionSoft"), message);
        }
        for signal in grace.difference(&soft) {
            let message = format!("{signal} has no matching entry in evictionSoft");
            self.push(path("evictionSoftGracePeriod"), message);
        }
    }

    fn reserved(&mut self) {
        for field in ["kubeReserved", "systemReserved"] {
            for (resource, value) in self.entries(field) {
                let path = format!("spec.kubelet.{field}[{resource}]");
                if !RESERVABLE_RESOURCES.contains(&resource) {
                    let error = runtime_error(&path, format!("resource {resource:?} cannot be reserved"));
                    self.errors.push(error.with_valid(RESERVABLE_RESOURCES.join(", ")));
                }
                if value.starts_with('-') {
                    self.push(path, format!("{value} is negative"));
                } else if value.parse::<Quantity>().is_err() && !self.expressions_enabled {
                    let message = format!("{value:?} is not a quantity, and expressions are not enabled");
                    let valid = format!("a quantity such as 100m, or feature gate {EXPRESSION_GATE}");
                    self.errors.push(runtime_error(path, message).with_valid(valid));
                }
            }
        }
    }

    fn numbers(&mut self) {
        let percentages = ["imageGCHighThresholdPercent", "imageGCLowThresholdPercent"];
        for field in percentages {
            if let Some(value) = self.integer(field).filter(|value| !(0..=100).contains(value)) {
                self.push(path(field), format!("{field} is {value}; valid are 0 to 100"));
            }
        }
        let [high, low] = percentages.map(|field| self.integer(field));
        if let (Some(high), Some(low)) = (high, low)
            && high <= low
        {
            let message =
                format!("imageGCHighThresholdPercent {high} must be above imageGCLowThresholdPercent {low}");
            self.push(path("imageGCHighThresholdPercent"), message);
        }
        for field in ["podsPerCore", "evictionMaxPodGracePeriod", "maxPods"] {
            if let Some(value) = self.integer(field).filter(|value| *value < 0) {
                self.push(path(field), format!("{field} is {value}; it cannot be negative"));
            }
        }
    }

    /// Checks that the AMI family supports each setting. AL2023 passes settings on to the kubelet, and custom AMIs
    /// ignore them; for other families, Karpenter must translate each setting.
    fn family(&mut self, family: &str) {
        if matches!(family, "AL2023" | "Custom") {
            return;
        }
        for (field, value) in self.kubelet {
            let unsupported = !MANAGED_FIELDS.contains(&field.as_str())
                || field == "podsPerCore" && family == "Bottlerocket";
            // An error for a setting that does not exist was already added.
            if unsupported && !value.is_null() && field_kind(field).is_some() {
                self.push(path(field), format!("{field} is not supported for AMI family {family}"));
            }
        }
        let dns_servers = self.kubelet.get("clusterDNS").and_then(Value::as_array).map_or(0, Vec::len);
        if dns_servers > 1 {
            let message = format!("clusterDNS has {dns_servers} entries; AMI family {family} supports one");
            self.push(path("clusterDNS"), message);
        }
    }
}

fn holds_records(kind: &Kind) -> bool {
    match kind {
        Kind::Record(_) => true,
        Kind::List(of) | Kind::Map(of) => holds_records(of),
        _ => false,
    }
}

fn type_problem(kind: &Kind, value: &Value) -> Option<&'static str> {
    let expected = match kind {
        Kind::Bool => "a boolean",
        Kind::Map(Kind::Bool) => "a map of booleans",
        Kind::Duration => "a duration such as 30s or 5m",
        Kind::Int32 => "a 32-bit integer",
        Kind::List(Kind::Int32) => "a list of 32-bit integers",
        Kind::Int64 | Kind::Uint32 => "an integer",
        Kind::Number | Kind::DurationOrNumber | Kind::Quantity => "a number",
        Kind::Record(_) => "an object",
        Kind::List(Kind::Record(_)) => "a list of objects",
        Kind::Text | Kind::Time => "a string",
        Kind::List(_) => "a list of strings",
        Kind::Map(Kind::List(_)) => "a map of lists of strings",
        Kind::Map(_) => "a map of strings",
    };
    (!has_shape(kind, value)).then_some(expected)
}

fn has_shape(kind: &Kind, value: &Value) -> bool {
    match kind {
        Kind::Bool => value.is_boolean(),
        Kind::Duration => value.as_str().is_some_and(|text| parse_go_duration(text).is_ok()),
        Kind::Int32 => value.as_i64().is_some_and(|number| i32::try_from(number).is_ok()),
        Kind::Uint32 => value.as_u64().is_some_and(|number| u32::try_from(number).is_ok()),
        Kind::Int64 => value.is_i64(),
        Kind::Number => value.is_number(),
        Kind::DurationOrNumber | Kind::Quantity => value.is_number() || value.is_string(),
        Kind::Text | Kind::Time => value.is_string(),
        Kind::Record(_) => value.is_object(),
        Kind::List(of) => value.as_array().is_some_and(|list| list.iter().all(|item| has_shape(of, item))),
        Kind::Map(of) => value.as_object().is_some_and(|map| map.values().all(|item| has_shape(of, item))),
    }
}

/// The error of an eviction threshold; `None` if it is a percentage or a quantity.
fn threshold_problem(value: &str) -> Option<String> {
    if let Some(number) = value.strip_suffix('%') {
        let is_valid = number.parse::<f64>().is_ok_and(|percent| (0.0..=100.0).contains(&percent));
        return (!is_valid).then(|| format!("{value} is not a percentage from 0% to 100%"));
    }
    match value.parse::<Quantity>() {
        Ok(quantity) if quantity.is_negative() => Some(format!("{value} is negative")),
        Ok(_) => None,
        Err(error) => Some(error.to_string()),
    }
}

fn grace_period_problem(value: &str) -> Option<String> {
    match parse_go_duration(value) {
        Ok(nanos) if nanos < 0 => Some(format!("{value} is negative")),
        Ok(_) => None,
        Err(error) => Some(error.to_string()),
    }
}
