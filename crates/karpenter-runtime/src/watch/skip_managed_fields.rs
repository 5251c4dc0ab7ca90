//! Deserializes objects without `metadata.managedFields`, which are often half of an object and which no controller
//! reads. They are skipped in the text, so that no tree of maps is built for them.

use std::borrow::Cow;
use std::fmt;

use kube::Resource;
use kube::api::ObjectMeta;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize, forward_to_deserialize_any};

/// An object without `managedFields`. Use it as the type of an `Api` instead of the kind itself.
#[derive(Debug, Clone)]
pub struct WithoutManagedFields<K>(pub K);

impl<K: Resource> Resource for WithoutManagedFields<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(of: &Self::DynamicType) -> Cow<'_, str> {
        K::kind(of)
    }

    fn group(of: &Self::DynamicType) -> Cow<'_, str> {
        K::group(of)
    }

    fn version(of: &Self::DynamicType) -> Cow<'_, str> {
        K::version(of)
    }

    fn api_version(of: &Self::DynamicType) -> Cow<'_, str> {
        K::api_version(of)
    }

    fn plural(of: &Self::DynamicType) -> Cow<'_, str> {
        K::plural(of)
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.meta()
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.meta_mut()
    }
}

impl<'de, K: Deserialize<'de>> Deserialize<'de> for WithoutManagedFields<K> {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        K::deserialize(SkippingDeserializer { inner: source, level: Level::Object }).map(WithoutManagedFields)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Object,
    Metadata,
}

impl Level {
    fn skips(self, key: &str) -> bool {
        self == Self::Metadata && key == "managedFields"
    }

    /// Whether the value of this key may contain a key to skip.
    fn may_contain_skipped(self, key: &str) -> bool {
        self == Self::Object && key == "metadata"
    }
}

/// Deserializes a map without the keys that are to be skipped at its level of nesting. Other values are read unchanged.
struct SkippingDeserializer<D> {
    inner: D,
    level: Level,
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for SkippingDeserializer<D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_any(SkippingDeserializer { inner: visitor, level: self.level })
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_map(SkippingDeserializer { inner: visitor, level: self.level })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.inner.deserialize_struct(
            name,
            fields,
            SkippingDeserializer { inner: visitor, level: self.level },
        )
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_option(SkippingDeserializer { inner: visitor, level: self.level })
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        newtype_struct seq tuple tuple_struct enum identifier ignored_any
    }
}

impl<'de, V: Visitor<'de>> Visitor<'de> for SkippingDeserializer<V> {
    type Value = V::Value;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(out)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.inner.visit_map(MapEntries { inner: map, level: self.level, may_contain_skipped: false })
    }

    fn visit_some<D: Deserializer<'de>>(self, source: D) -> Result<V::Value, D::Error> {
        self.inner.visit_some(SkippingDeserializer { inner: source, level: self.level })
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_none()
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_unit()
    }
}

struct MapEntries<A> {
    inner: A,
    level: Level,
    /// The next value may contain something to skip.
    may_contain_skipped: bool,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for MapEntries<A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        while let Some(Key(key)) = self.inner.next_key::<Key<'de>>()? {
            if self.level.skips(&key) {
                self.inner.next_value::<IgnoredAny>()?;
                continue;
            }
            self.may_contain_skipped = self.level.may_contain_skipped(&key);
            return seed.deserialize(key.into_deserializer()).map(Some);
        }
        Ok(None)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        if self.may_contain_skipped {
            self.inner.next_value_seed(SkippingDeserializer { inner: seed, level: Level::Metadata })
        } else {
            self.inner.next_value_seed(seed)
        }
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for SkippingDeserializer<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<S::Value, D::Error> {
        self.inner.deserialize(SkippingDeserializer { inner: source, level: self.level })
    }
}

/// A key, borrowed where possible.
struct Key<'de>(Cow<'de, str>);

impl<'de> Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        struct Text;

        impl<'de> Visitor<'de> for Text {
            type Value = Key<'de>;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a key")
            }

            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Borrowed(text)))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Owned(text.to_owned())))
            }
        }

        source.deserialize_str(Text)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use kube::api::DynamicObject;
    use serde_json::json;

    use super::*;

    fn text() -> String {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "one", "labels": {"managedFields": "a label of that name"},
                "managedFields": [{"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:spec": {"f:x": {}}}}],
                "uid": "1",
            },
            "spec": {"containers": [{"name": "c", "env": [{"name": "metadata", "value": "managedFields"}]}]},
            "status": {"phase": "Running"},
        })
        .to_string()
    }

    #[test]
    fn object_is_read_without_managed_fields() {
        let mut whole: Pod = serde_json::from_str(&text()).expect("a pod");
        assert!(whole.metadata.managed_fields.is_some());
        whole.metadata.managed_fields = None;
        let WithoutManagedFields(lean) =
            serde_json::from_str::<WithoutManagedFields<Pod>>(&text()).expect("a pod");
        assert_eq!(lean, whole);
        let WithoutManagedFields(lean) =
            serde_json::from_slice::<WithoutManagedFields<Pod>>(text().as_bytes()).expect("a pod");
        assert_eq!(lean, whole);
        let value = serde_json::from_str(&text()).expect("JSON");
        let WithoutManagedFields(lean) =
            serde_json::from_value::<WithoutManagedFields<Pod>>(value).expect("a pod");
        assert_eq!(lean, whole);
    }

    #[test]
    fn dynamic_objects_are_read_without_managed_fields() {
        let WithoutManagedFields(lean) =
            serde_json::from_str::<WithoutManagedFields<DynamicObject>>(&text()).expect("an object");
        assert_eq!(lean.metadata.managed_fields, None);
        assert_eq!(lean.metadata.uid.as_deref(), Some("1"));
        assert_eq!(lean.data["status"]["phase"], "Running");
        assert_eq!(lean.types.map(|types| types.kind), Some("Pod".to_owned()));
    }

    #[test]
    fn errors_are_the_same_as_without_skipping() {
        for wrong in ["3", "{\"metadata\": 3}", "{\"metadata\": {\"name\": 3}}", "[]", "{\"metadata\": {"] {
            let expected = serde_json::from_str::<Pod>(wrong).expect_err(wrong).to_string();
            let found =
                serde_json::from_str::<WithoutManagedFields<Pod>>(wrong).expect_err(wrong).to_string();
            assert_eq!(found, expected, "{wrong}");
        }
        let WithoutManagedFields(empty) =
            serde_json::from_str::<WithoutManagedFields<Pod>>("{\"metadata\": null}").expect("as always");
        assert_eq!(empty, Pod::default());
    }
}
