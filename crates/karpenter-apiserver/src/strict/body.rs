//! Parses a JSON body a second time, to find what decoding loses: duplicate fields and the order of fields.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::{MAX_PROBLEMS, push_field};
use crate::builtin::{self, FieldType, TypeForm, TypeInfo};

/// Unknown and duplicate fields of a built-in kind in the order of the document, such as `unknown field "spec.foo"`.
/// For other kinds, and for a body that is not JSON, only what [`duplicate_fields`] finds.
pub fn body_problems(body: &[u8], group: &str, version: &str, kind: &str) -> Vec<String> {
    match builtin::type_of(group, version, kind) {
        Some(info) => problems(body, Expected::Type(info)),
        None => duplicate_fields(body),
    }
}

/// Duplicate fields anywhere in a body, such as `duplicate field "spec.foo"`.
pub fn duplicate_fields(body: &[u8]) -> Vec<String> {
    problems(body, Expected::Anything)
}

fn problems(body: &[u8], expected: Expected) -> Vec<String> {
    let mut found = Found::default();
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    // Syntax errors are ignored here, because decoding the body reports them.
    let _ = Reader { expected, path: &mut String::new(), found: &mut found }.deserialize(&mut deserializer);
    found.list
}

#[derive(Clone, Copy)]
enum Expected {
    Type(&'static TypeInfo),
    Field(&'static FieldType),
    /// A value without a schema; only duplicate fields in it are reported.
    Anything,
    /// A value in which neither unknown nor duplicate fields are reported.
    Ignored,
}

impl Expected {
    fn resolved(self) -> Self {
        match self {
            Self::Field(FieldType::Named(id)) => Self::Type(id.info()).resolved(),
            Self::Type(info) if info.form != TypeForm::Struct => Self::Ignored,
            other => other,
        }
    }
}

#[derive(Default)]
struct Found {
    list: Vec<String>,
    seen: BTreeSet<String>,
}

impl Found {
    fn add(&mut self, problem: String) {
        if self.list.len() < MAX_PROBLEMS && self.seen.insert(problem.clone()) {
            self.list.push(problem);
        }
    }
}

struct Reader<'reader> {
    expected: Expected,
    path: &'reader mut String,
    found: &'reader mut Found,
}

impl<'de> DeserializeSeed<'de> for Reader<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(mut self, deserializer: D) -> Result<(), D::Error> {
        self.expected = self.expected.resolved();
        match self.expected {
            Expected::Ignored => deserializer.deserialize_ignored_any(IgnoredAny).map(drop),
            _ => deserializer.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for Reader<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let expected = match self.expected {
            Expected::Field(FieldType::List(element)) => Expected::Field(element),
            Expected::Anything => Expected::Anything,
            _ => Expected::Ignored,
        };
        let length = self.path.len();
        let mut index = 0;
        loop {
            self.path.push_str(&format!("[{index}]"));
            let reader = Reader { expected, path: self.path, found: self.found };
            let more = items.next_element_seed(reader)?.is_some();
            self.path.truncate(length);
            if !more {
                return Ok(());
            }
            index += 1;
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        let length = self.path.len();
        let mut names = BTreeSet::new();
        while let Some(name) = fields.next_key::<String>()? {
            push_field(self.path, &name);
            let expected = match self.expected {
                Expected::Type(info) => info.field(&name).map(|field| Expected::Field(&field.field_type)),
                Expected::Field(FieldType::Map(element)) => Some(Expected::Field(element)),
                Expected::Anything => Some(Expected::Anything),
                _ => Some(Expected::Ignored),
            };
            match expected {
                None => self.found.add(format!("unknown field \"{}\"", self.path)),
                Some(_) if names.contains(&name) => {
                    self.found.add(format!("duplicate field \"{}\"", self.path));
                }
                _ => {}
            }
            let expected = expected.unwrap_or(Expected::Ignored);
            fields.next_value_seed(Reader { expected, path: self.path, found: self.found })?;
            self.path.truncate(length);
            names.insert(name);
        }
        Ok(())
    }
}
