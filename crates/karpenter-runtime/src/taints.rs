//! Whether tolerations tolerate taints.

use k8s_openapi::api::core::v1::{Node, Taint, Toleration};

pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let effect = toleration.effect.as_deref().unwrap_or_default();
    let key = toleration.key.as_deref().unwrap_or_default();
    if !effect.is_empty() && effect != taint.effect || !key.is_empty() && key != taint.key {
        return false;
    }
    match toleration.operator.as_deref().unwrap_or("Equal") {
        "Exists" => true,
        "Equal" | "" => {
            toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default()
        }
        _ => false,
    }
}

/// Whether all taints with one of the effects are tolerated.
pub fn tolerates_all(tolerations: &[Toleration], taints: &[Taint], effects: &[&str]) -> bool {
    taints
        .iter()
        .filter(|taint| effects.contains(&taint.effect.as_str()))
        .all(|taint| tolerations.iter().any(|toleration| tolerates(toleration, taint)))
}

pub fn taints_of(node: &Node) -> &[Taint] {
    node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde::de::DeserializeOwned;
    use serde_json::json;

    use super::*;

    fn read<K: DeserializeOwned>(value: serde_json::Value) -> K {
        serde_json::from_value(value).expect("an object of the kind")
    }

    #[test]
    fn tolerations_match_key_value_and_effect() {
        let taint: Taint = read(json!({"key": "a", "value": "x", "effect": "NoSchedule"}));
        let is = |toleration: serde_json::Value| tolerates(&read(toleration), &taint);
        assert!(is(json!({"operator": "Exists"})));
        assert!(is(json!({"key": "a", "value": "x"})));
        assert!(!is(json!({"key": "a", "value": "y"})));
        assert!(!is(json!({"key": "a", "operator": "Exists", "effect": "NoExecute"})));
        assert!(!is(json!({"key": "b", "operator": "Exists"})));
    }
}
