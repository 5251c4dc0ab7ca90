//! The `binding` subresource: sets the node of a pod that has none.
//!
//! Upstream: k8s.io/kubernetes/pkg/registry/core/pod/storage/storage.go

use jiff::Timestamp;
use serde_json::Value;

use super::Lookup;
use super::conditions::set_pod_condition;
use super::json::{child, entries, is_deleting, items, name, text};
use crate::field::FieldError;
use crate::status::{ApiResult, Failure};

/// The labels that a pod gets from its node when it is bound.
const TOPOLOGY_LABELS: [&str; 2] = ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];

pub(crate) fn bind_pod(
    pod: &mut Value,
    binding: &Value,
    lookup: &dyn Lookup,
    now: Timestamp,
) -> ApiResult<()> {
    if name(binding) != name(pod) {
        return Err(Box::new(Failure::bad_request("name in URL does not match name in Binding object")));
    }
    let node_name = text(&binding["target"]["name"]).to_string();
    check_target(binding)?;
    check_preconditions(pod, binding)?;
    let pod_name = name(pod).to_string();
    let refusal = if is_deleting(pod) {
        Some(format!("pod {pod_name} is being deleted, cannot be assigned to a host"))
    } else if !text(&pod["spec"]["nodeName"]).is_empty() {
        Some(format!("pod {pod_name} is already assigned to node \"{}\"", text(&pod["spec"]["nodeName"])))
    } else if !items(&pod["spec"]["schedulingGates"]).is_empty() {
        Some(format!("pod {pod_name} has non-empty .spec.schedulingGates"))
    } else {
        None
    };
    if let Some(why) = refusal {
        return Err(Box::new(Failure::conflict("", "pods/binding", &pod_name, &why)));
    }
    let node_labels = topology_labels(&node_name, lookup);
    let Value::Object(map) = pod else { return Ok(()) };
    child(map, "spec").insert("nodeName".into(), Value::String(node_name));
    let metadata = child(map, "metadata");
    for (key, value) in entries(&binding["metadata"]["annotations"]) {
        child(metadata, "annotations").insert(key.clone(), value.clone());
    }
    let labels = entries(&binding["metadata"]["labels"]).map(|(key, value)| (key.clone(), value.clone()));
    for (key, value) in labels.chain(node_labels) {
        child(metadata, "labels").insert(key, value);
    }
    let status = child(map, "status");
    status.remove("nominatedNodeName");
    set_pod_condition(status, "PodScheduled", "True", "", "", now);
    Ok(())
}

/// The topology labels of a node; empty if the node does not exist.
pub(crate) fn topology_labels(node_name: &str, lookup: &dyn Lookup) -> Vec<(String, Value)> {
    TOPOLOGY_LABELS
        .iter()
        .filter_map(|key| Some((key.to_string(), lookup.label("", "nodes", "", node_name, key)?.into())))
        .collect()
}

fn check_target(binding: &Value) -> ApiResult<()> {
    let kind = text(&binding["target"]["kind"]);
    let mut errors = Vec::new();
    if !kind.is_empty() && kind != "Node" {
        let supported = ["Node", "<empty>"];
        errors.push(
            FieldError::not_supported("target.kind", Value::String(kind.into()), &supported).to_string(),
        );
    }
    if text(&binding["target"]["name"]).is_empty() {
        errors.push(FieldError::required("target.name", "").to_string());
    }
    match errors.as_slice() {
        [] => Ok(()),
        [one] => Err(Box::new(Failure::new(500, "", one))),
        many => Err(Box::new(Failure::new(500, "", format!("[{}]", many.join(", "))))),
    }
}

fn check_preconditions(pod: &Value, binding: &Value) -> ApiResult<()> {
    for (key, word) in [("uid", "UID"), ("resourceVersion", "ResourceVersion")] {
        let (asked, actual) = (text(&binding["metadata"][key]), text(&pod["metadata"][key]));
        if !asked.is_empty() && asked != actual {
            let why = format!(
                "Precondition failed: {word} in precondition: {asked}, {word} in object meta: {actual}"
            );
            return Err(Box::new(Failure::conflict("", "pods", name(pod), &why)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::fixture::Objects;
    use serde_json::json;

    fn bind(pod: Value, binding: Value) -> ApiResult<Value> {
        let mut objects = Objects::default();
        let labels = json!({"topology.kubernetes.io/zone": "z", "kubernetes.io/arch": "amd64"});
        objects.add("", "nodes", json!({"metadata": {"name": "node", "labels": labels}}));
        let mut pod = pod;
        bind_pod(&mut pod, &binding, &objects, Timestamp::UNIX_EPOCH).map(|()| pod)
    }

    fn to_node() -> Value {
        json!({"metadata": {"name": "p", "annotations": {"a": "b"}}, "target": {"kind": "Node", "name": "node"}})
    }

    #[test]
    fn binding_sets_node_of_pod() {
        let pod = json!({"metadata": {"name": "p", "labels": {"app": "x"}}, "spec": {},
            "status": {"phase": "Pending", "nominatedNodeName": "node"}});
        assert_eq!(
            bind(pod, to_node()),
            Ok(json!({
                "metadata": {"name": "p", "annotations": {"a": "b"}, "labels": {"app": "x", "topology.kubernetes.io/zone": "z"}},
                "spec": {"nodeName": "node"},
                "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True",
                    "lastProbeTime": null, "lastTransitionTime": "1970-01-01T00:00:00Z"}]},
            }))
        );
    }

    #[test]
    fn invalid_bindings_are_rejected() {
        let table = [
            (
                json!({"metadata": {"name": "p"}, "spec": {"nodeName": "x"}}),
                to_node(),
                409,
                "Operation cannot be fulfilled on pods/binding \"p\": pod p is already assigned to node \"x\"",
            ),
            (
                json!({"metadata": {"name": "p", "deletionTimestamp": "t"}, "spec": {}}),
                to_node(),
                409,
                "Operation cannot be fulfilled on pods/binding \"p\": pod p is being deleted, cannot be assigned to a host",
            ),
            (
                json!({"metadata": {"name": "p"}, "spec": {"schedulingGates": [{"name": "g"}]}}),
                to_node(),
                409,
                "Operation cannot be fulfilled on pods/binding \"p\": pod p has non-empty .spec.schedulingGates",
            ),
            (
                json!({"metadata": {"name": "q"}}),
                to_node(),
                400,
                "name in URL does not match name in Binding object",
            ),
            (
                json!({"metadata": {"name": "p"}}),
                json!({"metadata": {"name": "p"}, "target": {}}),
                500,
                "target.name: Required value",
            ),
        ];
        for (pod, binding, code, message) in table {
            let failure = bind(pod, binding).expect_err(message);
            assert_eq!((failure.code, failure.message.as_str()), (code, message));
        }
    }
}
