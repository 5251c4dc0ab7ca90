use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::shape::{FieldShape, KeyedShape, StructShape};

const POD: (&str, &str, &str) = ("", "v1", "Pod");

fn second(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn applied_by(
    live: Option<&Value>,
    manager: &str,
    applied: &Value,
    force: bool,
    now: i64,
) -> ApiResult<Value> {
    let shape = builtin::shape(POD.0, POD.1, POD.2).unwrap();
    let now = second(now);
    apply(ApplyRequest { live, applied, shape, manager, api_version: "v1", subresource: "", force, now })
}

/// The form in which the server stores an object.
fn stored(mut object: Value) -> Value {
    object["metadata"]["uid"] = json!("u");
    object
}

fn times(object: &Value) -> Vec<(&str, Option<&str>)> {
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    entries.iter().map(|entry| (entry["manager"].as_str().unwrap(), entry["time"].as_str())).collect()
}

fn labelled(labels: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "labels": labels}})
}

#[test]
fn managed_fields_time_changes_only_with_object() {
    let first = stored(applied_by(None, "a", &labelled(json!({"x": "1"})), false, 0).unwrap());
    assert_eq!(times(&first), [("a", Some("1970-01-01T00:00:00Z"))]);
    let same = stored(applied_by(Some(&first), "a", &labelled(json!({"x": "1"})), false, 5).unwrap());
    assert_eq!(same, first);
    // If a manager applies the current value, it becomes an owner, but the object does not change.
    let shared = stored(applied_by(Some(&same), "b", &labelled(json!({"x": "1"})), false, 6).unwrap());
    assert_eq!(times(&shared), [("b", None), ("a", Some("1970-01-01T00:00:00Z"))]);
    let changed = stored(applied_by(Some(&first), "a", &labelled(json!({"x": "2"})), false, 7).unwrap());
    assert_eq!(times(&changed), [("a", Some("1970-01-01T00:00:07Z"))]);
}

/// The manager applies `labels: {}` each time, and the server never stores it.
#[test]
fn empty_applied_fields_are_not_a_change() {
    let first = stored(applied_by(None, "a", &labelled(json!({})), false, 0).unwrap());
    let same = stored(applied_by(Some(&first), "a", &labelled(json!({})), false, 5).unwrap());
    assert_eq!(same, first);
}

#[test]
fn update_without_change_keeps_managed_fields() {
    let shape = builtin::shape(POD.0, POD.1, POD.2).unwrap();
    let first = stored(applied_by(None, "a", &labelled(json!({"x": "1"})), false, 0).unwrap());
    let mut again = first.clone();
    record_update(Some(&first), &mut again, shape, "b", "v1", "", second(9));
    assert_eq!(again, first);
}

fn custom_shape() -> Shape {
    let field =
        |name: &str, shape: Shape| FieldShape { name: name.to_string(), shape, ..FieldShape::default() };
    let rules = Shape::Keyed(Arc::new(KeyedShape {
        keys: vec!["key".to_string()],
        key_defaults: Vec::new(),
        element: Shape::Deduced,
    }));
    let structure = |fields| Shape::Struct(Arc::new(StructShape { fields, ..StructShape::default() }));
    let spec =
        structure(vec![field("free", Shape::Deduced), field("rules", rules), field("size", Shape::Atomic)]);
    structure(vec![
        field("apiVersion", Shape::Atomic),
        field("kind", Shape::Atomic),
        field("metadata", Shape::Deduced),
        field("spec", spec),
    ])
}

fn custom(spec: Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "x"}, "spec": spec})
}

fn apply_custom(live: Option<&Value>, manager: &str, applied: &Value) -> ApiResult<Value> {
    let now = second(0);
    let shape = &custom_shape();
    let api_version = "example.com/v1";
    apply(ApplyRequest { live, applied, shape, manager, api_version, subresource: "", force: false, now })
}

#[test]
fn structs_of_custom_resources_are_owned() {
    let mut created = custom(json!({"size": 1, "free": {"a": {"b": 1}}}));
    record_update(None, &mut created, &custom_shape(), "m", "example.com/v1", "", second(0));
    assert_eq!(
        created["metadata"]["managedFields"][0]["fieldsV1"],
        json!({"f:spec": {".": {}, "f:size": {}, "f:free": {".": {}, "f:a": {".": {}, "f:b": {}}}}})
    );
}

#[test]
fn shape_without_schema_is_deduced_from_value() {
    let first = stored(apply_custom(None, "a", &custom(json!({"free": {"x": 1, "l": [1]}}))).unwrap());
    let both = stored(apply_custom(Some(&first), "b", &custom(json!({"free": {"y": {"z": 1}}}))).unwrap());
    assert_eq!(both["spec"]["free"], json!({"x": 1, "l": [1], "y": {"z": 1}}));
    let conflict = apply_custom(Some(&both), "b", &custom(json!({"free": {"l": [2], "y": 1}}))).unwrap_err();
    assert_eq!(conflict.message, "Apply failed with 1 conflict: conflict with \"a\": .spec.free.l");
    let less = apply_custom(Some(&both), "b", &custom(json!({}))).unwrap();
    assert_eq!(less["spec"], json!({"free": {"x": 1, "l": [1]}}));
}

#[test]
fn owners_of_parts_own_field_that_became_atomic() {
    let mut live = stored(apply_custom(None, "a", &custom(json!({"size": 1}))).unwrap());
    live["spec"]["size"] = json!({"w": 1, "h": 2});
    live["metadata"]["managedFields"][0]["fieldsV1"] = json!({"f:spec": {"f:size": {".": {}, "f:w": {}}}});
    let conflict = apply_custom(Some(&live), "b", &custom(json!({"size": {"h": 3}}))).unwrap_err();
    assert_eq!(conflict.message, "Apply failed with 1 conflict: conflict with \"a\": .spec.size");
    let mut changed = live.clone();
    changed["spec"]["free"] = json!({});
    record_update(Some(&live), &mut changed, &custom_shape(), "c", "example.com/v1", "", second(1));
    let fields = &changed["metadata"]["managedFields"][0]["fieldsV1"];
    assert_eq!(fields, &json!({"f:spec": {"f:size": {}}}));
}

#[test]
fn invalid_apply_requests_are_rejected() {
    let message = |spec: Value| apply_custom(None, "a", &custom(spec)).unwrap_err().message;
    let start = "failed to create typed patch object (/x; example.com/v1, Kind=Thing): ";
    assert_eq!(message(json!({"sise": 1})), format!("{start}.spec.sise: field not declared in schema"));
    assert_eq!(
        message(json!({"rules": [{"key": "a"}, {"key": "a"}]})),
        format!("{start}.spec.rules: duplicate entries for key [key=\"a\"]")
    );
    assert_eq!(
        message(json!({"rules": [{"other": "a"}]})),
        format!(
            "{start}.spec.rules: element 0: associative list with keys has an element that omits all key fields \
             [\"key\"] (and doesn't have default values for any key fields)"
        )
    );
}

#[test]
fn path_elements_round_trip() {
    for text in
        ["f:a.b/c", "k:{\"a\":\"x\",\"b\":1}", "v:\"f/1\"", "v:5", "i:3", "v:\"\\u003c\\u0026\\u003e\""]
    {
        assert_eq!(path::Element::parse(text).unwrap().unwrap().encode(), text);
    }
    assert_eq!(path::Element::parse("x:future"), Ok(None));
    assert!(path::Element::parse("nonsense").is_err());
}

fn any_pod() -> impl Strategy<Value = Value> {
    let labels = prop::collection::btree_map("[a-c]", "[12]", 0..3);
    let finalizers = prop::collection::btree_set("f/[1-3]", 0..3);
    let ports = prop::collection::btree_set((80..83i64, prop::option::of("TCP|UDP")), 0..3);
    let container = (prop::option::of("i[12]"), ports);
    let containers = prop::collection::btree_map("[a-c]", container, 0..3);
    (labels, finalizers, containers, prop::option::of(0..3i64)).prop_map(
        |(labels, finalizers, containers, grace)| {
            let containers: Vec<Value> = containers
                .into_iter()
                .map(|(name, (image, ports))| {
                    let mut seen = BTreeSet::new();
                    let ports: Vec<Value> = ports
                        .into_iter()
                        .filter(|(port, protocol)| {
                            seen.insert((*port, protocol.clone().unwrap_or("TCP".to_string())))
                        })
                        .map(|(port, protocol)| match protocol {
                            Some(protocol) => json!({"containerPort": port, "protocol": protocol}),
                            None => json!({"containerPort": port}),
                        })
                        .collect();
                    let mut container = json!({"name": name});
                    if !ports.is_empty() {
                        container["ports"] = json!(ports);
                    }
                    if let Some(image) = image {
                        container["image"] = json!(image);
                    }
                    container
                })
                .collect();
            let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": {}});
            if !labels.is_empty() {
                pod["metadata"]["labels"] = json!(labels);
            }
            if !finalizers.is_empty() {
                pod["metadata"]["finalizers"] = json!(finalizers);
            }
            if !containers.is_empty() {
                pod["spec"]["containers"] = json!(containers);
            }
            if let Some(grace) = grace {
                pod["spec"]["terminationGracePeriodSeconds"] = json!(grace);
            }
            pod
        },
    )
}

fn without_managed_fields(mut object: Value) -> Value {
    take_managed_fields(&mut object);
    object
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn apply_is_idempotent(first in any_pod(), second in any_pod()) {
        let live = stored(applied_by(None, "a", &first, false, 0).unwrap());
        let once = stored(applied_by(Some(&live), "b", &second, true, 1).unwrap());
        let twice = stored(applied_by(Some(&once), "b", &second, false, 2).unwrap());
        prop_assert_eq!(twice, once);
    }

    #[test]
    fn manager_can_remove_fields_it_applied(first in any_pod(), second in any_pod()) {
        let empty = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}});
        let before = stored(applied_by(None, "a", &first, false, 0).unwrap());
        if let Ok(after) = applied_by(Some(&before), "b", &second, false, 1) {
            let back = stored(applied_by(Some(&stored(after)), "b", &empty, false, 2).unwrap());
            let (back, before) = (without_managed_fields(back), without_managed_fields(before));
            // Applying the patch back restores the items of a list, but not always their order.
            prop_assert_eq!(in_order(back), in_order(before));
        }
    }

    #[test]
    fn forced_apply_sets_all_applied_fields(first in any_pod(), second in any_pod()) {
        let shape = builtin::shape(POD.0, POD.1, POD.2).unwrap();
        let live = stored(applied_by(None, "a", &first, false, 0).unwrap());
        let forced = stored(applied_by(Some(&live), "b", &second, true, 1).unwrap());
        let comparison = typed::compare(&second, &forced, shape);
        let lost = comparison.modified.union(&comparison.removed);
        prop_assert!(lost.intersection(&typed::field_set(&second, shape)).is_empty());
    }

    #[test]
    fn managed_fields_of_new_pods_match_general_implementation(mut pod in any_pod()) {
        let shape = builtin::shape(POD.0, POD.1, POD.2).unwrap();
        check_create(&pod, shape, "v1")?;
        builtin::round_trip(&mut pod, POD.0, POD.1, POD.2);
        check_create(&pod, shape, "v1")?;
        check_create(&custom(pod["spec"].clone()), &custom_shape(), "example.com/v1")?;
        check_create(&custom(json!({"free": pod["spec"]})), &custom_shape(), "example.com/v1")?;
    }

    #[test]
    fn managers_own_existing_fields_only(pods in prop::collection::vec((any_pod(), "[a-c]", any::<bool>()), 1..5)) {
        let shape = builtin::shape(POD.0, POD.1, POD.2).unwrap();
        let mut live: Option<Value> = None;
        for (index, (pod, manager, by_apply)) in pods.into_iter().enumerate() {
            let now = i64::try_from(index).unwrap();
            let next = if by_apply {
                applied_by(live.as_ref(), &manager, &pod, true, now).unwrap()
            } else {
                let mut next = pod;
                builtin::round_trip(&mut next, POD.0, POD.1, POD.2);
                record_update(live.as_ref(), &mut next, shape, &manager, "v1", "", second(now));
                next
            };
            live = Some(stored(next));
        }
        let live = live.unwrap();
        let managed = ManagedFields::decode(managed_fields(&live)).unwrap();
        let bare = without_managed_fields(live);
        let existing = typed::field_set(&bare, shape).with_named_fields(shape);
        for owned in managed.owners.values() {
            for path in owned.set.paths() {
                let shown: String = path.iter().map(ToString::to_string).collect();
                let empty_collection = [".labels", ".finalizers", ".ports", ".containers"]
                    .iter()
                    .any(|name| shown.ends_with(name));
                prop_assert!(existing.has(&path) || empty_collection, "{} is not in {}", shown, bare);
            }
        }
    }
}

fn in_order(mut value: Value) -> Value {
    match &mut value {
        Value::Array(items) => {
            for item in items.iter_mut() {
                *item = in_order(item.take());
            }
            items.sort_by(path::compare);
        }
        Value::Object(fields) => {
            for field in fields.values_mut() {
                *field = in_order(field.take());
            }
        }
        _ => {}
    }
    value
}

/// Checks that the managed fields of a new object equal those that the general implementation computes.
fn check_create(object: &Value, shape: &Shape, api_version: &str) -> Result<(), TestCaseError> {
    let mut long = object.clone();
    record_update(None, &mut long, shape, "m", api_version, "", second(3));
    let mut short = object.clone();
    let text = record_create(&mut short, shape, "m", api_version, second(3));
    if let Some(text) = text {
        prop_assert!(short["metadata"].get("managedFields").is_none());
        short["metadata"]["managedFields"] = serde_json::from_slice(&text).unwrap();
        let written = short["metadata"]["managedFields"].to_string();
        prop_assert_eq!(written.as_bytes(), text.as_slice());
    }
    prop_assert_eq!(&short, &long);
    Ok(())
}

#[test]
fn managed_fields_of_new_objects_match_general_implementation() {
    let shape = builtin::shape(POD.0, POD.1, POD.2).unwrap();
    let port = |number: i64| json!({"containerPort": number});
    for mut object in [
        labelled(json!({"x": "1", "a\"b": "2"})),
        labelled(json!({})),
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "managedFields": []}}),
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "finalizers": ["b", "a<b", "b"]}}),
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "ownerReferences": [{"uid": "u", "name": "o"}]},
            "spec": {
                "containers": [
                    {"name": "b", "ports": [port(8080), port(80), {"containerPort": 80, "protocol": "UDP"}]},
                    {"name": "a", "env": [{"name": "E", "value": ""}, {"name": "E"}], "securityContext": {}},
                ],
                "nodeSelector": {}, "securityContext": {}, "tolerations": [{"key": "t"}], "volumes": null,
            },
            "status": {"phase": "Running"},
        }),
    ] {
        check_create(&object, shape, "v1").unwrap();
        builtin::round_trip(&mut object, POD.0, POD.1, POD.2);
        check_create(&object, shape, "v1").unwrap();
    }
    let given = json!([{"manager": "o", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": {"f:nodeName": {}}}}]);
    let mut object = labelled(json!({"x": "1"}));
    object["metadata"]["managedFields"] = given;
    check_create(&object, shape, "v1").unwrap();
}

/// Checks that the managed fields after a patch equal those that the general implementation computes.
fn check_encoded(
    stored: &Value,
    new: &Value,
    (manager, subresource): (&str, &str),
    now: i64,
) -> Result<(), TestCaseError> {
    let shape = builtin::shape(POD.0, POD.1, POD.2).unwrap();
    let mut long = new.clone();
    record_update(Some(stored), &mut long, shape, manager, "v1", subresource, second(now));
    let before = managed_fields(stored).map(Value::to_string);
    let (old, new) = (without_managed_fields(stored.clone()), without_managed_fields(new.clone()));
    let text = before.as_ref().map(String::as_bytes);
    let kept = record_update_encoded(text, &old, &new, shape, manager, "v1", subresource, second(now));
    let after = managed_fields(&long).map(Value::to_string);
    let Some(kept) = kept else {
        // No manager owns any field after the patch, which only the general implementation supports.
        prop_assert!(after.is_none());
        return Ok(());
    };
    let is_same = equal_except_times(
        &json!({"metadata": {"managedFields": managed_fields(stored)}}),
        &json!({"metadata": {"managedFields": managed_fields(&long)}}),
    );
    prop_assert_eq!(kept.is_changed, !is_same);
    let kept = kept.text.map(|text| String::from_utf8(text).unwrap()).or(before);
    prop_assert_eq!(kept, after);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn encoded_update_matches_general_implementation(
        pods in prop::collection::vec((any_pod(), "[a-c]", 0..3), 2..6)
    ) {
        let shape = builtin::shape(POD.0, POD.1, POD.2).unwrap();
        let mut live: Option<Value> = None;
        for (index, (pod, manager, verb)) in pods.into_iter().enumerate() {
            let now = i64::try_from(index).unwrap();
            let mut next = pod;
            builtin::round_trip(&mut next, POD.0, POD.1, POD.2);
            let subresource = if verb == 2 { "status" } else { "" };
            if let Some(live) = &live {
                let mut next = stored(next.clone());
                if let Some(fields) = managed_fields(live) {
                    next["metadata"]["managedFields"] = fields.clone();
                }
                check_encoded(live, &next, (&manager, subresource), now)?;
            }
            if verb == 0 {
                next = applied_by(live.as_ref(), &manager, &next, true, now).unwrap();
            } else {
                record_update(live.as_ref(), &mut next, shape, &manager, "v1", subresource, second(now));
            }
            live = Some(stored(next));
        }
    }
}
