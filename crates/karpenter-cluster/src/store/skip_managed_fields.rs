//! Objects read without `metadata.managedFields`: who wrote which field is often half of an object, is a tree of maps
//! when it is read, and nobody here looks at it. It is skipped where it stands in the text, so that it is never built.

use std::borrow::Cow;
use std::fmt;

use kube::Resource;
use kube::api::ObjectMeta;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize, forward_to_deserialize_any};

/// An object of the kind as it is kept here. To be asked for in the place of the kind itself.
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
        K::deserialize(Within { inner: source, level: Level::Object }).map(WithoutManagedFields)
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

    /// Whether there may be something to skip in the value under a key.
    fn leads_on(self, key: &str) -> bool {
        self == Self::Object && key == "metadata"
    }
}

/// Reads a map and leaves out what its level skips. Whatever is no map is read as it stands.
struct Within<D> {
    inner: D,
    level: Level,
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Within<D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_any(Within { inner: visitor, level: self.level })
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_map(Within { inner: visitor, level: self.level })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.inner.deserialize_struct(name, fields, Within { inner: visitor, level: self.level })
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_option(Within { inner: visitor, level: self.level })
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        newtype_struct seq tuple tuple_struct enum identifier ignored_any
    }
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Within<V> {
    type Value = V::Value;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(out)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.inner.visit_map(MapEntries { inner: map, level: self.level, leads_on: false })
    }

    fn visit_some<D: Deserializer<'de>>(self, source: D) -> Result<V::Value, D::Error> {
        self.inner.visit_some(Within { inner: source, level: self.level })
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
    /// The value that comes next may hold something to skip.
    leads_on: bool,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for MapEntries<A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        while let Some(Key(key)) = self.inner.next_key::<Key<'de>>()? {
            if self.level.skips(&key) {
                self.inner.next_value::<IgnoredAny>()?;
                continue;
            }
            self.leads_on = self.level.leads_on(&key);
            return seed.deserialize(key.into_deserializer()).map(Some);
        }
        Ok(None)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        if self.leads_on {
            self.inner.next_value_seed(Within { inner: seed, level: Level::Metadata })
        } else {
            self.inner.next_value_seed(seed)
        }
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Within<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<S::Value, D::Error> {
        self.inner.deserialize(Within { inner: source, level: self.level })
    }
}

/// A key, copied only where it cannot be pointed at.
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
    fn an_object_is_read_as_always_but_for_who_wrote_it() {
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
    fn kinds_without_a_type_too() {
        let WithoutManagedFields(lean) =
            serde_json::from_str::<WithoutManagedFields<DynamicObject>>(&text()).expect("an object");
        assert_eq!(lean.metadata.managed_fields, None);
        assert_eq!(lean.metadata.uid.as_deref(), Some("1"));
        assert_eq!(lean.data["status"]["phase"], "Running");
        assert_eq!(lean.types.map(|types| types.kind), Some("Pod".to_owned()));
    }

    #[test]
    fn what_is_wrong_is_said_as_always() {
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
