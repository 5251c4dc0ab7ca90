//! Decodes request bodies in protobuf, which kubectl and Go clients send for built-in kinds, into JSON values.
//!
//! The wire format has field numbers instead of names, so only built-in kinds, whose types are known, can be decoded.
//! Responses are never encoded as protobuf, because clients that request it accept JSON as well.
//!
//! Upstream: k8s.io/apimachinery/pkg/runtime/serializer/protobuf/protobuf.go

#[cfg(test)]
mod tests;
mod value;
mod wire;

use serde_json::{Map, Value};

use crate::builtin;
use crate::status::{ApiResult, Failure};
use wire::{Reader, Wire};

const PREFIX: &[u8] = b"k8s\0";

/// Whether a body starts with the magic prefix of Kubernetes' protobuf encoding.
pub fn is_protobuf(body: &[u8]) -> bool {
    body.starts_with(PREFIX)
}

/// Decodes the object in a body into the JSON that Go would write for it.
pub fn decode(body: &[u8]) -> ApiResult<Value> {
    let Some(envelope) = body.strip_prefix(PREFIX) else {
        return Err(refused(
            "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]",
        ));
    };
    let envelope = Envelope::read(envelope).ok_or_else(|| refused("unexpected EOF"))?;
    let (group, version) = envelope.api_version.split_once('/').unwrap_or(("", &envelope.api_version));
    let Some(info) = builtin::type_of(group, version, &envelope.kind) else {
        return Err(refused(&format!(
            "no kind \"{}\" is registered for version \"{}\"",
            envelope.kind, envelope.api_version
        )));
    };
    let mut object = Map::new();
    value::read_struct(info, envelope.raw, &mut object)
        .ok_or_else(|| Box::new(crate::strict::undecodable(version, &envelope.kind, "unexpected EOF")))?;
    object.insert("apiVersion".to_string(), Value::String(envelope.api_version.clone()));
    object.insert("kind".to_string(), Value::String(envelope.kind.clone()));
    let mut object = Value::Object(object);
    // The wire format contains zero values, which JSON omits, so the object is normalized.
    builtin::round_trip(&mut object, group, version, &envelope.kind);
    Ok(object)
}

fn refused(message: &str) -> Box<Failure> {
    Box::new(Failure::bad_request(message))
}

/// A `runtime.Unknown`: the type of an object, and the encoded object.
struct Envelope<'body> {
    api_version: String,
    kind: String,
    raw: &'body [u8],
}

impl<'body> Envelope<'body> {
    fn read(bytes: &'body [u8]) -> Option<Self> {
        let mut envelope = Self { api_version: String::new(), kind: String::new(), raw: &[] };
        let mut reader = Reader::new(bytes);
        while let Some((number, wire)) = reader.next()? {
            match (number, wire) {
                (1, Wire::Bytes(type_meta)) => {
                    let mut reader = Reader::new(type_meta);
                    while let Some((number, wire)) = reader.next()? {
                        match (number, wire) {
                            (1, Wire::Bytes(text)) => envelope.api_version = wire::text(text)?,
                            (2, Wire::Bytes(text)) => envelope.kind = wire::text(text)?,
                            _ => {}
                        }
                    }
                }
                (2, Wire::Bytes(raw)) => envelope.raw = raw,
                _ => {}
            }
        }
        Some(envelope)
    }
}
