//! Publishes events as core `v1` Events. An event with the same object and reason is not repeated for a while, even if
//! its message differs, because messages contain numbers that change often. To publish several events with the same
//! object and reason, callers set different values with [`ObjectEvent::dedupe_by`]. Before events are written, they
//! pass the same correlation as in client-go (module `correlator`). Upstream: pkg/events/recorder.go.

mod correlator;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference, Pod as RawPod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use karpenter_runtime::clock::{Clock, since, whole_seconds};
use karpenter_state::pod::Pod;
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Client, Resource};
use serde_json::json;

use self::correlator::{Correlator, Observed};

/// The source component of the events, as in upstream.
pub const COMPONENT: &str = "karpenter";
/// For how long an event is not published again, unless the event sets another period.
pub const REPEAT_AFTER: Duration = Duration::from_secs(120);
/// When this number of published events is recorded, the older half of the records is removed.
const PUBLISHED_MAX: usize = 20_000;
/// Longer messages are truncated, because `events.k8s.io` rejects them.
const MESSAGE_BYTES_MAX: usize = 1024;

/// An event about an object.
#[derive(Debug, Clone, PartialEq)]
pub struct ObjectEvent {
    pub involved_object: ObjectReference,
    pub is_warning: bool,
    pub reason: Cow<'static, str>,
    pub message: String,
    pub repeat_after: Duration,
    /// The value set with [`ObjectEvent::dedupe_by`]: events with the same object and reason but different
    /// discriminators are different events.
    pub discriminator: String,
}

impl ObjectEvent {
    pub fn normal<K: Resource<DynamicType = ()>>(
        involved_object: &K,
        reason: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            involved_object: involved_object.object_ref(&()),
            is_warning: false,
            reason: reason.into(),
            message: message.into(),
            repeat_after: REPEAT_AFTER,
            discriminator: String::new(),
        }
    }

    pub fn warning<K: Resource<DynamicType = ()>>(
        involved_object: &K,
        reason: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) -> Self {
        Self { is_warning: true, ..Self::normal(involved_object, reason, message) }
    }

    pub fn normal_of_pod(
        pod: &Pod,
        reason: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) -> Self {
        // Only the metadata of the pod is used.
        let metadata = ObjectMeta {
            name: Some(pod.name.to_string()),
            namespace: Some(pod.namespace().to_owned()),
            uid: Some(pod.uid.to_string()),
            ..ObjectMeta::default()
        };
        Self::normal(&RawPod { metadata, ..RawPod::default() }, reason, message)
    }

    pub fn warning_of_pod(
        pod: &Pod,
        reason: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) -> Self {
        Self { is_warning: true, ..Self::normal_of_pod(pod, reason, message) }
    }

    /// Publishes this event even if another event with the same object and reason, but another discriminator, was
    /// published recently.
    pub fn dedupe_by(mut self, discriminator: impl Into<String>) -> Self {
        self.discriminator = discriminator.into();
        self
    }

    pub fn repeat_after(mut self, duration: Duration) -> Self {
        self.repeat_after = duration;
        self
    }
}

type Key = (String, Cow<'static, str>, String);

/// Publishes events through the API server. Clones share the record of published events.
#[derive(Clone)]
pub struct Recorder {
    client: Client,
    clock: Clock,
    published_at: Arc<Mutex<BTreeMap<Key, Timestamp>>>,
    correlator: Arc<Mutex<Correlator>>,
    /// The number in the name of the last event.
    last_number: Arc<Mutex<i128>>,
    /// The status codes for which a rejected event was logged.
    logged_status_codes: Arc<Mutex<BTreeSet<u16>>>,
}

impl Recorder {
    pub fn new(client: Client, clock: Clock) -> Self {
        Self {
            client,
            clock,
            published_at: Arc::default(),
            correlator: Arc::default(),
            last_number: Arc::default(),
            logged_status_codes: Arc::default(),
        }
    }

    /// Publishes the event unless the same event was published recently. If the write fails, the event is lost.
    pub async fn publish(&self, mut event: ObjectEvent) {
        if !self.begin(&event) {
            return;
        }
        event.message.truncate(event.message.floor_char_boundary(MESSAGE_BYTES_MAX));
        let name = format!(
            "{}.{:x}",
            event.involved_object.name.as_deref().unwrap_or(COMPONENT),
            self.next_number()
        );
        let now = self.clock.now();
        let observed = locked(&self.correlator).correlate(&event, name, now);
        let Some(observed) = observed else { return };
        // Events about cluster-scoped objects are in the default namespace.
        let namespace = event.involved_object.namespace.as_deref().unwrap_or("default");
        let events: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        let written = match observed.count {
            1 => self.create(&events, &event, &observed).await,
            _ => match self.count_up(&events, &observed).await {
                Err(kube::Error::Api(status)) if status.is_not_found() => {
                    self.create(&events, &event, &observed).await
                }
                written => written,
            },
        };
        if let Err(error) = written {
            self.log_rejection(&error);
        }
    }

    async fn count_up(&self, events: &Api<Event>, observed: &Observed) -> kube::Result<()> {
        let patch = json!({
            "count": observed.count, "lastTimestamp": self.clock.time(), "message": observed.message,
        });
        events.patch(&observed.name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
    }

    async fn create(
        &self,
        events: &Api<Event>,
        event: &ObjectEvent,
        observed: &Observed,
    ) -> kube::Result<()> {
        let event = Event {
            metadata: ObjectMeta { name: Some(observed.name.clone()), ..ObjectMeta::default() },
            type_: Some(if event.is_warning { "Warning" } else { "Normal" }.to_owned()),
            reason: Some(event.reason.clone().into_owned()),
            message: Some(observed.message.clone()),
            source: Some(EventSource { component: Some(COMPONENT.to_owned()), host: None }),
            first_timestamp: Some(Time(whole_seconds(observed.first))),
            last_timestamp: Some(self.clock.time()),
            count: Some(observed.count),
            involved_object: event.involved_object.clone(),
            reporting_component: Some(COMPONENT.to_owned()),
            ..Event::default()
        };
        events.create(&PostParams::default(), &event).await.map(drop)
    }

    /// Logs a rejected event, but each status code only once, because events with the same code are usually rejected
    /// for the same cause.
    fn log_rejection(&self, error: &kube::Error) {
        let kube::Error::Api(status) = error else { return };
        let is_harmless = status.is_already_exists() || status.message.contains("being terminated");
        if !is_harmless && locked(&self.logged_status_codes).insert(status.code) {
            tracing::error!(%error, "server rejected event, will not retry");
        }
    }

    /// The number for the name of the next event: the time in nanoseconds, or one more than the last number if that is
    /// greater.
    fn next_number(&self) -> i128 {
        let mut last = locked(&self.last_number);
        *last = (*last + 1).max(self.clock.now().as_nanosecond());
        *last
    }

    /// Whether [`Self::publish`] would write the event now, because it was not published recently.
    pub fn is_due(&self, event: &ObjectEvent) -> bool {
        let now = self.clock.now();
        locked(&self.published_at).get(&key(event)).is_none_or(|at| since(now, *at) >= event.repeat_after)
    }

    /// Records the event as published. Returns `false` if it was published recently.
    fn begin(&self, event: &ObjectEvent) -> bool {
        let key = key(event);
        let now = self.clock.now();
        let mut published_at = locked(&self.published_at);
        if published_at.get(&key).is_some_and(|at| since(now, *at) < event.repeat_after) {
            return false;
        }
        if published_at.len() >= PUBLISHED_MAX {
            let mut ages: Vec<Timestamp> = published_at.values().copied().collect();
            ages.sort_unstable();
            let middle = ages[ages.len() / 2];
            published_at.retain(|_, at| *at > middle);
        }
        published_at.insert(key, now);
        true
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The key by which events are compared: events with the same key are repetitions of one event.
fn key(event: &ObjectEvent) -> Key {
    let involved_object =
        event.involved_object.uid.clone().or_else(|| event.involved_object.name.clone()).unwrap_or_default();
    let mut discriminator = event.discriminator.clone();
    if is_message_part_of_key(event) {
        discriminator.push_str(&event.message);
    }
    (involved_object, event.reason.clone(), discriminator)
}

/// Whether the message is part of the event's key. It is for events whose message contains no numbers that change by
/// themselves: why a node is disrupted, for which reasons a NodePool's budgets block disruption, and which annotation
/// or budget is invalid.
fn is_message_part_of_key(event: &ObjectEvent) -> bool {
    match &*event.reason {
        "DisruptionLaunching" | "DisruptionTerminating" => true,
        "InvalidConsolidationAnnotation" | "InvalidDisruptionBudget" | "InvalidHostnameSpreadShare" => true,
        "DisruptionBlocked" => event.involved_object.kind.as_deref() == Some("NodePool"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use karpenter_apiserver::{ApiServer, Config};
    use kube::api::ListParams;

    fn pool() -> karpenter_api::types::NodePool {
        karpenter_api::types::NodePool {
            metadata: ObjectMeta { name: Some("general".to_owned()), ..ObjectMeta::default() },
            ..Default::default()
        }
    }

    fn world() -> (Client, Recorder) {
        let client = Client::new(ApiServer::new(Config::default()), "default");
        let clock = Clock::starting_at("2026-01-01T12:00:00Z".parse().expect("a time"));
        (client.clone(), Recorder::new(client, clock))
    }

    async fn listed(client: &Client) -> Vec<Event> {
        let events: Api<Event> = Api::all(client.clone());
        events.list(&ListParams::default()).await.expect("events").items
    }

    /// The messages and counts of all events, sorted.
    async fn messages(client: &Client) -> Vec<(String, i32)> {
        let line = |event: Event| (event.message.unwrap_or_default(), event.count.unwrap_or_default());
        let mut found: Vec<(String, i32)> = listed(client).await.into_iter().map(line).collect();
        found.sort();
        found
    }

    fn expected(messages: &[(&str, i32)]) -> Vec<(String, i32)> {
        messages.iter().map(|(message, count)| ((*message).to_owned(), *count)).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn events_are_core_events_with_source_times_and_count() {
        let (client, recorder) = world();
        let pool = pool();
        recorder.publish(ObjectEvent::warning(&pool, "Reason", "words")).await;
        tokio::time::advance(Duration::from_secs(150)).await;
        recorder.publish(ObjectEvent::warning(&pool, "Reason", "words")).await;
        let events = listed(&client).await;
        assert_eq!(events.len(), 1, "{events:#?}");
        let event = serde_json::to_value(&events[0]).expect("JSON");
        for (pointer, value) in [
            ("/apiVersion", json!("v1")),
            ("/metadata/namespace", json!("default")),
            ("/involvedObject/kind", json!("NodePool")),
            ("/involvedObject/name", json!("general")),
            ("/type", json!("Warning")),
            ("/reason", json!("Reason")),
            ("/message", json!("words")),
            ("/source", json!({"component": "karpenter"})),
            ("/reportingComponent", json!("karpenter")),
            ("/firstTimestamp", json!("2026-01-01T12:00:00Z")),
            ("/lastTimestamp", json!("2026-01-01T12:02:30Z")),
            ("/count", json!(2)),
        ] {
            assert_eq!(event.pointer(pointer), Some(&value), "{pointer} of {event:#}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn reason_is_published_once_in_two_minutes_and_same_message_is_counted() {
        let (client, recorder) = world();
        let pool = pool();
        let publish =
            |message: &'static str| recorder.publish(ObjectEvent::warning(&pool, "Reason", message));
        publish("7 of 9").await;
        publish("7 of 9").await;
        publish("6 of 9").await;
        assert_eq!(
            messages(&client).await,
            expected(&[("7 of 9", 1)]),
            "a changed number alone is not published"
        );
        recorder.publish(ObjectEvent::warning(&pool, "Another", "6 of 9")).await;
        recorder.publish(ObjectEvent::warning(&pool, "Reason", "again").dedupe_by("2")).await;
        assert_eq!(messages(&client).await, expected(&[("6 of 9", 1), ("7 of 9", 1), ("again", 1)]));
        for message in ["7 of 9", "7 of 9", "5 of 9"] {
            tokio::time::advance(Duration::from_secs(121)).await;
            publish(message).await;
        }
        let all = [("5 of 9", 1), ("6 of 9", 1), ("7 of 9", 3), ("again", 1)];
        assert_eq!(messages(&client).await, expected(&all));
    }

    #[tokio::test(start_paused = true)]
    async fn event_that_is_gone_is_created_again_with_its_count() {
        let (client, recorder) = world();
        let pool = pool();
        recorder.publish(ObjectEvent::warning(&pool, "Reason", "words")).await;
        let events: Api<Event> = Api::namespaced(client.clone(), "default");
        events.delete_collection(&Default::default(), &ListParams::default()).await.expect("deleted");
        tokio::time::advance(Duration::from_secs(3600)).await;
        recorder.publish(ObjectEvent::warning(&pool, "Reason", "words")).await;
        assert_eq!(messages(&client).await, expected(&[("words", 2)]));
    }

    #[tokio::test(start_paused = true)]
    async fn long_messages_are_cut_between_characters() {
        let (client, recorder) = world();
        let pool = pool();
        for (discriminator, text) in
            ["x".repeat(2000), "ü".repeat(600), "€".repeat(400)].into_iter().enumerate()
        {
            recorder
                .publish(ObjectEvent::normal(&pool, "Reason", text).dedupe_by(discriminator.to_string()))
                .await;
        }
        let lengths: Vec<usize> = messages(&client).await.iter().map(|(message, _)| message.len()).collect();
        assert_eq!(lengths, [1024, 1024, 1023]);
    }

    #[test]
    fn budget_events_of_nodepools_are_distinguished_by_message() {
        let blocked = |words: &str| ObjectEvent::normal(&pool(), "DisruptionBlocked", words);
        assert_ne!(key(&blocked("Empty")), key(&blocked("Drifted")));
        let node = k8s_openapi::api::core::v1::Node::default();
        let blocked = |words: &str| ObjectEvent::normal(&node, "DisruptionBlocked", words);
        assert_eq!(key(&blocked("pod a")), key(&blocked("pod b")));
    }
}
