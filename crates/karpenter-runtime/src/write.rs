//! JSON merge patches that contain only the changed fields.

use serde::Serialize;
use serde_json::{Map, Value};

/// The merge patch from `old` to `new`; `None` if they are equal.
pub fn difference<S: Serialize>(old: &S, new: &S) -> Option<Value> {
    // Kubernetes types always serialize to JSON.
    let (old, new) = (serde_json::to_value(old).ok()?, serde_json::to_value(new).ok()?);
    merge_difference(&old, &new)
}

fn merge_difference(old: &Value, new: &Value) -> Option<Value> {
    if old == new {
        return None;
    }
    let (Value::Object(old), Value::Object(new)) = (old, new) else { return Some(new.clone()) };
    let mut patch = Map::new();
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    for (key, value) in new {
        match old.get(key) {
            Some(before) => patch.extend(merge_difference(before, value).map(|part| (key.clone(), part))),
            None => {
                patch.insert(key.clone(), value.clone());
            }
        }
    }
    Some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn difference_has_removed_and_changed_fields() {
        let old = json!({"a": 1, "b": {"c": 1, "d": 2}, "e": [1]});
        let new = json!({"b": {"c": 1, "d": 3}, "e": [1, 2], "f": {"g": 1}});
        let expected = json!({"a": null, "b": {"d": 3}, "e": [1, 2], "f": {"g": 1}});
        assert_eq!(difference(&old, &new), Some(expected));
        assert_eq!(difference(&new, &new), None);
    }
}
