//! Validates a value with a structural schema and returns all violations.
//!
//! Recursion follows the schema, not the value, so the CRD limits its depth. If the schema does not describe a part of
//! the value, the part is reported as an unknown field, or skipped with preserve-unknown-fields.
//!
//! The results are those of the API server, with one exception. Its library accepts some lists as a string with a
//! format, which no controller could read; this module rejects them.

use std::collections::BTreeSet;

use serde_json::{Map, Number, Value};

use super::hint::closest_name;
use super::text::{quoted, short_text, type_name};
use super::{Format, JsonType, ListType, Schema, formats};
use crate::error::{FieldError, Rule};

/// Result of a validation.
#[derive(Debug, Default)]
pub struct Findings {
    pub errors: Vec<FieldError>,
    /// Whether CEL rules must not be evaluated. The API server skips them after a wrong type, a missing field, an
    /// unsupported value, or a value that is too long.
    pub blocks_rules: bool,
}

impl Findings {
    fn push(&mut self, error: FieldError) {
        self.blocks_rules |= matches!(error.rule, Rule::Type | Rule::Required | Rule::Enum);
        self.errors.push(error);
    }

    fn push_exceeded_limit(&mut self, error: FieldError) {
        self.blocks_rules = true;
        self.errors.push(error);
    }
}

impl Schema {
    /// Validates a value to which defaults were applied; `path` is its path in the object.
    pub fn check(&self, path: &str, value: &Value) -> Findings {
        let mut findings = Findings::default();
        self.walk(&mut path.to_string(), value, &mut findings);
        findings
    }

    fn walk(&self, path: &mut String, value: &Value, findings: &mut Findings) {
        if value.is_null() && self.nullable {
            return;
        }
        if !self.has_right_type(value) {
            let wanted = self.type_words();
            findings.push(
                FieldError::new(
                    path.as_str(),
                    Rule::Type,
                    format!(
                        "invalid value: {}: must be of type {wanted}, not {}",
                        quoted(value),
                        type_name(value)
                    ),
                )
                .with_valid(format!("a value of type {wanted}")),
            );
            return;
        }
        self.check_choice(path, value, findings);
        match value {
            Value::String(text) => self.check_string(path, text, findings),
            Value::Number(number) => self.check_number(path, number, findings),
            Value::Array(elements) => self.check_array(path, elements, findings),
            Value::Object(fields) => self.check_object(path, fields, findings),
            Value::Null | Value::Bool(_) => {}
        }
    }

    fn has_right_type(&self, value: &Value) -> bool {
        if self.int_or_string {
            return value.is_string() || is_whole(value);
        }
        match self.json_type {
            None => true,
            Some(JsonType::Object) => value.is_object(),
            Some(JsonType::Array) => value.is_array(),
            Some(JsonType::String) => value.is_string(),
            Some(JsonType::Boolean) => value.is_boolean(),
            Some(JsonType::Number) => value.is_number(),
            Some(JsonType::Integer) => is_whole(value),
        }
    }

    fn type_words(&self) -> &'static str {
        if self.int_or_string { "integer or string" } else { self.json_type.map_or("any", JsonType::as_str) }
    }

    fn check_choice(&self, path: &str, value: &Value, findings: &mut Findings) {
        if self.allowed_values.is_empty() || self.allowed_values.contains(value) {
            return;
        }
        let choices = self.allowed_values.iter().map(quoted).collect::<Vec<_>>().join(", ");
        let meant = value
            .as_str()
            .and_then(|text| closest_name(text, self.allowed_values.iter().filter_map(Value::as_str)));
        let hint = meant.map_or(String::new(), |name| format!("; did you mean \"{name}\"?"));
        findings.push(
            FieldError::new(path, Rule::Enum, format!("unsupported value: {}{hint}", quoted(value)))
                .with_valid(choices),
        );
    }

    fn check_string(&self, path: &str, text: &str, findings: &mut Findings) {
        if self.length_min.is_some() || self.length_max.is_some() {
            let length = text.chars().count();
            if let Some(limit) = self.length_min.filter(|limit| length < *limit) {
                findings.push(
                    FieldError::new(
                        path,
                        Rule::Bound,
                        format!(
                            "invalid value: \"{}\": should be at least {limit} chars long",
                            short_text(text)
                        ),
                    )
                    .with_valid(format!("a string of at least {limit} characters")),
                );
            }
            if let Some(limit) = self.length_max.filter(|limit| length > *limit) {
                findings.push_exceeded_limit(
                    FieldError::new(
                        path,
                        Rule::Bound,
                        format!("too long: {length} characters: may not be more than {limit}"),
                    )
                    .with_valid(format!("a string of at most {limit} characters")),
                );
            }
        }
        if let Some(pattern) = self.pattern.as_ref().filter(|pattern| !pattern.regex.is_match(text)) {
            findings.push(
                FieldError::new(
                    path,
                    Rule::Pattern,
                    format!("invalid value: \"{}\": should match '{}'", short_text(text), pattern.text),
                )
                .with_valid(format!("a string matching '{}'", pattern.text)),
            );
        }
        if self.format == Some(Format::DateTime) && !formats::is_date_time(text) {
            findings.push(
                FieldError::new(
                    path,
                    Rule::Format,
                    format!("invalid value: \"{}\": must be of type date-time", short_text(text)),
                )
                .with_valid("a time such as 2006-01-02T15:04:05Z"),
            );
        }
    }

    /// Checks a number. As in the API server, the formats int32 and int64 are not enforced.
    fn check_number(&self, path: &str, number: &Number, findings: &mut Findings) {
        let Some(approximate) = number.as_f64() else { return };
        let valid = match (self.minimum, self.maximum) {
            (Some(low), Some(high)) => format!("{low} to {high}"),
            (Some(low), None) => format!("{low} or more"),
            (None, Some(high)) => format!("{high} or less"),
            (None, None) => return,
        };
        let relation = if let Some(low) = self.minimum.filter(|low| approximate < *low) {
            format!("greater than or equal to {low}")
        } else if let Some(high) = self.maximum.filter(|high| approximate > *high) {
            format!("less than or equal to {high}")
        } else {
            return;
        };
        findings.push(
            FieldError::new(path, Rule::Bound, format!("invalid value: {number}: should be {relation}"))
                .with_valid(valid),
        );
    }

    fn check_array(&self, path: &mut String, elements: &[Value], findings: &mut Findings) {
        check_count(path, elements.len(), (self.items_min, self.items_max), "items", findings);
        if let Some(schema) = &self.items {
            let length = path.len();
            for (index, element) in elements.iter().enumerate() {
                path.push_str(&format!("[{index}]"));
                schema.walk(path, element, findings);
                path.truncate(length);
            }
        }
        match &self.list_type {
            ListType::Atomic => {}
            ListType::Set => {
                check_unique(path, elements, |element| Some(element.to_string()), findings);
            }
            ListType::Map(keys) => {
                check_unique(path, elements, |element| keyed_identity(element, keys), findings)
            }
        }
    }

    fn check_object(&self, path: &mut String, fields: &Map<String, Value>, findings: &mut Findings) {
        check_count(path, fields.len(), (self.properties_min, self.properties_max), "properties", findings);
        for name in self.required.iter().filter(|name| !fields.contains_key(*name)) {
            let length = path.len();
            push_field(path, name);
            let wanted = self.properties.get(name).map_or("any", Schema::type_words);
            findings.push(
                FieldError::new(path.as_str(), Rule::Required, "required value")
                    .with_valid(format!("a value of type {wanted}")),
            );
            path.truncate(length);
        }
        for (name, field) in fields {
            let length = path.len();
            if let Some(schema) = self.properties.get(name) {
                push_field(path, name);
                schema.walk(path, field, findings);
            } else if let Some(schema) = &self.additional_properties {
                path.push_str(&format!("[{}]", short_text(name)));
                schema.walk(path, field, findings);
            } else if !self.preserve_unknown_fields {
                push_field(path, &short_text(name));
                findings.push(self.unknown_field(path, name));
            }
            path.truncate(length);
        }
    }

    fn unknown_field(&self, path: &str, name: &str) -> FieldError {
        let known = || self.properties.keys().map(String::as_str);
        let hint =
            closest_name(name, known()).map_or(String::new(), |meant| format!("; did you mean \"{meant}\"?"));
        let error = FieldError::new(
            path,
            Rule::UnknownField,
            format!("unknown field \"{}\"{hint}", short_text(name)),
        );
        if self.properties.is_empty() {
            error
        } else {
            error.with_valid(known().collect::<Vec<_>>().join(", "))
        }
    }
}

fn push_field(path: &mut String, name: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(name);
}

fn check_count(
    path: &str,
    count: usize,
    (low, high): (Option<usize>, Option<usize>),
    what: &str,
    findings: &mut Findings,
) {
    if let Some(limit) = low.filter(|limit| count < *limit) {
        findings.push(
            FieldError::new(path, Rule::Bound, format!("invalid value: should have at least {limit} {what}"))
                .with_valid(format!("{limit} {what} or more")),
        );
    }
    if let Some(limit) = high.filter(|limit| count > *limit) {
        findings.push_exceeded_limit(
            FieldError::new(
                path,
                Rule::Bound,
                format!("too many: {count}: must have at most {limit} {what}"),
            )
            .with_valid(format!("{limit} {what} or fewer")),
        );
    }
}

fn check_unique(
    path: &str,
    elements: &[Value],
    identity: impl Fn(&Value) -> Option<String>,
    findings: &mut Findings,
) {
    let mut seen = BTreeSet::new();
    for (index, element) in elements.iter().enumerate() {
        let Some(identity) = identity(element) else { continue };
        if seen.contains(&identity) {
            findings.push(
                FieldError::new(
                    format!("{path}[{index}]"),
                    Rule::Duplicate,
                    format!("duplicate value: {}", short_text(&identity)),
                )
                .with_valid("every element at most once"),
            );
        } else {
            seen.insert(identity);
        }
    }
}

/// The values of the key fields of a map list's element, as text; `None` for an element that is not an object.
fn keyed_identity(element: &Value, keys: &[String]) -> Option<String> {
    let fields = element.as_object()?;
    let parts: Vec<String> = keys
        .iter()
        .map(|key| format!("{key}: {}", fields.get(key).map_or("null".to_string(), Value::to_string)))
        .collect();
    Some(parts.join(", "))
}

fn is_whole(value: &Value) -> bool {
    value.as_number().is_some_and(|number| whole_number(number).is_some())
}

/// The number as an integer; `None` if it has a fraction. JSON and the API server do not distinguish 5.0 from 5. A
/// number written as a float is accepted only in the range in which floats represent integers exactly.
pub(super) fn whole_number(number: &Number) -> Option<i64> {
    const EXACT_FLOAT_MAX: f64 = ((1_u64 << 53) - 1) as f64;
    number.as_i64().or_else(|| {
        let float = number.as_f64()?;
        (float.fract() == 0.0 && float.abs() <= EXACT_FLOAT_MAX).then_some(float as i64)
    })
}
