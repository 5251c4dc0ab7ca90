//! Tests of custom resources, from the creation of the definition to its deletion.

use super::*;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

fn definition() -> Value {
    let schema = json!({
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "size": {"type": "integer", "minimum": 1, "default": 3},
                    "color": {"type": "string"},
                    "ratio": {"type": "number"},
                },
            },
            "status": {"type": "object", "properties": {"size": {"type": "integer"}}},
        },
    });
    let version = |name: &str, storage: bool| {
        json!({
            "name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": schema},
            "subresources": {
                "status": {}, "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"},
            },
            "selectableFields": [{"jsonPath": ".spec.color"}],
        })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "shortNames": ["wd"]},
            "versions": [version("v1", true), version("v1beta1", false)],
        },
    })
}

fn widget(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}

#[tokio::test]
async fn kind_of_definition_is_served() {
    let server = Server::new();
    assert_eq!(server.get(WIDGETS).await.0, 404);
    server.create(DEFINITIONS, definition()).await;
    let (_, stored) = server.get(&format!("{DEFINITIONS}/widgets.example.com")).await;
    let conditions = stored["status"]["conditions"].as_array().unwrap();
    assert!(
        conditions
            .iter()
            .any(|condition| { condition["type"] == "Established" && condition["status"] == "True" })
    );
    let made = server.create(WIDGETS, widget("a", json!({"color": "red"}))).await;
    assert_eq!(made["spec"]["size"], 3);
    assert_eq!(made["metadata"]["generation"], 1);
    let (code, refused) = server.post(WIDGETS, widget("b", json!({"size": 0}))).await;
    assert_eq!((code, refused["reason"].as_str()), (422, Some("Invalid")), "{refused}");
    let (_, old) = server.get("/apis/example.com/v1beta1/namespaces/default/widgets/a").await;
    assert_eq!(old["apiVersion"], "example.com/v1beta1");
    let (_, red) = server.get(&format!("{WIDGETS}?fieldSelector=spec.color%3Dred")).await;
    assert_eq!(names(&red), ["a"]);
    let (_, scale) = server.merge(&format!("{WIDGETS}/a/scale"), json!({"spec": {"replicas": 7}})).await;
    assert_eq!(scale["spec"]["replicas"], 7, "{scale}");
    let (_, patched) = server
        .merge(&format!("{WIDGETS}/a/status"), json!({"status": {"size": 7}, "spec": {"size": 1}}))
        .await;
    assert_eq!((&patched["spec"]["size"], &patched["status"]["size"]), (&json!(7), &json!(7)));
    let (_, discovered) = server.get("/apis/example.com/v1").await;
    let offered: Vec<&str> = discovered["resources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["name"].as_str().unwrap())
        .collect();
    assert_eq!(offered, ["widgets", "widgets/status", "widgets/scale"]);
}

#[tokio::test]
async fn field_validation_ignores_warns_or_rejects() {
    let server = Server::new();
    server.create(DEFINITIONS, definition()).await;
    let body = widget("a", json!({"colour": "red"}));
    let builder = || Request::builder().method("POST").header("content-type", "application/json");
    let strict = builder().uri(format!("{WIDGETS}?fieldValidation=Strict"));
    let (code, answer, _) = server.send(strict, body.to_string()).await;
    assert_eq!(code, 400);
    let text = answer.collect().await.unwrap().to_bytes();
    assert!(
        String::from_utf8_lossy(&text).contains("strict decoding error: unknown field \\\"spec.colour\\\"")
    );
    let (code, answer, headers) = server.send(builder().uri(WIDGETS), body.to_string()).await;
    assert_eq!(code, 201);
    assert_eq!(headers["warning"], "299 - \"unknown field \\\"spec.colour\\\"\"");
    let made: Value = serde_json::from_slice(&answer.collect().await.unwrap().to_bytes()).unwrap();
    assert_eq!(made["spec"].get("colour"), None);
}

#[tokio::test]
async fn deleting_definition_deletes_its_objects() {
    let server = Server::new();
    server.create(DEFINITIONS, definition()).await;
    server.create(WIDGETS, widget("a", json!({}))).await;
    let mut held = widget("held", json!({}));
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    server.create(WIDGETS, held).await;
    server.delete(&format!("{DEFINITIONS}/widgets.example.com"), None).await;
    let (_, left) = server.get(WIDGETS).await;
    assert_eq!(names(&left), ["held"]);
    assert_eq!(server.post(WIDGETS, widget("late", json!({}))).await.0, 405);
    server.merge(&format!("{WIDGETS}/held"), json!({"metadata": {"finalizers": null}})).await;
    assert_eq!(server.get(&format!("{DEFINITIONS}/widgets.example.com")).await.0, 404);
    assert_eq!(server.get(WIDGETS).await.0, 404);
}

#[tokio::test]
async fn integral_floats_are_stored_as_integers() {
    let server = Server::new();
    server.create(DEFINITIONS, definition()).await;
    let created = server.create(WIDGETS, widget("a", json!({"ratio": 2.0}))).await;
    assert_eq!(created["spec"]["ratio"].to_string(), "2");
    let path = format!("{WIDGETS}/a");
    let (_, changed) = server.merge(&path, json!({"spec": {"ratio": 3.0}})).await;
    assert_eq!(changed["spec"]["ratio"].to_string(), "3");
    assert_eq!(changed["metadata"]["generation"], 2);
    let (_, fraction) = server.merge(&path, json!({"spec": {"ratio": 3.5}})).await;
    assert_eq!(fraction["spec"]["ratio"].to_string(), "3.5");
}
