//! The paths of a kind in a document (collection, object and subresources), each with its operations.

use serde_json::{Map, Value, json};

use super::{ServedKind, group_version_kind, types};

/// Group, version and kind of the body of a request or response.
type Body<'a> = [&'a str; 3];

pub(super) fn of(kind: &ServedKind) -> Map<String, Value> {
    let mut paths = Map::new();
    let root = kind.root();
    let all = format!("/{root}/{}", kind.plural);
    let collection = if kind.namespaced {
        format!("/{root}/namespaces/{{namespace}}/{}", kind.plural)
    } else {
        all.clone()
    };
    if kind.namespaced && kind.verbs.contains(&"list") {
        paths.insert(all, Value::Object(Map::from_iter([("get".to_string(), list(kind))])));
    }
    let object = format!("{collection}/{{name}}");
    let body = [kind.group, kind.version, kind.kind];
    let mut of_collection = Map::new();
    let mut of_object = Map::new();
    for verb in &kind.verbs {
        match *verb {
            "list" => of_collection.insert("get".into(), list(kind)),
            "create" => of_collection.insert("post".into(), operation(kind, "post", body)),
            "deletecollection" => {
                of_collection.insert("delete".into(), operation(kind, "deletecollection", body))
            }
            "get" => of_object.insert("get".into(), operation(kind, "get", body)),
            "update" => of_object.insert("put".into(), operation(kind, "put", body)),
            "patch" => of_object.insert("patch".into(), operation(kind, "patch", body)),
            "delete" => of_object.insert("delete".into(), operation(kind, "delete", body)),
            _ => None,
        };
    }
    for (path, mut operations, has_name) in
        [(collection, of_collection, false), (object.clone(), of_object, true)]
    {
        if !operations.is_empty() {
            operations.insert("parameters".into(), path_parameters(kind, has_name));
            paths.insert(path, Value::Object(operations));
        }
    }
    for (name, body) in &kind.subresources {
        let verbs: &[&str] = match *name {
            "status" | "scale" | "resize" | "ephemeralcontainers" => &["get", "put", "patch"],
            "log" => &["get"],
            _ => &["post"],
        };
        let mut operations: Map<String, Value> =
            verbs.iter().map(|verb| ((*verb).to_string(), operation(kind, verb, *body))).collect();
        operations.insert("parameters".into(), path_parameters(kind, true));
        paths.insert(format!("{object}/{name}"), Value::Object(operations));
    }
    paths
}

fn list(kind: &ServedKind) -> Value {
    let mut operation = operation(kind, "list", [kind.group, kind.version, kind.list_kind]);
    // For a list operation, group, version and kind are those of the items, not of the list.
    operation["x-kubernetes-group-version-kind"] = kind.group_version_kind();
    operation
}

fn operation(kind: &ServedKind, action: &str, body: Body) -> Value {
    let mut operation = Map::new();
    let schema = types::reference(kind, body);
    operation.insert("parameters".into(), query_parameters(action));
    match action {
        "post" | "put" => {
            operation.insert(
                "requestBody".into(),
                json!({"required": true, "content": {"*/*": {"schema": schema}}}),
            );
        }
        "patch" => {
            let patch = json!({"schema": {"$ref": format!("{}{}Patch", types::SCHEMA_REF_PREFIX, types::META_PREFIX)}});
            let mut content = Map::new();
            for media_type in [
                "application/apply-patch+yaml",
                "application/json-patch+json",
                "application/merge-patch+json",
            ] {
                content.insert(media_type.into(), patch.clone());
            }
            if kind.schema.is_none() {
                content.insert("application/strategic-merge-patch+json".into(), patch);
            }
            operation.insert("requestBody".into(), json!({"required": true, "content": content}));
        }
        "delete" | "deletecollection" => {
            let options = format!("{}{}DeleteOptions", types::SCHEMA_REF_PREFIX, types::META_PREFIX);
            operation
                .insert("requestBody".into(), json!({"content": {"*/*": {"schema": {"$ref": options}}}}));
        }
        _ => {}
    }
    operation.insert(
        "responses".into(),
        json!({"200": {"description": "OK", "content": {"application/json": {"schema": schema}}}}),
    );
    operation.insert("x-kubernetes-action".into(), Value::from(action));
    operation.insert("x-kubernetes-group-version-kind".into(), group_version_kind(body));
    Value::Object(operation)
}

fn parameter(name: &str, place: &str, value_type: &str) -> Value {
    let mut parameter =
        json!({"name": name, "in": place, "schema": {"type": value_type, "uniqueItems": true}});
    if place == "path" {
        parameter["required"] = Value::Bool(true);
    }
    parameter
}

fn path_parameters(kind: &ServedKind, has_name: bool) -> Value {
    let mut parameters = Vec::new();
    if has_name {
        parameters.push(parameter("name", "path", "string"));
    }
    if kind.namespaced {
        parameters.push(parameter("namespace", "path", "string"));
    }
    parameters.push(parameter("pretty", "query", "string"));
    Value::Array(parameters)
}

fn query_parameters(action: &str) -> Value {
    let names: &[(&str, &str)] = match action {
        "post" | "put" => &[("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string")],
        "patch" => &[
            ("dryRun", "string"),
            ("fieldManager", "string"),
            ("fieldValidation", "string"),
            ("force", "boolean"),
        ],
        "delete" => &[
            ("dryRun", "string"),
            ("gracePeriodSeconds", "integer"),
            ("orphanDependents", "boolean"),
            ("propagationPolicy", "string"),
        ],
        "list" | "deletecollection" => &[
            ("allowWatchBookmarks", "boolean"),
            ("continue", "string"),
            ("fieldSelector", "string"),
            ("labelSelector", "string"),
            ("limit", "integer"),
            ("resourceVersion", "string"),
            ("resourceVersionMatch", "string"),
            ("sendInitialEvents", "boolean"),
            ("timeoutSeconds", "integer"),
            ("watch", "boolean"),
        ],
        _ => &[],
    };
    names.iter().map(|(name, value_type)| parameter(name, "query", value_type)).collect()
}
