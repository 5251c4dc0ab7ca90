//! Events on objects, as core `v1` Events. The same reason on the same object is not repeated for a while, whatever the
//! message says by then, because messages carry numbers that change all the time. A caller that separates occasions names
//! them ([`ObjectEvent::dedupe_by`]). What is left goes through client-go's correlation before it is written.

mod correlator;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference, Pod as RawPod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use karpenter_cluster::clock::{Clock, since, whole_seconds};
use karpenter_state::pod::Pod;
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Client, Resource};
use serde_json::json;

use self::correlator::{Correlator, Observed};

/// The source that upstream's events name.
pub const COMPONENT: &str = "karpenter";
/// How long the same event stays untold, unless it says otherwise.
pub const REPEAT_AFTER: Duration = Duration::from_secs(120);
/// More remembered events than this are forgotten, oldest first.
const REMEMBERED_MAX: usize = 20_000;
/// Longer messages are cut: `events.k8s.io` does not take them, and people do not read them.
const MESSAGE_BYTES_MAX: usize = 1024;

/// Something worth telling about an object.
#[derive(Debug, Clone, PartialEq)]
pub struct ObjectEvent {
    pub about: ObjectReference,
    pub is_warning: bool,
    pub reason: Cow<'static, str>,
    pub message: String,
    pub repeat_after: Duration,
    /// Notices with other values here are not the same, although they have the reason and the object in common.
    pub episode: String,
}

impl ObjectEvent {
    pub fn normal<K: Resource<DynamicType = ()>>(
        about: &K,
        reason: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            about: about.object_ref(&()),
            is_warning: false,
            reason: reason.into(),
            message: message.into(),
            repeat_after: REPEAT_AFTER,
            episode: String::new(),
        }
    }

    pub fn warning<K: Resource<DynamicType = ()>>(
        about: &K,
        reason: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) -> Self {
        Self { is_warning: true, ..Self::normal(about, reason, message) }
    }

    pub fn normal_of_pod(
        pod: &Pod,
        reason: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) -> Self {
        // What is kept of a pod is no object of the API.
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

    /// Tells it from the same reason on another occasion.
    pub fn dedupe_by(mut self, episode: impl Into<String>) -> Self {
        self.episode = episode.into();
        self
    }

    pub fn repeat_after(mut self, duration: Duration) -> Self {
        self.repeat_after = duration;
        self
    }
}

type Key = (String, Cow<'static, str>, String);

/// Sends notices to the API server. Clones share what was published.
#[derive(Clone)]
pub struct Recorder {
    client: Client,
    clock: Clock,
    told: Arc<Mutex<BTreeMap<Key, Timestamp>>>,
    correlator: Arc<Mutex<Correlator>>,
    /// The number in the last event's name.
    last_number: Arc<Mutex<i128>>,
    /// Status codes of refusals that were logged.
    logged_codes: Arc<Mutex<BTreeSet<u16>>>,
}

impl Recorder {
    pub fn new(client: Client, clock: Clock) -> Self {
        Self {
            client,
            clock,
            told: Arc::default(),
            correlator: Arc::default(),
            last_number: Arc::default(),
            logged_codes: Arc::default(),
        }
    }

    /// Writes it, unless it was published lately. A failure is not worth failing for: the event is lost.
    pub async fn publish(&self, mut notice: ObjectEvent) {
        if !self.begin(&notice) {
            return;
        }
        notice.message.truncate(notice.message.floor_char_boundary(MESSAGE_BYTES_MAX));
        let name = format!("{}.{:x}", notice.about.name.as_deref().unwrap_or(COMPONENT), self.next_number());
        let now = self.clock.now();
        let observed = locked(&self.correlator).correlate(&notice, name, now);
        let Some(observed) = observed else { return };
        // What belongs to no namespace has its events in the default one.
        let namespace = notice.about.namespace.as_deref().unwrap_or("default");
        let events: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        let written = match observed.count {
            1 => self.create(&events, &notice, &observed).await,
            _ => match self.count_up(&events, &observed).await {
                Err(kube::Error::Api(status)) if status.is_not_found() => {
                    self.create(&events, &notice, &observed).await
                }
                written => written,
            },
        };
        if let Err(error) = written {
            self.log_refusal(&error);
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
        notice: &ObjectEvent,
        observed: &Observed,
    ) -> kube::Result<()> {
        let event = Event {
            metadata: ObjectMeta { name: Some(observed.name.clone()), ..ObjectMeta::default() },
            type_: Some(if notice.is_warning { "Warning" } else { "Normal" }.to_owned()),
            reason: Some(notice.reason.clone().into_owned()),
            message: Some(observed.message.clone()),
            source: Some(EventSource { component: Some(COMPONENT.to_owned()), host: None }),
            first_timestamp: Some(Time(whole_seconds(observed.first))),
            last_timestamp: Some(self.clock.time()),
            count: Some(observed.count),
            involved_object: notice.about.clone(),
            reporting_component: Some(COMPONENT.to_owned()),
            ..Event::default()
        };
        events.create(&PostParams::default(), &event).await.map(drop)
    }

    /// Once for each status: what refuses one event refuses them all.
    fn log_refusal(&self, error: &kube::Error) {
        let kube::Error::Api(status) = error else { return };
        let is_harmless = status.is_already_exists() || status.message.contains("being terminated");
        if !is_harmless && locked(&self.logged_codes).insert(status.code) {
            tracing::error!(%error, "server rejected event, events like it are dropped");
        }
    }

    /// Nanoseconds, or one more than last time if no time has passed.
    fn next_number(&self) -> i128 {
        let mut last = locked(&self.last_number);
        *last = (*last + 1).max(self.clock.now().as_nanosecond());
        *last
    }

    /// Whether it would be published now.
    pub fn is_due(&self, notice: &ObjectEvent) -> bool {
        let now = self.clock.now();
        locked(&self.told).get(&key(notice)).is_none_or(|at| since(now, *at) >= notice.repeat_after)
    }

    /// Whether it was not published lately; from now on it was.
    fn begin(&self, notice: &ObjectEvent) -> bool {
        let key = key(notice);
        let now = self.clock.now();
        let mut told = locked(&self.told);
        if told.get(&key).is_some_and(|at| since(now, *at) < notice.repeat_after) {
            return false;
        }
        if told.len() >= REMEMBERED_MAX {
            let mut ages: Vec<Timestamp> = told.values().copied().collect();
            ages.sort_unstable();
            let middle = ages[ages.len() / 2];
            told.retain(|_, at| *at > middle);
        }
        told.insert(key, now);
        true
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What makes a notice the same as another.
fn key(notice: &ObjectEvent) -> Key {
    let about = notice.about.uid.clone().or_else(|| notice.about.name.clone()).unwrap_or_default();
    let mut occasion = notice.episode.clone();
    if is_message_part_of_key(notice) {
        occasion.push_str(&notice.message);
    }
    (about, notice.reason.clone(), occasion)
}

/// Whether the words name what it is about and nothing that changes by itself: why a node is disrupted, what the budgets
/// of a pool hold up, which annotation or budget is wrong.
fn is_message_part_of_key(notice: &ObjectEvent) -> bool {
    match &*notice.reason {
        "DisruptionLaunching" | "DisruptionTerminating" => true,
        "InvalidConsolidationAnnotation" | "InvalidDisruptionBudget" | "InvalidHostnameSpreadShare" => true,
        "DisruptionBlocked" => notice.about.kind.as_deref() == Some("NodePool"),
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

    /// Messages and counts, in order.
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
        assert_eq!(messages(&client).await, expected(&[("7 of 9", 1)]), "numbers that change are no news");
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
        for (episode, text) in ["x".repeat(2000), "ü".repeat(600), "€".repeat(400)].into_iter().enumerate()
        {
            recorder.publish(ObjectEvent::normal(&pool, "Reason", text).dedupe_by(episode.to_string())).await;
        }
        let lengths: Vec<usize> = messages(&client).await.iter().map(|(message, _)| message.len()).collect();
        assert_eq!(lengths, [1024, 1024, 1023]);
    }

    #[test]
    fn every_reason_that_a_budget_holds_up_is_told() {
        let blocked = |words: &str| ObjectEvent::normal(&pool(), "DisruptionBlocked", words);
        assert_ne!(key(&blocked("Empty")), key(&blocked("Drifted")));
        let node = k8s_openapi::api::core::v1::Node::default();
        let blocked = |words: &str| ObjectEvent::normal(&node, "DisruptionBlocked", words);
        assert_eq!(key(&blocked("pod a")), key(&blocked("pod b")));
    }
}
