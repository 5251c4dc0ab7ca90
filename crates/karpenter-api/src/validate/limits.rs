//! Rejects objects that are too large or too deeply nested for the API server, before other code processes them.

use serde_json::Value;

use crate::error::{FieldError, Rule};

/// The API server's maximum size of a request body.
const OBJECT_BYTES_MAX: usize = 3 * 1024 * 1024;
/// The maximum nesting of an object: deeper than any field of our kinds, and small enough that recursive code does not
/// overflow the stack.
const NESTING_MAX: usize = 100;

/// The error for the first limit that the object exceeds.
pub(super) fn errors(object: &Value) -> Option<FieldError> {
    let mut bytes: usize = 0;
    // The code uses an explicit stack, because recursion could overflow the thread's stack.
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
