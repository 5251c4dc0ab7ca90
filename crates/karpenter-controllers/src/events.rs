//! Events on objects, told once: the same reason with the same words is not repeated for a while.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use karpenter_cluster::clock::{Clock, since};
use kube::runtime::events::{Event, EventType, Reporter};
use kube::{Client, Resource};

/// The source that upstream's events name.
pub const COMPONENT: &str = "karpenter";
/// How long the same event stays untold, unless it says otherwise.
pub const REPEAT_AFTER: Duration = Duration::from_secs(120);
/// More remembered events than this are forgotten, oldest first.
const REMEMBERED_MAX: usize = 20_000;

/// Something worth telling about an object.
#[derive(Debug, Clone, PartialEq)]
pub struct Notice {
    pub about: ObjectReference,
    pub is_warning: bool,
    pub reason: &'static str,
    pub message: String,
    pub repeat_after: Duration,
    /// Notices with other values here are not the same, although they say the same.
    pub episode: String,
}

impl Notice {
    pub fn normal<K: Resource<DynamicType = ()>>(
        about: &K,
        reason: &'static str,
        message: impl Into<String>,
    ) -> Self {
        Self {
            about: about.object_ref(&()),
            is_warning: false,
            reason,
            message: message.into(),
            repeat_after: REPEAT_AFTER,
            episode: String::new(),
        }
    }

    pub fn warning<K: Resource<DynamicType = ()>>(
        about: &K,
        reason: &'static str,
        message: impl Into<String>,
    ) -> Self {
        Self { is_warning: true, ..Self::normal(about, reason, message) }
    }

    /// Tells it from the same words about another occasion.
    pub fn of_episode(mut self, episode: impl Into<String>) -> Self {
        self.episode = episode.into();
        self
    }

    pub fn repeat_after(mut self, duration: Duration) -> Self {
        self.repeat_after = duration;
        self
    }
}

type Key = (String, &'static str, String, String);

/// Sends notices to the API server. Clones share what was told.
#[derive(Clone)]
pub struct Recorder {
    inner: kube::runtime::events::Recorder,
    clock: Clock,
    told: Arc<Mutex<BTreeMap<Key, Timestamp>>>,
}

impl Recorder {
    pub fn new(client: Client, clock: Clock) -> Self {
        let reporter = Reporter { controller: COMPONENT.to_owned(), instance: None };
        let inner = kube::runtime::events::Recorder::new(client, reporter);
        Self { inner, clock, told: Arc::default() }
    }

    /// Tells it, unless it was told lately. A failure to tell is not worth failing for: the event is lost.
    pub async fn publish(&self, notice: Notice) {
        if !self.is_news(&notice) {
            return;
        }
        let event = Event {
            type_: if notice.is_warning { EventType::Warning } else { EventType::Normal },
            reason: notice.reason.to_owned(),
            note: Some(notice.message),
            action: notice.reason.to_owned(),
            secondary: None,
        };
        let _ = self.inner.publish(&event, &notice.about).await;
    }

    /// Whether it would be told now.
    pub fn would_tell(&self, notice: &Notice) -> bool {
        let now = self.clock.now();
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.get(&key(notice)).is_none_or(|at| since(now, *at) >= notice.repeat_after)
    }

    fn is_news(&self, notice: &Notice) -> bool {
        let key = key(notice);
        let now = self.clock.now();
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
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

/// What makes a notice the same as another.
fn key(notice: &Notice) -> Key {
    let about = notice.about.uid.clone().or_else(|| notice.about.name.clone()).unwrap_or_default();
    (about, notice.reason, notice.message.clone(), notice.episode.clone())
}
