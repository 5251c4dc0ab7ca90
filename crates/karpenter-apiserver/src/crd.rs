//! Custom resources: the behaviour of kinds that a CustomResourceDefinition (CRD, for short) defines.
//!
//! A [`CustomKind`] is one served version of a CRD, compiled once. It prunes, defaults and validates objects, and knows
//! their shape, columns and subresources. [`validate_definition`] validates CRDs. Other modules implement storage and
//! the metadata rules of all kinds. Conversion webhooks are not supported: an object has the same content in all
//! versions, as with the conversion strategy `None`.
//!
//! Upstream: k8s.io/apiextensions-apiserver/pkg/apiserver, k8s.io/apiextensions-apiserver/pkg/registry/customresource

mod cache;
mod check;
mod definition;
mod formats;
mod lists;
mod names;
mod pattern;
mod prune;
mod rules;
mod schema;
mod shape;
mod status;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde_json::Value;

pub use definition::validate_definition;
pub use status::{default_definition, established_status};

use crate::field::{FieldError, FieldErrorKind};
use crate::shape::Shape;
use crate::status::{ApiResult, Failure};
use crate::table::Columns;
use schema::Schema;

/// Where the scale subresource finds its values, as simple JSON paths such as `.spec.replicas`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScalePaths {
    pub spec_replicas: String,
    pub status_replicas: String,
    pub label_selector: Option<String>,
}

/// Converts floats without a fraction to integers, as kube-apiserver decodes `2.0` and stores `2`. Must be called after
/// validation, which distinguishes the two.
pub fn normalise_numbers(value: &mut Value) {
    // Above this limit, floats cannot represent every integer, and Go encodes them with an exponent.
    const WHOLE_MAX: f64 = (1_i64 << 53) as f64;
    match value {
        Value::Number(number) if number.is_f64() => {
            let float = number.as_f64().unwrap_or_default();
            if float.fract() == 0.0 && float.abs() <= WHOLE_MAX {
                *value = Value::from(float as i64);
            }
        }
        Value::Array(elements) => elements.iter_mut().for_each(normalise_numbers),
        Value::Object(fields) => fields.values_mut().for_each(normalise_numbers),
        _ => {}
    }
}

/// One version of a custom resource. Cloning it is cheap.
#[derive(Debug, Clone)]
pub struct CustomKind(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    group: String,
    version: String,
    kind: String,
    schema: Schema,
    schema_document: Value,
    shape: Shape,
    columns: Columns,
    has_status: bool,
    scale: Option<ScalePaths>,
    selectable_fields: Vec<String>,
}

impl CustomKind {
    /// Compiles one version of a CRD. [`validate_definition`] must have accepted the CRD.
    pub fn from_definition(crd: &Value, version: &str) -> ApiResult<Self> {
        let missing = || {
            let name = crd.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
            Box::new(Failure::bad_request(format!(
                "custom resource definition {name} has no version {version}"
            )))
        };
        let text =
            |pointer: &str| crd.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_string();
        let entry = crd
            .pointer("/spec/versions")
            .and_then(Value::as_array)
            .and_then(|versions| versions.iter().find(|entry| entry["name"] == version))
            .ok_or_else(missing)?;
        let schema_document = entry.pointer("/schema/openAPIV3Schema").cloned().unwrap_or(Value::Null);
        let mut schema = Schema::parse(&schema_document);
        schema.preserve_unknown_fields |=
            crd.pointer("/spec/preserveUnknownFields").and_then(Value::as_bool).unwrap_or_default();
        let scale = entry.pointer("/subresources/scale").filter(|scale| scale.is_object()).map(|scale| {
            let path = |name: &str| scale.get(name).and_then(Value::as_str).unwrap_or_default().to_string();
            ScalePaths {
                spec_replicas: path("specReplicasPath"),
                status_replicas: path("statusReplicasPath"),
                label_selector: Some(path("labelSelectorPath")).filter(|path| !path.is_empty()),
            }
        });
        let has_status = entry.pointer("/subresources/status").is_some_and(|status| !status.is_null());
        Ok(Self(Arc::new(Inner {
            group: text("/spec/group"),
            version: version.to_string(),
            kind: text("/spec/names/kind"),
            shape: shape::of_object(&schema, has_status),
            columns: Columns::custom(entry.get("additionalPrinterColumns")),
            has_status,
            scale,
            selectable_fields: entry
                .get("selectableFields")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter_map(|field| field.get("jsonPath")?.as_str())
                .map(|path| path.trim_start_matches('.').to_string())
                .collect(),
            schema,
            schema_document,
        })))
    }

    pub fn group(&self) -> &str {
        &self.0.group
    }

    pub fn version(&self) -> &str {
        &self.0.version
    }

    pub fn kind(&self) -> &str {
        &self.0.kind
    }

    /// The schema in the CRD, as a JSON document.
    pub fn schema_document(&self) -> &Value {
        &self.0.schema_document
    }

    pub fn shape(&self) -> &Shape {
        &self.0.shape
    }

    pub fn columns(&self) -> &Columns {
        &self.0.columns
    }

    pub fn has_status(&self) -> bool {
        self.0.has_status
    }

    pub fn scale_paths(&self) -> Option<&ScalePaths> {
        self.0.scale.as_ref()
    }

    /// The paths of the selectable fields, without the leading dot.
    pub fn selectable_fields(&self) -> &[String] {
        &self.0.selectable_fields
    }

    /// Removes fields that neither the schema nor `ObjectMeta` has. Returns the paths of removed fields, sorted.
    pub fn prune(&self, object: &mut Value) -> Vec<String> {
        self.0.schema.prune_object(object)
    }

    /// Removes nulls from fields that are not nullable, then applies defaults.
    pub fn default(&self, object: &mut Value) {
        self.0.schema.apply_defaults(object);
    }

    /// The errors of a new object, except those of its metadata.
    pub fn validate_create(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        self.check_create(object, &mut errors);
        errors
    }

    /// Like [`Self::validate_create`], but appends its errors to those of the metadata. CEL rules are evaluated only if
    /// there are no other errors.
    pub fn check_create(&self, object: &Value, errors: &mut Vec<FieldError>) {
        let schema = &self.0.schema;
        errors.extend(schema.check("", object, None));
        self.check_scale(object, true, errors);
        errors.extend(lists::embedded(schema, object));
        errors.extend(lists::duplicates(schema, object));
        self.run_rules(object, None, errors);
    }

    /// The errors of an updated object, except those of its metadata. Errors in parts that did not change are ignored
    /// (ratcheting).
    pub fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        self.check_update(object, old, &mut errors);
        errors
    }

    /// Like [`Self::validate_update`], but appends its errors to those of the metadata.
    pub fn check_update(&self, object: &Value, old: &Value, errors: &mut Vec<FieldError>) {
        let schema = &self.0.schema;
        errors.extend(schema.check("", object, Some(old)));
        self.check_scale(object, true, errors);
        errors.extend(lists::embedded(schema, object));
        self.check_duplicates(object, old, errors);
        self.run_rules(object, Some(old), errors);
    }

    /// Like [`Self::validate_update`], for the status subresource: only the status is checked against the schema.
    pub fn validate_status_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        self.check_status_update(object, old, &mut errors);
        errors
    }

    /// Like [`Self::check_update`], for the status subresource.
    pub fn check_status_update(&self, object: &Value, old: &Value, errors: &mut Vec<FieldError>) {
        if let (Some(schema), Some(status)) = (self.0.schema.properties.get("status"), object.get("status")) {
            errors.extend(schema.check("status", status, Some(old.get("status").unwrap_or(&Value::Null))));
        }
        self.check_scale(object, false, errors);
        self.check_duplicates(object, old, errors);
        self.run_rules(object, Some(old), errors);
    }

    /// Reports duplicate list items, unless the old object already has duplicates.
    fn check_duplicates(&self, object: &Value, old: &Value, errors: &mut Vec<FieldError>) {
        let found = lists::duplicates(&self.0.schema, object);
        if !found.is_empty() && lists::duplicates(&self.0.schema, old).is_empty() {
            errors.extend(found);
        }
    }

    fn run_rules(&self, object: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
        if !self.0.schema.has_rules_inside {
            return;
        }
        let blocks = |error: &FieldError| {
            matches!(
                error.kind,
                FieldErrorKind::NotSupported
                    | FieldErrorKind::Required
                    | FieldErrorKind::TooLong
                    | FieldErrorKind::TooMany
                    | FieldErrorKind::TypeInvalid
            )
        };
        if errors.iter().any(blocks) {
            let detail = "some validation rules were not checked because the object was invalid; \
                          correct the existing errors to complete validation";
            errors.push(FieldError::invalid("", Value::Null, detail));
        } else {
            errors.extend(rules::run(&self.0.schema, "", object, old));
        }
    }

    fn check_scale(&self, object: &Value, with_spec: bool, errors: &mut Vec<FieldError>) {
        let Some(scale) = &self.0.scale else { return };
        if with_spec {
            check_replicas(object, &scale.spec_replicas, errors);
        }
        check_replicas(object, &scale.status_replicas, errors);
        if let Some(path) = &scale.label_selector
            && let Err(message) = nested(object, path, |found| found.is_string(), "string")
        {
            errors.push(FieldError::invalid(path.as_str(), Value::from(""), message));
        }
    }
}

fn check_replicas(object: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let found = match nested(object, path, |found| found.as_i64().is_some(), "int64") {
        Ok(found) => found.and_then(Value::as_i64).unwrap_or_default(),
        Err(message) => {
            errors.push(FieldError::invalid(path, Value::from(0), message));
            return;
        }
    };
    if found < 0 {
        errors.push(FieldError::invalid(path, Value::from(found), "should be a non-negative integer"));
    } else if found > i64::from(i32::MAX) {
        let detail = format!("should be less than or equal to {}", i32::MAX);
        errors.push(FieldError::invalid(path, Value::from(found), detail));
    }
}

/// The value at a simple path, `None` if it is missing. The result is an error if a part of the path has an unexpected
/// type.
fn nested<'a>(
    object: &'a Value,
    path: &str,
    fits: impl Fn(&Value) -> bool,
    wanted: &str,
) -> Result<Option<&'a Value>, String> {
    let names: Vec<&str> = path.trim_start_matches('.').split('.').collect();
    let walked = names.join(".");
    let mut current = object;
    for name in &names {
        match current {
            Value::Object(fields) => match fields.get(*name) {
                Some(field) => current = field,
                None => return Ok(None),
            },
            Value::Null => return Ok(None),
            other => {
                let message =
                    "accessor error: {value} is of the type {type}, expected map[string]interface{}";
                let message = message.replace("{value}", &plain(other)).replace("{type}", go_type(other));
                return Err(format!(".{walked} {message}"));
            }
        }
    }
    if fits(current) {
        return Ok(Some(current));
    }
    Err(format!(
        ".{walked} accessor error: {} is of the type {}, expected {wanted}",
        plain(current),
        go_type(current)
    ))
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) if number.as_i64().is_none() => {
            number.as_f64().map_or_else(String::new, crate::field::go_float)
        }
        other => other.to_string(),
    }
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.as_i64().is_some() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}
