//! Deserializes input objects: null counts as absent, and an unknown field is an error that names the field.

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::finding::Report;

/// The object without nulls. Manifest generators write nulls, and the API server removed them.
pub(crate) fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(
            fields
                .iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(name, value)| (name.clone(), without_nulls(value)))
                .collect(),
        ),
        Value::Array(items) => Value::Array(items.iter().map(without_nulls).collect()),
        other => other.clone(),
    }
}

/// Deserializes the part of an object at `path`; reports an error with the field that has it.
pub(crate) fn typed<T: DeserializeOwned>(value: &Value, path: &str, report: &mut Report) -> Option<T> {
    match serde_path_to_error::deserialize::<_, T>(value) {
        Ok(typed) => Some(typed),
        Err(error) => {
            let inner = error.path().to_string();
            // For an unknown field, the path already contains the field's name.
            let field = match inner.as_str() {
                "." => path.to_owned(),
                inner => format!("{path}.{inner}"),
            };
            report.never_valid(
                field,
                error.inner().to_string().to_lowercase(),
                "set a value of the expected type, or remove the field",
            );
            None
        }
    }
}
