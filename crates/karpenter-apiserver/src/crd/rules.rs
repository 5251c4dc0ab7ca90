//! The CEL validation rules (`x-kubernetes-validations`) of a schema, compiled with the schema and evaluated for
//! objects.
//!
//! The crate kube-cel evaluates expressions and provides the functions that Kubernetes adds to CEL. This module visits
//! all parts of the object. For each, it determines the values of `self` (`value`) and `oldSelf`, which failures of an
//! update are ignored (ratcheting), and the path and message of a failure. It does not compute costs, so rules that
//! kube-apiserver rejects as too expensive are evaluated here.
//!
//! Upstream: k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/validation.go

mod functions;
mod value;

use std::sync::Arc;

use kube_cel::cel::objects::OptionalValue;
use kube_cel::cel::{Context, ExecutionError, ParseErrors, Program, Value as CelValue};
use serde_json::Value;

use super::cache::Cache;
use super::check::find_by_keys;
use super::lists::push_field;
use super::schema::{JsonType, ListType, Schema};
use crate::field::{FieldError, FieldErrorKind};

static COMPILED: Cache<Arc<Program>> = Cache::new();

pub(super) fn compile(expression: &str) -> Result<Arc<Program>, ParseErrors> {
    COMPILED.get_or_try(expression, |expression| Program::compile(expression).map(Arc::new))
}

/// A compiled rule.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) rule: String,
    message: String,
    reason: Option<String>,
    /// The `fieldPath` of the rule, relative to the part of the schema that has the rule, without a leading dot.
    field_path: String,
    optional_old_self: bool,
    /// The compiled rule; `None` if the expression is not valid CEL. CRDs with such rules are rejected.
    program: Option<Arc<Program>>,
    message_program: Option<Arc<Program>>,
    uses_old_self: bool,
}

impl Rule {
    pub(crate) fn parse(document: &Value) -> Self {
        let text = |name: &str| document.get(name).and_then(Value::as_str).unwrap_or_default();
        let compile = |expression: &str| {
            self::compile(expression).ok().filter(|program| functions::is_supported(program.expression()))
        };
        let program = compile(text("rule"));
        let uses_old_self =
            program.as_ref().is_some_and(|program| program.references().has_variable("oldSelf"));
        Self {
            rule: text("rule").to_string(),
            message: text("message").trim().to_string(),
            reason: document.get("reason").and_then(Value::as_str).map(str::to_string),
            field_path: normalised_field_path(text("fieldPath")),
            optional_old_self: document.get("optionalOldSelf").and_then(Value::as_bool).unwrap_or_default(),
            program,
            message_program: Some(text("messageExpression"))
                .filter(|expression| !expression.is_empty())
                .and_then(compile),
            uses_old_self,
        }
    }

    /// The text that identifies the rule in messages.
    fn shown(&self) -> &str {
        if self.message.is_empty() { self.rule.trim() } else { &self.message }
    }

    fn static_message(&self) -> String {
        if self.message.is_empty() { format!("failed rule: {}", self.shown()) } else { self.message.clone() }
    }
}

/// Converts `.a['b'].c` to `a.b.c`.
fn normalised_field_path(path: &str) -> String {
    let mut normalised = String::new();
    let mut rest = path;
    while !rest.is_empty() {
        if let Some(quoted) = rest.strip_prefix("['") {
            let end = quoted.find("']").unwrap_or(quoted.len());
            push_field(&mut normalised, &quoted[..end]);
            rest = quoted.get(end + 2..).unwrap_or_default();
        } else {
            let plain = rest.strip_prefix('.').unwrap_or(rest);
            let end = plain.find(['.', '[']).unwrap_or(plain.len());
            if end > 0 {
                push_field(&mut normalised, &plain[..end]);
            } else if plain.starts_with('[') {
                break;
            }
            rest = &plain[end..];
        }
    }
    normalised
}

thread_local! {
    /// The functions that rules may call. They are registered once, because this takes longer than evaluating a rule.
    static FUNCTIONS: Context<'static> = functions::context();
}

/// Evaluates all rules of a schema. If there is an old object, failures in parts that did not change are ignored,
/// except for rules that use `oldSelf`.
pub(crate) fn run(schema: &Schema, base: &str, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    if !schema.has_rules_inside {
        return Vec::new();
    }
    FUNCTIONS.with(|functions| {
        let mut run = Run { functions, path: base.to_string(), errors: Vec::new() };
        let correlation = match old {
            Some(old) => Ratchet { current: Some(old), parent_unchanged: false },
            None => Ratchet { current: None, parent_unchanged: false },
        };
        run.node(schema, object, old, correlation, true);
        run.errors
    })
}

/// Decides whether a failure is ignored because the part of the object did not change.
#[derive(Clone, Copy)]
struct Ratchet<'a> {
    /// The old value of this part of the object, if one corresponds to it.
    current: Option<&'a Value>,
    /// If no old value corresponds to this part: whether the nearest enclosing part that has an old value is unchanged.
    parent_unchanged: bool,
}

impl<'a> Ratchet<'a> {
    fn ignores_error(self, value: &Value) -> bool {
        match self.current {
            Some(old) => old == value,
            None => self.parent_unchanged,
        }
    }

    fn child(self, value: &Value, child: Option<&'a Value>) -> Self {
        match (self.current, child) {
            (None, _) => self,
            (Some(_), Some(child)) => Self { current: Some(child), parent_unchanged: false },
            (Some(old), None) => Self { current: None, parent_unchanged: old == value },
        }
    }
}

struct Run<'a> {
    functions: &'a Context<'static>,
    path: String,
    errors: Vec<FieldError>,
}

impl Run<'_> {
    fn node(&mut self, schema: &Schema, value: &Value, old: Option<&Value>, ratchet: Ratchet, is_root: bool) {
        if value.is_null() || !schema.has_rules_inside {
            return;
        }
        let old = old.filter(|old| !old.is_null());
        if !schema.rules.is_empty() {
            self.rules_of(schema, value, old, ratchet, is_root);
        }
        let length = self.path.len();
        match value {
            Value::Object(fields) => {
                for (name, field) in fields {
                    let Some(child) = schema.field_schema(name).filter(|child| child.has_rules_inside) else {
                        continue;
                    };
                    if schema.properties.contains_key(name) {
                        push_field(&mut self.path, name);
                    } else {
                        self.path.push_str(&format!("[{name}]"));
                    }
                    let old_field = old.and_then(|old| old.get(name));
                    let ratchet = if is_root && (name == "apiVersion" || name == "kind") {
                        Ratchet { current: None, parent_unchanged: false }
                    } else {
                        ratchet.child(value, ratchet.current.and_then(|old| old.get(name)))
                    };
                    self.node(child, field, old_field, ratchet, false);
                    self.path.truncate(length);
                }
            }
            Value::Array(elements) => {
                let Some(items) = schema.items.as_deref().filter(|items| items.has_rules_inside) else {
                    return;
                };
                for (index, element) in elements.iter().enumerate() {
                    let old_element = old.and_then(|old| correlated(schema, old, element));
                    let found = ratchet.current.and_then(|old| correlated(schema, old, element));
                    self.path.push_str(&format!("[{index}]"));
                    self.node(items, element, old_element, ratchet.child(value, found), false);
                    self.path.truncate(length);
                }
            }
            _ => {}
        }
    }

    fn rules_of(
        &mut self,
        schema: &Schema,
        value: &Value,
        old: Option<&Value>,
        ratchet: Ratchet,
        is_root: bool,
    ) {
        let is_resource = is_root || schema.embedded_resource;
        let uses_old = schema.rules.iter().any(|rule| rule.uses_old_self);
        let old_self = old.filter(|_| uses_old).map(|old| value::convert(schema, old, is_resource));
        let mut scope = self.functions.new_inner_scope();
        scope.add_variable_from_value("self", value::convert(schema, value, is_resource));
        if let Some(old_self) = &old_self {
            scope.add_variable_from_value("oldSelf", old_self.clone());
        }
        for rule in &schema.rules {
            if rule.uses_old_self && old.is_none() && !rule.optional_old_self {
                continue;
            }
            let Some(program) = &rule.program else { continue };
            let outcome = if rule.uses_old_self && rule.optional_old_self {
                let optional = match &old_self {
                    Some(old_self) => OptionalValue::of(old_self.clone()),
                    None => OptionalValue::none(),
                };
                let mut scope = scope.new_inner_scope();
                scope.add_variable_from_value("oldSelf", CelValue::Opaque(std::sync::Arc::new(optional)));
                program.execute(&scope)
            } else {
                program.execute(&scope)
            };
            match outcome {
                Ok(CelValue::Bool(true)) => {}
                Ok(_) => {
                    let detail = message(rule, &scope).unwrap_or_else(|| rule.static_message());
                    let error = self.failure(schema, value, rule, detail);
                    if rule.uses_old_self || !ratchet.ignores_error(value) {
                        self.errors.push(error);
                    }
                }
                Err(error) => {
                    let shown = Value::from(schema.type_name());
                    let detail = evaluation_message(&error, rule);
                    self.errors.push(FieldError::invalid(self.path.as_str(), shown, detail));
                }
            }
        }
    }

    fn failure(&self, schema: &Schema, value: &Value, rule: &Rule, detail: String) -> FieldError {
        let mut path = self.path.clone();
        if !rule.field_path.is_empty() {
            push_field(&mut path, &rule.field_path);
        }
        let (kind, detail) = match rule.reason.as_deref() {
            Some("FieldValueForbidden") => (FieldErrorKind::Forbidden, detail),
            Some("FieldValueRequired") => (FieldErrorKind::Required, detail),
            Some("FieldValueDuplicate") => (FieldErrorKind::Duplicate, String::new()),
            _ => (FieldErrorKind::Invalid, detail),
        };
        let error = FieldError::new(kind, path, value.clone(), detail);
        if matches!(schema.json_type, Some(JsonType::Object | JsonType::Array)) {
            error.without_value()
        } else {
            error
        }
    }
}

/// The old item that corresponds to a new item. Only items of keyed lists correspond to old items.
fn correlated<'a>(schema: &Schema, old: &'a Value, element: &Value) -> Option<&'a Value> {
    match &schema.list_type {
        ListType::Map(keys) => find_by_keys(old.as_array()?, element, keys),
        _ => None,
    }
}

/// The text that `messageExpression` gives; `None` if it is not a valid message.
fn message(rule: &Rule, scope: &Context) -> Option<String> {
    const MESSAGE_BYTES_MAX: usize = 5 * 1024;
    let CelValue::String(text) = rule.message_program.as_ref()?.execute(scope).ok()? else { return None };
    let text = text.trim();
    (!text.is_empty() && text.len() <= MESSAGE_BYTES_MAX && !text.contains('\n')).then(|| text.to_string())
}

fn evaluation_message(error: &ExecutionError, rule: &Rule) -> String {
    let message = match error {
        ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
        ExecutionError::DivisionByZero(_) => "division by zero".to_string(),
        ExecutionError::RemainderByZero(_) => "modulus by zero".to_string(),
        ExecutionError::Overflow(..) => "integer overflow".to_string(),
        ExecutionError::IndexOutOfBounds(CelValue::Int(index)) => format!("index out of bounds: {index}"),
        ExecutionError::NoSuchOverload
        | ExecutionError::ValuesNotComparable(..)
        | ExecutionError::UnsupportedBinaryOperator(..)
        | ExecutionError::UnsupportedUnaryOperator(..)
        | ExecutionError::NotSupportedAsMethod { .. }
        | ExecutionError::UnexpectedType { .. } => {
            return format!(
                "'no such overload': call arguments did not match a supported operator, function or macro \
                 signature for rule: {}",
                rule.shown()
            );
        }
        ExecutionError::FunctionError { function, .. }
            if matches!(function.as_str(), "int" | "uint" | "double" | "bool") =>
        {
            format!("type conversion error from 'string' to '{function}'")
        }
        other => other.to_string(),
    };
    format!("{message} evaluating rule: {}", rule.shown())
}
