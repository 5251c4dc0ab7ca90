//! Checks that a schema is structural: the type of every field is stated outside of `allOf`, `anyOf`, `oneOf` and `not`
//! ("junctors"), which may only restrict values.
//!
//! Upstream: k8s.io/apiextensions-apiserver/pkg/apiserver/schema/validation.go

use serde_json::{Map, Value, json};

use crate::crd::pattern;
use crate::field::FieldError;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// The errors, sorted by message as kube-apiserver sorts them.
pub(super) fn check(document: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    invariants(document, Level::Root, path, &mut errors);
    completeness(document, document, path, path, &mut errors);
    errors.sort_by_key(ToString::to_string);
    errors
}

fn text<'a>(node: &'a Value, keyword: &str) -> &'a str {
    node.get(keyword).and_then(Value::as_str).unwrap_or_default()
}

fn flag(node: &Value, keyword: &str) -> bool {
    node.get(keyword).and_then(Value::as_bool).unwrap_or_default()
}

fn list<'a>(node: &'a Value, keyword: &str) -> &'a [Value] {
    node.get(keyword).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn properties(node: &Value) -> impl Iterator<Item = (&String, &Value)> {
    node.get("properties").and_then(Value::as_object).into_iter().flatten()
}

fn child<'a>(node: &'a Value, keyword: &str) -> Option<&'a Value> {
    node.get(keyword).filter(|child| child.is_object())
}

fn is_int_or_string_pattern(branches: &[Value]) -> bool {
    branches == [json!({"type": "integer"}), json!({"type": "string"})]
}

fn invariants(node: &Value, level: Level, path: &str, errors: &mut Vec<FieldError>) {
    let kind = text(node, "type");
    if kind == "array" && child(node, "items").is_none() {
        errors.push(FieldError::required(format!("{path}.items"), "must be specified"));
    }
    if let Some(items) = child(node, "items") {
        invariants(items, Level::Item, &format!("{path}.items"), errors);
    }
    for (name, property) in properties(node) {
        invariants(property, Level::Field, &format!("{path}.properties[{name}]"), errors);
    }
    let has_additional = node.get("additionalProperties").is_some_and(|additional| !additional.is_null());
    if has_additional && level == Level::Root {
        let field = format!("{path}.additionalProperties");
        errors.push(FieldError::forbidden(field, "must not be used at the root"));
    }
    if let Some(additional) = child(node, "additionalProperties") {
        invariants(additional, Level::Field, &format!("{path}.additionalProperties"), errors);
    }

    let is_int_or_string = flag(node, "x-kubernetes-int-or-string");
    let preserves = flag(node, "x-kubernetes-preserve-unknown-fields");
    let is_embedded = flag(node, "x-kubernetes-embedded-resource");
    for (keyword, is_set) in
        [("x-kubernetes-preserve-unknown-fields", preserves), ("x-kubernetes-embedded-resource", is_embedded)]
    {
        if is_int_or_string && is_set {
            let detail = "must be false if x-kubernetes-int-or-string is true";
            errors.push(FieldError::invalid(format!("{path}.{keyword}"), Value::from(true), detail));
        }
    }
    let skips_any_of = is_int_or_string_pattern(list(node, "anyOf"));
    let skips_all_of_any_of =
        list(node, "allOf").first().is_some_and(|first| is_int_or_string_pattern(list(first, "anyOf")));
    values(node, skips_any_of, skips_all_of_any_of, level, path, errors);

    if is_embedded && kind != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        let field = format!("{path}.type");
        errors.push(if kind.is_empty() {
            FieldError::required(field, detail)
        } else {
            FieldError::invalid(field, Value::from(kind), detail)
        });
    } else if kind.is_empty() && !is_int_or_string && !preserves {
        let detail = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        errors.push(FieldError::required(format!("{path}.type"), detail));
    }
    if is_embedded && has_additional {
        let detail = "must not be used if x-kubernetes-embedded-resource is set";
        errors.push(FieldError::forbidden(format!("{path}.additionalProperties"), detail));
    }
    if level == Level::Root && !kind.is_empty() && kind != "object" {
        let detail = "must be object at the root";
        errors.push(FieldError::invalid(format!("{path}.type"), Value::from(kind), detail));
    }
    type_and_metadata(node, level, is_embedded, path, errors);
    if is_embedded && !preserves && properties(node).next().is_none() {
        let detail = "must not be empty if x-kubernetes-embedded-resource is true without \
                      x-kubernetes-preserve-unknown-fields";
        errors.push(FieldError::required(format!("{path}.properties"), detail));
    }
}

fn type_and_metadata(
    node: &Value,
    level: Level,
    is_embedded: bool,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    let is_resource = level == Level::Root || is_embedded;
    let property = |name: &str| node.get("properties").and_then(|properties| properties.get(name));
    for name in ["kind", "apiVersion"] {
        if let Some(property) = property(name).filter(|_| is_resource)
            && text(property, "type") != "string"
        {
            let field = format!("{path}.properties[{name}].type");
            errors.push(FieldError::invalid(field, Value::from(text(property, "type")), "must be string"));
        }
    }
    let Some(metadata) = property("metadata") else { return };
    let field = format!("{path}.properties[metadata]");
    if is_resource && text(metadata, "type") != "object" {
        let shown = Value::from(text(metadata, "type"));
        errors.push(FieldError::invalid(format!("{field}.type"), shown, "must be object"));
    }
    let known = ["type", "properties", "default", "description"];
    let mut says_more = metadata
        .as_object()
        .is_some_and(|keywords| keywords.keys().any(|keyword| !known.contains(&keyword.as_str())))
        || metadata.get("description").is_some_and(|description| description != "");
    says_more |= properties(metadata).any(|(name, _)| name != "name" && name != "generateName");
    if level == Level::Root && says_more {
        let detail = "must not specify anything other than name and generateName, but metadata is implicitly \
                      specified";
        errors.push(FieldError::forbidden(field, detail));
    }
}

fn values(
    node: &Value,
    skips_any_of: bool,
    skips_all_of_any_of: bool,
    level: Level,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    if !skips_any_of {
        for (index, branch) in list(node, "anyOf").iter().enumerate() {
            nested(branch, false, level, &format!("{path}.anyOf[{index}]"), errors);
        }
    }
    for (index, branch) in list(node, "allOf").iter().enumerate() {
        let skips = skips_all_of_any_of && index == 0;
        nested(branch, skips, level, &format!("{path}.allOf[{index}]"), errors);
    }
    for (index, branch) in list(node, "oneOf").iter().enumerate() {
        nested(branch, false, level, &format!("{path}.oneOf[{index}]"), errors);
    }
    if let Some(branch) = child(node, "not") {
        nested(branch, false, level, &format!("{path}.not"), errors);
    }
    let expression = text(node, "pattern");
    if !expression.is_empty()
        && let Err(error) = pattern::compile(expression)
    {
        let reason = pattern_message(expression, &error.to_string());
        let detail = format!("must be a valid regular expression, but isn't: {reason}");
        errors.push(FieldError::invalid(format!("{path}.pattern"), Value::from(expression), detail));
    }
}

/// Checks a schema within a junctor (`allOf`, `anyOf`, `oneOf`, `not`), which may only restrict values.
fn nested(node: &Value, skips_any_of: bool, level: Level, path: &str, errors: &mut Vec<FieldError>) {
    values(node, skips_any_of, false, level, path, errors);
    if let Some(items) = child(node, "items") {
        nested(items, false, level, &format!("{path}.items"), errors);
    }
    for (name, property) in properties(node) {
        nested(property, false, Level::Field, &format!("{path}.properties[{name}]"), errors);
    }
    let is_set = |keyword: &str| match node.get(keyword) {
        None | Some(Value::Null | Value::Bool(false)) => false,
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Array(elements)) => !elements.is_empty(),
        Some(_) => true,
    };
    for (keyword, state) in [
        ("type", "empty"),
        ("additionalProperties", "undefined"),
        ("default", "undefined"),
        ("title", "empty"),
        ("description", "empty"),
        ("nullable", "false"),
        ("x-kubernetes-preserve-unknown-fields", "false"),
        ("x-kubernetes-embedded-resource", "false"),
        ("x-kubernetes-int-or-string", "false"),
        ("x-kubernetes-list-map-keys", "empty"),
        ("x-kubernetes-list-type", "undefined"),
        ("x-kubernetes-map-type", "undefined"),
        ("x-kubernetes-validations", "empty"),
    ] {
        if is_set(keyword) {
            let detail = format!("must be {state} to be structural");
            errors.push(FieldError::forbidden(format!("{path}.{keyword}"), detail));
        }
    }
    if node.get("properties").and_then(|properties| properties.get("metadata")).is_some() {
        let detail = "must not be specified in a nested context";
        errors.push(FieldError::forbidden(format!("{path}.properties[metadata]"), detail));
    }
}

/// Checks that every field in a junctor (`allOf`, `anyOf`, `oneOf`, `not`) is also specified outside of it.
fn completeness(junctor: &Value, node: &Value, node_path: &str, path: &str, errors: &mut Vec<FieldError>) {
    if let Some(branch) = child(junctor, "not") {
        nested_completeness(branch, Some(node), node_path, &format!("{path}.not"), errors);
    }
    for keyword in ["allOf", "anyOf", "oneOf"] {
        for (index, branch) in list(junctor, keyword).iter().enumerate() {
            nested_completeness(branch, Some(node), node_path, &format!("{path}.{keyword}[{index}]"), errors);
        }
    }
}

fn nested_completeness(
    branch: &Value,
    node: Option<&Value>,
    node_path: &str,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    let Some(node) = node else {
        errors.push(FieldError::required(node_path, format!("because it is defined in {path}")));
        return;
    };
    completeness(branch, node, node_path, path, errors);
    if let Some(items) = child(branch, "items") {
        let (node_path, path) = (format!("{node_path}.items"), format!("{path}.items"));
        nested_completeness(items, child(node, "items"), &node_path, &path, errors);
    }
    let known = node.get("properties").and_then(Value::as_object);
    for (name, property) in properties(branch) {
        let (node_path, path) =
            (format!("{node_path}.properties[{name}]"), format!("{path}.properties[{name}]"));
        let node = known.and_then(|known: &Map<String, Value>| known.get(name));
        nested_completeness(property, node, &node_path, &path, errors);
    }
}

/// The error message that Go's regular expression parser would give, for known kinds of errors.
fn pattern_message(expression: &str, error: &str) -> String {
    let message = if error.contains("unclosed group") {
        format!("missing closing ): `{expression}`")
    } else if error.contains("unopened group") {
        format!("unexpected ): `{expression}`")
    } else if error.contains("unclosed character class") {
        let from = expression.rfind('[').unwrap_or_default();
        format!("missing closing ]: `{}`", &expression[from..])
    } else if error.contains("repetition operator missing expression") {
        let operator = expression.chars().find(|character| "*+?".contains(*character)).unwrap_or('*');
        format!("missing argument to repetition operator: `{operator}`")
    } else {
        format!("invalid or unsupported syntax: `{expression}`")
    };
    format!("error parsing regexp: {message}")
}
