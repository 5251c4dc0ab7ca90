//! The managed fields of a new object, all of whose fields its creator owns.
//!
//! The result is the same as comparing the object with the zero value of its kind and encoding the difference. This
//! implementation visits the object once and writes JSON directly. It supports neither zero values that contain lists,
//! nor floating-point numbers in keys of list items. For those it returns [`TooComplex`], and the caller uses the
//! general implementation.

use serde_json::Value;

use super::path::{Element, equal};
use super::typed::{self, Walk};
use crate::shape::Shape;

/// Metadata fields that no manager owns, sorted.
const STRIPPED_METADATA: [&str; 9] = [
    "clusterName",
    "creationTimestamp",
    "generation",
    "managedFields",
    "name",
    "namespace",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// This implementation does not support the object; the caller must use [`super::record_update`].
#[derive(Debug)]
pub(super) struct TooComplex;

/// The `fieldsV1` JSON of all fields in which `new` differs from `empty`, the zero value of the kind; `None` if they
/// are equal.
pub(super) fn fields(
    empty: &Value,
    new: &Value,
    shape: &Shape,
    reset: &[&[&str]],
) -> Result<Option<Vec<u8>>, TooComplex> {
    let Value::Object(object) = new else { return Err(TooComplex) };
    if reset.iter().any(|path| path.len() != 1) || !matches!(shape, Shape::Struct(_)) {
        return Err(TooComplex);
    }
    let mut text = Vec::with_capacity(1024);
    let mut writer = Writer { text: &mut text };
    writer.text.push(b'{');
    let start = writer.text.len();
    for (name, value) in object {
        if matches!(name.as_str(), "apiVersion" | "kind") || reset.iter().any(|path| path[0] == name) {
            continue;
        }
        let before = empty.get(name);
        let shape = typed::below(shape, name).0;
        if name == "metadata" {
            writer.metadata(before, value, shape)?;
        } else {
            writer.field(name, before, value, shape)?;
        }
    }
    if writer.text.len() == start {
        return Ok(None);
    }
    writer.close();
    Ok(Some(text))
}

struct Writer<'text> {
    /// The JSON written so far. Every member ends with a comma; `close` removes the last one.
    text: &'text mut Vec<u8>,
}

impl Writer<'_> {
    fn close(&mut self) {
        if self.text.last() == Some(&b',') {
            self.text.pop();
        }
        self.text.push(b'}');
    }

    fn metadata(&mut self, before: Option<&Value>, value: &Value, shape: &Shape) -> Result<(), TooComplex> {
        let Value::Object(fields) = value else { return Err(TooComplex) };
        let at = self.text.len();
        self.text.extend_from_slice(b"\"f:metadata\":{");
        let start = self.text.len();
        for (name, value) in fields {
            if STRIPPED_METADATA.binary_search(&name.as_str()).is_ok() {
                if value.is_object() || value.is_array() {
                    return Err(TooComplex);
                }
            } else {
                let before = before.and_then(|before| before.get(name));
                self.field(name, before, value, typed::below(shape, name).0)?;
            }
        }
        self.finish(at, start, false);
        Ok(())
    }

    fn field(
        &mut self,
        name: &str,
        before: Option<&Value>,
        value: &Value,
        shape: &Shape,
    ) -> Result<(), TooComplex> {
        let at = self.text.len();
        if name.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\') {
            self.text.extend_from_slice(b"\"f:");
            self.text.extend_from_slice(name.as_bytes());
            self.text.extend_from_slice(b"\":{");
        } else {
            self.key(&format!("f:{name}"));
        }
        let start = self.text.len();
        let is_member = self.value(before, value, shape)?;
        self.finish(at, start, is_member);
        Ok(())
    }

    fn key(&mut self, key: &str) {
        let _ = serde_json::to_writer(&mut *self.text, key);
        self.text.extend_from_slice(b":{");
    }

    /// Completes the key that begins at byte `at` of the text and whose children begin at byte `start`. Removes the key
    /// if it is not a member and has no children.
    fn finish(&mut self, at: usize, start: usize, is_member: bool) {
        let has_children = self.text.len() > start;
        if !is_member && !has_children {
            self.text.truncate(at);
            return;
        }
        if is_member && has_children {
            self.text.splice(start..start, *b"\".\":{},");
        }
        self.close();
        self.text.push(b',');
    }

    /// Writes the owned fields below a value; returns whether the value itself is owned.
    fn value(&mut self, before: Option<&Value>, value: &Value, shape: &Shape) -> Result<bool, TooComplex> {
        let is_new = || before.is_none_or(|before| !equal(before, value));
        let walk = typed::walk(shape, [before, Some(value)]);
        match walk {
            Walk::Leaf => Ok(is_new()),
            Walk::Object => {
                let old = before.and_then(Value::as_object).filter(|fields| !fields.is_empty());
                let fields = value.as_object().filter(|fields| !fields.is_empty());
                if old.is_none() && fields.is_none() {
                    return Ok(is_new());
                }
                for (name, value) in fields.into_iter().flatten() {
                    let before = old.and_then(|old| old.get(name));
                    self.field(name, before, value, typed::below(shape, name).0)?;
                }
                Ok(before.is_none())
            }
            Walk::Keyed(_) | Walk::Set => {
                if !typed::list(before).is_empty() {
                    return Err(TooComplex);
                }
                let items = typed::list(Some(value));
                if items.is_empty() {
                    return Ok(is_new());
                }
                self.items(&walk, items)?;
                Ok(before.is_none())
            }
        }
    }

    fn items(&mut self, walk: &Walk<'_>, items: &[Value]) -> Result<(), TooComplex> {
        let mut identities = Vec::with_capacity(items.len());
        for item in items {
            // A list item without valid key fields has no owner of its own.
            if let Ok(identity) = typed::element(walk, item) {
                let is_plain = match &identity {
                    Element::Key(keys) => keys.iter().all(|(_, value)| is_plain(value)),
                    Element::Value(value) => is_plain(value),
                    Element::Field(_) | Element::Index(_) => true,
                };
                if !is_plain {
                    return Err(TooComplex);
                }
                identities.push((identity.encode(), item));
            }
        }
        identities.sort_by(|left, right| left.0.cmp(&right.0));
        for same in identities.chunk_by(|left, right| left.0 == right.0) {
            let at = self.text.len();
            self.key(&same[0].0);
            let start = self.text.len();
            // If several items have the same key, they are owned as a whole.
            if let [(_, only)] = same {
                self.value(None, only, typed::element_shape(walk))?;
            }
            self.finish(at, start, true);
        }
        Ok(())
    }
}

/// Whether equal values always have the same JSON text. This is not so for numbers, because 1 equals 1.0.
fn is_plain(value: &Value) -> bool {
    match value {
        Value::Number(number) => !number.is_f64(),
        Value::String(_) | Value::Bool(_) => true,
        Value::Null | Value::Array(_) | Value::Object(_) => false,
    }
}
