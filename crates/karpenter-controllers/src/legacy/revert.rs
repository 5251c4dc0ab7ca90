//! Reverts fields that other field managers added to the spec of a derived object. Server-side apply reverts only
//! fields that this process sets itself; a merge patch removes the fields that only other managers set.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value, json};

/// A merge patch that removes every field of the spec that only other managers own. `None` if there is none.
pub(super) fn revert_patch(metadata: &ObjectMeta, manager: &str) -> Option<Value> {
    let entries = metadata.managed_fields.iter().flatten().filter(|entry| entry.subresource.is_none());
    let (ours, theirs): (Vec<_>, Vec<_>) =
        entries.partition(|entry| entry.manager.as_deref() == Some(manager));
    let specs = |entries: Vec<_>| -> Vec<Value> {
        let of = |entry: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry| {
            entry.fields_v1.as_ref()?.0.get("f:spec").cloned()
        };
        entries.into_iter().filter_map(of).collect()
    };
    let ours = specs(ours);
    let mut removed = Map::new();
    for spec in specs(theirs) {
        remove(&spec, &ours.iter().collect::<Vec<_>>(), &mut removed);
    }
    (!removed.is_empty()).then(|| json!({"spec": removed}))
}

/// Adds to `removed` a null for each field that is in `theirs` and in none of `ours`.
fn remove(theirs: &Value, ours: &[&Value], removed: &mut Map<String, Value>) {
    for (key, below) in theirs.as_object().into_iter().flatten() {
        // A key with another prefix is an item of a list. Server-side apply reverts such items with their list.
        let Some(name) = key.strip_prefix("f:") else { continue };
        let owned: Vec<&Value> = ours.iter().filter_map(|fields| fields.get(key)).collect();
        if owned.is_empty() {
            removed.insert(name.to_owned(), Value::Null);
            continue;
        }
        let mut deeper = Map::new();
        remove(below, &owned, &mut deeper);
        if !deeper.is_empty() {
            removed.insert(name.to_owned(), Value::Object(deeper));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(entries: Value) -> ObjectMeta {
        serde_json::from_value(json!({"managedFields": entries})).expect("metadata")
    }

    fn entry(manager: &str, spec: Value) -> Value {
        json!({"manager": manager, "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": spec}})
    }

    #[test]
    fn fields_of_other_managers_are_removed_and_own_fields_stay() {
        let ours = entry("we", json!({"f:weight": {}, "f:template": {"f:spec": {"f:taints": {}}}}));
        let added = entry(
            "kubectl-edit",
            json!({"f:weight": {}, "f:limits": {".": {}, "f:cpu": {}}, "f:template": {"f:spec": {"f:expireAfter": {}}}}),
        );
        let status_entry =
            json!({"manager": "x", "subresource": "status", "fieldsV1": {"f:status": {"f:nodes": {}}}});
        let table = [
            (json!([ours, status_entry]), None),
            (
                json!([ours, added]),
                Some(json!({"spec": {"limits": null, "template": {"spec": {"expireAfter": null}}}})),
            ),
            (json!([ours, entry("kubectl-edit", json!({"f:weight": {}}))]), None),
        ];
        for (entries, expected) in table {
            assert_eq!(revert_patch(&metadata(entries.clone()), "we"), expected, "{entries}");
        }
    }
}
