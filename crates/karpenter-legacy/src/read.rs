//! From JSON to the old kinds: nulls mean absent, and a field that the kind never had is a mistake worth naming.

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::finding::Report;

/// The object without nulls. An old server dropped them, and programs that write manifests leave them in.
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

/// The part of an object at `path`, typed; a mistake is reported with its field.
pub(crate) fn typed<T: DeserializeOwned>(value: &Value, path: &str, report: &mut Report) -> Option<T> {
    match serde_path_to_error::deserialize::<_, T>(value) {
        Ok(typed) => Some(typed),
        Err(error) => {
            let inner = error.path().to_string();
            // serde names an unknown field in its message and in its path; once is enough.
            let field = match inner.as_str() {
                "." => path.to_owned(),
                inner => format!("{path}.{inner}"),
            };
            report.never_valid(
                field,
                error.inner().to_string().to_lowercase(),
                "write what the field takes, or remove it",
            );
            None
        }
    }
}
