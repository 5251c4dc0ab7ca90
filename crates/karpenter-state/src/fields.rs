//! The fields of pods and nodes that this program reads. Other fields are not decoded.
//!
//! For pods, one line per field ([`pod`]) defines everything that must agree: the protobuf table, what is deserialized
//! from JSON, and what is copied from a complete object. A line has the number in the API's protobuf definitions
//! (k8s.io/api v0.35, `core/v1` and `meta/v1`), whether Go has a `pointer` (zero differs from absent) or a `value`, the
//! field and its type in Rust, and its name in JSON. Fields that are not read are listed by name: when the API gets a
//! new field, the crate does not compile until the field has a line or is listed as not read.

mod node;
mod pod;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use karpenter_runtime::protobuf::field::{Field, Kind, KindFields, Kinds, LIST_META, Message, many, one};
use serde::de::DeserializeOwned;

/// The fields of a pod that are read.
pub const POD_FIELDS: &Message = &<k8s_openapi::api::core::v1::Pod as KeptMessage>::MESSAGE;

/// The kinds that are read as protobuf.
pub const PODS_AND_NODES: Kinds = &[
    KindFields {
        kind: "Pod",
        object: POD_FIELDS,
        list: &Message(&[one(1, "metadata", &LIST_META), many(2, "items", POD_FIELDS)]),
    },
    KindFields { kind: "Node", object: &node::NODE, list: &node::NODE_LIST },
];

/// A value of the API of which only the fields in the table are read.
pub(crate) trait Kept: Sized {
    /// The type that is deserialized from JSON.
    type Json: DeserializeOwned;
    const KIND: Kind;
    /// The kind of a list of such values.
    const LIST: Kind = panic!("there are no lists of such values");

    /// The value, with the fields that were deserialized. `None` is an absent field.
    fn from_json(json: Option<Self::Json>) -> Self;

    /// The value without the fields that this program does not read.
    fn keep(self) -> Self;
}

/// A message of the API.
pub(crate) trait KeptMessage: Kept {
    const MESSAGE: Message;
}

/// A value of which all fields are read.
pub(crate) trait Whole: Kept {}

macro_rules! leaf {
    ($type:ty, $kind:ident $(, $list:ident)?) => {
        impl Kept for $type {
            type Json = Self;
            const KIND: Kind = Kind::$kind;
            $(const LIST: Kind = Kind::$list;)?

            fn from_json(json: Option<Self>) -> Self {
                json.unwrap_or_default()
            }

            fn keep(self) -> Self {
                self
            }
        }

        impl Whole for $type {}
    };
}

leaf!(String, Text, Texts);
leaf!(i32, Number);
leaf!(i64, Number);
leaf!(bool, Flag);
leaf!(BTreeMap<String, String>, Labels);
leaf!(BTreeMap<String, Quantity>, Amounts);

impl Kept for Time {
    type Json = Self;
    const KIND: Kind = Kind::Time;

    fn from_json(json: Option<Self>) -> Self {
        json.unwrap_or(Self(jiff::Timestamp::UNIX_EPOCH))
    }

    fn keep(self) -> Self {
        self
    }
}

impl Whole for Time {}

impl<T: Kept> Kept for Option<T> {
    type Json = T::Json;
    const KIND: Kind = T::KIND;

    fn from_json(json: Option<T::Json>) -> Self {
        json.map(|json| T::from_json(Some(json)))
    }

    fn keep(self) -> Self {
        self.map(T::keep)
    }
}

impl<T: Whole> Whole for Option<T> {}

impl<T: Kept> Kept for Vec<T> {
    type Json = Vec<T::Json>;
    const KIND: Kind = T::LIST;

    fn from_json(json: Option<Vec<T::Json>>) -> Self {
        json.unwrap_or_default().into_iter().map(|json| T::from_json(Some(json))).collect()
    }

    fn keep(self) -> Self {
        self.into_iter().map(T::keep).collect()
    }
}

impl<T: Whole> Whole for Vec<T> {}

/// A field of type `T`. Messages are written even if they are empty.
const fn field_of<T: Kept>(number: u32, name: &'static str, is_pointer: bool) -> Field {
    Field { number, name, kind: T::KIND, is_optional: is_pointer || matches!(T::KIND, Kind::One(_)) }
}

/// Fails to compile if not all fields of `T` are read.
const fn is_whole<T: Whole>() {}

macro_rules! is_pointer {
    (pointer) => {
        true
    };
    (value) => {
        false
    };
}

/// Defines messages of which only some fields are read. `inlined` fields belong to the outer object in Rust and JSON,
/// and to a message of their own in protobuf.
macro_rules! some_fields {
    ($($message:ident {
        $($number:literal $presence:ident $field:ident: $type:ty = $json:literal,)*
        $(inlined $outer:literal {
            $($inner:literal $inner_presence:ident $inlined:ident: $inner_type:ty = $inner_json:literal,)*
        })?
    } not read { $($why:literal: $($other:ident)*;)* })*) => {$(
        const _: () = {
            #[derive(serde::Deserialize)]
            pub(crate) struct Json {
                $(#[serde(rename = $json)] $field: Option<<$type as Kept>::Json>,)*
                $($(#[serde(rename = $inner_json)] $inlined: Option<<$inner_type as Kept>::Json>,)*)?
            }

            impl Kept for $message {
                type Json = Json;
                const KIND: Kind = Kind::One(&<Self as KeptMessage>::MESSAGE);
                const LIST: Kind = Kind::Many(&<Self as KeptMessage>::MESSAGE);

                #[allow(clippy::needless_update, reason = "some messages have no other fields")]
                fn from_json(json: Option<Json>) -> Self {
                    let Some(json) = json else { return Self::default() };
                    Self {
                        $($field: <$type as Kept>::from_json(json.$field),)*
                        $($($inlined: <$inner_type as Kept>::from_json(json.$inlined),)*)?
                        ..Self::default()
                    }
                }

                #[allow(clippy::needless_update, reason = "some messages have no other fields")]
                fn keep(self) -> Self {
                    // This pattern has no `..`, so that the crate does not compile until a new field of the API is
                    // listed.
                    let Self { $($field,)* $($($inlined,)*)? $($($other: _,)*)* } = self;
                    Self {
                        $($field: <$type as Kept>::keep($field),)*
                        $($($inlined: <$inner_type as Kept>::keep($inlined),)*)?
                        ..Self::default()
                    }
                }
            }

            impl KeptMessage for $message {
                const MESSAGE: Message = Message(&[
                    $(field_of::<$type>($number, $json, is_pointer!($presence)),)*
                    $(Field {
                        number: $outer,
                        name: "",
                        kind: Kind::Within(&Message(&[
                            $(field_of::<$inner_type>($inner, $inner_json, is_pointer!($inner_presence)),)*
                        ])),
                        is_optional: false,
                    },)?
                ]);
            }
        };
    )*};
}

/// Defines messages of which all fields are read.
macro_rules! all_fields {
    ($($message:ident {
        $($number:literal $presence:ident $field:ident: $type:ty = $json:literal,)*
    })*) => {$(
        impl Kept for $message {
            type Json = Self;
            const KIND: Kind = Kind::One(&<Self as KeptMessage>::MESSAGE);
            const LIST: Kind = Kind::Many(&<Self as KeptMessage>::MESSAGE);

            fn from_json(json: Option<Self>) -> Self {
                json.unwrap_or_default()
            }

            fn keep(self) -> Self {
                // This pattern has no `..`, so that the crate does not compile until a new field of the API is listed.
                let Self { $($field,)* } = self;
                Self { $($field: <$type as Kept>::keep($field),)* }
            }
        }

        impl KeptMessage for $message {
            const MESSAGE: Message =
                Message(&[$(field_of::<$type>($number, $json, is_pointer!($presence)),)*]);
        }

        impl Whole for $message {}

        const _: () = {
            $(is_whole::<$type>();)*
        };
    )*};
}

use {all_fields, is_pointer, some_fields};
