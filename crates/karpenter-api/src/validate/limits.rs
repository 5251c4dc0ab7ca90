//! Rejects objects that are too large or too deeply nested for the API server, before other code processes them.

use serde_json::Value;

use crate::error::{FieldError, Rule};

/// The maximum size of a request body that the API server accepts.
const OBJECT_BYTES_MAX: usize = 3 * 1024 * 1024;
/// The maximum nesting: deeper than any field of our kinds; it keeps recursive code within the stack.
const NESTING_MAX: usize = 100;

/// The first limit that is exceeded.
pub(super) fn errors(object: &Value) -> Option<FieldError> {
    let mut bytes: usize = 0;
    // An explicit stack: recursion could overflow the thread's stack.
    let mut pending = vec![(object, 0usize)];
    while let Some((value, depth)) = pending.pop() {
        if depth > NESTING_MAX {
            return Some(
                FieldError::new("", Rule::Limit, "the object is nested too deeply")
                    .with_valid(format!("at most {NESTING_MAX} levels")),
            );
        }
        bytes = bytes.saturating_add(1).saturating_add(match value {
            Value::String(text) => text.len(),
            Value::Object(fields) => fields.keys().map(|name| name.len() + 3).sum(),
            _ => 0,
        });
        if bytes > OBJECT_BYTES_MAX {
            return Some(
                FieldError::new("", Rule::Limit, "the object is too large")
                    .with_valid(format!("at most {OBJECT_BYTES_MAX} bytes")),
            );
        }
        match value {
            Value::Array(elements) => pending.extend(elements.iter().map(|element| (element, depth + 1))),
            Value::Object(fields) => pending.extend(fields.values().map(|field| (field, depth + 1))),
            _ => {}
        }
    }
    None
}
