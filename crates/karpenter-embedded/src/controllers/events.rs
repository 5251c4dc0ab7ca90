//! Records Event objects.
//!
//! A repeated event increments its count instead of creating another object. A lost event is not an error: nothing
//! depends on events.

use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use karpenter_model::stdx::fnv32a;
use karpenter_runtime::object::{is_already_exists, name_of, namespace_of, uid_of};
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;

use super::context::{Context, Kind};

/// The content of an event.
#[derive(Debug, Clone)]
pub struct ObjectEvent {
    kind: &'static str,
    reason: &'static str,
    message: String,
    component: &'static str,
}

impl ObjectEvent {
    pub fn normal(reason: &'static str, message: String, component: &'static str) -> Self {
        Self { kind: "Normal", reason, message, component }
    }

    pub fn warning(reason: &'static str, message: String, component: &'static str) -> Self {
        Self { kind: "Warning", reason, message, component }
    }
}

/// Records an event about an object.
pub async fn record<K: Kind>(context: &Context, about: &K, event: ObjectEvent) {
    let namespace = match namespace_of(about) {
        "" => "default",
        namespace => namespace,
    };
    let ObjectEvent { kind, reason, message, component } = event;
    let identity = format!("{}/{kind}/{reason}/{message}/{component}", uid_of(about));
    let name = format!("{}.{:08x}", name_of(about), fnv32a(identity.as_bytes()));
    let now = context.clock.time();
    let api: Api<Event> = Api::namespaced(context.client.clone(), namespace);
    let event = Event {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            namespace: Some(namespace.to_string()),
            ..ObjectMeta::default()
        },
        involved_object: ObjectReference {
            api_version: Some(K::api_version(&()).into_owned()),
            kind: Some(K::kind(&()).into_owned()),
            name: about.meta().name.clone(),
            namespace: about.meta().namespace.clone(),
            uid: about.meta().uid.clone(),
            resource_version: about.meta().resource_version.clone(),
            field_path: None,
        },
        type_: Some(kind.into()),
        reason: Some(reason.into()),
        message: Some(message),
        source: Some(EventSource { component: Some(component.into()), host: None }),
        reporting_component: Some(component.into()),
        first_timestamp: Some(now.clone()),
        last_timestamp: Some(now.clone()),
        count: Some(1),
        ..Event::default()
    };
    match api.create(&PostParams::default(), &event).await {
        Err(error) if is_already_exists(&error) => {
            let Ok(known) = api.get(&name).await else { return };
            let count = known.count.unwrap_or(1).saturating_add(1);
            let patch = Patch::Merge(json!({"count": count, "lastTimestamp": now}));
            // If the event cannot be written, it is lost; nothing depends on events.
            let _ = api.patch(&name, &PatchParams::default(), &patch).await;
        }
        _ => {}
    }
}
