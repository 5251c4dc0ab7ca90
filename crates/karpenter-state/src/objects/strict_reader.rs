//! Deserializes typed objects from JSON values, with the path of an error and of unknown fields.
//!
//! One deserializer finds both. Nested generic deserializers would be instantiated for every type of every object,
//! which took most of the build time of this crate and enlarged the binary.

use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error as _, IntoDeserializer, MapAccess, SeqAccess,
    Unexpected, Visitor,
};
use serde_json::{Error, Value};

pub(super) struct Read<T> {
    /// The object, or the path and message of the error.
    pub(super) result: Result<T, (String, String)>,
    /// Paths of fields that the type does not have.
    pub(super) unknown: Vec<String>,
}

pub(super) fn read<T: DeserializeOwned>(value: &Value) -> Read<T> {
    let mut path_tracker = PathTracker::default();
    let result = T::deserialize(StrictReader { value, path_tracker: &mut path_tracker });
    Read {
        result: result.map_err(|error| (path_tracker.place(), error.to_string())),
        unknown: path_tracker.unknown,
    }
}

#[derive(Clone, Copy)]
enum Segment<'de> {
    Key(&'de str),
    Index(usize),
}

#[derive(Default)]
struct PathTracker<'de> {
    /// The path to the current value. It is not shortened after an error, so that it is the path of the error.
    segments: Vec<Segment<'de>>,
    unknown: Vec<String>,
}

impl PathTracker<'_> {
    fn place(&self) -> String {
        let mut text = String::new();
        for segment in &self.segments {
            match segment {
                Segment::Key(key) => {
                    if !text.is_empty() {
                        text.push('.');
                    }
                    text.push_str(key);
                }
                Segment::Index(index) => text.push_str(&format!("[{index}]")),
            }
        }
        text
    }
}

struct StrictReader<'w, 'de> {
    value: &'de Value,
    path_tracker: &'w mut PathTracker<'de>,
}

impl<'de> StrictReader<'_, 'de> {
    fn wrong(&self, visitor: &dyn serde::de::Expected) -> Error {
        let found = match self.value {
            Value::Null => Unexpected::Unit,
            Value::Bool(value) => Unexpected::Bool(*value),
            Value::String(text) => Unexpected::Str(text),
            Value::Array(_) => Unexpected::Seq,
            Value::Object(_) => Unexpected::Map,
            Value::Number(number) => match (number.as_u64(), number.as_i64()) {
                (Some(value), _) => Unexpected::Unsigned(value),
                (None, Some(value)) => Unexpected::Signed(value),
                (None, None) => Unexpected::Float(number.as_f64().unwrap_or(f64::NAN)),
            },
        };
        Error::invalid_type(found, visitor)
    }

    fn number<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Number(number) => number.deserialize_any(visitor),
            _ => Err(self.wrong(&visitor)),
        }
    }

    fn list<V: Visitor<'de>>(self, items: &'de [Value], visitor: V) -> Result<V::Value, Error> {
        let mut rest = Items { items: items.iter().enumerate(), path_tracker: self.path_tracker };
        let value = visitor.visit_seq(&mut rest)?;
        match rest.items.len() {
            0 => Ok(value),
            _ => Err(Error::invalid_length(items.len(), &"fewer items in the list")),
        }
    }

    fn fields<V: Visitor<'de>>(
        self,
        fields: &'de serde_json::Map<String, Value>,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_map(Fields { fields: fields.iter(), path_tracker: self.path_tracker, next: None })
    }
}

macro_rules! numbers {
    ($($method:ident)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            self.number(visitor)
        })*
    };
}

impl<'de> Deserializer<'de> for StrictReader<'_, 'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Number(number) => number.deserialize_any(visitor),
            Value::String(text) => visitor.visit_borrowed_str(text),
            Value::Array(items) => self.list(items, visitor),
            Value::Object(fields) => self.fields(fields, visitor),
        }
    }

    numbers! {
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128
        deserialize_f32 deserialize_f64
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Bool(value) => visitor.visit_bool(*value),
            _ => Err(self.wrong(&visitor)),
        }
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::String(text) => visitor.visit_borrowed_str(text),
            _ => Err(self.wrong(&visitor)),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::String(text) => visitor.visit_borrowed_str(text),
            Value::Array(items) => self.list(items, visitor),
            _ => Err(self.wrong(&visitor)),
        }
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_bytes(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Null => visitor.visit_unit(),
            _ => Err(self.wrong(&visitor)),
        }
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Array(items) => self.list(items, visitor),
            _ => Err(self.wrong(&visitor)),
        }
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _length: usize, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _length: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Object(fields) => self.fields(fields, visitor),
            _ => Err(self.wrong(&visitor)),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_map(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        // Kubernetes kinds have no enums other than enums of strings.
        self.value.deserialize_enum(name, variants, visitor)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let place = self.path_tracker.place();
        self.path_tracker.unknown.push(place);
        visitor.visit_unit()
    }
}

struct Items<'w, 'de> {
    items: std::iter::Enumerate<std::slice::Iter<'de, Value>>,
    path_tracker: &'w mut PathTracker<'de>,
}

impl<'de> SeqAccess<'de> for Items<'_, 'de> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        let Some((index, value)) = self.items.next() else { return Ok(None) };
        self.path_tracker.segments.push(Segment::Index(index));
        let read = seed.deserialize(StrictReader { value, path_tracker: self.path_tracker })?;
        self.path_tracker.segments.pop();
        Ok(Some(read))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.items.len())
    }
}

struct Fields<'w, 'de> {
    fields: serde_json::map::Iter<'de>,
    path_tracker: &'w mut PathTracker<'de>,
    next: Option<(&'de str, &'de Value)>,
}

impl<'de> MapAccess<'de> for Fields<'_, 'de> {
    type Error = Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        let Some((key, value)) = self.fields.next() else { return Ok(None) };
        self.next = Some((key, value));
        let reader: StrDeserializer<'_, Error> = key.as_str().into_deserializer();
        seed.deserialize(reader).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Error> {
        let Some((key, value)) = self.next.take() else { return Err(Error::custom("a value without a key")) };
        self.path_tracker.segments.push(Segment::Key(key));
        let read = seed.deserialize(StrictReader { value, path_tracker: self.path_tracker })?;
        self.path_tracker.segments.pop();
        Ok(read)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.fields.len())
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Pod, Secret};
    use karpenter_api::types::{EC2NodeClass, NodePool};
    use serde_json::json;

    use super::*;

    /// Deserializes with serde_json.
    fn with_serde_json<T: DeserializeOwned>(value: &Value) -> Result<T, String> {
        serde_json::from_value(value.clone()).map_err(|error| error.to_string())
    }

    #[test]
    fn objects_are_read_as_by_serde_json() {
        let pod = json!({"metadata": {"name": "a", "labels": {"x": "y"}}, "spec": {
            "containers": [{"name": "c", "ports": [{"containerPort": 80}], "resources": {"requests": {"cpu": "1"}},
                "livenessProbe": {"httpGet": {"port": "http"}}}, {"name": "d"}],
            "tolerations": [], "priority": 5, "hostNetwork": null}});
        assert_eq!(read::<Pod>(&pod).result.map_err(|error| error.1), with_serde_json(&pod));
        let secret = json!({"data": {"key": "dmFsdWU="}, "immutable": true});
        assert_eq!(read::<Secret>(&secret).result.map_err(|error| error.1), with_serde_json(&secret));
        let pool = json!({"metadata": {"name": "p"}, "spec": {"disruption": {"consolidationPolicy": "WhenEmpty"},
            "template": {"spec": {"expireAfter": "1h", "requirements": [],
                "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}}}}});
        let read_pool = read::<NodePool>(&pool);
        assert_eq!(read_pool.unknown, Vec::<String>::new());
        assert_eq!(
            serde_json::to_value(read_pool.result.expect("a pool")).expect("JSON"),
            serde_json::to_value(with_serde_json::<NodePool>(&pool).expect("a pool")).expect("JSON")
        );
        let class =
            json!({"spec": {"amiSelectorTerms": [{"alias": "al2023@latest"}], "kubelet": {"maxPods": 3}}});
        assert_eq!(
            serde_json::to_value(read::<EC2NodeClass>(&class).result.expect("a class")).expect("JSON"),
            serde_json::to_value(with_serde_json::<EC2NodeClass>(&class).expect("a class")).expect("JSON")
        );
    }

    #[test]
    fn errors_equal_those_of_serde_json_and_have_a_path() {
        let table = [
            (json!({"spec": {"containers": [{"name": "a"}, {"name": 3}]}}), "spec.containers[1].name"),
            (json!({"spec": {"containers": {}}}), "spec.containers"),
            (json!({"spec": {"priority": "high"}}), "spec.priority"),
            (json!({"spec": {"priority": 5_000_000_000_u64}}), "spec.priority"),
            (json!({"spec": {"priority": -1.5}}), "spec.priority"),
            (json!({"metadata": {"labels": {"a": {"b": "c"}}}}), "metadata.labels.a"),
            (json!({"metadata": {"labels": ["a"]}}), "metadata.labels"),
            (json!({"metadata": {"creationTimestamp": "yesterday"}}), "metadata.creationTimestamp"),
            (json!({"spec": {"hostNetwork": "no"}}), "spec.hostNetwork"),
            (json!({"spec": [1]}), "spec"),
            (json!([1]), ""),
        ];
        for (value, place) in table {
            let (found, words) = read::<Pod>(&value).result.expect_err(place);
            assert_eq!(found, place);
            assert_eq!(words, with_serde_json::<Pod>(&value).expect_err(place), "{place}");
        }
    }

    #[test]
    fn unknown_fields_are_reported() {
        let value = json!({"metadata": {"nme": "a", "labels": {"any": "thing"}}, "sepc": {"x": [1]},
            "spec": {"containers": [{"name": "c", "imagee": "x"}]}});
        let read = read::<Pod>(&value);
        assert!(read.result.is_ok());
        let mut unknown = read.unknown;
        unknown.sort();
        assert_eq!(unknown, ["metadata.nme", "sepc", "spec.containers[0].imagee"]);
    }
}
