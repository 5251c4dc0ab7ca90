//! JSON patch (RFC 6902) with the extensions of the Go library that kube-apiserver uses: a negative index counts from
//! the end, and replacing a field that the object lacks adds it.
//!
//! The crate `json-patch` is used only in tests, because it panics when it reverts some patches that fail.
//!
//! Upstream: gopkg.in/evanphx/json-patch.v4/patch.go

use serde_json::{Map, Value};

use super::{go_kind, unprocessable};
use crate::status::{ApiResult, Failure};

const MAX_OPERATIONS: usize = 10_000;

pub fn json_patch(current: &Value, patch: &Value) -> ApiResult<Value> {
    let undecodable = |value: &Value, into: &str| {
        Box::new(Failure::bad_request(format!(
            "error decoding patch: json: cannot unmarshal {} into Go value of type {into}",
            go_kind(value)
        )))
    };
    let empty = Vec::new();
    let operations = match patch {
        Value::Array(operations) => operations,
        Value::Null => &empty,
        other => return Err(undecodable(other, "[]handlers.jsonPatchOp")),
    };
    if operations.len() > MAX_OPERATIONS {
        return Err(Box::new(Failure::new(
            413,
            "RequestEntityTooLarge",
            format!(
                "Request entity too large: The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
                operations.len()
            ),
        )));
    }
    let mut document = current.clone();
    for operation in operations {
        match operation {
            Value::Object(operation) => run(&mut document, operation).ok_or_else(unprocessable)?,
            Value::Null => return Err(unprocessable()),
            other => return Err(undecodable(other, "handlers.jsonPatchOp")),
        }
    }
    Ok(document)
}

/// Executes one operation; `None` if it cannot be applied. Clients are not sent the cause.
fn run(document: &mut Value, operation: &Map<String, Value>) -> Option<()> {
    let text = |name: &str| operation.get(name)?.as_str();
    let value = || operation.get("value").cloned().unwrap_or(Value::Null);
    match text("op")? {
        "add" => add(document, text("path")?, value()),
        "remove" => remove(document, text("path")?).map(drop),
        "replace" => replace(document, text("path")?, value()),
        "move" => {
            let moved = remove(document, text("from")?)?;
            add(document, text("path")?, moved)
        }
        "copy" => {
            let copied = get(document, text("from")?)?;
            add(document, text("path")?, copied)
        }
        "test" => {
            let path = text("path")?;
            let found = if path.is_empty() { document.clone() } else { get(document, path)? };
            (found == value()).then_some(())
        }
        _ => None,
    }
}

/// Splits a path into the object or list that contains the last segment, and the last segment.
fn parent<'document>(document: &'document mut Value, path: &str) -> Option<(&'document mut Value, String)> {
    let mut parts: Vec<String> =
        path.split('/').skip(1).map(|part| part.replace("~1", "/").replace("~0", "~")).collect();
    let last = parts.pop()?;
    let mut holder = document;
    for part in parts {
        holder = match holder {
            Value::Object(fields) => fields.get_mut(&part)?,
            Value::Array(items) => {
                let index = index(&part, items.len())?;
                items.get_mut(index)?
            }
            _ => return None,
        };
    }
    matches!(holder, Value::Object(_) | Value::Array(_)).then_some((holder, last))
}

fn index(part: &str, length: usize) -> Option<usize> {
    let index: i64 = part.parse().ok()?;
    let length = i64::try_from(length).ok()?;
    let index = if index < 0 { index + length } else { index };
    usize::try_from(index).ok()
}

fn get(document: &mut Value, path: &str) -> Option<Value> {
    let (holder, last) = parent(document, path)?;
    match holder {
        Value::Object(fields) => Some(fields.get(&last).cloned().unwrap_or(Value::Null)),
        Value::Array(items) => items.get(index(&last, items.len())?).cloned(),
        _ => None,
    }
}

fn add(document: &mut Value, path: &str, value: Value) -> Option<()> {
    let (holder, last) = parent(document, path)?;
    match holder {
        Value::Object(fields) => {
            fields.insert(last, value);
            Some(())
        }
        Value::Array(items) if last == "-" => {
            items.push(value);
            Some(())
        }
        Value::Array(items) => {
            // A negative index counts from the end of the list as it will be after the insertion.
            let index = index(&last, items.len() + 1)?;
            (index <= items.len()).then(|| items.insert(index, value))
        }
        _ => None,
    }
}

fn remove(document: &mut Value, path: &str) -> Option<Value> {
    let (holder, last) = parent(document, path)?;
    match holder {
        Value::Object(fields) => fields.remove(&last),
        Value::Array(items) => {
            let index = index(&last, items.len())?;
            (index < items.len()).then(|| items.remove(index))
        }
        _ => None,
    }
}

fn replace(document: &mut Value, path: &str, value: Value) -> Option<()> {
    if path.is_empty() {
        if !matches!(value, Value::Object(_) | Value::Array(_)) {
            return None;
        }
        *document = value;
        return Some(());
    }
    let (holder, last) = parent(document, path)?;
    match holder {
        Value::Object(fields) => {
            fields.insert(last, value);
        }
        Value::Array(items) => {
            let index = index(&last, items.len())?;
            *items.get_mut(index)? = value;
        }
        _ => return None,
    }
    Some(())
}
