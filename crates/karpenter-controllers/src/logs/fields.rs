//! The fields of a log line, in the order in which they are printed.

use std::borrow::Cow;
use std::fmt;

use serde_json::{Value, json};
use tracing::field::{Field, Visit};

use super::pass::{Object, Pass};

/// A value to print.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum FieldValue {
    Text(String),
    /// A value that is JSON text.
    Json(String),
    /// A reference to an object: the kind and the name.
    Reference(&'static str, String),
}

/// The message and fields of a call site.
#[derive(Debug, Default)]
pub(super) struct Fields {
    pub(super) message: String,
    pub(super) others: Vec<(Cow<'static, str>, FieldValue)>,
}

impl Fields {
    pub(super) fn has(&self, name: &str) -> bool {
        self.others.iter().any(|(known, _)| known == name)
    }

    fn put(&mut self, field: &Field, value: FieldValue) {
        match (field.name(), value) {
            ("message", FieldValue::Text(text)) => self.message = text,
            (name, value) => {
                let value = match (kind_named(name), value) {
                    (Some(kind), FieldValue::Text(object)) => FieldValue::Reference(kind, object),
                    (_, value) => value,
                };
                self.others.push((printed(name), value));
            }
        }
    }
}

/// The kind of object that a field of this name refers to.
fn kind_named(field: &str) -> Option<&'static str> {
    match field {
        "nodeclaim" => Some("NodeClaim"),
        "nodepool" => Some("NodePool"),
        "node" => Some("Node"),
        "pod" => Some("Pod"),
        _ => None,
    }
}

/// Upstream's keys contain hyphens, which are not possible in Rust field names.
fn printed(field: &'static str) -> Cow<'static, str> {
    if field.contains('_') { field.replace('_', "-").into() } else { field.into() }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, FieldValue::Text(format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, FieldValue::Text(value.to_owned()));
    }

    /// Fields of type bytes contain JSON from [`super::json`].
    fn record_bytes(&mut self, field: &Field, value: &[u8]) {
        self.put(field, FieldValue::Json(String::from_utf8_lossy(value).into_owned()));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, FieldValue::Json(value.to_string()));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, FieldValue::Json(value.to_string()));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, FieldValue::Json(Value::from(value).to_string()));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, FieldValue::Json(value.to_string()));
    }
}

/// The fields of a pass, as controller-runtime orders them.
pub(super) fn of_pass(pass: &Pass) -> Vec<(Cow<'static, str>, FieldValue)> {
    let text = |name: &'static str, value: &str| (Cow::from(name), FieldValue::Text(value.to_owned()));
    let mut fields = vec![text("controller", pass.controller)];
    let (namespace, name) = match &pass.object {
        Object::Cluster => ("", ""),
        Object::Queued(key) => (key.namespace.as_str(), key.name.as_str()),
        Object::Of(kind, key) => {
            fields.push(text("controllerGroup", kind.group));
            fields.push(text("controllerKind", kind.kind));
            fields.push((kind.kind.into(), FieldValue::Reference(kind.kind, key.to_string())));
            (key.namespace.as_str(), key.name.as_str())
        }
    };
    fields.push(text("namespace", namespace));
    fields.push(text("name", name));
    fields.push(text("reconcileID", &pass.reconcile_id.to_string()));
    fields
}

impl FieldValue {
    /// The JSON of the value.
    pub(super) fn json(&self) -> String {
        match self {
            Self::Text(text) => Value::from(text.as_str()).to_string(),
            Self::Json(json) => json.clone(),
            Self::Reference(_, object) => match object.split_once('/') {
                Some((namespace, name)) => json!({"name": name, "namespace": namespace}).to_string(),
                None => json!({"name": object}).to_string(),
            },
        }
    }
}
