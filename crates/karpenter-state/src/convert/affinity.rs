//! Constraints between pods: topology spread and (anti-)affinity, with resolved selectors and namespaces.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{
    Namespace, PodAffinityTerm as RawTerm, TopologySpreadConstraint, WeightedPodAffinityTerm,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector as RawSelector;
use karpenter_model::labels;
use karpenter_model::pod::{PodAffinityTerm, TopologySpread};
use karpenter_model::selector::{LabelSelector, Labels, Match};

use crate::intern::Interner;

const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// The namespaces of an input with their labels. A namespace without a Namespace object has only the label with its
/// name.
#[derive(Debug, Default)]
pub(crate) struct Namespaces {
    labels: BTreeMap<Arc<str>, Labels>,
}

impl Namespaces {
    pub(crate) fn new<'a>(
        objects: &[impl Borrow<Namespace>],
        mentioned: impl IntoIterator<Item = &'a str>,
        interner: &mut Interner,
    ) -> Self {
        let mut namespaces = Self::default();
        for object in objects {
            let object: &Namespace = object.borrow();
            let Some(name) = &object.metadata.name else { continue };
            let given = object.metadata.labels.iter().flatten();
            let labels = given.map(|(key, value)| (interner.get(key), interner.get(value))).collect();
            namespaces.labels.insert(interner.get(name), labels);
        }
        for name in mentioned {
            if !namespaces.labels.contains_key(name) {
                namespaces.labels.insert(interner.get(name), Labels::new());
            }
        }
        let key = interner.get(NAMESPACE_NAME);
        for (name, labels) in &mut namespaces.labels {
            labels.insert(key.clone(), name.clone());
        }
        namespaces
    }

    fn matching(&self, selector: &LabelSelector) -> impl Iterator<Item = Arc<str>> {
        let matching = self.labels.iter().filter(|(_, labels)| selector.matches(labels));
        matching.map(|(name, _)| name.clone())
    }
}

/// The pod whose constraints are converted.
pub(crate) struct Owner<'a> {
    pub(crate) namespace: &'a Arc<str>,
    pub(crate) labels: &'a Labels,
}

pub(crate) fn selector(raw: &RawSelector, interner: &mut Interner) -> LabelSelector {
    let mut selector = LabelSelector::everything();
    for (key, value) in raw.match_labels.iter().flatten() {
        selector.require(interner.get(key), Match::In([interner.get(value)].into()));
    }
    for expression in raw.match_expressions.iter().flatten() {
        let values = expression.values.iter().flatten().map(|value| interner.get(value)).collect();
        let expectation = match expression.operator.as_str() {
            "In" => Match::In(values),
            "NotIn" => Match::NotIn(values),
            "Exists" => Match::Exists,
            // Invalid operators were rejected when the object was read.
            _ => Match::DoesNotExist,
        };
        selector.require(interner.get(&expression.key), expectation);
    }
    selector
}

pub(crate) fn spread(
    raw: &TopologySpreadConstraint,
    owner: &Owner<'_>,
    interner: &mut Interner,
) -> TopologySpread {
    let mut selector = raw.label_selector.as_ref().map(|raw| selector(raw, interner));
    if let Some(selector) = &mut selector {
        require_same(selector, owner, raw.match_label_keys.as_ref());
    }
    TopologySpread {
        key: interner.get(labels::normalize(&raw.topology_key)),
        max_skew: u32::try_from(raw.max_skew).unwrap_or(1).max(1),
        min_domains: raw.min_domains.and_then(|count| u32::try_from(count).ok()),
        hard: raw.when_unsatisfiable != "ScheduleAnyway",
        selector,
        honor_affinity: raw.node_affinity_policy.as_deref() != Some("Ignore"),
        honor_taints: raw.node_taints_policy.as_deref() == Some("Honor"),
    }
}

/// Adds `matchLabelKeys` to a selector. Keys that the pod does not have are ignored, because a pod from a template
/// lacks the labels that its controller will add.
fn require_same(selector: &mut LabelSelector, owner: &Owner<'_>, keys: Option<&Vec<String>>) {
    for key in keys.into_iter().flatten() {
        if let Some((key, value)) = owner.labels.get_key_value(key.as_str()) {
            selector.require(key.clone(), Match::In([value.clone()].into()));
        }
    }
}

pub(crate) fn term(
    raw: &RawTerm,
    owner: &Owner<'_>,
    namespaces: &Namespaces,
    interner: &mut Interner,
) -> PodAffinityTerm {
    let mut label_selector = raw.label_selector.as_ref().map(|raw| selector(raw, interner));
    if let Some(label_selector) = &mut label_selector {
        require_same(label_selector, owner, raw.match_label_keys.as_ref());
        for key in raw.mismatch_label_keys.iter().flatten() {
            if let Some((key, value)) = owner.labels.get_key_value(key.as_str()) {
                label_selector.require(key.clone(), Match::NotIn([value.clone()].into()));
            }
        }
    }
    let mut named: BTreeSet<Arc<str>> =
        raw.namespaces.iter().flatten().map(|name| interner.get(name)).collect();
    if let Some(raw) = &raw.namespace_selector {
        named.extend(namespaces.matching(&selector(raw, interner)));
    } else if named.is_empty() {
        named.insert(owner.namespace.clone());
    }
    PodAffinityTerm {
        key: interner.get(labels::normalize(&raw.topology_key)),
        selector: label_selector,
        namespaces: named,
    }
}

/// The preferred terms, highest weight first; terms of equal weight keep their order.
pub(crate) fn weighted(
    raw: Option<&Vec<WeightedPodAffinityTerm>>,
    owner: &Owner<'_>,
    namespaces: &Namespaces,
    interner: &mut Interner,
) -> Vec<(i32, PodAffinityTerm)> {
    let mut terms: Vec<_> = raw
        .into_iter()
        .flatten()
        .map(|weighted| (weighted.weight, term(&weighted.pod_affinity_term, owner, namespaces, interner)))
        .collect();
    terms.sort_by_key(|(weight, _)| std::cmp::Reverse(*weight));
    terms
}
