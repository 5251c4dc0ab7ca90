use serde_json::json;

use super::*;
use crate::shape::StructShape;

fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]},
            "versions": [
                {
                    "name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                        "spec": {"type": "object", "properties": {
                            "size": {"type": "integer", "default": 1},
                            "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                            "whole": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {}},
                            "ports": {
                                "type": "array", "x-kubernetes-list-type": "map",
                                "x-kubernetes-list-map-keys": ["port", "protocol"],
                                "items": {"type": "object", "required": ["port"], "properties": {
                                    "port": {"type": "integer"},
                                    "protocol": {"type": "string", "default": "TCP"},
                                }},
                            },
                        }},
                    }}},
                    "subresources": {
                        "status": {},
                        "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"},
                    },
                    "selectableFields": [{"jsonPath": ".spec.size"}],
                },
                {
                    "name": "v1beta1", "served": true, "storage": false,
                    "schema": {"openAPIV3Schema": {
                        "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                    }},
                },
            ],
        },
    })
}

#[test]
fn versions_have_their_own_schema_and_subresources() {
    let definition = definition();
    let new = CustomKind::from_definition(&definition, "v1").expect("a version");
    let old = CustomKind::from_definition(&definition, "v1beta1").expect("a version");
    assert!(CustomKind::from_definition(&definition, "v2").is_err());
    let object = json!({"metadata": {"name": "x"}, "spec": {"size": 2, "other": true}});
    let (mut pruned, mut kept) = (object.clone(), object.clone());
    assert_eq!(new.prune(&mut pruned), ["spec.other"]);
    assert_eq!(old.prune(&mut kept), Vec::<String>::new());
    assert_eq!(pruned["spec"], json!({"size": 2}));
    assert_eq!(kept, object);
    assert!(new.has_status() && !old.has_status());
    assert_eq!(new.selectable_fields(), ["spec.size"]);
    let scale = new.scale_paths().expect("a scale subresource");
    assert_eq!(
        (scale.spec_replicas.as_str(), scale.status_replicas.as_str()),
        (".spec.size", ".status.size")
    );
    assert_eq!(scale.label_selector, None);
}

fn field<'a>(shape: &'a Shape, name: &str) -> &'a Shape {
    let Shape::Struct(inside) = shape else { panic!("{shape:?} is not a struct with field {name}") };
    let inside: &StructShape = inside;
    &inside.field(name).unwrap_or_else(|| panic!("{name} is a field")).shape
}

#[test]
fn shapes_follow_the_schema() {
    let kind = CustomKind::from_definition(&definition(), "v1").expect("a version");
    let spec = field(kind.shape(), "spec");
    assert_eq!(*field(spec, "size"), Shape::Atomic);
    assert_eq!(*field(spec, "tags"), Shape::Set);
    assert_eq!(*field(spec, "whole"), Shape::Atomic);
    let Shape::Keyed(ports) = field(spec, "ports") else { panic!("ports is not a keyed list") };
    assert_eq!(ports.keys, ["port", "protocol"]);
    assert_eq!(ports.key_defaults, [("protocol".to_string(), json!("TCP"))]);
    assert!(matches!(field(field(kind.shape(), "metadata"), "labels"), Shape::Map(_)));
}

#[test]
fn definition_gets_defaults_and_established_status() {
    let mut crd = definition();
    default_definition(&mut crd);
    assert_eq!(crd["spec"]["names"]["singular"], "widget");
    assert_eq!(crd["spec"]["names"]["listKind"], "WidgetList");
    assert_eq!(crd["spec"]["conversion"], json!({"strategy": "None"}));
    assert_eq!(validate_definition(&crd, None), Vec::new());

    let early = "2026-01-01T00:00:00Z".parse().expect("a time");
    established_status(&mut crd, early);
    assert_eq!(crd["status"]["acceptedNames"], crd["spec"]["names"]);
    assert_eq!(crd["status"]["storedVersions"], json!(["v1"]));
    let established = crd["status"].clone();
    let types: Vec<&Value> = established["conditions"]
        .as_array()
        .expect("conditions")
        .iter()
        .map(|found| &found["type"])
        .collect();
    assert_eq!(types, ["NamesAccepted", "Established"]);

    // A new storage version is added to the stored versions, and conditions keep their times.
    let mut changed = crd.clone();
    changed["spec"]["versions"][0]["storage"] = json!(false);
    changed["spec"]["versions"][1]["storage"] = json!(true);
    established_status(&mut changed, "2026-02-02T00:00:00Z".parse().expect("a time"));
    assert_eq!(changed["status"]["storedVersions"], json!(["v1", "v1beta1"]));
    assert_eq!(changed["status"]["conditions"], established["conditions"]);
}

#[test]
fn names_group_and_stored_versions_are_immutable() {
    let mut old = definition();
    default_definition(&mut old);
    established_status(&mut old, "2026-01-01T00:00:00Z".parse().expect("a time"));
    let mut new = old.clone();
    new["spec"]["scope"] = json!("Cluster");
    new["spec"]["names"]["kind"] = json!("Gadget");
    new["spec"]["versions"].as_array_mut().expect("versions").remove(0);
    new["spec"]["versions"][0]["storage"] = json!(true);
    let texts: Vec<String> = validate_definition(&new, Some(&old)).iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            "spec.scope: Invalid value: \"Cluster\": field is immutable",
            "spec.names.kind: Invalid value: \"Gadget\": field is immutable",
            "status.storedVersions[0]: Invalid value: \"v1\": missing from spec.versions; v1 was previously a storage \
         version, and must remain in spec.versions until a storage migration ensures no data remains persisted in \
         v1 and removes v1 from status.storedVersions",
        ]
    );
}

#[test]
fn whole_floats_are_stored_as_integers() {
    let mut object = json!({"a": 2.0, "b": [1.5, -3.0], "c": {"d": 1e300}});
    normalise_numbers(&mut object);
    assert_eq!(object.to_string(), r#"{"a":2,"b":[1.5,-3],"c":{"d":1e+300}}"#);
}

/// The CEL evaluator would panic on message literals (`Name{field: 1}`), so CRDs with such rules are rejected.
#[test]
fn message_literals_in_rules_are_rejected() {
    let mut crd = definition();
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["x-kubernetes-validations"] =
        json!([{"rule": "Thing{a: 1} == self"}]);
    default_definition(&mut crd);
    let errors = validate_definition(&crd, None);
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].detail.contains("undeclared reference to 'Thing'"), "{errors:?}");
    let kind = CustomKind::from_definition(&crd, "v1").expect("a version");
    assert_eq!(kind.validate_create(&json!({"metadata": {"name": "x"}})), Vec::new());
}
