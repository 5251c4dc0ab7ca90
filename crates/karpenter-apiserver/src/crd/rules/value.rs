//! Converts JSON to the CEL values that rules see, with types from the schema.
//!
//! Fields that are null are absent for rules. Names that are not CEL identifiers are escaped. Strings with a format
//! become timestamps, durations and bytes. Whether a number becomes int or double depends on the schema, not on its
//! JSON. Of the metadata, rules see only `name` and `generateName`.
//!
//! Upstream: k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/values.go

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use kube_cel::cel::objects::{Key, Map};
use kube_cel::cel::{Context, Program, Value as CelValue};
use serde_json::Value;

use crate::crd::formats::{FormatKind, is_go_duration, loose_duration_nanoseconds};
use crate::crd::schema::{JsonType, Schema};

pub(super) fn convert(schema: &Schema, value: &Value, is_resource: bool) -> CelValue {
    match value {
        Value::Null => CelValue::Null,
        Value::Bool(flag) => CelValue::Bool(*flag),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (_, Some(float)) if schema.json_type == Some(JsonType::Number) => CelValue::Float(float),
            (Some(whole), _) => CelValue::Int(whole),
            (None, Some(float)) if schema.json_type == Some(JsonType::Integer) && float.fract() == 0.0 => {
                CelValue::Int(float as i64)
            }
            (None, float) => CelValue::Float(float.unwrap_or(f64::NAN)),
        },
        Value::String(text) => convert_text(schema, text),
        Value::Array(elements) => {
            let items = schema.items.as_deref();
            let convert_element = |element| match items {
                Some(items) => convert(items, element, false),
                None => untyped(element),
            };
            CelValue::List(Arc::new(elements.iter().map(convert_element).collect()))
        }
        Value::Object(fields) => {
            let has_names = !schema.properties.is_empty() || is_resource || schema.embedded_resource;
            let mut map = HashMap::with_capacity(fields.len());
            for (name, field) in fields {
                if has_names && field.is_null() {
                    continue;
                }
                let converted = if (is_resource || schema.embedded_resource) && name == "metadata" {
                    visible_metadata(field)
                } else {
                    match schema.field_schema(name) {
                        Some(child) => convert(child, field, false),
                        None => untyped(field),
                    }
                };
                let key = if has_names { escape(name) } else { name.clone() };
                map.insert(Key::String(Arc::new(key)), converted);
            }
            CelValue::Map(Map { map: Arc::new(map) })
        }
    }
}

fn visible_metadata(metadata: &Value) -> CelValue {
    let visible = ["name", "generateName"].into_iter().filter_map(|name| {
        let text = metadata.get(name)?.as_str()?;
        Some((Key::String(Arc::new(name.to_string())), CelValue::String(Arc::new(text.to_string()))))
    });
    CelValue::Map(Map { map: Arc::new(visible.collect()) })
}

fn untyped(value: &Value) -> CelValue {
    static NO_SCHEMA: LazyLock<Schema> = LazyLock::new(Schema::default);
    convert(&NO_SCHEMA, value, false)
}

fn convert_text(schema: &Schema, text: &str) -> CelValue {
    let plain = || CelValue::String(Arc::new(text.to_string()));
    let Some(format) = schema.format.as_ref().filter(|_| schema.json_type == Some(JsonType::String)) else {
        return plain();
    };
    let converted = match format.kind {
        FormatKind::DateTime if format.name == "date-time" => call("timestamp(text)", text),
        FormatKind::Date => call("timestamp(text)", &format!("{text}T00:00:00Z")),
        FormatKind::Duration if is_go_duration(text) => call("duration(text)", text),
        FormatKind::Duration => loose_duration_nanoseconds(text)
            .and_then(|nanoseconds| call("duration(text)", &format!("{nanoseconds}ns"))),
        FormatKind::Byte => call("base64.decode(text)", text),
        _ => None,
    };
    converted.unwrap_or_else(plain)
}

/// Creates a value with a CEL function, so that it equals the values that rules create.
fn call(function: &str, text: &str) -> Option<CelValue> {
    static PROGRAMS: LazyLock<HashMap<&'static str, Program>> = LazyLock::new(|| {
        ["timestamp(text)", "duration(text)", "base64.decode(text)"]
            .into_iter()
            .filter_map(|function| Some((function, Program::compile(function).ok()?)))
            .collect()
    });
    let program = PROGRAMS.get(function)?;
    super::FUNCTIONS.with(|functions: &Context| {
        let mut scope = functions.new_inner_scope();
        scope.add_variable_from_value("text", text.to_string());
        program.execute(&scope).ok()
    })
}

/// Escapes a field name as CEL rules must write it.
fn escape(name: &str) -> String {
    const RESERVED: [&str; 21] = [
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    ];
    if RESERVED.contains(&name) {
        return format!("__{name}__");
    }
    if !name.contains(['.', '-', '/']) && !name.contains("__") {
        return name.to_string();
    }
    name.replace("__", "__underscores__")
        .replace('.', "__dot__")
        .replace('-', "__dash__")
        .replace('/', "__slash__")
}
