//! Rules that the controller enforces beyond the schema.

use crate::error::FieldError;

/// The errors the controller would report for an object that the API server accepts.
pub fn runtime_errors(_kind: &str, _object: &serde_json::Value) -> Vec<FieldError> {
    Vec::new()
}
