use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::builtin;
use crate::shape::Shape;

fn failure(current: &Value, patch: &Value) -> (u16, String) {
    let failure = json_patch(current, patch).unwrap_err();
    (failure.code, failure.message)
}

#[test]
fn json_patch_operations() {
    let current = json!({"a": {"b": [1, 2, 3]}, "c/d": "x"});
    let patch = json!([
        {"op": "test", "path": "/a/b/0", "value": 1},
        {"op": "add", "path": "/a/b/1", "value": 9},
        {"op": "add", "path": "/a/b/-", "value": 4},
        {"op": "remove", "path": "/a/b/0"},
        {"op": "replace", "path": "/c~1d", "value": "y"},
        {"op": "copy", "from": "/a/b/0", "path": "/e"},
        {"op": "move", "from": "/c~1d", "path": "/a/f"},
    ]);
    assert_eq!(json_patch(&current, &patch).unwrap(), json!({"a": {"b": [9, 2, 3, 4], "f": "y"}, "e": 9}));
}

#[test]
fn json_patch_has_extensions_of_go_library() {
    let current = json!({"a": [1, 2, 3]});
    let patch = json!([
        {"op": "replace", "path": "/missing", "value": 1},
        {"op": "remove", "path": "/a/-1"},
        {"op": "add", "path": "/a/-1", "value": 9},
        {"op": "test", "path": "/absent", "value": null},
    ]);
    assert_eq!(json_patch(&current, &patch).unwrap(), json!({"a": [1, 2, 9], "missing": 1}));
}

#[test]
fn json_patch_failures() {
    let current = json!({"a": [1], "s": "x"});
    let hidden = (422, "the server rejected our request due to an error in our request".to_string());
    for operation in [
        json!({"op": "remove", "path": "/b"}),
        json!({"op": "remove", "path": "/a/1"}),
        json!({"op": "add", "path": "/a/2", "value": 1}),
        json!({"op": "add", "path": "/a/x", "value": 1}),
        json!({"op": "add", "path": "/b/c", "value": 1}),
        json!({"op": "add", "path": "/s/c", "value": 1}),
        json!({"op": "test", "path": "/a", "value": [2]}),
        json!({"op": "replace", "path": "/a/5", "value": 1}),
        json!({"op": "explode", "path": "/a"}),
        json!({"path": "/a"}),
        json!({"op": "add", "value": 1}),
    ] {
        assert_eq!(failure(&current, &json!([operation])), hidden, "{operation}");
    }
    let text =
        "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp";
    assert_eq!(failure(&current, &json!({})), (400, text.to_string()));
}

#[test]
fn merge_patch_removes_nulls() {
    let current = json!({"a": {"b": 1, "c": 2}, "d": [1, {"x": null}]});
    let patch = json!({"a": {"b": null, "e": {"f": null, "g": 1}}, "d": [{"y": null, "z": 1}], "h": null});
    assert_eq!(merge_patch(&current, &patch), json!({"a": {"c": 2, "e": {"g": 1}}, "d": [{"z": 1}]}));
    assert_eq!(checked_merge_patch(&current, &json!([])).unwrap_err().code, 400);
}

/// Objects with few field names and short lists, so that patches often refer to existing fields.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf =
        prop_oneof![Just(Value::Null), any::<bool>().prop_map(Value::from), (0..3i64).prop_map(Value::from)];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("[a-c]", inner, 0..4).prop_map(|map| json!(map)),
        ]
    })
}

fn any_object() -> impl Strategy<Value = Value> {
    prop::collection::btree_map("[a-c]", any_json(), 0..4).prop_map(|map| json!(map))
}

fn any_path() -> impl Strategy<Value = String> {
    prop::collection::vec("[a-c]|[0-2]|-", 1..4).prop_map(|parts| format!("/{}", parts.join("/")))
}

/// Random operations whose result RFC 6902 always defines. `replace` and `test` are covered by the tables above.
fn any_operation() -> impl Strategy<Value = Value> {
    prop_oneof![
        (any_path(), any_json()).prop_map(|(path, value)| json!({"op": "add", "path": path, "value": value})),
        any_path().prop_map(|path| json!({"op": "remove", "path": path})),
        (any_path(), any_path()).prop_map(|(from, path)| json!({"op": "move", "from": from, "path": path})),
    ]
}

fn without_nulls(value: &Value) -> Value {
    let mut value = value.clone();
    prune_nulls(&mut value);
    value
}

proptest! {
    #[test]
    fn json_patch_agrees_with_the_reference(
        current in any_object(),
        operations in prop::collection::vec(any_operation(), 1..4),
    ) {
        let mut expected = current.clone();
        let parsed: ::json_patch::Patch = serde_json::from_value(json!(operations)).unwrap();
        if ::json_patch::patch_unsafe(&mut expected, &parsed).is_ok() {
            prop_assert_eq!(json_patch(&current, &json!(operations)).unwrap(), expected);
        }
    }

    #[test]
    fn merge_patch_agrees_with_the_reference(current in any_object(), patch in any_object()) {
        // The reference implementation keeps nulls in lists, whereas kube-apiserver removes them.
        let (current, mut patch) = (without_nulls(&current), patch);
        prune_list_nulls(&mut patch);
        let mut expected = current.clone();
        ::json_patch::merge(&mut expected, &patch);
        prop_assert_eq!(merge_patch(&current, &patch), expected);
    }

    #[test]
    fn merge_patch_is_idempotent(current in any_object(), patch in any_object()) {
        let mut patch = patch;
        prune_list_nulls(&mut patch);
        let once = merge_patch(&current, &patch);
        prop_assert_eq!(merge_patch(&once, &patch), once);
    }

    #[test]
    fn strategic_merge_without_schema_equals_merge_patch(current in any_object(), patch in any_object()) {
        let (current, mut patch) = (without_nulls(&current), patch);
        prune_list_nulls(&mut patch);
        let merged = strategic_merge(&current, &patch, &Shape::Deduced).unwrap();
        prop_assert_eq!(merged, merge_patch(&current, &patch));
    }

    #[test]
    fn strategic_merge_keeps_every_container(
        names in prop::collection::btree_set("[a-f]", 1..6),
        patched in prop::collection::btree_set("[a-f]", 1..6),
    ) {
        let list = |names: &std::collections::BTreeSet<String>, image: &str| -> Vec<Value> {
            names.iter().map(|name| json!({"name": name, "image": image})).collect()
        };
        let current = json!({"spec": {"containers": list(&names, "old")}});
        let patch = json!({"spec": {"containers": list(&patched, "new")}});
        let shape = builtin::shape("", "v1", "Pod").unwrap();
        let merged = strategic_merge(&current, &patch, shape).unwrap();
        let containers = merged["spec"]["containers"].as_array().unwrap();
        prop_assert_eq!(containers.len(), names.union(&patched).count());
        for container in containers {
            let is_patched = patched.contains(container["name"].as_str().unwrap());
            prop_assert_eq!(&container["image"], if is_patched { "new" } else { "old" });
        }
        prop_assert_eq!(strategic_merge(&merged, &patch, shape).unwrap(), merged);
    }
}

fn prune_list_nulls(value: &mut Value) {
    match value {
        Value::Array(items) => {
            items.retain(|item| !item.is_null());
            items.iter_mut().for_each(prune_nulls);
            items.iter_mut().for_each(prune_list_nulls);
        }
        Value::Object(fields) => fields.values_mut().for_each(prune_list_nulls),
        _ => {}
    }
}
