//! Checks the keywords of a schema: which are allowed, their values, and whether rules and defaults are valid.
//!
//! Upstream: k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation/validation.go

use serde_json::{Map, Value, json};

use super::expressions;
use crate::crd::schema::Schema;
use crate::crd::{lists, rules};
use crate::field::{FieldError, go_json};

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
const REASONS: [&str; 4] =
    ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

#[derive(Clone)]
struct NodeContext {
    is_root: bool,
    is_inside_metadata: bool,
    /// Why a default is not allowed at this place in the schema; `None` if it is allowed.
    no_defaults_reason: Option<String>,
    /// The path of the outermost ancestor below which old and new values cannot be matched, so that rules with
    /// `oldSelf` are not allowed there.
    uncorrelatable: Option<String>,
    /// Whether rules are compiled. They are not within `allOf`, `anyOf`, `oneOf` and `not`, nor if the schema is not
    /// structural or has invalid defaults.
    checks_rules: bool,
}

/// Checks all keywords. Errors of rules come after all others, and only nodes without other errors have them.
pub(super) fn check(document: &Value, path: &str, checks_rules: bool) -> Vec<FieldError> {
    let context = NodeContext {
        is_root: true,
        is_inside_metadata: false,
        no_defaults_reason: None,
        uncorrelatable: None,
        checks_rules,
    };
    let mut found = Found::default();
    node(document, path, &context, &mut found);
    found.schema.extend(found.rules);
    found.schema
}

#[derive(Default)]
struct Found {
    schema: Vec<FieldError>,
    rules: Vec<FieldError>,
}

fn node(document: &Value, path: &str, context: &NodeContext, found: &mut Found) {
    let Some(keywords) = document.as_object() else { return };
    let errors_before = found.schema.len();
    own_keywords(keywords, path, context, &mut found.schema);
    children(document, keywords, path, context, found);
    extensions(keywords, path, &mut found.schema);
    rules_of(document, keywords, path, context, errors_before, found);
}

fn text<'a>(keywords: &'a Map<String, Value>, keyword: &str) -> &'a str {
    keywords.get(keyword).and_then(Value::as_str).unwrap_or_default()
}

fn own_keywords(
    keywords: &Map<String, Value>,
    path: &str,
    context: &NodeContext,
    errors: &mut Vec<FieldError>,
) {
    let kind = text(keywords, "type");
    let at = |keyword: &str| format!("{path}.{keyword}");
    if !kind.is_empty() && !TYPES.contains(&kind) {
        errors.push(FieldError::not_supported(at("type"), Value::from(kind), &TYPES));
    }
    if keywords.get("default").is_some_and(|default| !default.is_null())
        && let Some(reason) = &context.no_defaults_reason
    {
        errors.push(FieldError::forbidden(at("default"), format!("must not be set {reason}")));
    }
    for keyword in ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"] {
        if keywords.get(keyword).is_some_and(|value| !value.is_null()) {
            errors.push(FieldError::forbidden(at(keyword), format!("{keyword} is not supported")));
        }
    }
    if kind == "null" {
        let detail = "type cannot be set to null, use nullable as an alternative";
        errors.push(FieldError::forbidden(at("type"), detail));
    }
    if keywords.get("items").is_some_and(Value::is_array) {
        let detail = "items must be a schema object and not an array";
        errors.push(FieldError::forbidden(at("items"), detail));
    }
    if context.is_inside_metadata && keywords.get("x-kubernetes-embedded-resource") == Some(&json!(true)) {
        let detail = "must not be used inside of resource meta";
        errors.push(FieldError::forbidden(at("x-kubernetes-embedded-resource"), detail));
    }
    if keywords.get("uniqueItems") == Some(&json!(true)) {
        let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.push(FieldError::forbidden(at("uniqueItems"), detail));
    }
}

fn children(
    document: &Value,
    keywords: &Map<String, Value>,
    path: &str,
    context: &NodeContext,
    found: &mut Found,
) {
    let below = NodeContext { is_root: false, ..context.clone() };
    let properties = keywords.get("properties").and_then(Value::as_object);
    if let Some(additional) = keywords.get("additionalProperties").filter(|value| !value.is_null()) {
        let has_properties = properties.is_some_and(|properties| !properties.is_empty());
        if has_properties && *additional != json!(true) {
            let detail = "additionalProperties and properties are mutual exclusive";
            found.schema.push(FieldError::forbidden(format!("{path}.additionalProperties"), detail));
        }
        let mut below = below.clone();
        if context.is_inside_metadata {
            below.no_defaults_reason = Some("inside additionalProperties applying to object metadata".into());
        }
        node(additional, &format!("{path}.additionalProperties"), &below, found);
    }
    let is_embedded = keywords.get("x-kubernetes-embedded-resource") == Some(&json!(true));
    for (name, property) in properties.into_iter().flatten() {
        let mut below = below.clone();
        if (context.is_root || is_embedded) && matches!(name.as_str(), "metadata" | "kind" | "apiVersion") {
            below.is_inside_metadata = true;
            if context.is_root {
                below.no_defaults_reason = Some(format!("in top-level {name}"));
            }
        }
        node(property, &format!("{path}.properties[{name}]"), &below, found);
    }
    let junctor = NodeContext { checks_rules: false, ..below.clone() };
    if let Some(not) = keywords.get("not") {
        node(not, &format!("{path}.not"), &junctor, found);
    }
    for keyword in ["allOf", "oneOf", "anyOf"] {
        let branches = keywords.get(keyword).and_then(Value::as_array);
        for (index, branch) in branches.into_iter().flatten().enumerate() {
            node(branch, &format!("{path}.{keyword}[{index}]"), &junctor, found);
        }
    }
    if let Some(items) = document.get("items") {
        let mut below = below;
        if text(keywords, "x-kubernetes-list-type") != "map" && below.uncorrelatable.is_none() {
            below.uncorrelatable = Some(path.to_string());
        }
        node(items, &format!("{path}.items"), &below, found);
    }
}

fn extensions(keywords: &Map<String, Value>, path: &str, errors: &mut Vec<FieldError>) {
    let at = |keyword: &str| format!("{path}.{keyword}");
    let kind = text(keywords, "type");
    if keywords.get("x-kubernetes-preserve-unknown-fields") == Some(&json!(false)) {
        let detail = "must be true or undefined";
        errors.push(FieldError::invalid(at("x-kubernetes-preserve-unknown-fields"), json!(false), detail));
    }
    let must_have_type = |errors: &mut Vec<FieldError>, wanted: &str, keyword: &str| {
        let detail = format!("must be {wanted} if {keyword} is specified");
        errors.push(if kind.is_empty() {
            FieldError::required(at("type"), detail)
        } else {
            FieldError::invalid(at("type"), Value::from(kind), detail)
        });
    };
    let choice = |keyword: &str| keywords.get(keyword).and_then(Value::as_str);
    if let Some(map_type) = choice("x-kubernetes-map-type") {
        if kind != "object" {
            must_have_type(errors, "object", "x-kubernetes-map-type");
        }
        if !matches!(map_type, "atomic" | "granular") {
            let field = at("x-kubernetes-map-type");
            errors.push(FieldError::not_supported(field, Value::from(map_type), &["atomic", "granular"]));
        }
    }
    let list_type = choice("x-kubernetes-list-type");
    let items = keywords.get("items").and_then(Value::as_object);
    if let Some(list_type) = list_type {
        if kind != "array" {
            must_have_type(errors, "array", "x-kubernetes-list-type");
        } else if list_type == "set"
            && let Some(items) = items
        {
            set_items(items, path, errors);
        }
        if !matches!(list_type, "atomic" | "set" | "map") {
            let field = at("x-kubernetes-list-type");
            errors.push(FieldError::not_supported(field, Value::from(list_type), &["atomic", "set", "map"]));
        }
    }
    let keys: Vec<&str> = keywords
        .get("x-kubernetes-list-map-keys")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    if !keys.is_empty() && list_type != Some("map") {
        let field = at("x-kubernetes-list-type");
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        errors.push(match list_type {
            None => FieldError::required(field, detail),
            Some(list_type) => FieldError::invalid(field, Value::from(list_type), detail),
        });
    }
    if list_type == Some("map") {
        map_items(items, &keys, path, errors);
    }
    if let (Some("set" | "map"), Some(items)) = (list_type, items) {
        nullable_items(items, &keys, list_type.unwrap_or_default(), path, errors);
    }
}

fn set_items(items: &Map<String, Value>, path: &str, errors: &mut Vec<FieldError>) {
    let list_type = items.get("x-kubernetes-list-type").cloned().unwrap_or_default();
    let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
    match text(items, "type") {
        "array" if !list_type.is_null() && list_type != "atomic" => {
            errors.push(FieldError::invalid(
                format!("{path}.items.x-kubernetes-list-type"),
                list_type,
                detail,
            ));
        }
        "object" if text(items, "x-kubernetes-map-type") != "atomic" => {
            errors.push(FieldError::invalid(
                format!("{path}.items.x-kubernetes-map-type"),
                list_type,
                detail,
            ));
        }
        _ => {}
    }
}

fn map_items(items: Option<&Map<String, Value>>, keys: &[&str], path: &str, errors: &mut Vec<FieldError>) {
    if keys.is_empty() {
        let detail = "must not be empty if x-kubernetes-list-type is map";
        errors.push(FieldError::required(format!("{path}.x-kubernetes-list-map-keys"), detail));
    }
    let Some(items) = items else {
        let detail = "must have a schema if x-kubernetes-list-type is map";
        errors.push(FieldError::required(format!("{path}.items"), detail));
        return;
    };
    let kind = text(items, "type");
    if kind != "object" {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        errors.push(FieldError::invalid(format!("{path}.items.type"), Value::from(kind), detail));
        return;
    }
    let properties = items.get("properties").and_then(Value::as_object);
    for (index, key) in keys.iter().enumerate() {
        let field = format!("{path}.x-kubernetes-list-map-keys");
        match properties.and_then(|properties| properties.get(*key)) {
            None => {
                let detail = "entries must all be names of item properties";
                errors.push(FieldError::invalid(field.as_str(), json!(keys), detail));
            }
            Some(property) if property["type"] == "array" || property["type"] == "object" => {
                let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                let field = format!("{path}.items.properties[{key}].type");
                errors.push(FieldError::invalid(field, Value::from(kind), detail));
            }
            Some(_) => {}
        }
        if keys[..index].contains(key) {
            errors.push(FieldError::invalid(field, json!(keys), "must not contain duplicate entries"));
        }
    }
}

fn nullable_items(
    items: &Map<String, Value>,
    keys: &[&str],
    list_type: &str,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    if items.get("nullable") == Some(&json!(true)) {
        let detail = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
        errors.push(FieldError::forbidden(format!("{path}.items.nullable"), detail));
    }
    if list_type != "map" {
        return;
    }
    let required = items.get("required").and_then(Value::as_array);
    for key in keys {
        let Some(property) = items.get("properties").and_then(|properties| properties.get(*key)) else {
            continue;
        };
        let is_required = required.is_some_and(|required| required.iter().any(|name| name == key));
        let lead = "this property is in x-kubernetes-list-map-keys, so it";
        let field = format!("{path}.items.properties[{key}]");
        if !is_required && property.get("default").is_none_or(Value::is_null) {
            let detail = format!("{lead} must have a default or be a required property");
            errors.push(FieldError::required(format!("{field}.default"), detail));
        }
        if property.get("nullable") == Some(&json!(true)) {
            errors.push(FieldError::forbidden(
                format!("{field}.nullable"),
                format!("{lead} cannot be nullable"),
            ));
        }
    }
}

fn rules_of(
    document: &Value,
    keywords: &Map<String, Value>,
    path: &str,
    context: &NodeContext,
    errors_before: usize,
    found: &mut Found,
) {
    let list = keywords.get("x-kubernetes-validations").and_then(Value::as_array);
    let Some(list) = list.filter(|list| !list.is_empty()) else { return };
    for (index, rule) in list.iter().enumerate() {
        let path = format!("{path}.x-kubernetes-validations[{index}]");
        rule_texts(rule, &path, &mut found.schema);
        let field_path = rule.get("fieldPath").and_then(Value::as_str).unwrap_or_default();
        if !field_path.is_empty() && !is_field_path(document, field_path) {
            let shown = Value::from(field_path);
            found.schema.push(FieldError::invalid(
                format!("{path}.fieldPath"),
                shown,
                "must be a valid path",
            ));
        }
    }
    if found.schema.len() > errors_before || !context.checks_rules {
        return;
    }
    let schema = Schema::parse(document);
    for (index, rule) in list.iter().enumerate() {
        let at = |name: &str| format!("{path}.x-kubernetes-validations[{index}].{name}");
        let checked = expressions::check(rule, &schema, context.is_root);
        for (name, detail) in checked.errors {
            let detail = format!("{}{detail}", if name == "rule" { "" } else { "messageExpression " });
            found.rules.push(rule_error(at(name), rule, detail));
        }
        if checked.uses_old_self {
            if let Some(above) = &context.uncorrelatable {
                let detail = format!(
                    "oldSelf cannot be used on the uncorrelatable portion of the schema within {above}"
                );
                found.rules.push(FieldError::invalid(at("rule"), rule["rule"].clone(), detail));
            }
        } else if let Some(optional) = rule.get("optionalOldSelf").filter(|value| !value.is_null()) {
            let detail = "may not be set if oldSelf is not used in rule";
            found.rules.push(FieldError::invalid(at("optionalOldSelf"), optional.clone(), detail));
        }
    }
}

/// Whether a field path such as `.a['b']` refers to a field that the schema has.
fn is_field_path(document: &Value, path: &str) -> bool {
    let mut node = document;
    let mut rest = path;
    while !rest.is_empty() {
        let (name, after) = if let Some(quoted) = rest.strip_prefix("['") {
            let Some(found) = quoted.split_once("']") else { return false };
            found
        } else {
            let Some(plain) = rest.strip_prefix('.') else { return false };
            let end = plain.find(['.', '[']).unwrap_or(plain.len());
            (&plain[..end], &plain[end..])
        };
        let property = node.get("properties").and_then(|properties| properties.get(name));
        let additional = node.get("additionalProperties").filter(|additional| additional.is_object());
        let Some(child) = property.or(additional.filter(|_| node.get("properties").is_none())) else {
            return false;
        };
        node = child;
        rest = after;
    }
    true
}

/// An error about a rule; its message shows the rule in its internal representation.
fn rule_error(path: String, rule: &Value, detail: String) -> FieldError {
    let text = |name: &str| go_json(&Value::from(rule.get(name).and_then(Value::as_str).unwrap_or_default()));
    let json = |name: &str| go_json(rule.get(name).unwrap_or(&Value::Null));
    let shown = format!(
        r#"{{"Rule":{},"Message":{},"MessageExpression":{},"Reason":{},"FieldPath":{},"OptionalOldSelf":{}}}"#,
        text("rule"),
        text("message"),
        text("messageExpression"),
        json("reason"),
        text("fieldPath"),
        json("optionalOldSelf"),
    );
    FieldError::invalid(path, rule.clone(), detail).with_value_text(shown)
}

fn rule_texts(rule: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let text = |name: &str| rule.get(name).and_then(Value::as_str).unwrap_or_default();
    let has_newlines = |text: &str| text.contains(['\n', '\r']);
    let at = |name: &str| format!("{path}.{name}");
    let invalid = |name: &str, detail: &str| FieldError::invalid(at(name), Value::from(text(name)), detail);
    let (expression, message) = (text("rule").trim(), text("message").trim());
    if expression.is_empty() {
        errors.push(FieldError::required(at("rule"), "rule is not specified"));
    } else if !text("message").is_empty() && message.is_empty() {
        errors.push(invalid("message", "must be non-empty if specified"));
    } else if has_newlines(message) {
        errors.push(invalid("message", "must not contain line breaks"));
    } else if has_newlines(expression) && message.is_empty() {
        let detail = "message must be specified if rule contains line breaks";
        errors.push(FieldError::required(at("message"), detail));
    }
    if !text("messageExpression").is_empty() && text("messageExpression").trim().is_empty() {
        let detail = "messageExpression must be non-empty if specified";
        errors.push(FieldError::required(at("messageExpression"), detail));
    }
    if let Some(reason) = rule.get("reason").and_then(Value::as_str)
        && !REASONS.contains(&reason)
    {
        errors.push(FieldError::not_supported(at("reason"), Value::from(reason), &REASONS));
    }
    if !text("fieldPath").is_empty() && text("fieldPath").trim().is_empty() {
        errors.push(invalid("fieldPath", "must be non-empty if specified"));
    }
    if has_newlines(text("fieldPath")) {
        errors.push(invalid("fieldPath", "must not contain line breaks"));
    }
}

/// Checks that default values are valid and have no unknown fields.
pub(super) fn check_defaults(document: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    defaults_of(document, path, &mut errors);
    errors
}

fn defaults_of(document: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if let Some(default) = document.get("default").filter(|default| !default.is_null()) {
        let field = format!("{path}.default");
        let schema = Schema::parse(document);
        let mut pruned = default.clone();
        schema.prune_value(&mut pruned);
        if pruned != *default {
            let detail = "must not have unknown fields";
            errors.push(FieldError::invalid(field.as_str(), default.clone(), detail));
        }
        let mut found = lists::embedded(&schema, default);
        if found.is_empty() {
            found = schema.check(&field, default, None);
        }
        if found.is_empty() {
            found = rules::run(&schema, &field, default, None);
        }
        errors.extend(found);
    }
    if let Some(items) = document.get("items").filter(|items| items.is_object()) {
        defaults_of(items, &format!("{path}.items"), errors);
    }
    for (name, property) in document.get("properties").and_then(Value::as_object).into_iter().flatten() {
        defaults_of(property, &format!("{path}.properties[{name}]"), errors);
    }
}
