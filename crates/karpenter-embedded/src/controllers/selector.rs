//! Matches labels against a `LabelSelector`.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};

/// Whether the selector matches the labels. An empty selector matches everything; an unknown operator matches nothing.
pub fn matches(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let exact = selector.match_labels.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    exact
        && selector.match_expressions.iter().flatten().all(|rule| {
            let values = rule.values.as_deref().unwrap_or_default();
            let found = labels.get(&rule.key);
            match rule.operator.as_str() {
                "In" => found.is_some_and(|value| values.contains(value)),
                "NotIn" => found.is_none_or(|value| !values.contains(value)),
                "Exists" => found.is_some(),
                "DoesNotExist" => found.is_none(),
                _ => false,
            }
        })
}

pub fn matches_meta(selector: &LabelSelector, meta: &ObjectMeta) -> bool {
    static NONE: BTreeMap<String, String> = BTreeMap::new();
    matches(selector, meta.labels.as_ref().unwrap_or(&NONE))
}

/// Whether the selector has no requirements.
pub fn is_empty(selector: &LabelSelector) -> bool {
    selector.match_labels.as_ref().is_none_or(BTreeMap::is_empty)
        && selector.match_expressions.as_ref().is_none_or(Vec::is_empty)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement;

    use super::*;

    fn rule(operator: &str, values: &[&str]) -> LabelSelector {
        let rule = LabelSelectorRequirement {
            key: "app".into(),
            operator: operator.into(),
            values: Some(values.iter().map(ToString::to_string).collect()),
        };
        LabelSelector { match_expressions: Some(vec![rule]), ..LabelSelector::default() }
    }

    #[test]
    fn selector_operators() {
        let web: BTreeMap<String, String> = [("app".to_string(), "web".to_string())].into();
        let none = BTreeMap::new();
        let cases = [
            (rule("In", &["web"]), true, false),
            (rule("In", &["db"]), false, false),
            (rule("NotIn", &["web"]), false, true),
            (rule("NotIn", &["db"]), true, true),
            (rule("Exists", &[]), true, false),
            (rule("DoesNotExist", &[]), false, true),
            (LabelSelector::default(), true, true),
        ];
        for (selector, with, without) in cases {
            assert_eq!(matches(&selector, &web), with, "{selector:?}");
            assert_eq!(matches(&selector, &none), without, "{selector:?}");
        }
    }
}
