//! What is wrong with one field, worded as Go's `field.Error` words it.

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
    /// The machine-readable reason, e.g. `FieldValueRequired`.
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

    fn words(self) -> &'static str {
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

    /// Whether the message repeats the value.
    fn shows_value(self) -> bool {
        !matches!(self, Self::Required | Self::Forbidden | Self::TooLong | Self::InternalError)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct FieldError {
    pub kind: FieldErrorKind,
    /// A Go field path: `spec.containers[0].name`, `metadata.labels[app]`; empty for the whole object.
    pub field: String,
    pub bad_value: Value,
    pub detail: String,
}

impl FieldError {
    pub fn new(
        kind: FieldErrorKind,
        field: impl Into<String>,
        bad_value: Value,
        detail: impl Into<String>,
    ) -> Self {
        Self { kind, field: field.into(), bad_value, detail: detail.into() }
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

    /// `valid` is listed as Go lists it: quoted, separated by commas.
    pub fn not_supported(field: impl Into<String>, bad_value: Value, valid: &[&str]) -> Self {
        let quoted: Vec<String> = valid.iter().map(|value| format!("\"{value}\"")).collect();
        let detail = format!("supported values: {}", quoted.join(", "));
        Self::new(FieldErrorKind::NotSupported, field, bad_value, detail)
    }

    /// The message without the field, as it appears in `details.causes`.
    pub fn body(&self) -> String {
        let mut text = self.kind.words().to_string();
        if self.kind.shows_value() {
            text.push_str(": ");
            // Strings are quoted, everything else is printed as JSON, which is what Go prints for plain values.
            text.push_str(&self.bad_value.to_string());
        }
        if !self.detail.is_empty() {
            text.push_str(": ");
            text.push_str(&self.detail);
        }
        text
    }

    pub fn cause(&self) -> Cause {
        Cause {
            reason: self.kind.reason().to_string(),
            message: self.body(),
            field: (!self.field.is_empty()).then(|| self.field.clone()),
        }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let field = if self.field.is_empty() { "<nil>" } else { &self.field };
        write!(formatter, "{field}: {}", self.body())
    }
}
