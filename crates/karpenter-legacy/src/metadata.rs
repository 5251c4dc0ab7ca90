//! The metadata of converted objects: name, labels and annotations, except those that the API server and tools wrote.

use serde_json::{Map, Value, json};

/// Annotations that describe the input object and would be wrong for the converted one.
const DROPPED_ANNOTATIONS: [&str; 6] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    "karpenter.sh/provisioner-hash",
    "karpenter.sh/nodepool-hash",
    "karpenter.sh/nodepool-hash-version",
    "karpenter.k8s.aws/nodetemplate-hash",
    "karpenter.k8s.aws/ec2nodeclass-hash",
];

pub(crate) fn name_of(object: &Value) -> &str {
    object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
}

/// The kind and name of an object, for messages.
pub(crate) fn title(object: &Value) -> String {
    let kind = object.get("kind").and_then(Value::as_str).unwrap_or("object");
    match name_of(object) {
        "" => format!("{kind} without a name"),
        name => format!("{kind} {name}"),
    }
}

/// The metadata of the converted object. The namespace is dropped, as the API server ignores it for cluster-scoped
/// kinds.
pub(crate) fn carried_over(object: &Value, name: &str) -> Map<String, Value> {
    let mut metadata = Map::new();
    metadata.insert("name".to_owned(), json!(name));
    for field in ["labels", "annotations"] {
        let Some(entries) = object.pointer(&format!("/metadata/{field}")).and_then(Value::as_object) else {
            continue;
        };
        let kept: Map<String, Value> = entries
            .iter()
            .filter(|(key, _)| !DROPPED_ANNOTATIONS.contains(&key.as_str()))
            .filter(|(key, _)| !key.starts_with("compatibility.karpenter."))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        if !kept.is_empty() {
            metadata.insert(field.to_owned(), Value::Object(kept));
        }
    }
    metadata
}
