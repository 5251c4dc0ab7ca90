//! Tests that validating arbitrary JSON does not panic, overflow the stack or take long.

use karpenter_api::crds;
use karpenter_api::error::Rule;
use karpenter_api::validate::{admit, validate};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// Names that occur in our schemas; random objects contain them, so that validation reaches nested fields.
const WORDS: [&str; 34] = [
    "spec",
    "status",
    "template",
    "metadata",
    "labels",
    "annotations",
    "requirements",
    "key",
    "operator",
    "values",
    "minValues",
    "taints",
    "effect",
    "nodeClassRef",
    "name",
    "group",
    "kind",
    "disruption",
    "budgets",
    "nodes",
    "schedule",
    "limits",
    "replicas",
    "weight",
    "amiSelectorTerms",
    "alias",
    "tags",
    "id",
    "kubelet",
    "conditions",
    "price",
    "capacity",
    "podTemplateRef",
    "In",
];

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        proptest::sample::select(WORDS.as_slice()).prop_map(str::to_string),
        proptest::collection::vec(any::<char>(), 0..8).prop_map(String::from_iter),
    ]
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any_text().prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 48, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            proptest::collection::vec((any_text(), inner), 0..6)
                .prop_map(|fields| Value::Object(Map::from_iter(fields))),
        ]
    })
}

fn any_kind() -> impl Strategy<Value = &'static crds::Crd> {
    (0..crds::all().len()).prop_map(|index| &crds::all()[index])
}

fn object(crd: &crds::Crd, spec: Value, status: Value) -> Value {
    json!({"apiVersion": crd.api_version(), "kind": crd.kind, "metadata": {"name": "x"}, "spec": spec, "status": status})
}

/// One valid object per kind, in which the tests replace single values.
fn valid_objects() -> Vec<Value> {
    let class = json!({"group": "g", "kind": "k", "name": "n"});
    let requirement = json!({"key": "a", "operator": "In", "values": ["x", "y"], "minValues": 1});
    let taint = json!({"key": "k", "value": "v", "effect": "NoSchedule"});
    let budget = json!({"nodes": "10%", "schedule": "@daily", "duration": "1h", "reasons": ["Empty"]});
    let specs = [
        json!({"template": {"metadata": {"labels": {"a": "b"}}, "spec": {"requirements": [requirement], "nodeClassRef": class, "taints": [taint]}}, "disruption": {"budgets": [budget]}, "limits": {"cpu": 5}, "weight": 3}),
        json!({"requirements": [requirement], "nodeClassRef": class, "startupTaints": [taint], "resources": {"requests": {"cpu": "1"}}}),
        json!({"requirements": [{"key": "a", "operator": "Gt", "values": ["1"]}], "price": "1.5", "capacity": {"x": 1}}),
        json!({"role": "r", "amiFamily": "AL2", "amiSelectorTerms": [{"alias": "al2@latest"}], "subnetSelectorTerms": [{"tags": {"a": "b"}}], "securityGroupSelectorTerms": [{"id": "sg-1"}], "kubelet": {"maxPods": 5}, "blockDeviceMappings": [{"rootVolume": true, "ebs": {"volumeSize": "1Gi"}}], "networkInterfaces": [{"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"}]}),
        json!({"nodeRegistrationDelay": "1s"}),
        json!({"podTemplateRef": {"name": "t"}, "replicas": 1, "limits": {"cpu": 1}}),
    ];
    crds::all().iter().zip(specs).map(|(crd, spec)| object(crd, spec, json!({}))).collect()
}

fn pointers(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_string());
    match value {
        Value::Array(elements) => {
            for (index, element) in elements.iter().enumerate() {
                pointers(element, &format!("{at}/{index}"), found);
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                pointers(field, &format!("{at}/{}", name.replace('~', "~0").replace('/', "~1")), found);
            }
        }
        _ => {}
    }
}

#[test]
fn base_objects_are_valid() {
    for object in valid_objects() {
        if let Err(errors) = admit(&object, None) {
            panic!("{}: {errors:#?}", object["kind"]);
        }
    }
}

proptest! {
    #[test]
    fn arbitrary_json_does_not_panic(value in any_json()) {
        prop_assert!(validate(&value, None).is_err(), "no random value is one of our kinds");
    }

    #[test]
    fn arbitrary_specs_do_not_panic(crd in any_kind(), spec in any_json(), status in any_json(), old in any_json()) {
        let object = object(crd, spec, status);
        let _ = validate(&object, None);
        let _ = validate(&object, Some(&old));
        let _ = validate(&object, Some(&object));
    }

    /// Replaces one value of a valid object. If the object is still accepted, its stored form must be accepted without
    /// changes, on create and as an update of itself.
    #[test]
    fn admitted_mutated_objects_are_fixed_points(
        kind in 0usize..6,
        place in any::<prop::sample::Index>(),
        replacement in any_json(),
    ) {
        let mut object = valid_objects().swap_remove(kind);
        let mut places = Vec::new();
        pointers(&object, "", &mut places);
        let place = place.get(&places).clone();
        if let Some(target) = object.pointer_mut(&place) {
            *target = replacement;
        }
        if let Ok(stored) = admit(&object, None) {
            prop_assert_eq!(admit(&stored, Some(&stored)), Ok(stored.clone()));
        }
        let _ = validate(&object, None);
    }
}

#[test]
fn ten_megabyte_string_is_rejected_by_size() {
    let long = "x".repeat(10 * 1024 * 1024);
    for crd in crds::all() {
        for object in [
            object(crd, json!({"kubelet": {"a": long}}), json!({})),
            object(crd, json!({long.as_str(): 1}), json!({})),
            json!({"apiVersion": crd.api_version(), "kind": long}),
        ] {
            let errors = validate(&object, None).expect_err("too large");
            assert_eq!(errors.len(), 1);
            assert!(errors[0].to_string().len() < 1000, "the report does not repeat the input");
        }
    }
    let old = json!({"spec": long});
    let errors = validate(&valid_objects()[0], Some(&old)).expect_err("the old object is too large");
    assert_eq!(errors[0].rule, Rule::Limit);
}

#[test]
fn string_just_below_limit_is_validated() {
    let long = "x".repeat(900 * 1024);
    let mut object = valid_objects().swap_remove(0);
    object["spec"]["template"]["metadata"]["labels"]["a"] = json!(long);
    object["spec"]["template"]["spec"]["requirements"][0]["key"] = json!(long);
    object["spec"]["disruption"]["consolidateAfter"] = json!(long);
    let errors = validate(&object, None).expect_err("too long");
    assert!(
        errors.iter().all(|error| error.to_string().len() < 1000),
        "the report does not repeat the input"
    );
    assert!(errors.iter().any(|error| error.path == "spec.disruption.consolidateAfter"));
}

#[test]
fn deep_nesting_is_rejected_without_recursion() {
    for depth in [90, 101, 20_000] {
        let mut deep = json!(1);
        for level in 0..depth {
            // The macro json! is not used, because it would copy the value recursively.
            deep = if level % 2 == 0 {
                Value::Array(vec![deep])
            } else {
                Value::Object(Map::from_iter([("a".to_string(), deep)]))
            };
        }
        let mut object = valid_objects().swap_remove(3);
        object["spec"]["kubelet"]["deep"] = deep;
        let verdict = admit(&object, None);
        assert_eq!(verdict.is_ok(), depth == 90, "at depth {depth}");
        if let Err(errors) = &verdict {
            assert_eq!(errors[0].rule, Rule::Limit);
        }
        // serde_json would drop the nested value recursively and overflow the stack, so the value is not dropped.
        std::mem::forget(object);
    }
}
