//! The structural hash that upstream uses: 64-bit FNV-1 over each field of a value; the hashes of the fields are
//! combined with FNV-1 again.
//!
//! Fields with a zero value are skipped; here, their hash is `None`. Elements of lists and entries of maps are always
//! hashed, and their order does not matter.
//!
//! Upstream: `hashstructure.go` in github.com/mitchellh/hashstructure/v2.

use std::collections::BTreeMap;

const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

/// FNV-1 multiplies first and then applies XOR, whereas FNV-1a applies XOR first.
pub(super) fn hash_bytes(bytes: &[u8]) -> u64 {
    bytes.iter().fold(OFFSET_BASIS, |hash, byte| hash.wrapping_mul(PRIME) ^ u64::from(*byte))
}

pub(super) fn hash_text(text: &str) -> u64 {
    hash_bytes(text.as_bytes())
}

pub(super) fn hash_bool(value: bool) -> u64 {
    hash_bytes(&[u8::from(value)])
}

pub(super) fn hash_i32(value: i32) -> u64 {
    hash_bytes(&value.to_le_bytes())
}

pub(super) fn hash_i64(value: i64) -> u64 {
    hash_bytes(&value.to_le_bytes())
}

fn ordered(first: u64, second: u64) -> u64 {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&first.to_le_bytes());
    bytes[8..].copy_from_slice(&second.to_le_bytes());
    hash_bytes(&bytes)
}

fn finish(hash: u64) -> u64 {
    hash_bytes(&hash.to_le_bytes())
}

/// The hash of a list, which is hashed as a set: the order does not matter, and two equal elements cancel each other
/// out.
pub(super) fn hash_list(elements: impl IntoIterator<Item = u64>) -> u64 {
    elements.into_iter().fold(0, |hash, element| hash ^ element)
}

pub(super) fn hash_map<V>(entries: &BTreeMap<String, V>, hash_value: impl Fn(&V) -> u64) -> u64 {
    finish(hash_list(entries.iter().map(|(key, value)| ordered(hash_text(key), hash_value(value)))))
}

pub(super) fn hash_text_map(entries: &BTreeMap<String, String>) -> u64 {
    hash_map(entries, |value| hash_text(value))
}

/// The hash of a struct, which includes its type name. Fields must be added in the order of their declaration upstream.
pub(super) struct Record {
    hash: u64,
    has_fields: bool,
}

impl Record {
    pub(super) fn new(type_name: &str) -> Self {
        Self { hash: hash_text(type_name), has_fields: false }
    }

    /// Adds a field, unless its value is zero (`None`).
    pub(super) fn field(mut self, name: &str, value_hash: Option<u64>) -> Self {
        if let Some(value_hash) = value_hash {
            self.hash = finish(self.hash ^ ordered(hash_text(name), value_hash));
            self.has_fields = true;
        }
        self
    }

    /// Adds a string field; an empty string is skipped.
    pub(super) fn plain_text(self, name: &str, value: &str) -> Self {
        self.field(name, (!value.is_empty()).then(|| hash_text(value)))
    }

    /// Adds an optional string field; a string that is set is hashed, even if it is empty.
    pub(super) fn optional_text(self, name: &str, value: Option<&str>) -> Self {
        self.field(name, value.map(hash_text))
    }

    pub(super) fn hash(self) -> u64 {
        self.hash
    }

    /// The hash of the struct; `None` if all fields were skipped, because the struct is a zero value then.
    pub(super) fn hash_unless_zero(self) -> Option<u64> {
        self.has_fields.then_some(self.hash)
    }
}

/// The hash of a duration, which upstream represents as a struct with one number; a number of zero is skipped.
pub(super) fn hash_duration(nanos: i64) -> u64 {
    Record::new("Duration").field("Duration", (nanos != 0).then(|| hash_i64(nanos))).hash()
}
