//! Rules for Provisioners, except those for kubelet settings and AWS settings.

use std::collections::{BTreeMap, BTreeSet};

use crate::finding::Report;
use crate::labels::{label_value_problem, normalize, qualified_name_problem, restriction};
use crate::quantities;
use crate::types::{LegacyRequirement, LegacyTaint, ProvisionerSpec};

const OPERATORS: [&str; 6] = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"];
const EFFECTS: [&str; 4] = ["NoSchedule", "PreferNoSchedule", "NoExecute", ""];

pub(crate) fn check(spec: &ProvisionerSpec, report: &mut Report) {
    check_times(spec, report);
    check_provider_choice(spec, report);
    if let Some(weight) = spec.weight
        && !(1..=100).contains(&weight)
    {
        report.never_valid("spec.weight", format!("{weight} is out of range"), "a number from 1 to 100");
    }
    for (name, amount) in spec.limits.iter().flat_map(|limits| &limits.resources) {
        if let Err(problem) = quantities::parse(amount) {
            report.never_valid(
                format!("spec.limits.resources.{name}"),
                problem,
                "a quantity such as 100 or 64Gi",
            );
        }
    }
    check_labels(&spec.labels, report);
    check_taints(spec, report);
    for (index, requirement) in spec.requirements.iter().enumerate() {
        check_requirement(requirement, &format!("spec.requirements[{index}]"), report);
    }
}

fn check_times(spec: &ProvisionerSpec, report: &mut Report) {
    for (field, seconds) in [
        ("spec.ttlSecondsAfterEmpty", spec.ttl_seconds_after_empty),
        ("spec.ttlSecondsUntilExpired", spec.ttl_seconds_until_expired),
    ] {
        if let Some(seconds) = seconds.filter(|seconds| *seconds < 0) {
            report.never_valid(field, format!("{seconds} is negative"), "0 or more, or omit the field");
        }
    }
    let consolidates = spec.consolidation.as_ref().and_then(|one| one.enabled).unwrap_or(false);
    if consolidates && spec.ttl_seconds_after_empty.is_some() {
        report.never_valid(
            "spec.consolidation.enabled",
            "expected exactly one, got both: spec.ttlSecondsAfterEmpty, spec.consolidation.enabled",
            "remove ttlSecondsAfterEmpty, or set consolidation.enabled to false",
        );
    }
}

fn check_provider_choice(spec: &ProvisionerSpec, report: &mut Report) {
    match (&spec.provider, &spec.provider_ref) {
        (Some(_), Some(_)) => report.never_valid(
            "spec.provider",
            "expected exactly one, got both: spec.provider, spec.providerRef",
            "keep providerRef and move the settings to an AWSNodeTemplate, or remove providerRef",
        ),
        (None, None) => report.never_valid(
            "spec.providerRef",
            "expected exactly one, got neither: spec.provider, spec.providerRef",
            "the name of an AWSNodeTemplate in providerRef.name, or AWS settings in provider",
        ),
        (None, Some(reference)) if reference.name.is_empty() => {
            report.never_valid("spec.providerRef.name", "is missing", "the name of an AWSNodeTemplate");
        }
        _ => {}
    }
}

fn check_labels(labels: &BTreeMap<String, String>, report: &mut Report) {
    for (key, value) in labels {
        let field = format!("spec.labels[{key}]");
        if let Some(problem) = qualified_name_problem(key) {
            report.never_valid(
                &field,
                format!("the key is not a valid label key: {problem}"),
                "a key such as example.com/team",
            );
        } else if let Some(problem) = restriction(normalize(key)) {
            report.never_valid(&field, problem, "a key of your own domain");
        }
        if let Some(problem) = label_value_problem(value) {
            report.never_valid(field, format!("the value {value:?} {problem}"), "a value such as team-a");
        }
    }
}

/// Checks that no combination of key and effect occurs twice in taints and startup taints.
fn check_taints(spec: &ProvisionerSpec, report: &mut Report) {
    let mut seen = BTreeSet::new();
    for (list, taints) in [("taints", &spec.taints), ("startupTaints", &spec.startup_taints)] {
        for (index, taint) in taints.iter().enumerate() {
            let field = format!("spec.{list}[{index}]");
            check_taint(taint, &field, report);
            if !seen.insert((taint.key.as_str(), taint.effect.as_str())) {
                report.never_valid(
                    field,
                    format!(
                        "key {:?} with effect {:?} occurs twice in taints and startupTaints",
                        taint.key, taint.effect
                    ),
                    "every key and effect once",
                );
            }
        }
    }
}

fn check_taint(taint: &LegacyTaint, field: &str, report: &mut Report) {
    if let Some(problem) = qualified_name_problem(&taint.key) {
        report.never_valid(format!("{field}.key"), problem, "a key such as example.com/team");
    }
    if let Some(value) = taint.value.as_deref().filter(|value| !value.is_empty())
        && let Some(problem) = qualified_name_problem(value)
    {
        report.never_valid(format!("{field}.value"), problem, "a value such as team-a");
    }
    if !EFFECTS.contains(&taint.effect.as_str()) {
        report.never_valid(
            format!("{field}.effect"),
            format!("{:?} is not an effect", taint.effect),
            "NoSchedule, PreferNoSchedule or NoExecute",
        );
    }
}

fn check_requirement(requirement: &LegacyRequirement, field: &str, report: &mut Report) {
    let LegacyRequirement { key, operator, values } = requirement;
    let key = normalize(key);
    if let Some(problem) = qualified_name_problem(key) {
        report.never_valid(format!("{field}.key"), problem, "a label key such as kubernetes.io/arch");
    } else if let Some(problem) = restriction(key) {
        report.never_valid(
            format!("{field}.key"),
            problem,
            "a well-known label, or a key of your own domain",
        );
    }
    for value in values {
        if let Some(problem) = label_value_problem(value) {
            report.never_valid(
                format!("{field}.values"),
                format!("{value:?} {problem}"),
                "valid label values",
            );
        }
    }
    match operator.as_str() {
        "In" if values.is_empty() => report.never_valid(
            format!("{field}.values"),
            format!("key {key} with operator In must have a value defined"),
            "at least one value, or remove the requirement",
        ),
        "Gt" | "Lt" if !is_one_whole_number(values) => report.never_valid(
            format!("{field}.values"),
            format!("key {key} with operator {operator} must have a single positive integer value"),
            "one integer in quotes, such as \"2\"",
        ),
        operator if !OPERATORS.contains(&operator) => report.never_valid(
            format!("{field}.operator"),
            format!("{operator:?} is not an operator"),
            OPERATORS.join(", "),
        ),
        _ => {}
    }
}

fn is_one_whole_number(values: &[String]) -> bool {
    matches!(values, [value] if value.parse::<i64>().is_ok_and(|number| number >= 0))
}
