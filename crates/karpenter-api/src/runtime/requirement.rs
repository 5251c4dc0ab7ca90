//! Rules for one label requirement of a NodePool, NodeOverlay or pod.

use super::names::{label_value_problem, qualified_name_problem};
use super::{restricted_label_error, runtime_error};
use crate::error::FieldError;
use crate::labels::LabelRules;

pub const SUPPORTED_OPERATORS: [&str; 8] =
    ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte"];
const NUMERIC_OPERATORS: [&str; 4] = ["Gt", "Lt", "Gte", "Lte"];

/// The errors of a requirement whose provider is unknown, such as a pod's.
pub fn requirement_errors(
    key: &str,
    operator: &str,
    values: &[&str],
    min_values: Option<i64>,
    path: &str,
) -> Vec<FieldError> {
    requirement_errors_with(&LabelRules::for_all_providers(), key, operator, values, min_values, path)
}

/// The errors of a requirement, checked with the label rules of a provider.
pub fn requirement_errors_with(
    rules: &LabelRules,
    key: &str,
    operator: &str,
    values: &[&str],
    min_values: Option<i64>,
    path: &str,
) -> Vec<FieldError> {
    let key = rules.normalize(key);
    let mut errors = Vec::new();
    if !SUPPORTED_OPERATORS.contains(&operator) {
        let message = format!("operator {operator:?} is not supported");
        errors.push(
            runtime_error(format!("{path}.operator"), message).with_valid(SUPPORTED_OPERATORS.join(", ")),
        );
    }
    if let Err(restricted) = rules.check_unrestricted(key) {
        errors.push(restricted_label_error(rules, &format!("{path}.key"), &restricted));
    }
    if operator == "In" {
        errors.extend(known_value_error(rules, key, values, min_values, path));
    }
    if let Some(problem) = qualified_name_problem(key) {
        errors.push(runtime_error(format!("{path}.key"), format!("key {problem}")));
    }
    for (index, value) in values.iter().enumerate() {
        if let Some(problem) = label_value_problem(value) {
            errors.push(runtime_error(format!("{path}.values[{index}]"), format!("value {problem}")));
        }
    }
    if operator == "In" {
        let message = match min_values {
            _ if values.is_empty() => Some("operator In needs at least one value".to_owned()),
            Some(min_values) if min_values > values.len() as i64 => {
                Some(format!("minValues is {min_values}, but only {} values are given", values.len()))
            }
            _ => None,
        };
        errors.extend(message.map(|message| runtime_error(format!("{path}.values"), message)));
    }
    if NUMERIC_OPERATORS.contains(&operator) && !is_single_natural_number(values) {
        let message = format!("operator {operator} needs exactly one value, a non-negative integer");
        errors.push(runtime_error(format!("{path}.values"), message));
    }
    errors
}

/// The error of unknown label values. They are accepted if enough known values remain.
fn known_value_error(
    rules: &LabelRules,
    key: &str,
    values: &[&str],
    min_values: Option<i64>,
    path: &str,
) -> Option<FieldError> {
    let known = rules.known_values(key)?;
    let usable = values.iter().filter(|value| known.contains(value)).count();
    let message = if usable == 0 && !values.is_empty() {
        format!("no value of {key} is known")
    } else if min_values.is_some_and(|min_values| (usable as i64) < min_values) {
        format!("only {usable} known values of {key} are given, fewer than minValues")
    } else {
        return None;
    };
    Some(runtime_error(format!("{path}.values"), message).with_valid(known.join(", ")))
}

fn is_single_natural_number(values: &[&str]) -> bool {
    matches!(values, [value] if value.parse::<i64>().is_ok_and(|number| number >= 0))
}
