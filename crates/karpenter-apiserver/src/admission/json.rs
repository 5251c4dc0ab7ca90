//! Access to fields of JSON objects that does not panic if a value has the wrong type.

use serde_json::{Map, Value};

pub(crate) type Object = Map<String, Value>;

/// The string in a JSON value; empty if the value is not a string.
pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("")
}

/// The items of a JSON list; empty if the value is not a list.
pub(crate) fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The entries of a JSON object, sorted by key; empty if the value is not an object.
pub(crate) fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

pub(crate) fn integer(value: &Value) -> Option<i64> {
    value.as_i64()
}

/// Whether the value is present and not null.
pub(crate) fn is_set(value: &Value) -> bool {
    !value.is_null()
}

pub(crate) fn name(object: &Value) -> &str {
    text(&object["metadata"]["name"])
}

pub(crate) fn namespace(object: &Value) -> &str {
    text(&object["metadata"]["namespace"])
}

/// Whether the object has a deletion timestamp.
pub(crate) fn is_deleting(object: &Value) -> bool {
    is_set(&object["metadata"]["deletionTimestamp"])
}

/// The object at `key`. If the value is missing or not an object, an empty object is inserted.
pub(crate) fn child<'a>(map: &'a mut Object, key: &str) -> &'a mut Object {
    let value = map.entry(key).or_insert_with(|| Value::Object(Object::new()));
    if !value.is_object() {
        *value = Value::Object(Object::new());
    }
    match value {
        Value::Object(child) => child,
        _ => unreachable!("made an object just above"),
    }
}

/// The object at `key`; `None` if the value is missing or not an object.
pub(crate) fn child_mut<'a>(map: &'a mut Object, key: &str) -> Option<&'a mut Object> {
    map.get_mut(key).and_then(Value::as_object_mut)
}

/// The objects in the list at `key`.
pub(crate) fn objects_mut<'a>(map: &'a mut Object, key: &str) -> impl Iterator<Item = &'a mut Object> {
    map.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
}

/// Sets `key` to `value` if it is absent or null.
pub(crate) fn set_default(map: &mut Object, key: &str, value: impl Into<Value>) {
    match map.get(key) {
        None | Some(Value::Null) => {
            map.insert(key.to_string(), value.into());
        }
        _ => {}
    }
}

/// Sets `key` to `value`; removes it if `value` is `None`.
pub(crate) fn set_or_remove(map: &mut Object, key: &str, value: Option<Value>) {
    match value {
        Some(value) if !value.is_null() => {
            map.insert(key.to_string(), value);
        }
        _ => {
            map.remove(key);
        }
    }
}
