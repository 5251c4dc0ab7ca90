//! Strategic merge patch: lists are merged by key, and directives in the patch delete, replace, retain or reorder.
//!
//! The shape states which lists are merged, and by which key. Where the shape is atomic or deduced, objects are merged
//! and lists are replaced, as for fields without a patch strategy.
//!
//! Upstream: k8s.io/apimachinery/pkg/util/strategicpatch/patch.go

use serde_json::{Map, Value};

use super::{go_print, prune_nulls, unexpected, unprocessable};
use crate::shape::{FieldShape, Shape};
use crate::status::{ApiResult, Failure};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM_LIST: &str = "$deleteFromPrimitiveList";
const ELEMENT_ORDER: &str = "$setElementOrder";

type Object = Map<String, Value>;

pub fn strategic_merge(current: &Value, patch: &Value, shape: &Shape) -> ApiResult<Value> {
    let Value::Object(patch) = patch else {
        return Err(bad_request(&format!(
            "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            super::go_kind(patch)
        )));
    };
    let current = current.as_object().cloned().unwrap_or_default();
    Ok(Value::Object(merge_objects(current, patch.clone(), shape)?))
}

fn bad_request(message: &str) -> Box<Failure> {
    Box::new(Failure::bad_request(message))
}

fn bad_order() -> Box<Failure> {
    bad_request("invalid patch format of setElementOrder list")
}

fn no_merge_key(element: &Value, key: &str) -> Box<Failure> {
    unexpected(format!("map: {} does not contain declared merge key: {key}", go_print(element)))
}

/// The shape of one field of an object.
fn field_of<'shape>(shape: &'shape Shape, name: &str) -> Option<&'shape FieldShape> {
    match shape {
        Shape::Struct(fields) => fields.field(name),
        _ => None,
    }
}

fn shape_of<'shape>(shape: &'shape Shape, name: &str) -> &'shape Shape {
    match shape {
        Shape::Struct(fields) => fields.field(name).map_or(&Shape::Deduced, |field| &field.shape),
        Shape::Map(element) => element,
        _ => &Shape::Deduced,
    }
}

fn element_of(shape: &Shape) -> &Shape {
    match shape {
        Shape::Keyed(keyed) => &keyed.element,
        _ => &Shape::Deduced,
    }
}

fn merge_objects(mut original: Object, mut patch: Object, shape: &Shape) -> ApiResult<Object> {
    if let Some(directive) = patch.get(DIRECTIVE) {
        return match directive.as_str() {
            Some("replace") => {
                patch.remove(DIRECTIVE);
                Ok(patch)
            }
            Some("delete") => Ok(Object::new()),
            _ => Err(unexpected(format!(
                "unknown patch type: {} in map: {}",
                go_print(directive),
                go_print(&Value::Object(patch.clone()))
            ))),
        };
    }
    retain_keys(&mut original, &mut patch)?;
    merge_ordered_lists(&mut original, &mut patch, shape)?;
    // Directives sort before field names, so items are deleted from a list before others are added to it.
    for (key, mut value) in patch {
        let (key, deletes) = match key.strip_prefix(DELETE_FROM_LIST) {
            Some(rest) => match rest.strip_prefix('/') {
                Some(name) => (name.to_string(), true),
                None => return Err(bad_request("invalid patch format of primitive list")),
            },
            None => (key, false),
        };
        if value.is_null() {
            original.remove(&key);
            continue;
        }
        let before = original.remove(&key);
        let after = match (before, value) {
            (Some(Value::Object(before)), Value::Object(value)) => {
                if field_of(shape, &key).is_some_and(|field| field.patch_replaces) {
                    Some(Value::Object(value))
                } else {
                    Some(Value::Object(merge_objects(before, value, shape_of(shape, &key))?))
                }
            }
            (Some(Value::Array(before)), Value::Array(value)) => {
                let merge_key = field_of(shape, &key).and_then(|field| field.patch_merge_key.as_deref());
                Some(Value::Array(if merge_key.is_some() || deletes {
                    let element = element_of(shape_of(shape, &key));
                    merge_lists(before, value, element, merge_key.unwrap_or(""), deletes)?
                } else {
                    value
                }))
            }
            (before, _) if deletes => before,
            (_, new) => {
                value = new;
                prune_nulls(&mut value);
                without_directives(value)
            }
        };
        if let Some(after) = after {
            original.insert(key, after);
        }
    }
    Ok(original)
}

fn retain_keys(original: &mut Object, patch: &mut Object) -> ApiResult<()> {
    let bad = || bad_request("invalid patch format of retainKeys");
    let Some(keys) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let Value::Array(keys) = keys else { return Err(bad()) };
    let keeps = |name: &str| keys.iter().any(|key| key.as_str() == Some(name));
    for (name, value) in patch.iter() {
        let directive = name.starts_with(DELETE_FROM_LIST) || name.starts_with(ELEMENT_ORDER);
        if !value.is_null() && !directive && !keeps(name) {
            return Err(bad());
        }
    }
    original.retain(|name, _| keeps(name));
    Ok(())
}

/// Merges the lists for which the patch has `$setElementOrder`, and removes them from the patch.
fn merge_ordered_lists(original: &mut Object, patch: &mut Object, shape: &Shape) -> ApiResult<()> {
    let directives: Vec<String> =
        patch.keys().filter(|key| key.starts_with(ELEMENT_ORDER)).cloned().collect();
    for directive in directives {
        let Some(Value::Array(order)) = patch.remove(&directive) else {
            return Err(unexpected("expected a []interface {}, but received another type"));
        };
        let name = directive[ELEMENT_ORDER.len()..].strip_prefix('/').ok_or_else(bad_order)?;
        let field = field_of(shape, name);
        let key = field.and_then(|field| field.patch_merge_key.as_deref());
        let listed = |value: Option<Value>| match value {
            None => Ok(None),
            Some(Value::Array(items)) => Ok(Some(items)),
            Some(_) => Err(unexpected("expected a []interface {}, but received another type")),
        };
        let before = listed(original.get(name).cloned())?;
        let patched = listed(patch.get(name).cloned())?;
        check_order(patched.as_deref().unwrap_or_default(), &order, key.unwrap_or(""))?;
        let mut current_order = before.clone().unwrap_or_default();
        let merged = match (before, patched) {
            (Some(before), None) => before,
            (None, Some(patched)) => patched.into_iter().filter_map(without_directives).collect(),
            (Some(before), Some(patched)) => match key {
                Some(key) => {
                    fill_deleted_positions(&mut current_order, &patched, key);
                    let element = element_of(shape_of(shape, name));
                    merge_lists(before, patched, element, key, false)?
                }
                None => patched,
            },
            (None, None) => continue,
        };
        patch.remove(name);
        let ordered = in_order(merged, &order, &current_order, key.unwrap_or(""))?;
        original.insert(name.to_string(), Value::Array(ordered));
    }
    Ok(())
}

/// Places new items at the positions of deleted ones. In kube-apiserver, appending after a deletion reuses memory of
/// the Go slice, which affects the order of other items in the response.
fn fill_deleted_positions(current: &mut Vec<Value>, patched: &[Value], key: &str) {
    if key.is_empty() {
        return;
    }
    let places = current.len();
    let deleted: Vec<&Value> = patched
        .iter()
        .filter(|element| element.get(DIRECTIVE).and_then(Value::as_str) == Some("delete"))
        .filter_map(|element| element.get(key))
        .collect();
    current.retain(|element| !element.get(key).is_some_and(|identity| deleted.contains(&identity)));
    if patched.iter().any(|element| element.get(DIRECTIVE).and_then(Value::as_str) == Some("replace")) {
        return;
    }
    for element in patched.iter().filter(|element| element.get(DIRECTIVE).is_none()) {
        let known = element.get(key).is_some_and(|identity| position(current, identity, key).is_some());
        if current.len() < places && !known {
            current.push(element.clone());
        }
    }
}

/// Checks that the list `order` contains the patched items in their order.
fn check_order(patched: &[Value], order: &[Value], key: &str) -> ApiResult<()> {
    if patched.is_empty() || order.is_empty() {
        return Ok(());
    }
    let mut rest = order.iter();
    for element in patched {
        if !key.is_empty() && element.get(DIRECTIVE).is_some() {
            continue;
        }
        let wanted = identity(element, key)?;
        loop {
            let Some(next) = rest.next() else {
                return Err(unexpected(format!(
                    "The order in patch list:\n{}\n doesn't match {ELEMENT_ORDER} list:\n{}\n",
                    go_print(&Value::Array(patched.to_vec())),
                    go_print(&Value::Array(order.to_vec())),
                )));
            };
            if identity(next, key)? == wanted {
                break;
            }
        }
    }
    Ok(())
}

/// What identifies an item: the value of its merge key, or, for a scalar, the item itself.
fn identity<'value>(element: &'value Value, key: &str) -> ApiResult<&'value Value> {
    if key.is_empty() {
        return Ok(element);
    }
    match element {
        Value::Object(fields) => fields.get(key).ok_or_else(|| no_merge_key(element, key)),
        _ => Err(unexpected("expected a map[string]interface {}, but received another type")),
    }
}

fn position(list: &[Value], wanted: &Value, key: &str) -> Option<usize> {
    list.iter()
        .position(|element| if key.is_empty() { element == wanted } else { element.get(key) == Some(wanted) })
}

fn merge_lists(
    original: Vec<Value>,
    patch: Vec<Value>,
    element: &Shape,
    key: &str,
    deletes: bool,
) -> ApiResult<Vec<Value>> {
    let Some(first) = original.iter().chain(&patch).next() else { return Ok(original) };
    if first.is_array() {
        return Err(unprocessable());
    }
    let kind = std::mem::discriminant(first);
    if original.iter().chain(&patch).any(|element| std::mem::discriminant(element) != kind) {
        return Err(unexpected(format!(
            "list element types are not identical: [{} {}]",
            go_print(&Value::Array(original)),
            go_print(&Value::Array(patch))
        )));
    }
    if !first.is_object() {
        if deletes {
            return Ok(original.into_iter().filter(|element| !patch.contains(element)).collect());
        }
        let mut merged = Vec::with_capacity(original.len() + patch.len());
        for element in original.iter().chain(&patch) {
            if !merged.contains(element) {
                merged.push(element.clone());
            }
        }
        return in_order(merged, &patch, &original, "");
    }
    if key.is_empty() {
        return Err(unexpected("cannot merge lists without merge key for struct"));
    }
    let (original, patch) = list_directives(original, patch, key)?;
    let mut merged = original.clone();
    for change in &patch {
        let identity = identity(change, key)?;
        match (position(&merged, identity, key), change) {
            (Some(index), Value::Object(change)) => {
                let before = merged[index].as_object().cloned().unwrap_or_default();
                merged[index] = Value::Object(merge_objects(before, change.clone(), element)?);
            }
            _ => merged.push(change.clone()),
        }
    }
    in_order(merged, &patch, &original, key)
}

/// Executes the `$patch` directives in list items. Returns the list without deleted items, and the patch without
/// directives.
fn list_directives(
    mut original: Vec<Value>,
    patch: Vec<Value>,
    key: &str,
) -> ApiResult<(Vec<Value>, Vec<Value>)> {
    let mut rest = Vec::new();
    let mut replaces = false;
    for element in patch {
        match element.get(DIRECTIVE).map(|directive| directive.as_str().unwrap_or("")) {
            None => rest.push(element),
            Some("delete") => {
                let identity = identity(&element, key)?;
                original.retain(|candidate| candidate.get(key) != Some(identity));
            }
            Some("replace") => replaces = true,
            Some("merge") => return Err(unexpected("merging lists cannot yet be specified in the patch")),
            Some(other) => {
                return Err(unexpected(format!(
                    "unknown patch type: {other} in map: {}",
                    go_print(&element)
                )));
            }
        }
    }
    Ok(if replaces { (rest, Vec::new()) } else { (original, rest) })
}

/// Sorts a merged list. Items that `order` lists are in its order, other items keep their own order, and the two
/// sequences are interleaved by positions in the current list.
fn in_order(merged: Vec<Value>, order: &[Value], current: &[Value], key: &str) -> ApiResult<Vec<Value>> {
    let mut patched = Vec::new();
    let mut others = Vec::new();
    for element in merged {
        let wanted = identity(&element, key)?;
        let in_patch = position(order, wanted, key);
        let in_current = position(current, wanted, key);
        match in_patch {
            Some(index) => patched.push((index, in_current, element)),
            None => others.push((in_current.unwrap_or(usize::MAX), in_current, element)),
        }
    }
    patched.sort_by_key(|(index, ..)| *index);
    others.sort_by_key(|(index, ..)| *index);
    let mut result = Vec::with_capacity(patched.len() + others.len());
    let mut others = others.into_iter().peekable();
    for (_, place, element) in patched {
        while let Some((_, other_place, _)) = others.peek() {
            match (other_place, place) {
                (Some(other), Some(place)) if *other < place => {
                    result.extend(others.next().map(|(.., other)| other));
                }
                _ => break,
            }
        }
        result.push(element);
    }
    result.extend(others.map(|(.., other)| other));
    Ok(result)
}

/// A part of the patch that the object does not have is added, without its directives.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(fields) if fields.contains_key(DIRECTIVE) => None,
        Value::Object(fields) => Some(Value::Object(
            fields.into_iter().filter_map(|(name, value)| Some((name, without_directives(value)?))).collect(),
        )),
        Value::Array(items) => Some(Value::Array(items.into_iter().filter_map(without_directives).collect())),
        plain => Some(plain),
    }
}
