//! `LabelSelector` objects: whether they match, and how the status of a `Scale` prints them.

use serde_json::Value;

use super::json::{entries, is_set, items, text};

/// Whether the selector matches the labels; `None` if the selector is invalid. An absent selector matches nothing, an
/// empty one everything.
pub(crate) fn matches(selector: &Value, labels: &Value) -> Option<bool> {
    if !is_set(selector) {
        return Some(false);
    }
    for (key, value) in entries(&selector["matchLabels"]) {
        if labels.get(key) != Some(value) {
            return Some(false);
        }
    }
    let mut all = true;
    for expression in items(&selector["matchExpressions"]) {
        let actual = labels.get(text(&expression["key"]));
        let values = items(&expression["values"]);
        all &= match text(&expression["operator"]) {
            "In" if !values.is_empty() => actual.is_some_and(|actual| values.contains(actual)),
            "NotIn" if !values.is_empty() => actual.is_none_or(|actual| !values.contains(actual)),
            "Exists" if values.is_empty() => actual.is_some(),
            "DoesNotExist" if values.is_empty() => actual.is_none(),
            _ => return None,
        };
    }
    Some(all)
}

/// The selector as a string such as `app=web,tier in (a,b)`.
pub(crate) fn query_text(selector: &Value) -> String {
    let mut terms: Vec<(String, String)> = entries(&selector["matchLabels"])
        .map(|(key, value)| (key.clone(), format!("{key}={}", text(value))))
        .collect();
    for expression in items(&selector["matchExpressions"]) {
        let key = text(&expression["key"]);
        let mut values: Vec<&str> = items(&expression["values"]).iter().map(text).collect();
        values.sort_unstable();
        let term = match text(&expression["operator"]) {
            "In" => format!("{key} in ({})", values.join(",")),
            "NotIn" => format!("{key} notin ({})", values.join(",")),
            "Exists" => key.to_string(),
            _ => format!("!{key}"),
        };
        terms.push((key.to_string(), term));
    }
    terms.sort_by(|left, right| left.0.cmp(&right.0));
    terms.into_iter().map(|(_, term)| term).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn selectors_match() {
        let labels = json!({"app": "web", "tier": "front"});
        let table = [
            (json!(null), Some(false)),
            (json!({}), Some(true)),
            (json!({"matchLabels": {"app": "web"}}), Some(true)),
            (json!({"matchLabels": {"app": "db"}}), Some(false)),
            (
                json!({"matchExpressions": [{"key": "tier", "operator": "In", "values": ["front", "back"]}]}),
                Some(true),
            ),
            (
                json!({"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["a"]}]}),
                Some(true),
            ),
            (json!({"matchExpressions": [{"key": "zone", "operator": "Exists"}]}), Some(false)),
            (json!({"matchExpressions": [{"key": "zone", "operator": "DoesNotExist"}]}), Some(true)),
            (json!({"matchExpressions": [{"key": "zone", "operator": "In", "values": []}]}), None),
        ];
        for (selector, expected) in table {
            assert_eq!(matches(&selector, &labels), expected, "{selector}");
        }
    }

    #[test]
    fn selectors_as_text() {
        let selector = json!({"matchLabels": {"b": "1"}, "matchExpressions": [
            {"key": "a", "operator": "In", "values": ["y", "x"]}, {"key": "c", "operator": "DoesNotExist"}]});
        assert_eq!(query_text(&selector), "a in (x,y),b=1,!c");
    }
}
