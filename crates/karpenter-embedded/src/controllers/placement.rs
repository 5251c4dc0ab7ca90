//! Whether a pod may run on a node: node selector, required node affinity and taints. The scheduler checks free
//! resources.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodSpec};

use karpenter_runtime::object::name_of;

/// Whether the node satisfies the pod's node selector and its required node affinity.
pub fn selects(spec: &PodSpec, node: &Node) -> bool {
    let labels = node.metadata.labels.as_ref();
    let by_labels = spec
        .node_selector
        .iter()
        .flatten()
        .all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value));
    let required = spec
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.node_affinity.as_ref())
        .and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    by_labels && required.is_none_or(|selector| matches(selector, node))
}

/// Whether one of the terms matches the node. A term without expressions matches no node.
pub fn matches(selector: &NodeSelector, node: &Node) -> bool {
    selector.node_selector_terms.iter().any(|term| term_matches(term, node))
}

fn term_matches(term: &NodeSelectorTerm, node: &Node) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    if expressions.is_empty() && fields.is_empty() {
        return false;
    }
    let labels = node.metadata.labels.clone().unwrap_or_default();
    let names: BTreeMap<String, String> = [("metadata.name".to_string(), name_of(node).to_string())].into();
    expressions.iter().all(|rule| rule_matches(rule, &labels))
        && fields.iter().all(|rule| rule_matches(rule, &names))
}

fn rule_matches(rule: &NodeSelectorRequirement, labels: &BTreeMap<String, String>) -> bool {
    let values = rule.values.as_deref().unwrap_or_default();
    let found = labels.get(&rule.key);
    let compared = |is: fn(i64, i64) -> bool| {
        let bound = values.first().and_then(|value| value.parse::<i64>().ok());
        let found = found.and_then(|value| value.parse::<i64>().ok());
        found.zip(bound).is_some_and(|(found, bound)| is(found, bound))
    };
    match rule.operator.as_str() {
        "In" => found.is_some_and(|value| values.contains(value)),
        "NotIn" => found.is_none_or(|value| !values.contains(value)),
        "Exists" => found.is_some(),
        "DoesNotExist" => found.is_none(),
        "Gt" => compared(|found, bound| found > bound),
        "Lt" => compared(|found, bound| found < bound),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::controllers::fixtures::from;

    #[test]
    fn node_affinity_operators() {
        let node: Node = from(json!({"metadata": {"name": "n1", "labels": {"zone": "a", "cpu": "8"}}}));
        let fits = |rule: serde_json::Value| {
            let spec: PodSpec = from(json!({"containers": [], "affinity": {"nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}}}}));
            selects(&spec, &node)
        };
        assert!(fits(json!({"key": "zone", "operator": "In", "values": ["a", "b"]})));
        assert!(!fits(json!({"key": "zone", "operator": "NotIn", "values": ["a"]})));
        assert!(fits(json!({"key": "gpu", "operator": "NotIn", "values": ["a"]})));
        assert!(fits(json!({"key": "cpu", "operator": "Gt", "values": ["4"]})));
        assert!(!fits(json!({"key": "cpu", "operator": "Lt", "values": ["4"]})));
        assert!(!fits(json!({"key": "zone", "operator": "Lt", "values": ["4"]})));
    }
}
