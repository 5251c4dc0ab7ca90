//! A fast check whether a body of a built-in kind has no decoding errors, which is so for almost all bodies. It does
//! not say what the errors are.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::decode::is_int32;
use super::time;
use crate::builtin::{self, FieldType, TypeForm, TypeInfo, canonical_quantity};

/// Whether all fields are known and all values have the types that their fields require.
pub fn is_clean(object: &Value, group: &str, version: &str, kind: &str) -> bool {
    builtin::type_of(group, version, kind).is_some_and(|info| structure(info, object))
}

fn structure(info: &TypeInfo, value: &Value) -> bool {
    let Value::Object(fields) = value else { return false };
    fields.iter().all(|(name, value)| info.field(name).is_some_and(|field| typed(&field.field_type, value)))
}

fn typed(field_type: &FieldType, value: &Value) -> bool {
    if value.is_null() {
        return true;
    }
    match field_type {
        FieldType::String => value.is_string(),
        FieldType::Boolean => value.is_boolean(),
        FieldType::Double => value.is_number(),
        FieldType::Int32 => is_int32(value),
        FieldType::Int64 => value.is_i64(),
        FieldType::Bytes => value.as_str().is_some_and(|text| STANDARD.decode(text).is_ok()),
        FieldType::List(element) => {
            value.as_array().is_some_and(|items| items.iter().all(|item| typed(element, item)))
        }
        FieldType::Map(element) => {
            value.as_object().is_some_and(|entries| entries.values().all(|entry| typed(element, entry)))
        }
        FieldType::Named(id) => named(id.info(), value),
    }
}

fn named(info: &TypeInfo, value: &Value) -> bool {
    match (info.form, value) {
        (TypeForm::Struct, _) => structure(info, value),
        (TypeForm::Time | TypeForm::MicroTime, Value::String(text)) => {
            time::check(text, info.form == TypeForm::MicroTime).is_ok()
        }
        (TypeForm::Quantity, Value::String(text)) => {
            builtin::is_canonical_quantity(text) || canonical_quantity(text.trim()).is_some()
        }
        (TypeForm::Duration | TypeForm::IntOrString, Value::String(_)) => true,
        (TypeForm::IntOrString, _) => is_int32(value),
        (TypeForm::Time | TypeForm::MicroTime | TypeForm::Duration | TypeForm::Quantity, _) => false,
        _ => true,
    }
}

/// A decoded JSON value, and whether some object in it has a duplicate field. Of duplicate fields, the last value is
/// used.
#[derive(Debug)]
pub struct Document {
    pub value: Value,
    pub has_duplicates: bool,
}

impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(DocumentVisitor)
    }
}

struct DocumentVisitor;

impl From<Value> for Document {
    fn from(value: Value) -> Self {
        Self { value, has_duplicates: false }
    }
}

impl<'de> Visitor<'de> for DocumentVisitor {
    type Value = Document;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("any valid JSON value")
    }

    fn visit_unit<E>(self) -> Result<Document, E> {
        Ok(Value::Null.into())
    }

    fn visit_bool<E>(self, value: bool) -> Result<Document, E> {
        Ok(Value::Bool(value).into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Document, E> {
        Ok(Value::Number(value.into()).into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Document, E> {
        Ok(Value::Number(value.into()).into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Document, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number).into())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Document, E> {
        self.visit_string(value.to_owned())
    }

    fn visit_string<E>(self, value: String) -> Result<Document, E> {
        Ok(Value::String(value).into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Document, A::Error> {
        let (mut items, mut has_duplicates) = (Vec::new(), false);
        while let Some(item) = sequence.next_element::<Document>()? {
            has_duplicates |= item.has_duplicates;
            items.push(item.value);
        }
        Ok(Document { value: Value::Array(items), has_duplicates })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Document, A::Error> {
        let (mut fields, mut has_duplicates) = (Map::new(), false);
        while let Some((name, value)) = map.next_entry::<String, Document>()? {
            has_duplicates |= value.has_duplicates;
            has_duplicates |= fields.insert(name, value.value).is_some();
        }
        Ok(Document { value: Value::Object(fields), has_duplicates })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn document_decodes_to_same_value_as_serde_json() {
        for text in
            [r#"{"a":[1,-2,3.5,1e3,null,true,"x\n"],"b":{"c":{}}}"#, "null", "18446744073709551615", r#""t""#]
        {
            let document: Document = serde_json::from_str(text).unwrap();
            assert_eq!(document.value, serde_json::from_str::<Value>(text).unwrap());
            assert!(!document.has_duplicates);
        }
        for text in [r#"{"a":1,"a":2}"#, r#"[{"b":{"a":1,"a":1}}]"#] {
            let document: Document = serde_json::from_str(text).unwrap();
            assert_eq!(document.value, serde_json::from_str::<Value>(text).unwrap());
            assert!(document.has_duplicates);
        }
    }

    #[test]
    fn unknown_field_or_wrong_type_is_not_clean() {
        let pod =
            |spec: Value| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": spec});
        let container = |extra: Value| {
            let mut container = json!({"name": "c"});
            for (key, value) in extra.as_object().unwrap() {
                container[key] = value.clone();
            }
            pod(json!({"containers": [container]}))
        };
        for (object, expected) in [
            (pod(json!({"hostNetwork": null})), true),
            (container(json!({"resources": {"requests": {"cpu": "1.5", "memory": 5}}})), false),
            (container(json!({"resources": {"requests": {"cpu": "1.5", "memory": "5Gi"}}})), true),
            (container(json!({"resources": {"requests": {"cpu": "fast"}}})), false),
            (container(json!({"livenessProbe": {"httpGet": {"port": "http"}}})), true),
            (container(json!({"livenessProbe": {"httpGet": {"port": 1.5}}})), false),
            (container(json!({"imagee": null})), false),
            (pod(json!({"containers": {}})), false),
            (pod(json!({"activeDeadlineSeconds": "1"})), false),
        ] {
            assert_eq!(is_clean(&object, "", "v1", "Pod"), expected, "{object}");
        }
    }
}
