//! Validates a value against a schema, with the same results and messages as kube-apiserver's OpenAPI library.
//!
//! All violations are returned. Recursion follows the schema, so the CRD limits its depth. On update, a violation in a
//! part that did not change is ignored (ratcheting). For this, the part must correspond to a part of the old object:
//! fields correspond by name, list items by the keys of a keyed list.
//!
//! Upstream: k8s.io/apiextensions-apiserver/pkg/apiserver/validation/validation.go,
//! k8s.io/apiextensions-apiserver/pkg/apiserver/validation/ratcheting.go

use serde_json::{Map, Number, Value};

use super::schema::{Additional, JsonType, ListType, Schema};
use crate::field::{FieldError, FieldErrorKind, go_float};

/// The violations in one part (node) of the value, and the number of checks that it passed.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) errors: Vec<FieldError>,
    /// The number of passed checks. If all alternatives (of `anyOf`, `oneOf`) fail, the errors of the alternative with
    /// the highest number are reported.
    matches: usize,
}

impl Findings {
    fn push(&mut self, error: FieldError) {
        // kube-apiserver reports equal errors only once.
        if !self.errors.iter().any(|known| {
            known.field == error.field && known.detail == error.detail && known.kind == error.kind
        }) {
            self.errors.push(error);
        }
    }

    fn merge(&mut self, other: Findings) {
        self.matches += other.matches;
        for error in other.errors {
            self.push(error);
        }
    }
}

/// The old value that corresponds to a new one, and the schema that determines how their children correspond.
#[derive(Clone, Copy)]
pub(crate) struct Correlation<'a> {
    pub(crate) old: &'a Value,
    pub(crate) schema: &'a Schema,
}

impl<'a> Correlation<'a> {
    fn field(self, name: &str) -> Option<Self> {
        Some(Self { old: self.old.get(name)?, schema: self.schema.field_schema(name)? })
    }

    /// The correlation of a list item; only items of keyed lists correspond to old items.
    fn element(self, element: &Value) -> Option<Self> {
        let ListType::Map(keys) = &self.schema.list_type else { return None };
        let old = find_by_keys(self.old.as_array()?, element, keys)?;
        Some(Self { old, schema: self.schema.items.as_deref()? })
    }
}

/// The first item whose key fields have the same values as those of `wanted`. Values of key fields must be scalars.
pub(crate) fn find_by_keys<'a>(elements: &'a [Value], wanted: &Value, keys: &[String]) -> Option<&'a Value> {
    let scalar = |value: &Value| !value.is_null() && !value.is_object() && !value.is_array();
    if keys.is_empty() || !keys.iter().all(|key| wanted.get(key).is_some_and(scalar)) {
        return None;
    }
    elements.iter().find(|element| keys.iter().all(|key| element.get(key) == wanted.get(key)))
}

impl Schema {
    /// Validates a value. `base` is the path of the value in the object; it is part of an error's field, not of its
    /// message.
    pub(crate) fn check(&self, base: &str, value: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let correlation = old.map(|old| Correlation { old, schema: self });
        let mut walk = Walk { base, path: String::new() };
        walk.node(self, value, correlation).errors
    }
}

struct Walk<'a> {
    base: &'a str,
    path: String,
}

impl Walk<'_> {
    /// The path of a field as Go prints it.
    fn field(&self, name: &str) -> String {
        let name = name.strip_prefix('.').unwrap_or(name);
        match (self.base.is_empty(), name.is_empty()) {
            (true, _) => name.to_string(),
            (false, true) => self.base.to_string(),
            (false, false) => format!("{}.{name}", self.base),
        }
    }

    fn error(&self, kind: FieldErrorKind, value: Value, text: &str) -> FieldError {
        FieldError::new(kind, self.field(&self.path), value, format!("{} in body {text}", self.path))
    }

    fn type_error(&self, wanted: &str, got: &str) -> FieldError {
        let text = format!("must be of type {wanted}: {}", crate::field::go_quote(got));
        self.error(FieldErrorKind::TypeInvalid, Value::from(got), &text)
    }

    /// An error of `anyOf`, `oneOf` or `not`, which is reported for the whole value, not for one of its fields.
    fn alternatives_error(&self, text: &str) -> FieldError {
        let detail = format!("{} {text}", crate::field::go_quote(&self.path));
        FieldError::invalid(self.base, Value::from(""), detail)
    }

    fn node(&mut self, schema: &Schema, value: &Value, correlation: Option<Correlation>) -> Findings {
        let mut findings = self.unratcheted(schema, value, correlation);
        if !findings.errors.is_empty()
            && let Some(correlation) = correlation
            && correlation.old == value
        {
            findings.errors.clear();
        }
        findings
    }

    fn unratcheted(&mut self, schema: &Schema, value: &Value, correlation: Option<Correlation>) -> Findings {
        let mut findings = Findings::default();
        let has_type = schema.json_type.is_some() || schema.int_or_string;
        if value.is_null() {
            if has_type && !schema.nullable {
                findings.push(self.type_error(&wanted_types(schema), "null"));
            } else {
                findings.matches += 1;
            }
            self.choice(schema, value, &mut findings);
            return findings;
        }
        if has_type || schema.format.is_some() {
            match self.wrong_type(schema, value) {
                Some(error) => findings.push(error),
                None => findings.matches += 1,
            }
            findings.matches += 1;
        }
        let alternatives = self.alternatives(schema, value, correlation);
        findings.merge(alternatives);
        findings.matches += 2;
        match value {
            Value::String(text) => self.text(schema, text, &mut findings),
            Value::Number(number) => self.number(schema, number, &mut findings),
            Value::Array(elements) => self.list(schema, elements, correlation, &mut findings),
            _ => {}
        }
        self.choice(schema, value, &mut findings);
        findings.matches += 1;
        if let Value::Object(fields) = value {
            self.object(schema, fields, correlation, &mut findings);
            findings.matches += 1;
        }
        findings.matches += 1;
        findings
    }

    fn wrong_type(&self, schema: &Schema, value: &Value) -> Option<FieldError> {
        let (name, format) = go_type(value);
        let takes = |wanted: JsonType| {
            schema.json_type == Some(wanted)
                || (schema.int_or_string && matches!(wanted, JsonType::Integer | JsonType::String))
        };
        let has_type_of_value = JsonType::parse(name).is_some_and(takes);
        let is_float_as_integer =
            name == "number" && takes(JsonType::Integer) && value.as_f64().is_some_and(is_whole);
        let is_integer_as_number = name == "integer" && takes(JsonType::Number);
        let fits = has_type_of_value || is_float_as_integer || is_integer_as_number;
        let text_or_list = value.is_string() || value.is_array();
        if let Some(wanted) = &schema.format {
            if !text_or_list && !fits && format != wanted.name {
                return Some(self.type_error(&wanted.name, format));
            }
            // If the schema has a format, kube-apiserver checks only the format of strings (and, because of a bug, of
            // lists), not their type.
            if text_or_list && !takes(JsonType::Number) && !takes(JsonType::Integer) {
                return None;
            }
        }
        (!fits).then(|| self.type_error(&wanted_types(schema), name))
    }

    fn alternatives(&mut self, schema: &Schema, value: &Value, correlation: Option<Correlation>) -> Findings {
        let mut findings = Findings::default();
        if !schema.any_of.is_empty() {
            let mut best: Option<Findings> = None;
            let mut succeeded = false;
            for branch in &schema.any_of {
                let result = self.unratcheted(branch, value, correlation);
                if result.errors.is_empty() {
                    succeeded = true;
                    best = Some(result);
                    break;
                }
                if best.as_ref().is_none_or(|best| result.matches > best.matches) {
                    best = Some(result);
                }
            }
            if !succeeded {
                findings.push(self.alternatives_error("must validate at least one schema (anyOf)"));
            }
            findings.merge(best.unwrap_or_default());
        }
        if !schema.one_of.is_empty() {
            self.one_of(schema, value, correlation, &mut findings);
        }
        if !schema.all_of.is_empty() {
            let mut valid = 0;
            for branch in &schema.all_of {
                let result = self.unratcheted(branch, value, correlation);
                valid += usize::from(result.errors.is_empty());
                findings.merge(result);
            }
            if valid != schema.all_of.len() {
                let addition = if valid == 0 { ". None validated" } else { "" };
                let text = format!("must validate all the schemas (allOf){addition}");
                findings.push(self.alternatives_error(&text));
            }
        }
        if let Some(not) = &schema.not
            && self.unratcheted(not, value, correlation).errors.is_empty()
        {
            findings.push(self.alternatives_error("must not validate the schema (not)"));
        }
        findings
    }

    fn one_of(
        &mut self,
        schema: &Schema,
        value: &Value,
        correlation: Option<Correlation>,
        findings: &mut Findings,
    ) {
        let mut best: Option<Findings> = None;
        let mut first_valid: Option<Findings> = None;
        let mut valid = 0;
        for branch in &schema.one_of {
            let result = self.unratcheted(branch, value, correlation);
            if result.errors.is_empty() {
                valid += 1;
                best = None;
                first_valid.get_or_insert(result);
            } else if valid == 0 && best.as_ref().is_none_or(|best| result.matches > best.matches) {
                best = Some(result);
            }
        }
        if valid == 1 {
            findings.merge(first_valid.unwrap_or_default());
            return;
        }
        let found =
            if valid == 0 { "Found none valid".into() } else { format!("Found {valid} valid alternatives") };
        let text = format!("must validate one and only one schema (oneOf). {found}");
        findings.push(self.alternatives_error(&text));
        findings.merge(best.unwrap_or_default());
    }

    fn text(&self, schema: &Schema, text: &str, findings: &mut Findings) {
        if let Some(error) = self.wrong_text(schema, text) {
            findings.push(error);
        }
        findings.matches += 1;
        if let Some(format) = &schema.format {
            if !format.accepts(text) {
                findings.push(self.type_error(&format.name, text));
            }
            findings.matches += 1;
        }
    }

    /// Returns only the first violation of a string, because kube-apiserver stops there.
    fn wrong_text(&self, schema: &Schema, text: &str) -> Option<FieldError> {
        if schema.length_min.is_some() || schema.length_max.is_some() {
            let length = text.chars().count();
            if let Some(limit) = schema.length_max.filter(|limit| length > *limit) {
                return Some(FieldError::too_long(self.field(&self.path), limit));
            }
            if let Some(limit) = schema.length_min.filter(|limit| length < *limit) {
                let message = format!("should be at least {limit} chars long");
                return Some(self.error(FieldErrorKind::Invalid, Value::from(text), &message));
            }
        }
        let pattern = schema.pattern.as_ref()?;
        let message = match &pattern.regex {
            Ok(regex) if regex.is_match(text) => return None,
            Ok(_) => format!("should match '{}'", pattern.text),
            Err(error) => format!("should match '{}, but pattern is invalid: {error}'", pattern.text),
        };
        Some(self.error(FieldErrorKind::Invalid, Value::from(text), &message))
    }

    fn number(&self, schema: &Schema, number: &Number, findings: &mut Findings) {
        let add_error = |findings: &mut Findings, message: String| {
            findings.push(self.error(FieldErrorKind::Invalid, Value::Number(number.clone()), &message));
        };
        // As in kube-apiserver, integers are compared with limits that are truncated to integers.
        let whole = number.as_i64();
        let float = number.as_f64().unwrap_or_default();
        let shown = |limit: f64| if whole.is_some() { (limit as i64).to_string() } else { go_float(limit) };
        let compare = |limit: f64| match whole {
            Some(whole) => Some(whole.cmp(&(limit as i64))),
            None => float.partial_cmp(&limit),
        };
        if let Some(factor) = schema.multiple_of {
            let fits = match whole {
                // kube-apiserver truncates `multipleOf` for a value that is an integer, so a factor below 1 becomes
                // zero.
                Some(_) if (factor as i64) <= 0 => {
                    let detail = format!("factor MultipleOf declared for {} must be positive: 0", self.path);
                    findings.push(FieldError::invalid(self.field(&self.path), Value::from(0), detail));
                    true
                }
                Some(whole) => whole % (factor as i64) == 0,
                None if factor < 1.0 => is_whole(1.0 / factor * float),
                None => is_whole(float / factor),
            };
            if !fits {
                add_error(findings, format!("should be a multiple of {}", shown(factor)));
            }
        }
        if let Some(limit) = schema.minimum {
            let order = compare(limit);
            if schema.minimum_exclusive && !order.is_some_and(|order| order.is_gt()) {
                add_error(findings, format!("should be greater than {}", shown(limit)));
            } else if order.is_some_and(|order| order.is_lt()) {
                add_error(findings, format!("should be greater than or equal to {}", shown(limit)));
            }
        }
        if let Some(limit) = schema.maximum {
            let order = compare(limit);
            if schema.maximum_exclusive && !order.is_some_and(|order| order.is_lt()) {
                add_error(findings, format!("should be less than {}", shown(limit)));
            } else if order.is_some_and(|order| order.is_gt()) {
                add_error(findings, format!("should be less than or equal to {}", shown(limit)));
            }
        }
        findings.matches += 2;
    }

    fn list(
        &mut self,
        schema: &Schema,
        elements: &[Value],
        correlation: Option<Correlation>,
        findings: &mut Findings,
    ) {
        if let Some(items) = &schema.items {
            let length = self.path.len();
            for (index, element) in elements.iter().enumerate() {
                self.path.push_str(&format!("[{index}]"));
                let correlation = correlation.and_then(|correlation| correlation.element(element));
                let result = self.node(items, element, correlation);
                findings.merge(result);
                self.path.truncate(length);
            }
        }
        let count = elements.len();
        if let Some(limit) = schema.items_min.filter(|limit| count < *limit) {
            let message = format!("should have at least {limit} items");
            findings.push(self.error(FieldErrorKind::Invalid, Value::from(count), &message));
        }
        if let Some(limit) = schema.items_max.filter(|limit| count > *limit) {
            findings.push(FieldError::too_many(self.field(&self.path), count, limit));
        }
        findings.matches += 2;
    }

    fn object(
        &mut self,
        schema: &Schema,
        fields: &Map<String, Value>,
        correlation: Option<Correlation>,
        findings: &mut Findings,
    ) {
        let count = fields.len();
        if let Some(limit) = schema.properties_min.filter(|limit| count < *limit) {
            let message = format!("should have at least {limit} properties");
            findings.push(self.error(FieldErrorKind::Invalid, Value::from(count), &message));
        }
        if let Some(limit) = schema.properties_max.filter(|limit| count > *limit) {
            findings.push(FieldError::too_many(self.field(&self.path), count, limit));
        }
        let is_root = self.path.is_empty();
        for (name, field) in fields {
            let length = self.path.len();
            if let Some(child) = schema.properties.get(name) {
                if !is_root {
                    self.path.push('.');
                }
                self.path.push_str(name);
                // `apiVersion` and `kind` have no old value, because the old object was decoded in the version of the
                // request.
                let names_itself = is_root && (name == "apiVersion" || name == "kind");
                let correlation =
                    correlation.filter(|_| !names_itself).and_then(|correlation| correlation.field(name));
                let result = self.node(child, field, correlation);
                findings.merge(result);
            } else if let Additional::Schema(child) = &schema.additional {
                self.path.push('.');
                self.path.push_str(name);
                let correlation = correlation.and_then(|correlation| correlation.field(name));
                let result = self.node(child, field, correlation);
                findings.merge(result);
            } else if matches!(schema.additional, Additional::Refused) {
                let detail = format!("{}.{name} in body is a forbidden property", self.path);
                let value = Value::from(name.as_str());
                findings.push(FieldError::invalid(self.field(&self.path), value, detail));
            }
            self.path.truncate(length);
        }
        for name in schema.required.iter().filter(|name| !fields.contains_key(*name)) {
            findings.push(FieldError::required(self.field(&format!("{}.{name}", self.path)), ""));
        }
    }

    fn choice(&self, schema: &Schema, value: &Value, findings: &mut Findings) {
        if schema.allowed_values.is_empty() {
            return;
        }
        // kube-apiserver rejects null even if the enum lists it.
        if !value.is_null() && schema.allowed_values.iter().any(|allowed| equals_choice(value, allowed)) {
            return;
        }
        let choices: Vec<String> = schema
            .allowed_values
            .iter()
            .map(|allowed| allowed.as_str().map_or_else(|| allowed.to_string(), str::to_string))
            .collect();
        let choices: Vec<&str> = choices.iter().map(String::as_str).collect();
        findings.push(FieldError::not_supported(self.field(&self.path), value.clone(), &choices));
    }
}

fn equals_choice(value: &Value, allowed: &Value) -> bool {
    value == allowed || (value.is_number() && allowed.is_number() && value.as_f64() == allowed.as_f64())
}

fn wanted_types(schema: &Schema) -> String {
    if schema.int_or_string { "integer,string".into() } else { schema.type_name().into() }
}

/// The type and the format that Go's decoder gives a value; messages contain them.
fn go_type(value: &Value) -> (&'static str, &'static str) {
    match value {
        Value::Null => ("null", ""),
        Value::Bool(_) => ("boolean", ""),
        Value::String(_) => ("string", ""),
        Value::Array(_) => ("array", ""),
        Value::Object(_) => ("object", ""),
        Value::Number(number) if number.as_i64().is_some() => ("integer", "int64"),
        Value::Number(_) => ("number", "float64"),
    }
}

/// Whether a float is an integer, within the range in which floats represent integers exactly.
fn is_whole(float: f64) -> bool {
    const EXACT_FLOAT_MAX: f64 = ((1_u64 << 53) - 1) as f64;
    if !float.is_finite() || float.abs() > EXACT_FLOAT_MAX {
        return false;
    }
    let rounded = float.trunc();
    let difference = (float - rounded).abs();
    float == rounded
        || if float == 0.0 || rounded == 0.0 || difference < f64::MIN_POSITIVE {
            difference < 1e-9 * f64::MIN_POSITIVE
        } else {
            difference / (float.abs() + rounded.abs()).min(f64::MAX) < 1e-9
        }
}
