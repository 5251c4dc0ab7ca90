//! Refuses objects that no API server would take because of their sheer size or nesting, before anything
//! walks or copies them.

use serde_json::Value;

use crate::error::{FieldError, Rule};

/// Request bodies above this are refused by API servers.
const OBJECT_BYTES_MAX: usize = 3 * 1024 * 1024;
/// Deeper than any field of our kinds; keeps recursive code elsewhere within its stack.
const NESTING_MAX: usize = 100;

/// At most one error: the first limit that is passed.
pub(super) fn errors(object: &Value) -> Option<FieldError> {
    let mut bytes: usize = 0;
    // An explicit stack: the value may be deeper than the thread's stack allows.
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
