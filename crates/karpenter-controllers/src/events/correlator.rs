//! Correlates events by the rules and limits of client-go's correlator: the same event is counted, similar events are
//! combined, and the rate of events per object is limited.
//! Upstream: client-go tools/record/events_cache.go.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use karpenter_runtime::clock::since;
use lru::LruCache;

use super::ObjectEvent;

/// Size of each of the three LRU caches.
const CACHE_SIZE: NonZeroUsize = NonZeroUsize::new(4096).expect("not zero");
/// When an object has this many different messages for one reason, further events with this reason are combined into
/// one.
const SIMILAR_MAX: usize = 10;
/// Events that are further apart than this are not combined.
const SIMILAR_WITHIN: Duration = Duration::from_secs(10 * 60);
/// The number of events that an object may get at once.
const BURST: f64 = 25.0;
/// After the burst is used up, an object may get one event in this time.
const REFILL_EVERY: Duration = Duration::from_secs(5 * 60);

/// An event to write. If its count is above 1, it was written before under the same name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Observed {
    pub(super) name: String,
    pub(super) message: String,
    pub(super) count: i32,
    pub(super) first: Timestamp,
}

/// The object of an event, whether the event is a warning, and its reason.
type ReasonKey = (String, bool, String);
/// The key of an event. The message is `None` for combined events.
type EventKey = (ReasonKey, Option<String>);

struct Similar {
    messages: BTreeSet<String>,
    last: Timestamp,
}

struct TokenBucket {
    events: f64,
    as_of: Timestamp,
}

pub(super) struct Correlator {
    similar: LruCache<ReasonKey, Similar>,
    observed: LruCache<EventKey, Observed>,
    /// Token buckets by object. Events of all types share the bucket of their object, as in client-go.
    token_buckets: LruCache<String, TokenBucket>,
}

impl Default for Correlator {
    fn default() -> Self {
        Self {
            similar: LruCache::new(CACHE_SIZE),
            observed: LruCache::new(CACHE_SIZE),
            token_buckets: LruCache::new(CACHE_SIZE),
        }
    }
}

impl Correlator {
    /// Correlates the event. Returns the event to write, under `name` if it is new; `None` if the object has reached
    /// its rate limit.
    pub(super) fn correlate(
        &mut self,
        event: &ObjectEvent,
        name: String,
        now: Timestamp,
    ) -> Option<Observed> {
        let object = object_key(&event.involved_object);
        let reason = (object.clone(), event.is_warning, event.reason.clone().into_owned());
        let (message, key) = if self.is_combined(&reason, &event.message, now) {
            (format!("(combined from similar events): {}", event.message), (reason, None))
        } else {
            (event.message.clone(), (reason, Some(event.message.clone())))
        };
        let observed = match self.observed.get(&key) {
            Some(earlier) => Observed { message, count: earlier.count.saturating_add(1), ..earlier.clone() },
            None => Observed { name, message, count: 1, first: now },
        };
        self.observed.put(key, observed.clone());
        // The rate limit is checked last, so that events that are not written are counted too.
        self.allows(object, now).then_some(observed)
    }

    fn is_combined(&mut self, reason: &ReasonKey, message: &str, now: Timestamp) -> bool {
        let fresh = || Similar { messages: BTreeSet::new(), last: now };
        let similar = self.similar.get_or_insert_mut(reason.clone(), fresh);
        if since(now, similar.last) > SIMILAR_WITHIN {
            similar.messages.clear();
        }
        similar.last = now;
        similar.messages.insert(message.to_owned());
        let is_combined = similar.messages.len() >= SIMILAR_MAX;
        if is_combined {
            similar.messages.pop_first();
        }
        is_combined
    }

    fn allows(&mut self, object: String, now: Timestamp) -> bool {
        let full = || TokenBucket { events: BURST, as_of: now };
        let bucket = self.token_buckets.get_or_insert_mut(object, full);
        let refilled = since(now, bucket.as_of).as_secs_f64() / REFILL_EVERY.as_secs_f64();
        bucket.events = (bucket.events + refilled).min(BURST);
        bucket.as_of = now;
        let is_allowed = bucket.events >= 1.0;
        if is_allowed {
            bucket.events -= 1.0;
        }
        is_allowed
    }
}

fn object_key(about: &ObjectReference) -> String {
    let parts = [&about.kind, &about.namespace, &about.name, &about.uid, &about.api_version];
    parts.map(|part| part.as_deref().unwrap_or_default()).join("/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::api::ObjectMeta;

    fn node_event(node: &str, reason: &'static str, message: &str) -> ObjectEvent {
        let metadata = ObjectMeta { name: Some(node.to_owned()), ..ObjectMeta::default() };
        let node = k8s_openapi::api::core::v1::Node { metadata, ..Default::default() };
        ObjectEvent::normal(&node, reason, message)
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).expect("a time")
    }

    /// Correlates an event and returns the name, message and count of the event to write.
    fn correlated(
        correlator: &mut Correlator,
        event: &ObjectEvent,
        seconds: i64,
    ) -> Option<(String, String, i32)> {
        let observed = correlator.correlate(event, format!("e{seconds}"), at(seconds))?;
        Some((observed.name, observed.message, observed.count))
    }

    #[test]
    fn same_event_is_counted_under_its_first_name_and_time() {
        let mut correlator = Correlator::default();
        let event = node_event("a", "Unconsolidatable", "m");
        let first = correlator.correlate(&event, "one".to_owned(), at(0)).expect("written");
        assert_eq!(
            first,
            Observed { name: "one".to_owned(), message: "m".to_owned(), count: 1, first: at(0) }
        );
        let second = correlator.correlate(&event, "two".to_owned(), at(900)).expect("written");
        assert_eq!(second, Observed { count: 2, ..first.clone() });
        for other in [
            node_event("b", "Unconsolidatable", "m"),
            node_event("a", "Other", "m"),
            node_event("a", "Unconsolidatable", "n"),
            ObjectEvent { is_warning: true, ..event },
        ] {
            let observed = correlator.correlate(&other, "three".to_owned(), at(900)).expect("written");
            assert_eq!((observed.name.as_str(), observed.count), ("three", 1), "{other:?}");
        }
    }

    #[test]
    fn tenth_message_within_ten_minutes_is_combined_with_those_that_follow() {
        let mut correlator = Correlator::default();
        for number in 0..9 {
            let event = node_event("a", "R", &format!("message {number}"));
            let (_, message, count) = correlated(&mut correlator, &event, number).expect("written");
            assert_eq!((message, count), (format!("message {number}"), 1));
        }
        for (number, count) in [(9, 1), (10, 2)] {
            let event = node_event("a", "R", &format!("message {number}"));
            let combined = format!("(combined from similar events): message {number}");
            assert_eq!(correlated(&mut correlator, &event, number), Some(("e9".to_owned(), combined, count)));
        }
        // Events that are ten minutes apart are not combined.
        let event = node_event("a", "R", "message 11");
        let late = 10 + 601;
        assert_eq!(
            correlated(&mut correlator, &event, late),
            Some((format!("e{late}"), "message 11".to_owned(), 1))
        );
    }

    #[test]
    fn object_gets_25_events_at_once_and_one_more_every_five_minutes() {
        let mut correlator = Correlator::default();
        let event = node_event("a", "R", "m");
        let written = (0..30).filter(|_| correlated(&mut correlator, &event, 0).is_some()).count();
        assert_eq!(written, 25);
        assert!(correlated(&mut correlator, &event, 299).is_none());
        let (_, _, count) = correlated(&mut correlator, &event, 300).expect("one more");
        assert_eq!(count, 32, "events that were not written count");
        assert!(correlated(&mut correlator, &event, 301).is_none());
        assert!(correlated(&mut correlator, &node_event("b", "R", "m"), 301).is_some(), "another object");
    }
}
