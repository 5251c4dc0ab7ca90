//! Validation of CustomResourceDefinitions: names, versions, columns, subresources and schemas, with kube-apiserver's
//! messages.
//!
//! kube-apiserver validates an internal representation of the CRD, in which parts that are equal in all versions are in
//! the spec. Error paths refer to it (`spec.validation.openAPIV3Schema`). This module does not estimate the cost of
//! rules, and checks the types in rules only partly (see `expressions`).
//!
//! Upstream: k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation/validation.go

mod expressions;
mod openapi;
mod structural;

use serde_json::Value;

use super::names;
use crate::field::{FieldError, go_json};

/// The keywords that the root of a schema may have if there is a status subresource, with their Go names.
const ROOT_KEYWORDS_WITH_STATUS: [(&str, &str); 22] = [
    ("description", "Description"),
    ("type", "Type"),
    ("format", "Format"),
    ("title", "Title"),
    ("maximum", "Maximum"),
    ("exclusiveMaximum", "ExclusiveMaximum"),
    ("minimum", "Minimum"),
    ("exclusiveMinimum", "ExclusiveMinimum"),
    ("maxLength", "MaxLength"),
    ("minLength", "MinLength"),
    ("pattern", "Pattern"),
    ("maxItems", "MaxItems"),
    ("minItems", "MinItems"),
    ("uniqueItems", "UniqueItems"),
    ("multipleOf", "MultipleOf"),
    ("required", "Required"),
    ("items", "Items"),
    ("properties", "Properties"),
    ("externalDocs", "ExternalDocs"),
    ("example", "Example"),
    ("x-kubernetes-preserve-unknown-fields", "XPreserveUnknownFields"),
    ("x-kubernetes-validations", "XValidations"),
];

/// A CustomResourceDefinition, split into its versions.
struct Definition<'a> {
    crd: &'a Value,
    versions: &'a [Value],
}

impl<'a> Definition<'a> {
    fn new(crd: &'a Value) -> Self {
        let versions = crd.pointer("/spec/versions").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        Self { crd, versions }
    }

    fn text(&self, pointer: &str) -> &'a str {
        self.crd.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    fn storage_versions(&self) -> impl Iterator<Item = &'a Value> {
        self.versions
            .iter()
            .filter(|version| version.get("storage").and_then(Value::as_bool).unwrap_or_default())
    }

    /// Whether a part (schema, subresources or columns) is equal in all versions, so that the internal representation
    /// has it in the spec instead of in each version.
    fn is_shared(&self, part: &str) -> bool {
        let first = self.versions.first().and_then(|version| version.get(part));
        self.versions.iter().all(|version| version.get(part) == first)
    }

    /// The values of a part with their paths: a single value if all versions share it, else one per version.
    fn parts(&self, part: &str, shared_name: &str) -> Vec<(String, &'a Value)> {
        let present = |value: &&Value| !value.is_null();
        if self.is_shared(part) {
            let first = self.versions.first().and_then(|version| version.get(part)).filter(present);
            return first.map(|value| (format!("spec.{shared_name}"), value)).into_iter().collect();
        }
        let found = self.versions.iter().enumerate().filter_map(|(index, version)| {
            Some((format!("spec.versions[{index}].{part}"), version.get(part).filter(present)?))
        });
        found.collect()
    }

    /// An error about all versions; its message shows them in their internal representation.
    fn versions_error(&self, detail: &str) -> FieldError {
        let shown: Vec<String> = self.versions.iter().map(|version| self.shown_version(version)).collect();
        let text = match self.crd.pointer("/spec/versions") {
            Some(Value::Array(_)) => format!("[{}]", shown.join(",")),
            _ => "null".to_string(),
        };
        FieldError::invalid("spec.versions", Value::Array(self.versions.to_vec()), detail)
            .with_value_text(text)
    }

    fn shown_version(&self, version: &Value) -> String {
        let json = |name: &str| go_json(version.get(name).unwrap_or(&Value::Null));
        let flag = |name: &str| version.get(name).and_then(Value::as_bool).unwrap_or_default();
        let part = |name: &str| if self.is_shared(name) { "null".to_string() } else { json(name) };
        let name = go_json(version.get("name").unwrap_or(&Value::String(String::new())));
        format!(
            r#"{{"Name":{name},"Served":{},"Storage":{},"Deprecated":{},"DeprecationWarning":{},"Schema":{},"Subresources":{},"AdditionalPrinterColumns":{},"SelectableFields":{}}}"#,
            flag("served"),
            flag("storage"),
            flag("deprecated"),
            json("deprecationWarning"),
            part("schema"),
            part("subresources"),
            part("additionalPrinterColumns"),
            part("selectableFields"),
        )
    }
}

/// The errors of a CRD. `old` is the stored CRD, for an update. Of the metadata, only the name is checked.
pub fn validate_definition(crd: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let definition = Definition::new(crd);
    let mut errors = Vec::new();
    if old.is_none() {
        check_name(&definition, &mut errors);
    }
    check_group_and_scope(&definition, &mut errors);
    check_versions(&definition, &mut errors);
    check_names(&definition, &mut errors);
    let has_status = |path: &str| {
        let enabled =
            |version: &Value| version.pointer("/subresources/status").is_some_and(|status| !status.is_null());
        let index = path.strip_prefix("spec.versions[").and_then(|rest| rest.split(']').next()?.parse().ok());
        match index {
            Some(index) => definition.versions.get::<usize>(index).is_some_and(enabled),
            None => definition.versions.iter().any(enabled),
        }
    };
    for (path, schema) in definition.parts("schema", "validation") {
        if let Some(document) = schema.get("openAPIV3Schema").filter(|document| !document.is_null()) {
            errors.extend(check_schema(document, &format!("{path}.openAPIV3Schema"), has_status(&path)));
        }
    }
    for (path, subresources) in definition.parts("subresources", "subresources") {
        check_scale(subresources, &path, &mut errors);
    }
    for (path, columns) in definition.parts("additionalPrinterColumns", "additionalPrinterColumns") {
        for (index, column) in columns.as_array().into_iter().flatten().enumerate() {
            check_column(column, &format!("{path}[{index}]"), &mut errors);
        }
    }
    for (path, fields) in definition.parts("selectableFields", "selectableFields") {
        check_selectable_fields(&definition, fields, &path, &mut errors);
    }
    check_conversion(&definition, &mut errors);
    if let Some(old) = old {
        check_unchanged(&definition, old, &mut errors);
    }
    check_stored_versions(&definition, old, &mut errors);
    check_approval(&definition, old, &mut errors);
    let preserves =
        |crd: &Value| crd.pointer("/spec/preserveUnknownFields").and_then(Value::as_bool).unwrap_or_default();
    if preserves(crd) && !old.is_some_and(preserves) {
        let detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in \
                      spec.versions[*].schema instead";
        errors.push(FieldError::invalid("spec.preserveUnknownFields", Value::from(true), detail));
    }
    errors
}

fn check_name(definition: &Definition, errors: &mut Vec<FieldError>) {
    let name = definition.text("/metadata/name");
    let mut messages = names::dns1123_subdomain_errors(name);
    let wanted = format!("{}.{}", definition.text("/spec/names/plural"), definition.text("/spec/group"));
    if name != wanted {
        messages.push("must be spec.names.plural+\".\"+spec.group".to_string());
    }
    if name.is_empty() {
        errors.push(FieldError::required("metadata.name", "name or generateName is required"));
        return;
    }
    for message in messages {
        errors.push(FieldError::invalid("metadata.name", Value::from(name), message));
    }
}

fn check_group_and_scope(definition: &Definition, errors: &mut Vec<FieldError>) {
    let group = definition.text("/spec/group");
    let messages = names::dns1123_subdomain_errors(group);
    if group.is_empty() {
        errors.push(FieldError::required("spec.group", ""));
    } else if !messages.is_empty() {
        errors.push(FieldError::invalid("spec.group", Value::from(group), messages.join(",")));
    } else if !group.contains('.') {
        let detail = "should be a domain with at least one dot";
        errors.push(FieldError::invalid("spec.group", Value::from(group), detail));
    }
    match definition.text("/spec/scope") {
        "" => errors.push(FieldError::required("spec.scope", "")),
        "Cluster" | "Namespaced" => {}
        scope => {
            let scopes = ["Cluster", "Namespaced"];
            errors.push(FieldError::not_supported("spec.scope", Value::from(scope), &scopes));
        }
    }
}

fn check_versions(definition: &Definition, errors: &mut Vec<FieldError>) {
    for (index, version) in definition.versions.iter().enumerate() {
        if version.pointer("/schema/openAPIV3Schema").is_none_or(Value::is_null) {
            let path = format!("spec.versions[{index}].schema.openAPIV3Schema");
            errors.push(FieldError::required(path, ""));
        }
    }
    let mut seen = std::collections::BTreeSet::new();
    let mut is_unique = true;
    for (index, version) in definition.versions.iter().enumerate() {
        let name = version.get("name").and_then(Value::as_str).unwrap_or_default();
        is_unique &= seen.insert(name);
        let messages = names::dns1035_label_errors(name);
        if !messages.is_empty() {
            let path = format!("spec.versions[{index}].name");
            errors.push(FieldError::invalid(path, Value::from(name), messages.join(",")));
        }
        let deprecated = version.get("deprecated").and_then(Value::as_bool).unwrap_or_default();
        if let Some(warning) = version.get("deprecationWarning").and_then(Value::as_str) {
            let path = format!("spec.versions[{index}].deprecationWarning");
            let mut add_error = |message: &str| {
                errors.push(FieldError::invalid(path.as_str(), Value::from(warning), message));
            };
            if !deprecated {
                add_error("can only be set for deprecated versions");
            } else if warning.is_empty() {
                add_error("must not be an empty string");
            } else if warning.len() > 256 {
                add_error("must be <= 256 characters long");
            }
        }
    }
    if !is_unique {
        errors.push(definition.versions_error("must contain unique version names"));
    }
    if definition.storage_versions().count() != 1 {
        errors.push(definition.versions_error("must have exactly one version marked as storage version"));
    }
    // In the internal representation, the name of the first version is in the spec.
    if let Some(first) = definition.versions.first() {
        let name = first.get("name").and_then(Value::as_str).unwrap_or_default();
        let messages = names::dns1035_label_errors(name);
        if !name.is_empty() && !messages.is_empty() {
            errors.push(FieldError::invalid("spec.version", Value::from(name), messages.join(",")));
        }
    }
}

fn check_names(definition: &Definition, errors: &mut Vec<FieldError>) {
    for name in ["plural", "singular", "kind", "listKind"] {
        if definition.text(&format!("/spec/names/{name}")).is_empty() {
            errors.push(FieldError::required(format!("spec.names.{name}"), ""));
        }
    }
    let mut check = |field: String, name: &str, is_kind: bool| {
        let checked = if is_kind { name.to_lowercase() } else { name.to_string() };
        let messages = names::dns1035_label_errors(&checked);
        if !messages.is_empty() {
            let lead = if is_kind { "may have mixed case, but should otherwise match: " } else { "" };
            let detail = format!("{lead}{}", messages.join(","));
            errors.push(FieldError::invalid(format!("spec.names.{field}"), Value::from(name), detail));
        }
    };
    for field in ["plural", "singular", "kind", "listKind"] {
        let name = definition.text(&format!("/spec/names/{field}"));
        if !name.is_empty() {
            check(field.to_string(), name, matches!(field, "kind" | "listKind"));
        }
    }
    let listed = |field: &str| {
        let list = definition.crd.pointer(&format!("/spec/names/{field}")).and_then(Value::as_array);
        list.into_iter().flatten().enumerate()
    };
    for (index, name) in listed("shortNames") {
        check(format!("shortNames[{index}]"), name.as_str().unwrap_or_default(), false);
    }
    let (kind, list_kind) = (definition.text("/spec/names/kind"), definition.text("/spec/names/listKind"));
    for (index, name) in listed("categories") {
        check(format!("categories[{index}]"), name.as_str().unwrap_or_default(), false);
    }
    if !kind.is_empty() && kind == list_kind {
        let detail = "kind and listKind may not be the same";
        errors.push(FieldError::invalid("spec.names.listKind", Value::from(kind), detail));
    }
}

fn check_schema(document: &Value, path: &str, has_status: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let kind = document.get("type").and_then(Value::as_str).unwrap_or_default();
    if has_status && !kind.is_empty() && kind != "object" {
        let detail = "only \"object\" is allowed as the type at the root of the schema if the status \
                      subresource is enabled";
        errors.push(FieldError::invalid(format!("{path}.type"), Value::from(kind), detail));
    }
    let has_forbidden_keyword = document.as_object().into_iter().flatten().any(|(keyword, value)| {
        let is_zero = matches!(value, Value::Null | Value::Bool(false))
            || value.as_array().is_some_and(Vec::is_empty)
            || value.as_object().is_some_and(serde_json::Map::is_empty);
        !is_zero && !ROOT_KEYWORDS_WITH_STATUS.iter().any(|(known, _)| known == keyword)
    });
    if has_status && has_forbidden_keyword {
        let names: Vec<&str> = ROOT_KEYWORDS_WITH_STATUS.iter().map(|(_, name)| *name).collect();
        let detail = format!(
            "only [{}] fields are allowed at the root of the schema if the status subresource is enabled",
            names.join(" ")
        );
        errors.push(FieldError::invalid(path, document.clone(), detail));
    }
    if document.get("nullable").and_then(Value::as_bool).unwrap_or_default() {
        errors.push(FieldError::forbidden(format!("{path}.nullable"), "nullable cannot be true at the root"));
    }
    let mut is_structural = false;
    let found = structural::check(document, path);
    if found.is_empty() {
        let found = openapi::check_defaults(document, path);
        is_structural = found.is_empty();
        errors.extend(found);
    } else {
        errors.extend(found);
    }
    errors.extend(openapi::check(document, path, is_structural));
    errors
}

fn check_scale(subresources: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let Some(scale) = subresources.get("scale").filter(|scale| scale.is_object()) else { return };
    for (name, roots) in [
        ("specReplicasPath", &[".spec."][..]),
        ("statusReplicasPath", &[".status."]),
        ("labelSelectorPath", &[".spec.", ".status."]),
    ] {
        let field = format!("{path}.scale.{name}");
        let text = scale.get(name).and_then(Value::as_str).unwrap_or_default();
        if text.is_empty() {
            if name != "labelSelectorPath" {
                errors.push(FieldError::required(field, ""));
            }
        } else if !text.starts_with('.') {
            let detail = "must be a simple json path starting with .";
            errors.push(FieldError::invalid(field, Value::from(text), detail));
        } else if !roots.iter().any(|root| text.starts_with(root)) {
            let detail = match roots {
                [root] => format!("should be a json path under {}", root.trim_end_matches('.')),
                _ => "should be a json path under either .spec or .status".to_string(),
            };
            errors.push(FieldError::invalid(field, Value::from(text), detail));
        }
    }
}

fn check_column(column: &Value, path: &str, errors: &mut Vec<FieldError>) {
    const TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
    const FORMATS: [&str; 8] = ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];
    let text = |name: &str| column.get(name).and_then(Value::as_str).unwrap_or_default();
    if text("name").is_empty() {
        errors.push(FieldError::required(format!("{path}.name"), ""));
    }
    let types = format!("must be one of {}", TYPES.join(","));
    if text("type").is_empty() {
        errors.push(FieldError::required(format!("{path}.type"), types));
    } else if !TYPES.contains(&text("type")) {
        errors.push(FieldError::invalid(format!("{path}.type"), Value::from(text("type")), types));
    }
    if !text("format").is_empty() && !FORMATS.contains(&text("format")) {
        let detail = format!("must be one of {}", FORMATS.join(","));
        errors.push(FieldError::invalid(format!("{path}.format"), Value::from(text("format")), detail));
    }
    if text("jsonPath").is_empty() {
        errors.push(FieldError::required(format!("{path}.JSONPath"), ""));
    } else if !text("jsonPath").starts_with('.') {
        let detail = "must be a simple json path starting with .";
        errors.push(FieldError::invalid(format!("{path}.JSONPath"), Value::from(text("jsonPath")), detail));
    }
}

fn check_selectable_fields(
    definition: &Definition,
    fields: &Value,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    const FIELDS_MAX: usize = 8;
    let index = path.strip_prefix("spec.versions[").and_then(|rest| rest.split(']').next()?.parse().ok());
    let version = definition.versions.get(index.unwrap_or(0));
    let schema = version.and_then(|version| version.pointer("/schema/openAPIV3Schema"));
    let mut seen = std::collections::BTreeSet::new();
    for (index, field) in fields.as_array().into_iter().flatten().enumerate() {
        let path = format!("{path}[{index}].jsonPath");
        let text = field.get("jsonPath").and_then(Value::as_str).unwrap_or_default();
        if text.is_empty() {
            errors.push(FieldError::required(path, ""));
            continue;
        }
        let mut add_error = |message: &str| {
            errors.push(FieldError::invalid(path.as_str(), Value::from(text), message));
        };
        let Some(names) = text.strip_prefix('.') else {
            add_error(&format!("is an invalid path: expected [ or . but got: {text}"));
            continue;
        };
        if text.contains('[') {
            add_error("is an invalid path: array notation is not allowed");
            continue;
        }
        let mut node = schema;
        for name in names.split('.') {
            node = node.and_then(|node| node.pointer("/properties")).and_then(|fields| fields.get(name));
        }
        let Some(node) = node else {
            add_error("is an invalid path: does not refer to a valid field");
            continue;
        };
        if names.starts_with("metadata.") {
            add_error("must not point to fields in metadata");
        }
        if !matches!(node.get("type").and_then(Value::as_str), Some("string" | "boolean" | "integer")) {
            add_error(
                "must point to a field of type string, boolean or integer. \
                 Enum string fields and strings with formats are allowed.",
            );
        }
        if !seen.insert(names) {
            errors.push(FieldError::duplicate(path, Value::from(text)));
        }
    }
    if seen.len() > FIELDS_MAX {
        errors.push(FieldError::too_many(path, seen.len(), FIELDS_MAX));
    }
}

fn check_conversion(definition: &Definition, errors: &mut Vec<FieldError>) {
    let Some(conversion) = definition.crd.pointer("/spec/conversion").filter(|value| value.is_object())
    else {
        return;
    };
    let strategy = conversion.get("strategy").and_then(Value::as_str).unwrap_or_default();
    let webhook = conversion.get("webhook").filter(|webhook| webhook.is_object());
    let client = webhook.and_then(|webhook| webhook.get("clientConfig"));
    let versions = webhook.and_then(|webhook| webhook.get("conversionReviewVersions")?.as_array());
    match strategy {
        "" => errors.push(FieldError::required("spec.conversion.strategy", "")),
        "None" => {
            if client.is_some() {
                let detail = "should not be set when strategy is not set to Webhook";
                errors.push(FieldError::forbidden("spec.conversion.webhookClientConfig", detail));
            }
            if versions.is_some_and(|versions| !versions.is_empty()) {
                let detail = "should not be set when strategy is not set to Webhook";
                errors.push(FieldError::forbidden("spec.conversion.conversionReviewVersions", detail));
            }
        }
        "Webhook" => {
            match client {
                None => {
                    let detail = "required when strategy is set to Webhook";
                    errors.push(FieldError::required("spec.conversion.webhookClientConfig", detail));
                }
                Some(client) if client.get("url").is_some() == client.get("service").is_some() => {
                    let detail = "exactly one of url or service is required";
                    errors.push(FieldError::required("spec.conversion.webhookClientConfig", detail));
                }
                Some(_) => {}
            }
            if versions.is_none_or(Vec::is_empty) {
                errors.push(FieldError::required("spec.conversion.conversionReviewVersions", ""));
            }
        }
        other => {
            let strategies = ["None", "Webhook"];
            errors.push(FieldError::not_supported(
                "spec.conversion.strategy",
                Value::from(other),
                &strategies,
            ));
        }
    }
}

fn check_unchanged(definition: &Definition, old: &Value, errors: &mut Vec<FieldError>) {
    let is_established =
        old.pointer("/status/conditions").and_then(Value::as_array).is_some_and(|conditions| {
            conditions
                .iter()
                .any(|condition| condition["type"] == "Established" && condition["status"] == "True")
        });
    let fields: &[&str] = if is_established {
        &["/spec/scope", "/spec/names/kind", "/spec/group", "/spec/names/plural"]
    } else {
        &["/spec/group", "/spec/names/plural"]
    };
    for pointer in fields {
        let new = definition.text(pointer);
        if old.pointer(pointer).and_then(Value::as_str).unwrap_or_default() != new {
            let path = pointer.trim_start_matches('/').replace('/', ".");
            errors.push(FieldError::invalid(path, Value::from(new), "field is immutable"));
        }
    }
}

/// Checks that no version in which objects may be stored is removed. The stored versions are those of the old CRD,
/// because the server sets `status.storedVersions`.
fn check_stored_versions(definition: &Definition, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    // For a new CRD, the stored version is the first one with `storage: true`.
    let mut storage = definition.storage_versions().map(|version| version["name"].clone());
    if old.is_none() {
        let path = "status.storedVersions";
        match storage.next() {
            None => {
                errors.push(FieldError::invalid(path, Value::Null, "must have at least one stored version"));
            }
            Some(first) => errors.extend(storage.map(|other| {
                let detail = format!("must have the storage version {}", other.as_str().unwrap_or_default());
                FieldError::invalid(path, Value::Array(vec![first.clone()]), detail)
            })),
        }
        return;
    }
    let stored = old.and_then(|old| old.pointer("/status/storedVersions")).and_then(Value::as_array);
    for (index, stored) in stored.into_iter().flatten().enumerate() {
        let name = stored.as_str().unwrap_or_default();
        if !definition.versions.iter().any(|version| version["name"] == name) {
            let detail = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in \
                 spec.versions until a storage migration ensures no data remains persisted in {name} and \
                 removes {name} from status.storedVersions"
            );
            let path = format!("status.storedVersions[{index}]");
            errors.push(FieldError::invalid(path, Value::from(name), detail));
        }
    }
}

/// Checks that CRDs in groups of the Kubernetes community have an approval annotation.
fn check_approval(definition: &Definition, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    const ANNOTATION: &str = "api-approved.kubernetes.io";
    const MORE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";
    let group = definition.text("/spec/group");
    let is_protected = ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|owner| group.strip_suffix(owner).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')));
    if !is_protected || old.is_some() {
        return;
    }
    let annotations = definition.crd.pointer("/metadata/annotations");
    let annotation = annotations.and_then(|all| all.get(ANNOTATION)?.as_str()).unwrap_or_default();
    let path = format!("metadata.annotations[{ANNOTATION}]");
    if annotation.is_empty() {
        let detail = format!("protected groups must have approval annotation \"{ANNOTATION}\", {MORE}");
        errors.push(FieldError::required(path, detail));
    } else if !annotation.starts_with("unapproved") && !annotation.contains("://") {
        let detail = format!(
            "protected groups must have approval annotation \"{ANNOTATION}\" with either a URL or a reason \
             starting with \"unapproved\", {MORE}"
        );
        errors.push(FieldError::invalid(path, Value::from(annotation), detail));
    }
}
