//! Tables of the fields that controllers read, by their numbers in the API's protobuf definitions. Numbers are never
//! reused. The table of a kind is defined where the kind is read; this file has the types, and the messages of every
//! list.

/// The fields of a message that are read.
pub struct Message(pub &'static [Field]);

pub struct Field {
    pub number: u32,
    /// The name in JSON.
    pub name: &'static str,
    pub kind: Kind,
    /// An optional field: zero differs from absent.
    pub is_optional: bool,
}

#[derive(Clone, Copy)]
pub enum Kind {
    Text,
    Number,
    Flag,
    Time,
    Texts,
    Labels,
    Amounts,
    One(&'static Message),
    Many(&'static Message),
    /// A message whose fields are inlined into the outer object in JSON.
    Within(&'static Message),
}

/// The fields of a kind that are read.
pub struct KindFields {
    /// The name of the kind, such as `Pod`. Its list has the same name with the suffix `List`.
    pub kind: &'static str,
    pub object: &'static Message,
    pub list: &'static Message,
}

/// The kinds that are requested as protobuf.
pub type Kinds = &'static [KindFields];

pub const fn field(number: u32, name: &'static str, kind: Kind) -> Field {
    Field { number, name, kind, is_optional: false }
}

/// An optional field, of which zero differs from absent.
pub const fn optional(number: u32, name: &'static str, kind: Kind) -> Field {
    Field { number, name, kind, is_optional: true }
}

pub const fn text(number: u32, name: &'static str) -> Field {
    field(number, name, Kind::Text)
}

/// A message field that is written even if it is empty.
pub const fn one(number: u32, name: &'static str, message: &'static Message) -> Field {
    optional(number, name, Kind::One(message))
}

pub const fn many(number: u32, name: &'static str, message: &'static Message) -> Field {
    field(number, name, Kind::Many(message))
}

/// The message of a kind, of its list, or of an error status.
pub(super) fn message_of(kinds: Kinds, kind: &str) -> Option<&'static Message> {
    if kind == "Status" {
        return Some(&STATUS);
    }
    kinds.iter().find_map(|fields| {
        if fields.kind == kind {
            return Some(fields.object);
        }
        (kind.strip_suffix("List") == Some(fields.kind)).then_some(fields.list)
    })
}

pub static LIST_META: Message = Message(&[
    text(2, "resourceVersion"),
    text(3, "continue"),
    optional(4, "remainingItemCount", Kind::Number),
]);

static STATUS: Message = Message(&[
    one(1, "metadata", &LIST_META),
    text(2, "status"),
    text(3, "message"),
    text(4, "reason"),
    one(5, "details", &STATUS_DETAILS),
    field(6, "code", Kind::Number),
]);

static STATUS_DETAILS: Message = Message(&[
    text(1, "name"),
    text(2, "group"),
    text(3, "kind"),
    many(4, "causes", &STATUS_CAUSE),
    field(5, "retryAfterSeconds", Kind::Number),
    text(6, "uid"),
]);

static STATUS_CAUSE: Message = Message(&[text(1, "reason"), text(2, "message"), text(3, "field")]);
