//! Events on objects, told once: the same reason on the same object is not repeated for a while, whatever the words say by
//! then, because words carry numbers that change all the time. Whoever tells one occasion from another says so
//! ([`Notice::of_episode`]). What is told again in the same words is counted up instead of written anew.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ObjectReference, Pod as RawPod};
use k8s_openapi::api::events::v1::{Event, EventSeries};
use karpenter_cluster::clock::{Clock, since};
use karpenter_state::pod::Pod;
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Client, Resource};
use serde_json::json;

/// The source that upstream's events name.
pub const COMPONENT: &str = "karpenter";
/// How long the same event stays untold, unless it says otherwise.
pub const REPEAT_AFTER: Duration = Duration::from_secs(120);
/// More remembered events than this are forgotten, oldest first.
const REMEMBERED_MAX: usize = 20_000;
/// Longer words are refused by the API server.
const NOTE_BYTES_MAX: usize = 1024;
/// An event that was not repeated for this long may be gone from the API server, and is written anew.
const COUNTED_FOR: Duration = Duration::from_secs(6 * 60);

/// Something worth telling about an object.
#[derive(Debug, Clone, PartialEq)]
pub struct Notice {
    pub about: ObjectReference,
    pub is_warning: bool,
    pub reason: Cow<'static, str>,
    pub message: String,
    pub repeat_after: Duration,
    /// Notices with other values here are not the same, although they have the reason and the object in common.
    pub episode: String,
}

impl Notice {
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
    pub fn of_episode(mut self, episode: impl Into<String>) -> Self {
        self.episode = episode.into();
        self
    }

    pub fn repeat_after(mut self, duration: Duration) -> Self {
        self.repeat_after = duration;
        self
    }
}

type Key = (String, Cow<'static, str>, String);

/// When something was told, and as which event.
#[derive(Debug, Clone)]
struct Told {
    at: Timestamp,
    written: Option<Written>,
}

#[derive(Debug, Clone)]
struct Written {
    name: String,
    message: String,
    count: i32,
}

/// Sends notices to the API server. Clones share what was told.
#[derive(Clone)]
pub struct Recorder {
    client: Client,
    clock: Clock,
    told: Arc<Mutex<BTreeMap<Key, Told>>>,
    /// The number in the last event's name.
    last_number: Arc<Mutex<i128>>,
}

impl Recorder {
    pub fn new(client: Client, clock: Clock) -> Self {
        Self { client, clock, told: Arc::default(), last_number: Arc::default() }
    }

    /// Tells it, unless it was told lately. A failure to tell is not worth failing for: the event is lost.
    pub async fn publish(&self, notice: Notice) {
        let Some(earlier) = self.begin(&notice) else { return };
        // What belongs to no namespace is told in the usual one.
        let namespace = notice.about.namespace.as_deref().unwrap_or("default");
        let events: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        let counted = match earlier.filter(|written| written.message == notice.message) {
            Some(written) => self.count_up(&events, written).await,
            None => None,
        };
        let written = match counted {
            Some(written) => Some(written),
            None => self.write(&events, &notice).await,
        };
        if let Some(told) = self.told().get_mut(&key(&notice)) {
            told.written = written;
        }
    }

    async fn count_up(&self, events: &Api<Event>, written: Written) -> Option<Written> {
        let count = written.count.saturating_add(1);
        let series = EventSeries { count, last_observed_time: self.clock.micro_time() };
        let patch = Patch::Merge(json!({ "series": series }));
        events.patch(&written.name, &PatchParams::default(), &patch).await.ok()?;
        Some(Written { count, ..written })
    }

    async fn write(&self, events: &Api<Event>, notice: &Notice) -> Option<Written> {
        let name = format!("{}.{:x}", notice.about.name.as_deref().unwrap_or(COMPONENT), self.next_number());
        let event = Event {
            metadata: ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() },
            type_: Some(if notice.is_warning { "Warning" } else { "Normal" }.to_owned()),
            reason: Some(notice.reason.clone().into_owned()),
            note: Some(shortened(&notice.message).to_owned()),
            action: Some(notice.reason.clone().into_owned()),
            event_time: Some(self.clock.micro_time()),
            regarding: Some(notice.about.clone()),
            reporting_controller: Some(COMPONENT.to_owned()),
            reporting_instance: Some(COMPONENT.to_owned()),
            ..Event::default()
        };
        events.create(&PostParams::default(), &event).await.ok()?;
        Some(Written { name, message: notice.message.clone(), count: 1 })
    }

    /// Nanoseconds, or one more than last time if no time has passed.
    fn next_number(&self) -> i128 {
        let mut last = self.last_number.lock().unwrap_or_else(PoisonError::into_inner);
        *last = (*last + 1).max(self.clock.now().as_nanosecond());
        *last
    }

    /// Whether it would be told now.
    pub fn would_tell(&self, notice: &Notice) -> bool {
        let now = self.clock.now();
        self.told().get(&key(notice)).is_none_or(|told| since(now, told.at) >= notice.repeat_after)
    }

    /// `None` if it was told lately; otherwise the event to count up, if there is one.
    fn begin(&self, notice: &Notice) -> Option<Option<Written>> {
        let key = key(notice);
        let now = self.clock.now();
        let mut told = self.told();
        let earlier = told.get(&key).cloned();
        if earlier.as_ref().is_some_and(|earlier| since(now, earlier.at) < notice.repeat_after) {
            return None;
        }
        if told.len() >= REMEMBERED_MAX {
            let mut ages: Vec<Timestamp> = told.values().map(|told| told.at).collect();
            ages.sort_unstable();
            let middle = ages[ages.len() / 2];
            told.retain(|_, told| told.at > middle);
        }
        told.insert(key, Told { at: now, written: None });
        Some(
            earlier
                .filter(|earlier| since(now, earlier.at) < COUNTED_FOR)
                .and_then(|earlier| earlier.written),
        )
    }

    fn told(&self) -> MutexGuard<'_, BTreeMap<Key, Told>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// As much as the API server takes, cut between characters.
fn shortened(message: &str) -> &str {
    &message[..message.floor_char_boundary(NOTE_BYTES_MAX)]
}

/// What makes a notice the same as another.
fn key(notice: &Notice) -> Key {
    let about = notice.about.uid.clone().or_else(|| notice.about.name.clone()).unwrap_or_default();
    let mut occasion = notice.episode.clone();
    if has_telling_words(notice) {
        occasion.push_str(&notice.message);
    }
    (about, notice.reason.clone(), occasion)
}

/// Whether the words name what it is about and nothing that changes by itself: why a node is disrupted, what the budgets
/// of a pool hold up, which annotation or budget is wrong.
fn has_telling_words(notice: &Notice) -> bool {
    match &*notice.reason {
        "DisruptionLaunching" | "DisruptionTerminating" => true,
        "InvalidConsolidationAnnotation" | "InvalidDisruptionBudget" => true,
        "DisruptionBlocked" => notice.about.kind.as_deref() == Some("NodePool"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use karpenter_apiserver::{ApiServer, Config};
    use kube::api::ListParams;

    #[test]
    fn long_words_are_cut_between_characters() {
        for (text, bytes) in [
            ("short".to_owned(), 5),
            ("x".repeat(2000), 1024),
            ("ü".repeat(600), 1024),
            ("€".repeat(400), 1023),
        ] {
            let cut = shortened(&text);
            assert_eq!(cut.len(), bytes);
            assert!(text.starts_with(cut));
        }
    }

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

    /// What events say and how often, in order.
    async fn listed(client: &Client) -> Vec<(String, i32)> {
        let events: Api<Event> = Api::all(client.clone());
        let list = events.list(&ListParams::default()).await.expect("events");
        let count = |event: &Event| event.series.as_ref().map_or(1, |series| series.count);
        let mut found: Vec<(String, i32)> =
            list.items.iter().map(|event| (event.note.clone().unwrap_or_default(), count(event))).collect();
        found.sort();
        found
    }

    fn said(expected: &[(&str, i32)]) -> Vec<(String, i32)> {
        expected.iter().map(|(words, count)| ((*words).to_owned(), *count)).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_reason_is_told_once_in_a_while_and_counted_if_the_words_stay_the_same() {
        let (client, recorder) = world();
        let pool = pool();
        let tell = |words: &'static str| recorder.publish(Notice::warning(&pool, "Reason", words));
        tell("7 of 9").await;
        tell("7 of 9").await;
        tell("6 of 9").await;
        assert_eq!(listed(&client).await, said(&[("7 of 9", 1)]), "numbers that change are no news");
        recorder.publish(Notice::warning(&pool, "Another", "6 of 9")).await;
        recorder.publish(Notice::warning(&pool, "Reason", "again").of_episode("2")).await;
        assert_eq!(listed(&client).await, said(&[("6 of 9", 1), ("7 of 9", 1), ("again", 1)]));
        tokio::time::advance(Duration::from_secs(121)).await;
        tell("7 of 9").await;
        tokio::time::advance(Duration::from_secs(121)).await;
        tell("7 of 9").await;
        assert_eq!(listed(&client).await, said(&[("6 of 9", 1), ("7 of 9", 3), ("again", 1)]));
        // Other words are not what was counted.
        tokio::time::advance(Duration::from_secs(121)).await;
        tell("5 of 9").await;
        assert_eq!(listed(&client).await, said(&[("5 of 9", 1), ("6 of 9", 1), ("7 of 9", 3), ("again", 1)]));
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_that_may_be_gone_is_written_anew() {
        let (client, recorder) = world();
        let pool = pool();
        for _ in 0..2 {
            recorder.publish(Notice::warning(&pool, "Reason", "words")).await;
            tokio::time::advance(Duration::from_secs(3600)).await;
        }
        assert_eq!(listed(&client).await, said(&[("words", 1), ("words", 1)]));
    }

    #[test]
    fn every_reason_that_a_budget_holds_up_is_told() {
        let blocked = |words: &str| Notice::normal(&pool(), "DisruptionBlocked", words);
        assert_ne!(key(&blocked("Empty")), key(&blocked("Drifted")));
        let node = k8s_openapi::api::core::v1::Node::default();
        let blocked = |words: &str| Notice::normal(&node, "DisruptionBlocked", words);
        assert_eq!(key(&blocked("pod a")), key(&blocked("pod b")));
    }
}
