//! Validates `spec.kubelet`. The resulting message lists all violations.
//!
//! The message of each violation equals upstream's, except messages about wrong types.

use karpenter_api::types::KubeletValues;
use karpenter_catalog::aws::AmiFamily;
use karpenter_model::duration::parse_go_duration;
use karpenter_model::quantity::Quantity;
use karpenter_userdata::defaults::FeatureFlags;
use serde_json::Value;

use super::expression::Expressions;
use super::parse::{MANAGED, MaxPods, ParsedKubelet, is_expression};
use super::shape;
use crate::options::AwsFeatureGates;

const EVICTION_SIGNALS: [&str; 6] = [
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "pid.available",
];
const RESERVABLE: [&str; 4] = ["cpu", "memory", "ephemeral-storage", "pid"];
const GRACE_PERIOD: &str = "evictionSoftGracePeriod";

/// Why a node class fails validation, as reason and message of the condition `ValidationSucceeded`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub reason: &'static str,
    pub message: String,
}

impl Refusal {
    fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}

/// Makes all checks that need no instance types, in upstream's order.
pub fn check(
    values: &KubeletValues,
    family: AmiFamily,
    gates: AwsFeatureGates,
    expressions: &Expressions,
) -> Result<ParsedKubelet, Refusal> {
    let violations = violations(values);
    if !violations.is_empty() {
        return Err(Refusal::new("InvalidKubeletConfiguration", violations.join("; ")));
    }
    let parsed = ParsedKubelet::parse(values).map_err(|error| {
        Refusal::new("InvalidKubeletConfiguration", format!("parsing spec.kubelet, {error}"))
    })?;
    if parsed.has_expressions() && !gates.node_class_cel {
        return Err(Refusal::new(
            "KubeletExpressionsDisabled",
            "spec.kubelet contains a CEL expression, but the NodeClassCEL feature gate is disabled",
        ));
    }
    if let Some(message) = broken_expression(&parsed, expressions) {
        return Err(Refusal::new("KubeletExpressionInvalid", message));
    }
    match unsupported(values, &parsed, family) {
        Some(message) => Err(Refusal::new("UnsupportedKubeletConfiguration", message)),
        None => Ok(parsed),
    }
}

fn broken_expression(parsed: &ParsedKubelet, expressions: &Expressions) -> Option<String> {
    let max_pods = match &parsed.max_pods {
        Some(MaxPods::Expression(text)) => Some(("spec.kubelet.maxPods".to_owned(), text.as_str())),
        _ => None,
    };
    let reserved = parsed.reserved().filter(|(_, _, value)| is_expression(value));
    let reserved = reserved.map(|(field, key, value)| (format!("spec.kubelet.{field}[{key}]"), value));
    max_pods.into_iter().chain(reserved).find_map(|(path, text)| {
        let error = expressions.compile(text).err()?;
        Some(format!("validating expression, {error} (field={path})"))
    })
}

/// A message that lists settings which the AMI family does not apply; `None` if it applies all. With the family
/// `Custom`, the user writes the whole user data and Karpenter applies no settings, so there is no message.
pub fn unsupported(values: &KubeletValues, parsed: &ParsedKubelet, family: AmiFamily) -> Option<String> {
    let flags = FeatureFlags::of(family);
    if values.is_empty() || family == AmiFamily::Custom || flags.supports_arbitrary_kubelet_config {
        return None;
    }
    let is_dropped = |key: &&str| {
        !MANAGED.contains(key)
            || *key == "podsPerCore" && parsed.pods_per_core.is_some() && !flags.pods_per_core
    };
    let dropped: Vec<&str> = values.keys().map(String::as_str).filter(is_dropped).collect();
    let name = family.as_str();
    let mut messages = Vec::new();
    if !dropped.is_empty() {
        messages.push(format!(
            "spec.kubelet has fields not applied by the {name} AMI family that would be silently dropped: {}",
            dropped.join(", ")
        ));
    }
    if parsed.cluster_dns.len() > 1 {
        messages.push(format!(
            "spec.kubelet.clusterDNS: the {name} AMI family doesn't accept multiple entries, only one, but {} were set",
            parsed.cluster_dns.len()
        ));
    }
    (!messages.is_empty()).then(|| messages.join("; "))
}

/// All errors of the settings that do not depend on the AMI family.
pub fn violations(values: &KubeletValues) -> Vec<String> {
    let mut violations = shape::problems(values);
    if values.contains_key("registerWithTaints") {
        violations.push(
            "spec.kubelet.registerWithTaints: can't be set, Karpenter sets it from the NodeClaim's taints so the \
             node registers unschedulable until it's ready"
                .to_owned(),
        );
    }
    evictions(values, &mut violations);
    soft_evictions(values, &mut violations);
    reservations(values, &mut violations);
    numbers(values, &mut violations);
    violations
}

fn evictions(values: &KubeletValues, violations: &mut Vec<String>) {
    for field in ["evictionHard", "evictionSoft", GRACE_PERIOD, "evictionMinimumReclaim"] {
        for (signal, value) in texts(values, field) {
            if !EVICTION_SIGNALS.contains(&signal) {
                violations.push(format!(
                    "spec.kubelet.{field}: {signal:?} isn't a valid eviction signal, must be one of {}",
                    EVICTION_SIGNALS.join(", ")
                ));
            }
            let problem = if field == GRACE_PERIOD { grace_period(value) } else { threshold(value) };
            if let Some(problem) = problem {
                violations.push(format!("spec.kubelet.{field}[{signal}]: {value:?} {problem}"));
            }
        }
    }
}

fn threshold(value: &str) -> Option<&'static str> {
    const NEITHER: &str = "must be a percentage or a resource quantity";
    if let Some(number) = value.strip_suffix('%') {
        let fits = number.parse::<f64>().is_ok_and(|percent| (0.0..=100.0).contains(&percent));
        return (!fits).then_some(NEITHER);
    }
    match value.parse::<Quantity>() {
        Err(_) => Some(NEITHER),
        Ok(quantity) => quantity.is_negative().then_some("can't be a negative resource quantity"),
    }
}

fn grace_period(value: &str) -> Option<&'static str> {
    match parse_go_duration(value) {
        Err(_) => Some("must be a duration"),
        Ok(nanoseconds) => (nanoseconds < 0).then_some("can't be a negative duration"),
    }
}

/// Checks that soft eviction thresholds and grace periods belong together. The kubelet ignores a soft threshold without
/// a grace period; with a grace period but no threshold, it does not start.
fn soft_evictions(values: &KubeletValues, violations: &mut Vec<String>) {
    let mut unmatched = |field: &str, other: &str| {
        let others = texts(values, other);
        for (signal, _) in texts(values, field) {
            if !others.iter().any(|(known, _)| *known == signal) {
                violations.push(format!("spec.kubelet.{field}[{signal}]: has no matching {other}"));
            }
        }
    };
    unmatched("evictionSoft", GRACE_PERIOD);
    unmatched(GRACE_PERIOD, "evictionSoft");
}

fn reservations(values: &KubeletValues, violations: &mut Vec<String>) {
    for field in ["kubeReserved", "systemReserved"] {
        for (resource, value) in texts(values, field) {
            if !RESERVABLE.contains(&resource) {
                violations.push(format!(
                    "spec.kubelet.{field}: {resource:?} isn't a reservable resource, must be one of {}",
                    RESERVABLE.join(", ")
                ));
            }
            // This applies to expressions as well: no variable is negative, so a leading minus makes the result
            // negative.
            if value.starts_with('-') {
                violations.push(format!(
                    "spec.kubelet.{field}[{resource}]: {value:?} can't be a negative resource quantity"
                ));
            }
        }
    }
}

fn numbers(values: &KubeletValues, violations: &mut Vec<String>) {
    let number = |field: &str| values.get(field).and_then(Value::as_i64);
    let (high, low) = ("imageGCHighThresholdPercent", "imageGCLowThresholdPercent");
    for field in [high, low] {
        if let Some(value) = number(field).filter(|value| !(0..=100).contains(value)) {
            violations.push(format!("spec.kubelet.{field}: {value} must be between 0 and 100"));
        }
    }
    for field in ["podsPerCore", "evictionMaxPodGracePeriod", "maxPods"] {
        if let Some(value) = number(field).filter(|value| *value < 0) {
            violations.push(format!("spec.kubelet.{field}: {value} can't be negative"));
        }
    }
    if let (Some(above), Some(below)) = (number(high), number(low))
        && above <= below
    {
        violations.push(format!("spec.kubelet: {high} ({above}) must be greater than {low} ({below})"));
    }
}

/// The entries of a field that is a map of strings, sorted by key; empty if the field is something else.
fn texts<'a>(values: &'a KubeletValues, field: &str) -> Vec<(&'a str, &'a str)> {
    let Some(Value::Object(entries)) = values.get(field) else { return Vec::new() };
    let texts = entries.iter().map(|(key, value)| match value {
        Value::Null => Some((key.as_str(), "")),
        value => Some((key.as_str(), value.as_str()?)),
    });
    let mut texts = texts.collect::<Option<Vec<_>>>().unwrap_or_default();
    texts.sort_unstable();
    texts
}

#[cfg(test)]
mod tests;
