//! Pods as Go would write them, from the types of the embedded API server, which are generated from Kubernetes' own
//! sources: sample values, their JSON, and their protobuf.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use karpenter_apiserver::builtin::{FieldType, TypeForm, TypeInfo, round_trip, type_of};
use prost::encoding::{WireType, encode_key, encode_varint};
use serde_json::{Map, Value, json};

pub(super) fn pod_type() -> &'static TypeInfo {
    type_of("", "v1", "Pod").expect("a kind of the API")
}

/// How a field is filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fill {
    Absent,
    /// The zero value of its type: an empty text, list or message, or zero.
    Zero,
    Set,
}

/// A sample of a message. `fill` is called once per field and decides how the field is filled.
pub(super) fn sample(info: &TypeInfo, fill: &mut impl FnMut() -> Fill) -> Value {
    let mut object = Map::new();
    for field in &info.fields {
        // The type of an object is not part of its message.
        if field.protobuf.is_empty() {
            continue;
        }
        match fill() {
            Fill::Absent => {}
            Fill::Zero => drop(object.insert(field.name.to_owned(), zero(&field.field_type))),
            Fill::Set => drop(object.insert(field.name.to_owned(), value(&field.field_type, fill))),
        }
    }
    Value::Object(object)
}

pub(super) fn zero(field_type: &FieldType) -> Value {
    match field_type {
        FieldType::String | FieldType::Bytes => json!(""),
        FieldType::Int32 | FieldType::Int64 | FieldType::Double => json!(0),
        FieldType::Boolean => json!(false),
        // Protobuf has no empty list: a server reads a list without elements as `null`.
        FieldType::List(_) | FieldType::Map(_) => Value::Null,
        FieldType::Named(id) => match id.info().form {
            TypeForm::Quantity => json!("0"),
            TypeForm::IntOrString => json!(0),
            TypeForm::Time | TypeForm::MicroTime => Value::Null,
            _ => json!({}),
        },
    }
}

fn value(field_type: &FieldType, fill: &mut impl FnMut() -> Fill) -> Value {
    match field_type {
        FieldType::String => json!("text"),
        FieldType::Bytes => json!("Ynl0ZXM="),
        FieldType::Int32 | FieldType::Int64 | FieldType::Double => json!(7),
        FieldType::Boolean => json!(true),
        FieldType::List(element) => {
            let elements = if fill() == Fill::Zero { 2 } else { 1 };
            (0..elements).map(|_| value(element, fill)).collect()
        }
        FieldType::Map(element) => json!({"key": value(element, fill)}),
        FieldType::Named(id) => match id.info().form {
            TypeForm::Struct => sample(id.info(), fill),
            TypeForm::Quantity => json!("1500m"),
            TypeForm::IntOrString => json!(8080),
            TypeForm::Time => json!("2026-01-01T00:00:00Z"),
            TypeForm::MicroTime => json!("2026-01-01T00:00:00.000001Z"),
            _ => json!({"f:raw": {}}),
        },
    }
}

/// The JSON that Go writes: most zero values are omitted.
pub(super) fn json_of(mut pod: Value) -> Value {
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    round_trip(&mut pod, "", "v1", "Pod");
    pod
}

/// The protobuf that Go writes for a pod with this JSON. Go omits zero values only of fields that are pointers.
pub(super) fn protobuf_of(pod: &Value) -> Vec<u8> {
    let mut types = Vec::new();
    write_bytes(1, b"v1", &mut types);
    write_bytes(2, b"Pod", &mut types);
    let mut envelope = b"k8s\0".to_vec();
    write_bytes(1, &types, &mut envelope);
    write_bytes(2, &message(pod_type(), &[], pod), &mut envelope);
    envelope
}

/// The fields of a message whose numbers begin with `outer`, the numbers of enclosing inlined messages.
fn message(info: &TypeInfo, outer: &[u32], object: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    let mut inlined: Vec<u32> = Vec::new();
    for field in &info.fields {
        let Some([number, inner @ ..]) = field.protobuf.strip_prefix(outer) else { continue };
        if !inner.is_empty() {
            if !inlined.contains(number) {
                inlined.push(*number);
            }
            continue;
        }
        let given = object.get(field.name).filter(|value| !value.is_null());
        match (&field.field_type, given) {
            (FieldType::List(element), given) => {
                for value in given.and_then(Value::as_array).into_iter().flatten() {
                    write(*number, element, value, &mut out);
                }
            }
            (FieldType::Map(element), given) => {
                for (key, value) in given.and_then(Value::as_object).into_iter().flatten() {
                    let mut entry = Vec::new();
                    write_bytes(1, key.as_bytes(), &mut entry);
                    write(2, element, value, &mut entry);
                    write_bytes(*number, &entry, &mut out);
                }
            }
            (one, Some(value)) => write(*number, one, value, &mut out),
            (one, None) if !field.pointer => write(*number, one, &zero(one), &mut out),
            (_, None) => {}
        }
    }
    for number in inlined {
        let path: Vec<u32> = outer.iter().copied().chain([number]).collect();
        write_bytes(number, &message(info, &path, object), &mut out);
    }
    out
}

fn write(number: u32, field_type: &FieldType, value: &Value, out: &mut Vec<u8>) {
    match field_type {
        FieldType::String => write_bytes(number, text(value).as_bytes(), out),
        FieldType::Bytes => write_bytes(number, &STANDARD.decode(text(value)).expect("base64"), out),
        FieldType::Int32 | FieldType::Int64 => write_number(number, value.as_i64().expect("a number"), out),
        FieldType::Boolean => write_number(number, i64::from(value.as_bool().expect("a boolean")), out),
        FieldType::Named(id) => write_bytes(number, &named(id.info(), value), out),
        other => panic!("pods have no {other:?} here"),
    }
}

fn named(info: &TypeInfo, value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    match info.form {
        TypeForm::Struct => return message(info, &[], value),
        TypeForm::Quantity => write_bytes(1, text(value).as_bytes(), &mut out),
        TypeForm::Time | TypeForm::MicroTime => {
            if !value.is_null() {
                let time: jiff::Timestamp = text(value).parse().expect("a time");
                write_number(1, time.as_second(), &mut out);
                write_number(2, i64::from(time.subsec_nanosecond()), &mut out);
            }
        }
        TypeForm::IntOrString => {
            write_number(1, 0, &mut out);
            write_number(2, value.as_i64().expect("a number"), &mut out);
            write_bytes(3, b"", &mut out);
        }
        TypeForm::Fields | TypeForm::Raw | TypeForm::Json => {
            write_bytes(1, value.to_string().as_bytes(), &mut out);
        }
        other => panic!("pods have no {other:?}"),
    }
    out
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}

fn write_bytes(number: u32, bytes: &[u8], out: &mut Vec<u8>) {
    encode_key(number, WireType::LengthDelimited, out);
    encode_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

fn write_number(number: u32, value: i64, out: &mut Vec<u8>) {
    encode_key(number, WireType::Varint, out);
    encode_varint(value as u64, out);
}
