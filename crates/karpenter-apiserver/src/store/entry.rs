//! A stored object: its JSON, and the few fields of it that selectors and preconditions read.
//!
//! The JSON is stored within the watch frame of the write that produced it. So a list consists of the JSON of its
//! objects, and a watch event is encoded once for all watches.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde_json::Value;

use crate::selector::SelectableFields;

/// The type of a watch event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    Added,
    Modified,
    Deleted,
}

impl ChangeKind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }

    fn frame_head(self) -> &'static [u8] {
        match self {
            Self::Added => b"{\"type\":\"ADDED\",\"object\":",
            Self::Modified => b"{\"type\":\"MODIFIED\",\"object\":",
            Self::Deleted => b"{\"type\":\"DELETED\",\"object\":",
        }
    }
}

const FRAME_TAIL: &[u8] = b"}\n";

/// The watch frame of `object` for an event type other than that of the object's write.
pub fn frame_of(kind: ChangeKind, object: &[u8]) -> Bytes {
    let mut frame = Vec::with_capacity(object.len() + 32);
    frame.extend_from_slice(kind.frame_head());
    frame.extend_from_slice(object);
    frame.extend_from_slice(FRAME_TAIL);
    frame.into()
}

/// A stored object as it is at one revision.
#[derive(Debug)]
pub struct Entry {
    /// The key: `namespace/name`, or `name` for cluster-scoped objects. Lists are sorted by it.
    key: Box<str>,
    namespace_letters: usize,
    revision: u64,
    kind: ChangeKind,
    frame: Bytes,
    object: Bytes,
    uid: Box<str>,
    labels: Box<[(Box<str>, Box<str>)]>,
    /// The values of the kind's selectable fields, in the order of these fields.
    fields: Box<[Box<str>]>,
    /// Which bytes of the JSON are the value of `metadata.managedFields`; empty if there is none.
    managed_fields: Range<usize>,
    /// The decoded object, if [`Self::shared_value`] was called before.
    decoded: OnceLock<Arc<Value>>,
}

impl Entry {
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The namespace; empty for cluster-scoped objects.
    pub fn namespace(&self) -> &str {
        &self.key[..self.namespace_letters]
    }

    pub fn name(&self) -> &str {
        match self.namespace_letters {
            0 => &self.key,
            letters => &self.key[letters + 1..],
        }
    }

    pub fn revision(&self) -> u64 {
        self.revision
    }

    pub fn uid(&self) -> &str {
        &self.uid
    }

    /// The object as JSON text.
    pub fn object(&self) -> &Bytes {
        &self.object
    }

    /// The watch frame for an event of this type.
    pub fn frame(&self, kind: ChangeKind) -> Bytes {
        if kind == self.kind { self.frame.clone() } else { frame_of(kind, &self.object) }
    }

    pub fn value(&self) -> Value {
        // This crate wrote the stored JSON, so decoding it cannot fail.
        serde_json::from_slice(&self.object).unwrap_or(Value::Null)
    }

    /// The JSON of `metadata.managedFields`; `None` if there is none.
    pub fn managed_fields(&self) -> Option<&[u8]> {
        self.object.get(self.managed_fields.clone()).filter(|text| !text.is_empty())
    }

    /// Like [`Self::value`], but without `metadata.managedFields`, whose decoding takes longest and which are rarely
    /// needed.
    pub fn value_without_managed_fields(&self) -> Value {
        if self.managed_fields.is_empty() {
            return self.value();
        }
        // `resourceVersion` is written after `managedFields`, so there is a comma in between.
        let before = &self.object[..self.managed_fields.start - MANAGED_FIELDS_KEY.len()];
        let after = &self.object[self.managed_fields.end + 1..];
        serde_json::from_slice(&[before, after].concat()).unwrap_or(Value::Null)
    }

    /// Like [`Self::value`], for objects that writes of other objects read often: namespaces, classes, LimitRanges. The
    /// decoded object stays in memory as long as the entry.
    pub fn shared_value(&self) -> Arc<Value> {
        self.decoded.get_or_init(|| Arc::new(self.value())).clone()
    }

    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels
            .binary_search_by(|(candidate, _)| candidate.as_ref().cmp(key))
            .ok()
            .map(|index| self.labels[index].1.as_ref())
    }

    /// A copy of the entry with new values of selectable fields; `None` if they are the same.
    pub(super) fn reindexed(&self, selectable: &SelectableFields) -> Option<Self> {
        let fields = selectable.extract(&self.value());
        (fields != self.fields).then(|| Self {
            key: self.key.clone(),
            namespace_letters: self.namespace_letters,
            revision: self.revision,
            kind: self.kind,
            frame: self.frame.clone(),
            object: self.object.clone(),
            uid: self.uid.clone(),
            labels: self.labels.clone(),
            fields,
            managed_fields: self.managed_fields.clone(),
            decoded: OnceLock::new(),
        })
    }

    pub fn field(&self, index: usize) -> &str {
        self.fields.get(index).map_or("", AsRef::as_ref)
    }
}

/// An encoded object that has no resource version yet; the commit assigns it.
#[derive(Debug)]
pub struct Draft {
    key: Box<str>,
    namespace_letters: usize,
    /// The JSON up to the value of the resource version (including its opening quote), and the JSON after it.
    head: Vec<u8>,
    tail: Vec<u8>,
    managed_fields: Range<usize>,
    uid: Box<str>,
    labels: Box<[(Box<str>, Box<str>)]>,
    fields: Box<[Box<str>]>,
}

impl Draft {
    pub fn new(object: &Value, selectable: &SelectableFields) -> Self {
        Self::with_managed_fields(object, selectable, None)
    }

    /// Encodes `object`, which must not contain `metadata.managedFields`, with the given managed fields, which are
    /// JSON.
    pub fn with_managed_fields(
        object: &Value,
        selectable: &SelectableFields,
        managed_fields: Option<&[u8]>,
    ) -> Self {
        let text = |name: &str| object["metadata"][name].as_str().unwrap_or_default();
        let (namespace, name) = (text("namespace"), text("name"));
        let mut labels: Vec<(Box<str>, Box<str>)> = object["metadata"]["labels"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, value)| (key.as_str().into(), value.as_str().unwrap_or_default().into()))
            .collect();
        labels.sort();
        let (head, tail, managed_fields) = encode_around_revision(object, managed_fields);
        Self {
            key: key(namespace, name).into(),
            namespace_letters: namespace.len(),
            head,
            tail,
            managed_fields,
            uid: text("uid").into(),
            labels: labels.into(),
            fields: selectable.extract(object),
        }
    }

    pub fn key(&self) -> &str {
        &self.key
    }

    pub(crate) fn commit(self, kind: ChangeKind, revision: u64) -> Entry {
        let digits = revision.to_string();
        let head = kind.frame_head();
        let length = head.len() + self.head.len() + digits.len() + self.tail.len() + FRAME_TAIL.len();
        let mut frame = Vec::with_capacity(length);
        frame.extend_from_slice(head);
        frame.extend_from_slice(&self.head);
        frame.extend_from_slice(digits.as_bytes());
        frame.extend_from_slice(&self.tail);
        frame.extend_from_slice(FRAME_TAIL);
        let frame = Bytes::from(frame);
        Entry {
            key: self.key,
            namespace_letters: self.namespace_letters,
            revision,
            kind,
            object: frame.slice(head.len()..length - FRAME_TAIL.len()),
            frame,
            uid: self.uid,
            labels: self.labels,
            fields: self.fields,
            managed_fields: self.managed_fields,
            decoded: OnceLock::new(),
        }
    }
}

/// The key of an object in the store, by which lists are sorted.
pub fn key(namespace: &str, name: &str) -> String {
    if namespace.is_empty() { name.to_string() } else { format!("{namespace}/{name}") }
}

const MANAGED_FIELDS: &str = "managedFields";
const MANAGED_FIELDS_KEY: &[u8] = b"\"managedFields\":";
const REVISION: &str = "resourceVersion";

/// Encodes an object. Returns the JSON before the value of `metadata.resourceVersion`, the JSON after it, and the byte
/// range of `metadata.managedFields`.
fn encode_around_revision(object: &Value, managed_fields: Option<&[u8]>) -> (Vec<u8>, Vec<u8>, Range<usize>) {
    let (mut head, mut tail) = (Vec::with_capacity(4096), Vec::with_capacity(4096));
    let empty = serde_json::Map::new();
    let top = object.as_object().unwrap_or(&empty);
    let metadata = top.get("metadata").and_then(Value::as_object).unwrap_or(&empty);
    head.push(b'{');
    // `kind` and `apiVersion` are written first, so that lists can omit them.
    for key in ["kind", "apiVersion"] {
        if let Some(value) = top.get(key) {
            write_member(&mut head, key, value);
            head.push(b',');
        }
    }
    let others = || top.iter().filter(|(key, _)| !matches!(key.as_str(), "kind" | "apiVersion" | "metadata"));
    for (key, value) in others().filter(|(key, _)| key.as_str() < "metadata") {
        write_member(&mut head, key, value);
        head.push(b',');
    }
    head.extend_from_slice(b"\"metadata\":{");
    for (key, value) in metadata.iter().filter(|(key, _)| key.as_str() < MANAGED_FIELDS) {
        write_member(&mut head, key, value);
        head.push(b',');
    }
    let start = head.len() + MANAGED_FIELDS_KEY.len();
    let mut managed_range = 0..0;
    if let Some(text) = managed_fields {
        head.extend_from_slice(MANAGED_FIELDS_KEY);
        head.extend_from_slice(text);
        managed_range = start..head.len();
        head.push(b',');
    } else if let Some(value) = metadata.get(MANAGED_FIELDS) {
        write_member(&mut head, MANAGED_FIELDS, value);
        managed_range = start..head.len();
        head.push(b',');
    }
    let in_between = |key: &str| key > MANAGED_FIELDS && key < REVISION;
    for (key, value) in metadata.iter().filter(|(key, _)| in_between(key)) {
        write_member(&mut head, key, value);
        head.push(b',');
    }
    head.extend_from_slice(b"\"resourceVersion\":\"");
    tail.push(b'"');
    for (key, value) in metadata.iter().filter(|(key, _)| key.as_str() > REVISION) {
        tail.push(b',');
        write_member(&mut tail, key, value);
    }
    tail.push(b'}');
    for (key, value) in others().filter(|(key, _)| key.as_str() > "metadata") {
        tail.push(b',');
        write_member(&mut tail, key, value);
    }
    tail.push(b'}');
    (head, tail, managed_range)
}

fn write_member(text: &mut Vec<u8>, key: &str, value: &Value) {
    let _ = serde_json::to_writer(&mut *text, key);
    text.push(b':');
    let _ = serde_json::to_writer(&mut *text, value);
}
