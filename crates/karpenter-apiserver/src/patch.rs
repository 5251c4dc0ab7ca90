//! JSON patch, merge patch and strategic merge patch.
//!
//! Each function computes the new object from the current one, without validation or defaults. Errors have
//! kube-apiserver's code and message. For JSON patch, the message does not state the cause.

mod json;
mod strategic;
#[cfg(test)]
mod tests;

use serde_json::Value;

pub use json::json_patch;
pub use strategic::strategic_merge;

use crate::status::{ApiResult, Failure};

/// Merge patch as kube-apiserver implements it: RFC 7386, except that nulls are also removed from objects in new lists.
pub fn merge_patch(current: &Value, patch: &Value) -> Value {
    let mut result = current.clone();
    merge_into(&mut result, patch.clone());
    result
}

/// Like [`merge_patch`], but returns kube-apiserver's errors for invalid patches.
pub fn checked_merge_patch(current: &Value, patch: &Value) -> ApiResult<Value> {
    match patch {
        Value::Object(_) => Ok(merge_patch(current, patch)),
        Value::Null => Err(Box::new(Failure::bad_request("Invalid JSON Patch"))),
        other => Err(Box::new(Failure::bad_request(format!(
            "error decoding patch: json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            go_kind(other)
        )))),
    }
}

fn merge_into(current: &mut Value, patch: Value) {
    match (current, patch) {
        (Value::Object(current), Value::Object(patch)) => {
            for (key, mut value) in patch {
                if value.is_null() {
                    current.remove(&key);
                    continue;
                }
                match current.get_mut(&key) {
                    Some(before) => merge_into(before, value),
                    None => {
                        prune_nulls(&mut value);
                        current.insert(key, value);
                    }
                }
            }
        }
        (current @ Value::Object(_), patch) => *current = patch,
        (current, mut patch) => {
            prune_nulls(&mut patch);
            *current = patch;
        }
    }
}

fn prune_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(prune_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(prune_nulls),
        _ => {}
    }
}

/// The name of a value's type in error messages of Go's JSON decoder.
pub(crate) fn go_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// A value as Go prints it with `%v`, such as `map[a:1 b:[x y]]`.
pub(crate) fn go_print(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_string(),
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            format!("[{}]", items.iter().map(go_print).collect::<Vec<_>>().join(" "))
        }
        Value::Object(fields) => {
            let fields: Vec<String> =
                fields.iter().map(|(key, value)| format!("{key}:{}", go_print(value))).collect();
            format!("map[{}]", fields.join(" "))
        }
        plain => plain.to_string(),
    }
}

/// The error of a patch that cannot be applied. As in kube-apiserver, it does not state the cause.
pub(crate) fn unprocessable() -> Box<Failure> {
    let why = "the server rejected our request due to an error in our request";
    Box::new(Failure::new(422, "Invalid", why).with_empty_details())
}

/// An internal error that has no reason.
pub(crate) fn unexpected(message: impl Into<String>) -> Box<Failure> {
    Box::new(Failure::new(500, "", message))
}
