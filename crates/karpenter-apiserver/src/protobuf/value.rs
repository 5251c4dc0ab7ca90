//! Converts values of the wire format to JSON values, depending on their type.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::wire::{Reader, Wire, text};
use crate::builtin::{self, FieldType, TypeForm, TypeInfo};

/// The maximum nesting of messages: deeper than any valid object. It limits how much stack a malicious body can use.
const MAX_DEPTH: usize = 100;

/// Adds the fields of a message to `object`; `None` if the message is malformed.
pub(super) fn read_struct(info: &TypeInfo, bytes: &[u8], object: &mut Map<String, Value>) -> Option<()> {
    read_fields(info, &[], bytes, object, MAX_DEPTH)
}

/// `prefix` has the field numbers of the enclosing embedded structs; in JSON, their fields belong to the outer object.
fn read_fields(
    info: &TypeInfo,
    prefix: &[u32],
    bytes: &[u8],
    object: &mut Map<String, Value>,
    depth: usize,
) -> Option<()> {
    let depth = depth.checked_sub(1)?;
    let mut reader = Reader::new(bytes);
    while let Some((number, wire)) = reader.next()? {
        let mut path = prefix.to_vec();
        path.push(number);
        if let Some(field) = info.fields.iter().find(|field| field.protobuf == path) {
            match &field.field_type {
                FieldType::List(element) => {
                    let list = object.entry(field.name).or_insert_with(|| json!([]));
                    read_items(element, wire, list.as_array_mut()?, depth)?;
                }
                FieldType::Map(element) => {
                    let (key, value) = read_entry(element, wire, depth)?;
                    let map = object.entry(field.name).or_insert_with(|| json!({}));
                    map.as_object_mut()?.insert(key, value);
                }
                single => {
                    object.insert(field.name.to_string(), read_value(single, wire, depth)?);
                }
            }
        } else if info.fields.iter().any(|field| field.protobuf.starts_with(&path))
            && let Wire::Bytes(bytes) = wire
        {
            read_fields(info, &path, bytes, object, depth)?;
        }
    }
    Some(())
}

fn read_items(element: &FieldType, wire: Wire<'_>, list: &mut Vec<Value>, depth: usize) -> Option<()> {
    let packed = matches!(element, FieldType::Int32 | FieldType::Int64 | FieldType::Boolean);
    match wire {
        Wire::Bytes(bytes) if packed => {
            let mut reader = Reader::new(bytes);
            while !reader.is_finished() {
                let value = reader.varint()?;
                list.push(read_value(element, Wire::Varint(value), depth)?);
            }
        }
        wire => list.push(read_value(element, wire, depth)?),
    }
    Some(())
}

fn read_entry(element: &FieldType, wire: Wire<'_>, depth: usize) -> Option<(String, Value)> {
    let Wire::Bytes(bytes) = wire else { return None };
    let mut key = String::new();
    let mut value = None;
    let mut reader = Reader::new(bytes);
    while let Some((number, wire)) = reader.next()? {
        match (number, wire) {
            (1, Wire::Bytes(bytes)) => key = text(bytes)?,
            (2, wire) => value = Some(read_value(element, wire, depth)?),
            _ => {}
        }
    }
    let absent = || match element {
        FieldType::String | FieldType::Bytes => json!(""),
        FieldType::List(_) => json!([]),
        _ => Value::Null,
    };
    Some((key, value.unwrap_or_else(absent)))
}

fn read_value(field_type: &FieldType, wire: Wire<'_>, depth: usize) -> Option<Value> {
    Some(match (field_type, wire) {
        (FieldType::String, Wire::Bytes(bytes)) => Value::String(text(bytes)?),
        (FieldType::Bytes, Wire::Bytes(bytes)) => Value::String(STANDARD.encode(bytes)),
        (FieldType::Boolean, Wire::Varint(value)) => json!(value != 0),
        (FieldType::Int32, Wire::Varint(value)) => json!(value as i64 as i32),
        (FieldType::Int64, Wire::Varint(value)) => json!(value as i64),
        (FieldType::Double, Wire::Fixed64(bits)) => json!(f64::from_bits(bits)),
        (FieldType::Named(id), Wire::Bytes(bytes)) => read_named(id.info(), bytes, depth)?,
        // A list within a list or map is encoded as a message.
        (FieldType::List(element), Wire::Bytes(bytes)) => {
            let mut list = Vec::new();
            let mut reader = Reader::new(bytes);
            while let Some((number, wire)) = reader.next()? {
                if number == 1 {
                    read_items(element, wire, &mut list, depth)?;
                }
            }
            Value::Array(list)
        }
        _ => return None,
    })
}

/// All fields of a message, each with its number.
fn parts(bytes: &[u8]) -> Option<Vec<(u32, Wire<'_>)>> {
    let mut parts = Vec::new();
    let mut reader = Reader::new(bytes);
    while let Some(part) = reader.next()? {
        parts.push(part);
    }
    Some(parts)
}

fn read_named(info: &TypeInfo, bytes: &[u8], depth: usize) -> Option<Value> {
    if info.form == TypeForm::Struct {
        let mut object = Map::new();
        read_fields(info, &[], bytes, &mut object, depth)?;
        return Some(Value::Object(object));
    }
    let parts = parts(bytes)?;
    let number = |wanted: u32| {
        parts.iter().find_map(|(number, wire)| match wire {
            Wire::Varint(value) if *number == wanted => Some(*value as i64),
            _ => None,
        })
    };
    let nested = |wanted: u32| {
        parts.iter().filter_map(move |(number, wire)| match wire {
            Wire::Bytes(bytes) if *number == wanted => Some(*bytes),
            _ => None,
        })
    };
    Some(match info.form {
        TypeForm::Time | TypeForm::MicroTime => {
            if bytes.is_empty() {
                return Some(Value::Null);
            }
            let nanos = i32::try_from(number(2).unwrap_or(0)).ok()?;
            let time = Timestamp::new(number(1).unwrap_or(0), nanos).ok()?;
            let format =
                if info.form == TypeForm::Time { "%Y-%m-%dT%H:%M:%SZ" } else { "%Y-%m-%dT%H:%M:%S%.6fZ" };
            Value::String(time.strftime(format).to_string())
        }
        TypeForm::Quantity => Value::String(text(nested(1).next().unwrap_or(b"0"))?),
        TypeForm::IntOrString => match number(1).unwrap_or(0) {
            0 => json!(number(2).unwrap_or(0)),
            _ => Value::String(text(nested(3).next().unwrap_or_default())?),
        },
        TypeForm::Raw | TypeForm::Json | TypeForm::Fields => match nested(1).next() {
            Some(raw) if super::is_protobuf(raw) => super::decode(raw).ok()?,
            Some(raw) if !raw.is_empty() => serde_json::from_slice(raw).ok()?,
            _ => Value::Null,
        },
        TypeForm::SchemaOrArray => match nested(1).next() {
            Some(schema) => read_schema(schema, depth)?,
            None => Value::Array(nested(2).map(|schema| read_schema(schema, depth)).collect::<Option<_>>()?),
        },
        TypeForm::SchemaOrBool => match nested(2).next() {
            Some(schema) => read_schema(schema, depth)?,
            None => json!(number(1).unwrap_or(0) != 0),
        },
        TypeForm::SchemaOrStrings => match nested(1).next() {
            Some(schema) => read_schema(schema, depth)?,
            None => json!(nested(2).map(text).collect::<Option<Vec<_>>>()?),
        },
        TypeForm::Struct | TypeForm::Patch | TypeForm::Duration => return None,
    })
}

fn read_schema(bytes: &[u8], depth: usize) -> Option<Value> {
    let info =
        builtin::type_named("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps")?;
    let mut object = Map::new();
    read_fields(info, &[], bytes, &mut object, depth)?;
    Some(Value::Object(object))
}
