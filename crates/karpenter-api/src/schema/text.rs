//! Quotes values and keys in error messages: as JSON, truncated.

use serde_json::Value;

const QUOTED_CHARS_MAX: usize = 80;

/// A value as truncated JSON. For objects and lists, only the type is given.
pub(crate) fn quoted(value: &Value) -> String {
    match value {
        Value::Object(_) => "an object".to_string(),
        Value::Array(_) => "a list".to_string(),
        Value::String(text) => format!("\"{}\"", short_text(text)),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

/// The text itself, or, if it is long, its beginning followed by `...`.
pub fn short_text(text: &str) -> String {
    match text.char_indices().nth(QUOTED_CHARS_MAX) {
        None => text.to_string(),
        Some((end, _)) => format!("{}...", &text[..end]),
    }
}

/// The JSON type of a value, by the name that schemas use.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
