//! Parses selectors of Kubernetes objects into values that filters compare.
//!
//! Invalid selectors are handled as in kube-scheduler: an invalid label selector selects nothing, an invalid node
//! selector term matches no node.
//!
//! Upstream: k8s.io/component-helpers/scheduling/corev1/nodeaffinity

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use karpenter_model::selector::{LabelSelector, Labels, Match};
use karpenter_model::taints::{Effect, Taint, Toleration, TolerationOperator};

pub(super) fn labels(labels: Option<&BTreeMap<String, String>>) -> Labels {
    let labels = labels.into_iter().flatten();
    labels.map(|(key, value)| (key.as_str().into(), value.as_str().into())).collect()
}

fn texts<S: AsRef<str>>(values: impl IntoIterator<Item = S>) -> BTreeSet<Arc<str>> {
    values.into_iter().map(|value| Arc::from(value.as_ref())).collect()
}

/// Parses a label selector. `None` selects nothing: the selector is absent or invalid.
pub(super) fn label_selector(selector: Option<&meta::LabelSelector>) -> Option<LabelSelector> {
    let selector = selector?;
    let mut parsed = LabelSelector::everything();
    for (key, value) in selector.match_labels.iter().flatten() {
        parsed.require(key.as_str().into(), Match::In(texts([value])));
    }
    for expression in selector.match_expressions.iter().flatten() {
        let values = texts(expression.values.iter().flatten());
        let wanted = match expression.operator.as_str() {
            "In" if !values.is_empty() => Match::In(values),
            "NotIn" if !values.is_empty() => Match::NotIn(values),
            "Exists" if values.is_empty() => Match::Exists,
            "DoesNotExist" if values.is_empty() => Match::DoesNotExist,
            _ => return None,
        };
        parsed.require(expression.key.as_str().into(), wanted);
    }
    Some(parsed)
}

pub(super) fn taints(node: &core::Node) -> Vec<Taint> {
    let taints = node.spec.iter().filter_map(|spec| spec.taints.as_ref()).flatten();
    taints
        .filter_map(|taint| {
            Some(Taint {
                key: taint.key.as_str().into(),
                value: taint.value.as_deref().unwrap_or_default().into(),
                effect: Effect::parse(&taint.effect)?,
            })
        })
        .collect()
}

/// Tolerations with the operators Lt and Gt need a feature gate that is off by default, so they tolerate nothing.
pub(super) fn tolerations(spec: &core::PodSpec) -> Vec<Toleration> {
    let read = |toleration: &core::Toleration| {
        let operator = match toleration.operator.as_deref().unwrap_or_default() {
            "" | "Equal" => TolerationOperator::Equal(toleration.value.as_deref().unwrap_or_default().into()),
            "Exists" => TolerationOperator::Exists,
            _ => return None,
        };
        let effect = match toleration.effect.as_deref().unwrap_or_default() {
            "" => None,
            effect => Some(Effect::parse(effect)?),
        };
        Some(Toleration { key: toleration.key.as_deref().unwrap_or_default().into(), operator, effect })
    };
    spec.tolerations.iter().flatten().filter_map(read).collect()
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum NodeMatch {
    In(BTreeSet<Arc<str>>),
    NotIn(BTreeSet<Arc<str>>),
    Exists,
    DoesNotExist,
    GreaterThan(i64),
    LessThan(i64),
}

impl NodeMatch {
    fn holds(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match self {
            Self::In(values) => value.is_some_and(|value| values.contains(value)),
            Self::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
            Self::Exists => value.is_some(),
            Self::DoesNotExist => value.is_none(),
            Self::GreaterThan(bound) => number().is_some_and(|number| number > *bound),
            Self::LessThan(bound) => number().is_some_and(|number| number < *bound),
        }
    }
}

/// One term of a node selector: all its requirements must match.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct NodeTerm {
    labels: Vec<(Arc<str>, NodeMatch)>,
    /// Requirements on `metadata.name`, the only supported field.
    names: Vec<NodeMatch>,
    in_error: bool,
    /// The node names that the term selects, if it has such a requirement.
    pub(super) wanted_names: Option<BTreeSet<Arc<str>>>,
}

impl NodeTerm {
    /// Parses a term; `None` if it is empty, which counts as absent.
    pub(super) fn parse(term: &core::NodeSelectorTerm) -> Option<Self> {
        let expressions = term.match_expressions.as_deref().unwrap_or_default();
        let fields = term.match_fields.as_deref().unwrap_or_default();
        if expressions.is_empty() && fields.is_empty() {
            return None;
        }
        let mut parsed = Self { labels: Vec::new(), names: Vec::new(), in_error: false, wanted_names: None };
        for expression in expressions {
            match label_match(expression) {
                Some(wanted) => parsed.labels.push((expression.key.as_str().into(), wanted)),
                None => parsed.in_error = true,
            }
        }
        for field in fields {
            let values = texts(field.values.iter().flatten());
            if field.key == "metadata.name" && field.operator == "In" {
                parsed.wanted_names = Some(match parsed.wanted_names.take() {
                    Some(names) => names.intersection(&values).cloned().collect(),
                    None => values.clone(),
                });
            }
            match field.operator.as_str() {
                "In" if values.len() == 1 => parsed.names.push(NodeMatch::In(values)),
                "NotIn" if values.len() == 1 => parsed.names.push(NodeMatch::NotIn(values)),
                _ => parsed.in_error = true,
            }
            parsed.in_error |= field.key != "metadata.name";
        }
        Some(parsed)
    }

    /// Whether the node matches the term. Without `name`, requirements on the node's name are ignored.
    pub(super) fn matches(&self, node_labels: &Labels, name: Option<&str>) -> bool {
        !self.in_error
            && self.labels.iter().all(|(key, wanted)| wanted.holds(node_labels.get(key).map(AsRef::as_ref)))
            && name.is_none_or(|name| self.names.iter().all(|wanted| wanted.holds(Some(name))))
    }
}

fn label_match(expression: &core::NodeSelectorRequirement) -> Option<NodeMatch> {
    let values = texts(expression.values.iter().flatten());
    let number = || match expression.values.as_deref().unwrap_or_default() {
        [value] => value.parse::<i64>().ok(),
        _ => None,
    };
    Some(match expression.operator.as_str() {
        "In" if !values.is_empty() => NodeMatch::In(values),
        "NotIn" if !values.is_empty() => NodeMatch::NotIn(values),
        "Exists" if values.is_empty() => NodeMatch::Exists,
        "DoesNotExist" if values.is_empty() => NodeMatch::DoesNotExist,
        "Gt" => NodeMatch::GreaterThan(number()?),
        "Lt" => NodeMatch::LessThan(number()?),
        _ => return None,
    })
}

/// The terms of a node selector; a node must match one of them.
pub(super) fn node_terms(selector: &core::NodeSelector) -> Vec<NodeTerm> {
    selector.node_selector_terms.iter().filter_map(NodeTerm::parse).collect()
}
