//! Converts protobuf to JSON text, with the fields of a table. Other fields are skipped.

use bytes::Bytes;
use jiff::Timestamp;
use prost::encoding::{WireType, decode_key, decode_varint};
use serde_json::json;

use super::field::{Field, Kind, Kinds, Message, message_of};

pub(super) const PREFIX: &[u8] = b"k8s\0";
/// The maximum nesting that is decoded. No message in the tables is nested deeper; the limit prevents a stack overflow.
const DEPTH_MAX: usize = 32;

/// A value in wire format.
#[derive(Debug, Clone, Copy)]
enum Wire<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

type Parts<'a> = Vec<(u32, Wire<'a>)>;

/// The JSON line of a watch event. `None` if the message is malformed or its kind is not in the table.
pub fn event(message: &[u8], kinds: Kinds) -> Option<Bytes> {
    let parts = parts(message)?;
    let (Wire::Bytes(kind), Wire::Bytes(raw)) = (last(&parts, 1)?, last(&parts, 2)?) else { return None };
    let Wire::Bytes(object) = last(&self::parts(raw)?, 1)? else { return None };
    let mut out = Vec::with_capacity(2048);
    out.extend_from_slice(b"{\"type\":");
    quote(kind, &mut out);
    out.extend_from_slice(b",\"object\":");
    write_object(object, kinds, &mut out)?;
    out.extend_from_slice(b"}\n");
    Some(out.into())
}

/// The JSON of an object or a list.
pub fn object(bytes: &[u8], kinds: Kinds) -> Option<Bytes> {
    let mut out = Vec::with_capacity(bytes.len() / 2);
    write_object(bytes, kinds, &mut out)?;
    Some(out.into())
}

/// The ADDED event of a list item. The type is in the list, not in its items.
pub(super) fn added(version: &str, kind: &str, message: &Message, body: &[u8]) -> Option<Bytes> {
    let mut out = Vec::with_capacity(2048);
    out.extend_from_slice(b"{\"type\":\"ADDED\",\"object\":");
    write_typed(version.as_bytes(), kind.as_bytes(), message, body, &mut out)?;
    out.extend_from_slice(b"}\n");
    Some(out.into())
}

/// The bookmark that ends the initial list.
pub(super) fn initial_events_end(version: &str, kind: &str, resource_version: &str) -> Bytes {
    let event = json!({
        "type": "BOOKMARK",
        "object": {
            "apiVersion": version,
            "kind": kind,
            "metadata": {
                "resourceVersion": resource_version,
                "annotations": {"k8s.io/initial-events-end": "true"},
            },
        },
    });
    format!("{event}\n").into()
}

/// The resource version in the metadata of a list, and whether the list is complete.
pub(super) fn list_version(metadata: &[u8]) -> Option<(String, bool)> {
    let parts = parts(metadata)?;
    let version = std::str::from_utf8(bytes_of(last(&parts, 2))?).ok()?;
    Some((version.to_owned(), bytes_of(last(&parts, 3))?.is_empty()))
}

/// The API version and kind in an envelope.
pub(super) fn type_of(types: &[u8]) -> Option<(&str, &str)> {
    let types = parts(types)?;
    let (Wire::Bytes(version), Wire::Bytes(kind)) = (last(&types, 1)?, last(&types, 2)?) else { return None };
    Some((std::str::from_utf8(version).ok()?, std::str::from_utf8(kind).ok()?))
}

/// Writes the object in the envelope.
fn write_object(bytes: &[u8], kinds: Kinds, out: &mut Vec<u8>) -> Option<()> {
    let envelope = parts(bytes.strip_prefix(PREFIX)?)?;
    let Wire::Bytes(types) = last(&envelope, 1)? else { return None };
    let (version, kind) = type_of(types)?;
    let body = match last(&envelope, 2) {
        Some(Wire::Bytes(body)) => body,
        Some(Wire::Number(_)) => return None,
        None => &[],
    };
    write_typed(version.as_bytes(), kind.as_bytes(), message_of(kinds, kind)?, body, out)
}

fn write_typed(version: &[u8], kind: &[u8], message: &Message, body: &[u8], out: &mut Vec<u8>) -> Option<()> {
    out.extend_from_slice(b"{\"apiVersion\":");
    quote(version, out);
    out.extend_from_slice(b",\"kind\":");
    quote(kind, out);
    write_fields(message, body, out, false, DEPTH_MAX)?;
    out.push(b'}');
    Some(())
}

/// Writes the members of an object. Returns whether the next member is the first one.
fn write_fields(
    message: &Message,
    bytes: &[u8],
    out: &mut Vec<u8>,
    is_first: bool,
    depth: usize,
) -> Option<bool> {
    let depth = depth.checked_sub(1)?;
    let parts = parts(bytes)?;
    let mut is_first = is_first;
    for field in message.0 {
        is_first = write_field(field, &parts, out, is_first, depth)?;
    }
    Some(is_first)
}

fn write_field(
    field: &Field,
    parts: &Parts<'_>,
    out: &mut Vec<u8>,
    is_first: bool,
    depth: usize,
) -> Option<bool> {
    let mut found =
        parts.iter().filter(|(number, _)| *number == field.number).map(|(_, wire)| *wire).peekable();
    if found.peek().is_none() {
        return Some(is_first);
    }
    let key = |out: &mut Vec<u8>| {
        if !is_first {
            out.push(b',');
        }
        quote(field.name.as_bytes(), out);
        out.push(b':');
    };
    match field.kind {
        Kind::Within(inner) => {
            let Wire::Bytes(bytes) = found.last()? else { return None };
            return write_fields(inner, bytes, out, is_first, depth);
        }
        Kind::Text | Kind::Number | Kind::Flag | Kind::Time | Kind::One(_) => {
            let wire = found.last()?;
            let is_zero = matches!(wire, Wire::Number(0) | Wire::Bytes([]));
            // Zero values are omitted in JSON, except for optional fields that are set to zero.
            let is_written = field.is_optional && !matches!(field.kind, Kind::Time);
            if is_zero && !is_written {
                return Some(is_first);
            }
            key(out);
            write_value(field.kind, wire, out, depth)?;
        }
        Kind::Many(_) | Kind::Texts => {
            key(out);
            let element = if let Kind::Many(inner) = field.kind { Kind::One(inner) } else { Kind::Text };
            out.push(b'[');
            for (index, wire) in found.enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write_value(element, wire, out, depth)?;
            }
            out.push(b']');
        }
        Kind::Labels | Kind::Amounts => {
            key(out);
            out.push(b'{');
            for (index, wire) in found.enumerate() {
                let Wire::Bytes(entry) = wire else { return None };
                let entry = self::parts(entry)?;
                if index > 0 {
                    out.push(b',');
                }
                quote(bytes_of(last(&entry, 1))?, out);
                out.push(b':');
                let value = bytes_of(last(&entry, 2))?;
                match field.kind {
                    // A quantity is a message with its text.
                    Kind::Amounts => quote(bytes_of(last(&self::parts(value)?, 1))?, out),
                    _ => quote(value, out),
                }
            }
            out.push(b'}');
        }
    }
    Some(false)
}

fn write_value(kind: Kind, wire: Wire<'_>, out: &mut Vec<u8>, depth: usize) -> Option<()> {
    match (kind, wire) {
        (Kind::Text, Wire::Bytes(text)) => quote(text, out),
        (Kind::Flag, Wire::Number(number)) => {
            out.extend_from_slice(if number == 0 { b"false" } else { b"true" });
        }
        (Kind::Number, Wire::Number(number)) => out.extend_from_slice((number as i64).to_string().as_bytes()),
        (Kind::Time, Wire::Bytes(bytes)) => {
            let parts = parts(bytes)?;
            let number = |of: u32| match last(&parts, of) {
                Some(Wire::Number(number)) => number as i64,
                _ => 0,
            };
            // Kubernetes times have whole seconds.
            quote(Timestamp::from_second(number(1)).ok()?.to_string().as_bytes(), out);
        }
        (Kind::One(inner), Wire::Bytes(bytes)) => {
            out.push(b'{');
            write_fields(inner, bytes, out, true, depth)?;
            out.push(b'}');
        }
        _ => return None,
    }
    Some(())
}

/// The fields of a message in order. Wire types that no field of the table has are skipped.
fn parts(mut rest: &[u8]) -> Option<Parts<'_>> {
    let mut parts = Vec::with_capacity(16);
    while !rest.is_empty() {
        let (number, wire) = decode_key(&mut rest).ok()?;
        match wire {
            WireType::Varint => parts.push((number, Wire::Number(decode_varint(&mut rest).ok()?))),
            WireType::LengthDelimited => {
                let length = usize::try_from(decode_varint(&mut rest).ok()?).ok()?;
                let (bytes, after) = rest.split_at_checked(length)?;
                parts.push((number, Wire::Bytes(bytes)));
                rest = after;
            }
            WireType::SixtyFourBit => rest = rest.get(8..)?,
            WireType::ThirtyTwoBit => rest = rest.get(4..)?,
            WireType::StartGroup | WireType::EndGroup => return None,
        }
    }
    Some(parts)
}

/// Of repeated values of a field, the last one is used.
fn last<'a>(parts: &Parts<'a>, number: u32) -> Option<Wire<'a>> {
    parts.iter().rev().find(|(found, _)| *found == number).map(|(_, wire)| *wire)
}

/// The bytes of a value; a missing value counts as empty text.
fn bytes_of(wire: Option<Wire<'_>>) -> Option<&[u8]> {
    match wire {
        Some(Wire::Bytes(bytes)) => Some(bytes),
        Some(Wire::Number(_)) => None,
        None => Some(&[]),
    }
}

/// Invalid UTF-8 is replaced, as Go does.
fn quote(text: &[u8], out: &mut Vec<u8>) {
    let _ = serde_json::to_writer(out, &String::from_utf8_lossy(text));
}
