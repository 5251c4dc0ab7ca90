use serde_json::json;

use super::*;

fn deployments() -> ServedKind<'static> {
    ServedKind {
        group: "apps",
        version: "v1",
        kind: "Deployment",
        list_kind: "DeploymentList",
        plural: "deployments",
        namespaced: true,
        verbs: vec!["create", "delete", "get", "list", "patch", "update", "watch"],
        subresources: vec![
            ("scale", ["autoscaling", "v1", "Scale"]),
            ("status", ["apps", "v1", "Deployment"]),
        ],
        schema: None,
        selectable_fields: &[],
    }
}

fn widgets(schema: &Value) -> ServedKind<'_> {
    ServedKind {
        group: "example.com",
        version: "v1",
        kind: "Widget",
        list_kind: "WidgetList",
        plural: "widgets",
        namespaced: false,
        verbs: vec!["get", "list", "patch"],
        subresources: Vec::new(),
        schema: Some(schema),
        selectable_fields: &[],
    }
}

/// Collects every `$ref` in a value.
fn references(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            if let Some(reference) = fields.get("$ref").and_then(Value::as_str) {
                found.insert(reference.to_string());
            }
            fields.values().for_each(|field| references(field, found));
        }
        Value::Array(elements) => elements.iter().for_each(|element| references(element, found)),
        _ => {}
    }
}

#[test]
fn openapi_references_resolve_within_document() {
    let schema =
        json!({"type": "object", "properties": {"spec": {"type": "object", "description": "What."}}});
    let kinds = [deployments(), widgets(&schema)];
    for (group, expected) in
        [("apps", "io.k8s.api.core.v1.Container"), ("example.com", "com.example.v1.WidgetList")]
    {
        let document = document(group, "v1", &kinds).expect("a document");
        let schemas = document["components"]["schemas"].as_object().expect("schemas");
        assert!(schemas.contains_key(expected), "{group} has {expected}");
        let mut found = BTreeSet::new();
        references(&document, &mut found);
        for reference in found {
            let name = reference.strip_prefix("#/components/schemas/").expect("a schema of the document");
            assert!(schemas.contains_key(name), "{group} lacks {name}");
        }
    }
    assert_eq!(document("missing", "v1", &kinds), None);
}

#[test]
fn patch_operations_have_kind_and_field_validation() {
    let schema = json!({"type": "object"});
    let kinds = [deployments(), widgets(&schema)];
    for (group, path, kind, is_strategic) in [
        ("apps", "/apis/apps/v1/namespaces/{namespace}/deployments/{name}", "Deployment", true),
        ("example.com", "/apis/example.com/v1/widgets/{name}", "Widget", false),
    ] {
        let document = document(group, "v1", &kinds).expect("a document");
        let patch = &document["paths"][path]["patch"];
        let expected = json!({"group": group, "version": "v1", "kind": kind});
        assert_eq!(patch["x-kubernetes-group-version-kind"], expected);
        let names: Vec<&str> = patch["parameters"]
            .as_array()
            .expect("parameters")
            .iter()
            .filter_map(|parameter| parameter["name"].as_str())
            .collect();
        assert!(names.contains(&"fieldValidation"), "{names:?}");
        let content = patch["requestBody"]["content"].as_object().expect("content");
        assert_eq!(content.contains_key("application/strategic-merge-patch+json"), is_strategic);
    }
}

#[test]
fn document_url_changes_with_content() {
    let (small, large) = (json!({"type": "object"}), json!({"type": "object", "description": "x"}));
    let address = |schema: &Value| {
        let index = index(&[deployments(), widgets(schema)]);
        let at =
            |root: &str| index["paths"][root]["serverRelativeURL"].as_str().expect("an address").to_string();
        (at("apis/apps/v1"), at("apis/example.com/v1"))
    };
    let (before, after) = (address(&small), address(&large));
    assert_eq!(before.0, after.0);
    assert_ne!(before.1, after.1);
    assert!(before.1.starts_with("/openapi/v3/apis/example.com/v1?hash="));
}
