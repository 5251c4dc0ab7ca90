//! The `scale` subresource of built-in workloads.

use serde_json::{Value, json};

use super::json::{child, integer, is_set, name, text};
use super::selector::query_text;
use crate::field::FieldError;
use crate::status::{ApiResult, Failure};

pub(crate) fn read_scale(group: &str, kind: &str, object: &Value) -> Option<Value> {
    let selector = match (group, kind) {
        ("apps", "Deployment" | "ReplicaSet" | "StatefulSet") => query_text(&object["spec"]["selector"]),
        ("", "ReplicationController") => query_text(&json!({"matchLabels": object["spec"]["selector"]})),
        _ => return None,
    };
    let mut metadata = json!({});
    for key in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if is_set(&object["metadata"][key]) {
            metadata[key] = object["metadata"][key].clone();
        }
    }
    let mut spec = json!({});
    let replicas = integer(&object["spec"]["replicas"]).unwrap_or(0);
    if replicas != 0 {
        spec["replicas"] = json!(replicas);
    }
    let mut status = json!({"replicas": integer(&object["status"]["replicas"]).unwrap_or(0)});
    if !selector.is_empty() {
        status["selector"] = json!(selector);
    }
    Some(
        json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status}),
    )
}

pub(crate) fn write_scale(group: &str, plural: &str, object: &mut Value, scale: &Value) -> ApiResult<()> {
    let replicas = match &scale["spec"]["replicas"] {
        Value::Null => 0,
        value => integer(value)
            .ok_or_else(|| Failure::bad_request("spec.replicas of a Scale must be an integer"))?,
    };
    let object_name = name(object).to_string();
    if replicas < 0 {
        let detail = "must be greater than or equal to 0";
        let error = FieldError::invalid("spec.replicas", json!(replicas), detail);
        return Err(Box::new(Failure::invalid("autoscaling", "Scale", &object_name, &[error])));
    }
    let (asked, actual) = (text(&scale["metadata"]["uid"]), text(&object["metadata"]["uid"]));
    if !asked.is_empty() && asked != actual {
        let why = format!("Precondition failed: UID in precondition: {asked}, UID in object meta: {actual}");
        return Err(Box::new(Failure::conflict(group, &format!("{plural}/scale"), &object_name, &why)));
    }
    if let Value::Object(map) = object {
        child(map, "spec").insert("replicas".into(), json!(replicas));
        // The object gets the resource version that the client read, so that storing it gives a conflict if the object
        // has changed.
        if let Some(version) = scale["metadata"].get("resourceVersion").filter(|version| is_set(version)) {
            child(map, "metadata").insert("resourceVersion".into(), version.clone());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment() -> Value {
        json!({"metadata": {"name": "d", "namespace": "n", "uid": "u", "labels": {"x": "y"}},
            "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "a"}}}, "status": {"replicas": 2}})
    }

    #[test]
    fn reads() {
        assert_eq!(
            read_scale("apps", "Deployment", &deployment()),
            Some(json!({"kind": "Scale", "apiVersion": "autoscaling/v1",
                "metadata": {"name": "d", "namespace": "n", "uid": "u"},
                "spec": {"replicas": 3}, "status": {"replicas": 2, "selector": "app=a"}}))
        );
        assert_eq!(read_scale("apps", "DaemonSet", &deployment()), None);
    }

    #[test]
    fn writes() {
        let mut object = deployment();
        assert!(write_scale("apps", "deployments", &mut object, &json!({"spec": {"replicas": 5}})).is_ok());
        assert_eq!(object["spec"]["replicas"], 5);
        assert!(write_scale("apps", "deployments", &mut object, &json!({"spec": {}})).is_ok());
        assert_eq!(object["spec"]["replicas"], 0, "an absent number is zero");
    }

    #[test]
    fn refuses() {
        let mut object = deployment();
        let negative = write_scale("apps", "deployments", &mut object, &json!({"spec": {"replicas": -1}}));
        let message = "Scale.autoscaling \"d\" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0";
        assert_eq!(negative.map_err(|failure| failure.message), Err(message.to_string()));
        let other = write_scale(
            "apps",
            "deployments",
            &mut object,
            &json!({"metadata": {"uid": "v"}, "spec": {"replicas": 1}}),
        );
        assert_eq!(other.map_err(|failure| failure.code), Err(409));
    }
}
