//! Parses only the outermost level of a JSON object: the items of a list are kept as text until each is parsed.
//!
//! A list of all pods of a cluster may have hundreds of megabytes of JSON; as a tree, it would need several times as
//! much memory. The first pass checks the syntax of all items. Duplicate keys and nesting are checked when an item is
//! parsed.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::tree::{TreeVisitor, UniqueKeys};

/// One value of a JSON stream.
pub(super) enum Opened<'a> {
    Array(Vec<&'a RawValue>),
    /// An object whose field `items` is a list: its other fields, which are parsed, and the text of the items.
    WithItems(Map<String, Value>, Vec<&'a RawValue>),
    Other(Value),
}

/// Parses the text of one list item.
pub(super) fn parse(item: &RawValue) -> Result<Value, serde_json::Error> {
    serde_json::from_str::<UniqueKeys>(item.get()).map(|UniqueKeys(value)| value)
}

/// The number of line breaks in the text before the item.
pub(super) fn lines_before(text: &str, item: &RawValue) -> u64 {
    // The item is a slice of the text, so the difference of their addresses is its offset.
    let offset = (item.get().as_ptr() as usize).saturating_sub(text.as_ptr() as usize);
    let before = &text.as_bytes()[..offset.min(text.len())];
    before.iter().filter(|byte| **byte == b'\n').count() as u64
}

impl<'de> Deserialize<'de> for Opened<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OpeningVisitor)
    }
}

struct OpeningVisitor;

impl<'de> Visitor<'de> for OpeningVisitor {
    type Value = Opened<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
        Ok(Opened::Other(Value::Bool(value)))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Self::Value, E> {
        TreeVisitor.visit_i64(value).map(Opened::Other)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Self::Value, E> {
        TreeVisitor.visit_u64(value).map(Opened::Other)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Self::Value, E> {
        TreeVisitor.visit_f64(value).map(Opened::Other)
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Self::Value, E> {
        TreeVisitor.visit_str(value).map(Opened::Other)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Opened::Other(Value::Null))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = elements.next_element()? {
            items.push(item);
        }
        Ok(Opened::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut fields = Map::new();
        let mut items = None;
        while let Some(key) = entries.next_key::<String>()? {
            if fields.contains_key(&key) || (items.is_some() && key == "items") {
                return Err(A::Error::custom(format!("duplicate key {key:?}")));
            }
            if key == "items" {
                match entries.next_value()? {
                    Opened::Array(list) => items = Some(list),
                    Opened::Other(value) => {
                        fields.insert(key, value);
                    }
                    Opened::WithItems(mut inner, list) => {
                        let values: Result<Vec<Value>, _> = list.into_iter().map(parse).collect();
                        inner.insert(key.clone(), Value::Array(values.map_err(A::Error::custom)?));
                        fields.insert(key, Value::Object(inner));
                    }
                }
            } else {
                let UniqueKeys(value) = entries.next_value()?;
                fields.insert(key, value);
            }
        }
        Ok(match items {
            Some(items) => Opened::WithItems(fields, items),
            None => Opened::Other(Value::Object(fields)),
        })
    }
}
