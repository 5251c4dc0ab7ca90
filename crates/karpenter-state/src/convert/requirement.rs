//! Converts node requirements of pods and volumes, and finds requirements that Karpenter rejects.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm};
use karpenter_api::labels::PROVISIONER_NAME;
use karpenter_model::labels;
use karpenter_model::requirements::{Operator, Requirement, Requirements};

use crate::intern::Interner;

/// Label domains that only Karpenter and its providers may use.
const RESTRICTED_DOMAINS: [&str; 3] = ["karpenter.sh", "karpenter.k8s.aws", "karpenter.kwok.sh"];
const CAPACITY_TYPES: [&str; 3] =
    [labels::CAPACITY_TYPE_ON_DEMAND, labels::CAPACITY_TYPE_SPOT, labels::CAPACITY_TYPE_RESERVED];

pub(crate) fn requirement(
    key: &str,
    operator: Operator,
    values: &[String],
    interner: &mut Interner,
) -> Requirement {
    let values: Vec<Arc<str>> = values.iter().map(|value| interner.get(value)).collect();
    Requirement::new(interner.get(labels::normalize(key)), operator, values)
}

/// The requirements of a pod for one expression. A v1alpha5 key with dots is converted to the v1 key. The result then
/// also requires a node of a Provisioner, because only such nodes have the label, except for operators that exclude
/// values.
pub(crate) fn wanted(
    key: &str,
    operator: Operator,
    values: &[String],
    interner: &mut Interner,
) -> impl Iterator<Item = Requirement> + use<> {
    let dotted = labels::undotted(key);
    let asks_for_label = !matches!(operator, Operator::NotIn | Operator::DoesNotExist);
    let old_nodes = dotted
        .filter(|_| asks_for_label)
        .map(|_| Requirement::new(interner.get(PROVISIONER_NAME), Operator::Exists, Vec::<Arc<str>>::new()));
    let itself = requirement(dotted.unwrap_or(key), operator, values, interner);
    std::iter::once(itself).chain(old_nodes)
}

/// The expressions of a term. Expressions with unknown operators are left out; where they matter, another check reports
/// them.
pub(crate) fn term(term: &NodeSelectorTerm, interner: &mut Interner) -> Requirements {
    let expressions = term.match_expressions.iter().flatten();
    expressions
        .filter_map(|expression| {
            let operator = Operator::parse(&expression.operator)?;
            let values = expression.values.as_deref().unwrap_or_default();
            Some(wanted(&expression.key, operator, values, interner))
        })
        .flatten()
        .collect()
}

/// Why Karpenter does not plan a pod with this required term.
pub(crate) fn term_error(term: &NodeSelectorTerm, well_known: &BTreeSet<Arc<str>>) -> Option<String> {
    if term.match_fields.as_ref().is_some_and(|fields| !fields.is_empty()) {
        return Some(
            "node selector terms with matchFields are not supported, use matchExpressions".to_owned(),
        );
    }
    term.match_expressions.iter().flatten().find_map(|expression| expression_error(expression, well_known))
}

fn expression_error(expression: &NodeSelectorRequirement, well_known: &BTreeSet<Arc<str>>) -> Option<String> {
    let values = expression.values.as_deref().unwrap_or_default();
    match Operator::parse(&expression.operator) {
        Some(operator) => requirement_error(&expression.key, operator, values, well_known),
        None => Some(format!(
            "{}: operator {:?} is not supported, use In, NotIn, Exists, DoesNotExist, Gt or Lt",
            expression.key, expression.operator
        )),
    }
}

/// Why Karpenter does not plan a pod with this requirement.
pub(crate) fn requirement_error(
    key: &str,
    operator: Operator,
    values: &[String],
    well_known: &BTreeSet<Arc<str>>,
) -> Option<String> {
    let key = labels::undotted(key).unwrap_or_else(|| labels::normalize(key));
    if let Some(why) = restriction(key, well_known) {
        return Some(why);
    }
    if !is_qualified_name(key) {
        return Some(format!("{key:?} is not a label key"));
    }
    if let Some(value) = values.iter().find(|value| !is_label_value(value)) {
        return Some(format!(
            "{key}: {value:?} is not a label value, which has up to 63 letters, digits, '-', '_' or '.'"
        ));
    }
    match operator {
        Operator::In if values.is_empty() => Some(format!("{key}: operator In needs at least one value")),
        Operator::In
            if key == labels::CAPACITY_TYPE
                && !values.iter().any(|value| CAPACITY_TYPES.contains(&value.as_str())) =>
        {
            Some(format!("{key}: none of [{}] is one of {}", values.join(" "), CAPACITY_TYPES.join(", ")))
        }
        Operator::Gt | Operator::Lt | Operator::Gte | Operator::Lte => {
            let is_bound = matches!(values, [value] if value.parse::<i64>().is_ok_and(|bound| bound >= 0));
            (!is_bound).then(|| {
                format!("{key}: operator {} needs exactly one non-negative integer", operator.as_str())
            })
        }
        _ => None,
    }
}

fn restriction(key: &str, well_known: &BTreeSet<Arc<str>>) -> Option<String> {
    if key == labels::HOSTNAME {
        return Some(format!("label {key} is restricted: it is not known before a node exists"));
    }
    // With this label, pods select NodePools that are derived from Provisioners; other NodePools do not have it.
    if well_known.contains(key) || key == PROVISIONER_NAME {
        return None;
    }
    let (domain, _) = key.split_once('/')?;
    let is_restricted = RESTRICTED_DOMAINS.iter().any(|restricted| {
        domain.strip_suffix(restricted).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    });
    is_restricted.then(|| format!("label {key} is restricted: domain {domain} belongs to Karpenter"))
}

/// `name` or `prefix/name`, like label keys.
pub(crate) fn is_qualified_name(key: &str) -> bool {
    match key.split_once('/') {
        Some((prefix, name)) => is_dns_subdomain(prefix) && !name.is_empty() && is_label_value(name),
        None => !key.is_empty() && is_label_value(key),
    }
}

fn is_dns_subdomain(text: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    text.len() <= 253 && text.split('.').all(is_label)
}

pub(crate) fn is_label_value(text: &str) -> bool {
    let bytes = text.as_bytes();
    let is_edge = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_alphanumeric);
    bytes.len() <= 63
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
        && is_edge(bytes.first())
        && is_edge(bytes.last())
}
