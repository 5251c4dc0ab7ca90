//! Applies patches as an API server does, and then makes the changes that controllers would make: pods of a changed
//! template, the status of a PodDisruptionBudget, the condition Ready of a NodePool.

use karpenter_view::{ObjectRef, PatchType};
use serde_json::{Value, json};

pub(crate) fn patch(documents: &mut [Value], object: &ObjectRef, patch: &Value, kind: PatchType) {
    let target = documents.iter_mut().find(|one| is(one, object)).expect("the object of the patch exists");
    merge(target, patch, kind);
    match object.kind.as_str() {
        "PodDisruptionBudget" => update_budget_status(target),
        "Deployment" => roll_out(documents, &patch["spec"]["template"]["spec"], kind),
        _ => {}
    }
}

fn is(document: &Value, object: &ObjectRef) -> bool {
    document["kind"] == object.kind && document["metadata"]["name"] == object.name
}

fn merge(target: &mut Value, patch: &Value, kind: PatchType) {
    let Value::Object(fields) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (name, value) in fields {
        let key = match name.as_str() {
            "containers" => Some("name"),
            "topologySpreadConstraints" => Some("topologyKey"),
            _ => None,
        };
        match (key.filter(|_| kind == PatchType::Strategic), value) {
            (_, Value::Null) => {
                target.as_object_mut().expect("an object").remove(name);
            }
            (Some(key), Value::Array(entries)) => {
                for entry in entries {
                    let list = target[name].as_array_mut().expect("a list");
                    let found = list.iter_mut().find(|one| one[key] == entry[key]);
                    merge(found.expect("the entry exists"), entry, kind);
                }
            }
            _ => merge(&mut target[name], value, kind),
        }
    }
}

/// Does what the disruption controller does: allows as many disruptions as there are healthy pods above the required
/// number.
fn update_budget_status(budget: &mut Value) {
    let number = |value: &Value| value.as_i64().unwrap_or(0);
    let expected = number(&budget["status"]["expectedPods"]);
    let healthy = number(&budget["status"]["currentHealthy"]);
    let desired = expected - number(&budget["spec"]["maxUnavailable"]);
    budget["status"]["disruptionsAllowed"] = json!((healthy - desired.max(0)).max(0));
}

/// Does what the Deployment controller does: pending pods get the new template.
fn roll_out(documents: &mut [Value], spec: &Value, kind: PatchType) {
    for document in documents.iter_mut().filter(|one| one["kind"] == "Pod") {
        if document["spec"]["nodeName"].is_null() {
            merge(&mut document["spec"], spec, kind);
        }
    }
}
