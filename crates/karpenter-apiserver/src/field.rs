//! A validation error of one field, worded like Go's `field.Error`.
//!
//! Upstream: k8s.io/apimachinery/pkg/util/validation/field/errors.go

use std::fmt;

use serde_json::Value;

use crate::status::Cause;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldErrorKind {
    NotFound,
    Required,
    Duplicate,
    Invalid,
    NotSupported,
    Forbidden,
    TooLong,
    TooMany,
    TypeInvalid,
    InternalError,
}

impl FieldErrorKind {
    /// The reason of the error in `details.causes`, such as `FieldValueRequired`.
    pub fn reason(self) -> &'static str {
        match self {
            Self::NotFound => "FieldValueNotFound",
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::InternalError => "InternalError",
        }
    }

    fn description(self) -> &'static str {
        match self {
            Self::NotFound => "Not found",
            Self::Required => "Required value",
            Self::Duplicate => "Duplicate value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::InternalError => "Internal error",
        }
    }

    /// Whether the message contains the value of the field.
    fn shows_value(self) -> bool {
        !matches!(self, Self::Required | Self::Forbidden | Self::TooLong | Self::InternalError)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct FieldError {
    pub kind: FieldErrorKind,
    /// The path of the field in Go's syntax, such as `spec.containers[0].name` or `metadata.labels[app]`; empty for the
    /// whole object.
    pub field: String,
    pub bad_value: Value,
    pub detail: String,
    /// Whether the message omits the value, as kube-apiserver does if it is a whole object or list.
    pub value_omitted: bool,
    /// What the message shows instead of the value's JSON, because Go prints structs in the order of their fields.
    pub value_text: Option<String>,
}

impl FieldError {
    pub fn new(
        kind: FieldErrorKind,
        field: impl Into<String>,
        bad_value: Value,
        detail: impl Into<String>,
    ) -> Self {
        Self {
            kind,
            field: field.into(),
            bad_value,
            detail: detail.into(),
            value_omitted: false,
            value_text: None,
        }
    }

    pub fn required(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Required, field, Value::Null, detail)
    }

    pub fn invalid(field: impl Into<String>, bad_value: Value, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Invalid, field, bad_value, detail)
    }

    pub fn forbidden(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Forbidden, field, Value::Null, detail)
    }

    pub fn duplicate(field: impl Into<String>, bad_value: Value) -> Self {
        Self::new(FieldErrorKind::Duplicate, field, bad_value, "")
    }

    /// The error for a string that has more than `limit` bytes or characters.
    pub fn too_long(field: impl Into<String>, limit: usize) -> Self {
        let unit = if limit == 1 { "byte" } else { "bytes" };
        let detail = format!("may not be more than {limit} {unit}");
        Self::new(FieldErrorKind::TooLong, field, Value::Null, detail)
    }

    /// The error for a list with too many items, or an object with too many properties.
    pub fn too_many(field: impl Into<String>, actual: usize, limit: usize) -> Self {
        let unit = if limit == 1 { "item" } else { "items" };
        let detail = format!("must have at most {limit} {unit}");
        Self::new(FieldErrorKind::TooMany, field, Value::from(actual), detail)
    }

    /// Makes the message omit the value.
    pub fn without_value(mut self) -> Self {
        self.value_omitted = true;
        self
    }

    /// Sets the text that the message shows for the value.
    pub fn with_value_text(mut self, text: impl Into<String>) -> Self {
        self.value_text = Some(text.into());
        self
    }

    /// The error for a value that is not among the supported ones. `valid` lists them in Go's format: quoted and
    /// separated by commas.
    pub fn not_supported(field: impl Into<String>, bad_value: Value, valid: &[&str]) -> Self {
        let quoted: Vec<String> = valid.iter().map(|value| format!("\"{value}\"")).collect();
        let detail = format!("supported values: {}", quoted.join(", "));
        Self::new(FieldErrorKind::NotSupported, field, bad_value, detail)
    }

    /// The message without the name of the field, as in `details.causes`.
    pub fn body(&self) -> String {
        let mut text = self.kind.description().to_string();
        if self.kind.shows_value() && !self.value_omitted {
            text.push_str(": ");
            match &self.value_text {
                Some(shown) => text.push_str(shown),
                None => text.push_str(&go_value(&self.bad_value)),
            }
        }
        if !self.detail.is_empty() {
            text.push_str(": ");
            text.push_str(&self.detail);
        }
        text
    }

    /// The path of the field in messages. As in Go, it is `<nil>` for the whole object.
    fn shown_field(&self) -> &str {
        if self.field.is_empty() { "<nil>" } else { &self.field }
    }

    pub fn cause(&self) -> Cause {
        Cause {
            reason: self.kind.reason().to_string(),
            message: self.body(),
            field: Some(self.shown_field().to_string()),
        }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.shown_field(), self.body())
    }
}

/// A value as Go prints it in field errors: strings are quoted; other values are JSON with `<`, `>` and `&` escaped.
fn go_value(value: &Value) -> String {
    match value {
        Value::String(text) => go_quote(text),
        Value::Number(number) if number.as_i64().is_none() => {
            number.as_f64().map_or_else(String::new, go_float)
        }
        Value::Array(_) | Value::Object(_) => go_json(value),
        other => other.to_string(),
    }
}

/// JSON as Go's `encoding/json` writes it, with `<`, `>` and `&` escaped.
pub fn go_json(value: &Value) -> String {
    let text = value.to_string();
    if text.contains(['<', '>', '&']) {
        text.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
    } else {
        text
    }
}

/// Go's `%q`.
pub fn go_quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{b}' => quoted.push_str("\\v"),
            '\u{c}' => quoted.push_str("\\f"),
            control if control.is_control() && (control as u32) < 0x80 => {
                quoted.push_str(&format!("\\x{:02x}", control as u32));
            }
            control if control.is_control() => quoted.push_str(&format!("\\u{:04x}", control as u32)),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

/// A number as Go prints a float64 with `%v`: the shortest representation, with an exponent if the decimal exponent is
/// below -4 or at least 6.
pub fn go_float(number: f64) -> String {
    let exponent = if number == 0.0 { 0 } else { number.abs().log10().floor() as i32 };
    if (-4..6).contains(&exponent) {
        return number.to_string();
    }
    let text = format!("{number:e}");
    match text.split_once('e') {
        Some((digits, power)) => {
            let (sign, power) = power.strip_prefix('-').map_or(('+', power), |power| ('-', power));
            format!("{digits}e{sign}{power:0>2}")
        }
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_formatted_as_in_go() {
        for (value, expected) in [
            (json!("a\"b\u{1}é"), r#""a\"b\x01é""#),
            (json!({"a": "<"}), r#"{"a":"\u003c"}"#),
            (json!(1.5), "1.5"),
            (json!(2.0), "2"),
            (json!(1e21), "1e+21"),
            (json!(1234567.0), "1.234567e+06"),
            (json!(123456.0), "123456"),
            (json!(9223372036854775808_u64), "9.223372036854776e+18"),
            (json!(0.00001), "1e-05"),
            (Value::Null, "null"),
        ] {
            assert_eq!(go_value(&value), expected);
        }
    }

    #[test]
    fn too_many_and_omitted_values_in_messages() {
        let many = FieldError::too_many("spec.list", 3, 1);
        assert_eq!(many.to_string(), "spec.list: Too many: 3: must have at most 1 item");
        let long = FieldError::too_long("spec.text", 63);
        assert_eq!(long.to_string(), "spec.text: Too long: may not be more than 63 bytes");
        let whole = FieldError::invalid("", json!({}), "no").without_value();
        assert_eq!(whole.to_string(), "<nil>: Invalid value: no");
    }
}
