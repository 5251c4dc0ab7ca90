//! Errors of decoding a request body (unknown fields, duplicate fields and values of the wrong type), in
//! kube-apiserver's wording.
//!
//! The caller decides by `fieldValidation` whether unknown and duplicate fields are errors, warnings or ignored.
//!
//! Upstream: sigs.k8s.io/json/json.go

mod body;
mod clean;
mod decode;
#[cfg(test)]
mod tests;
mod time;

use serde_json::Value;

use crate::builtin::{self, FieldType, TypeForm, TypeInfo};
use crate::status::Failure;

pub use body::{body_problems, duplicate_fields};
pub use clean::{Document, is_clean};
pub use decode::decode_error;

/// The maximum number of strict errors that Go's decoder reports.
pub(crate) const MAX_PROBLEMS: usize = 100;

/// The paths of fields that a built-in kind does not have, such as `spec.containers[0].imagee`. Empty for other kinds.
///
/// If the request body is available, use [`body_problems`], which also finds duplicate fields and keeps the order of
/// the document.
pub fn unknown_fields(object: &Value, group: &str, version: &str, kind: &str) -> Vec<String> {
    let mut paths = Vec::new();
    if let Some(info) = builtin::type_of(group, version, kind) {
        unknown_in_type(info, object, &mut String::new(), &mut paths);
    }
    paths.truncate(MAX_PROBLEMS);
    paths
}

fn unknown_in_type(info: &TypeInfo, value: &Value, path: &mut String, paths: &mut Vec<String>) {
    let (TypeForm::Struct, Value::Object(fields)) = (info.form, value) else { return };
    for (name, value) in fields {
        let length = path.len();
        push_field(path, name);
        match info.field(name) {
            Some(field) => unknown_in(&field.field_type, value, path, paths),
            None => paths.push(path.clone()),
        }
        path.truncate(length);
    }
}

fn unknown_in(field_type: &FieldType, value: &Value, path: &mut String, paths: &mut Vec<String>) {
    match (field_type, value) {
        (FieldType::Named(id), value) => unknown_in_type(id.info(), value, path, paths),
        (FieldType::List(element), Value::Array(items)) => {
            for (index, item) in items.iter().enumerate() {
                let length = path.len();
                path.push_str(&format!("[{index}]"));
                unknown_in(element, item, path, paths);
                path.truncate(length);
            }
        }
        (FieldType::Map(element), Value::Object(entries)) => {
            for (key, entry) in entries {
                let length = path.len();
                push_field(path, key);
                unknown_in(element, entry, path, paths);
                path.truncate(length);
            }
        }
        _ => {}
    }
}

fn push_field(path: &mut String, name: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(name);
}

/// The error message for problems such as `unknown field "spec.foo"`. `problems` must not be empty.
pub fn strict_error(problems: &[String]) -> String {
    format!("strict decoding error: {}", problems.join(", "))
}

/// The error for a body that cannot be decoded. `why` is a message of [`strict_error`] or [`decode_error`].
pub fn undecodable(version: &str, kind: &str, why: &str) -> Failure {
    Failure::bad_request(format!("{kind} in version \"{version}\" cannot be handled as a {kind}: {why}"))
}
