//! Watches objects as raw JSON text, which each kind then deserializes.
//!
//! kube's watcher is generic. Instantiating it for every kind, with the code that deserializes the kind, would enlarge
//! the binary. For raw text it is instantiated once. Parsing the text a second time costs little compared to building
//! the object.

use std::borrow::Cow;

use futures::StreamExt;
use futures::stream::BoxStream;
use kube::api::{Api, ObjectMeta};
use kube::core::{ApiResource, DynamicResourceScope};
use kube::runtime::watcher::{Config, Error, Event};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, Resource};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::skip_managed_fields::WithoutManagedFields;

type Events = BoxStream<'static, Result<Event<RawObject>, Error>>;

/// A watch that begins with a streamed list.
pub(super) fn streamed(client: &Client, resource: &ApiResource) -> Events {
    watch(client, resource, Config::default().streaming_lists())
}

/// A watch that begins with a paged list.
pub(super) fn paged(client: &Client, resource: &ApiResource) -> Events {
    watch(client, resource, Config::default())
}

fn watch(client: &Client, resource: &ApiResource, config: Config) -> Events {
    let api = Api::<RawObject>::all_with(client.clone(), resource);
    watcher(api, config).default_backoff().boxed()
}

/// Deserializes the object of an event. An object that cannot be read is left out; other objects are not affected.
pub(super) fn read<R: DeserializeOwned, K>(
    event: Event<RawObject>,
    keep: &mut impl FnMut(R) -> K,
) -> Result<Event<K>, Error> {
    let mut kept = |raw: RawObject| {
        let object = serde_json::from_str::<WithoutManagedFields<R>>(raw.text.get());
        object.map(|WithoutManagedFields(object)| keep(object)).map_err(|error| raw.unreadable_error(&error))
    };
    Ok(match event {
        Event::Apply(raw) => Event::Apply(kept(raw)?),
        Event::Delete(raw) => Event::Delete(kept(raw)?),
        Event::Init => Event::Init,
        Event::InitApply(raw) => Event::InitApply(kept(raw)?),
        Event::InitDone => Event::InitDone,
    })
}

/// An object as raw JSON, with the metadata that a watch and an error message need. In a watch event, the object must
/// come after the event type (every API server sends it so), because serde cannot keep buffered values as raw text.
#[derive(Debug, Clone)]
pub(super) struct RawObject {
    meta: ObjectMeta,
    text: Box<RawValue>,
}

impl RawObject {
    fn unreadable_error(&self, error: &serde_json::Error) -> Error {
        let name = self.meta.name.as_deref().unwrap_or_default();
        let name = match &self.meta.namespace {
            Some(namespace) => format!("{namespace}/{name}"),
            None => name.to_owned(),
        };
        let error = serde_json::Error::custom(format!("{name} cannot be read and is left out: {error}"));
        Error::WatchFailed(kube::Error::SerdeError(error))
    }
}

#[derive(Deserialize)]
struct Head {
    #[serde(default)]
    metadata: Option<Name>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Name {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    namespace: Option<String>,
    #[serde(default)]
    resource_version: Option<String>,
}

impl<'de> Deserialize<'de> for RawObject {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(source)?;
        let head: Head = serde_json::from_str(text.get()).map_err(D::Error::custom)?;
        let Name { name, namespace, resource_version } = head.metadata.unwrap_or_default();
        let meta = ObjectMeta { name, namespace, resource_version, ..ObjectMeta::default() };
        Ok(Self { meta, text })
    }
}

impl Resource for RawObject {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(of: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&of.kind)
    }

    fn group(of: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&of.group)
    }

    fn version(of: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&of.version)
    }

    fn api_version(of: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&of.api_version)
    }

    fn plural(of: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&of.plural)
    }

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.meta
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node;
    use kube::api::{ObjectList, WatchEvent};
    use serde_json::json;

    use super::*;

    fn node(version: &str) -> serde_json::Value {
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "one", "resourceVersion": version}})
    }

    #[test]
    fn raw_events_and_lists_deserialize_to_the_kind() {
        // The event type comes before the object, as API servers send it.
        let line = format!(r#"{{"type": "ADDED", "object": {}}}"#, node("7"));
        let Ok(WatchEvent::Added(raw)) = serde_json::from_str::<WatchEvent<RawObject>>(&line) else {
            panic!("{line}")
        };
        assert_eq!(raw.meta.resource_version.as_deref(), Some("7"));
        let list = json!({"apiVersion": "v1", "kind": "NodeList", "metadata": {}, "items": [node("8")]});
        let list: ObjectList<RawObject> = serde_json::from_str(&list.to_string()).expect("a list");
        let [raw] = &list.items[..] else { panic!("{list:?}") };
        let read = read(Event::Apply(raw.clone()), &mut |node: Node| node).expect("a node");
        let expected = serde_json::from_value::<Node>(node("8")).expect("a node");
        assert!(matches!(read, Event::Apply(node) if node == expected));
    }

    #[test]
    fn unreadable_object_is_named_in_the_error() {
        let mut wrong = node("9");
        wrong["spec"] = json!({"taints": 3});
        let raw: RawObject = serde_json::from_str(&wrong.to_string()).expect("an object");
        let error = read(Event::Apply(raw), &mut |node: Node| node).expect_err("no node");
        let message = std::error::Error::source(&error).expect("a cause").to_string();
        assert!(message.contains("one cannot be read and is left out: invalid type"), "{message}");
    }
}
