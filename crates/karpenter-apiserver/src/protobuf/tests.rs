use proptest::prelude::*;

use super::*;

/// Encodes a length-delimited field.
fn field(number: u64, bytes: &[u8]) -> Vec<u8> {
    let mut out = varint(number << 3 | 2);
    out.extend(varint(bytes.len() as u64));
    out.extend(bytes);
    out
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while value >= 0x80 {
        out.push(value as u8 & 0x7f | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
    out
}

fn body(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let type_meta = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
    [PREFIX.to_vec(), field(1, &type_meta), field(2, raw), field(3, b""), field(4, b"")].concat()
}

#[test]
fn hand_encoded_namespace_is_decoded() {
    // In every object, ObjectMeta is field 1; in ObjectMeta, the name is field 1 and the generation (an int64) field 7.
    let metadata = [field(1, b"team"), varint(7 << 3), varint(3)].concat();
    let namespace = decode(&body("v1", "Namespace", &field(1, &metadata))).unwrap();
    assert_eq!(namespace["metadata"], serde_json::json!({"name": "team", "generation": 3}));
    assert_eq!(namespace["kind"], "Namespace");
}

#[test]
fn malformed_protobuf_is_rejected() {
    let message = |body: &[u8]| decode(body).unwrap_err().message;
    assert!(message(b"{}").starts_with("provided data does not appear to be a protobuf message"));
    assert_eq!(
        message(&body("example.com/v1", "Thing", b"")),
        "no kind \"Thing\" is registered for version \"example.com/v1\""
    );
    assert_eq!(
        message(&body("v1", "Pod", &[0x0a, 0x05, 0x01])),
        "Pod in version \"v1\" cannot be handled as a Pod: unexpected EOF"
    );
}

#[test]
fn deep_nesting_is_rejected() {
    // The field `not` (28) of a schema is a schema, so schemas can be nested. The outermost one is in `versions`,
    // `schema`, `openAPIV3Schema`.
    let mut schema = Vec::new();
    for _ in 0..5000 {
        schema = field(28, &schema);
    }
    let version = field(4, &field(1, &schema));
    let definition = field(2, &field(7, &version));
    assert!(decode(&body("apiextensions.k8s.io/v1", "CustomResourceDefinition", &definition)).is_err());
}

proptest! {
    #[test]
    fn arbitrary_bytes_do_not_panic(raw in prop::collection::vec(any::<u8>(), 0..200)) {
        for kind in ["Pod", "Node", "DeleteOptions"] {
            if let Ok(object) = decode(&body("v1", kind, &raw)) {
                prop_assert_eq!(&object["kind"], kind);
            }
        }
    }
}
