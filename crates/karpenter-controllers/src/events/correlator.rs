//! What becomes of an event before it is written, by the rules and limits of client-go's correlator: the same event is
//! counted, similar ones are combined, and an object with too many of them gets no more for a while.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use karpenter_cluster::clock::since;
use lru::LruCache;

use super::ObjectEvent;

/// Keys that are remembered in each of the three steps; the least recently used one is forgotten first.
const REMEMBERED_MAX: NonZeroUsize = NonZeroUsize::new(4096).expect("not zero");
/// With so many messages for one reason on one object, its events are combined.
const SIMILAR_MAX: usize = 10;
/// Events that are further apart than this are not similar.
const SIMILAR_WITHIN: Duration = Duration::from_secs(10 * 60);
/// Events of one type that an object can get at once.
const BURST: f64 = 25.0;
/// How long it takes until an object can get one more.
const REFILL_EVERY: Duration = Duration::from_secs(5 * 60);

/// An event as it is to be written. One with a count above 1 was written before under the same name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Observed {
    pub(super) name: String,
    pub(super) message: String,
    pub(super) count: i32,
    pub(super) first: Timestamp,
}

/// Object, type and reason.
type ReasonKey = (String, bool, String);
/// Without a message: what similar events are combined into.
type EventKey = (ReasonKey, Option<String>);

struct Similar {
    messages: BTreeSet<String>,
    last: Timestamp,
}

struct Allowance {
    events: f64,
    as_of: Timestamp,
}

pub(super) struct Correlator {
    similar: LruCache<ReasonKey, Similar>,
    observed: LruCache<EventKey, Observed>,
    /// By object, whatever the type of its events, as client-go.
    allowances: LruCache<String, Allowance>,
}

impl Default for Correlator {
    fn default() -> Self {
        Self {
            similar: LruCache::new(REMEMBERED_MAX),
            observed: LruCache::new(REMEMBERED_MAX),
            allowances: LruCache::new(REMEMBERED_MAX),
        }
    }
}

impl Correlator {
    /// The event to write for a notice, under `name` if it is new; `None` if its object has too many.
    pub(super) fn correlate(
        &mut self,
        notice: &ObjectEvent,
        name: String,
        now: Timestamp,
    ) -> Option<Observed> {
        let object = object_key(&notice.about);
        let reason = (object.clone(), notice.is_warning, notice.reason.clone().into_owned());
        let (message, key) = if self.is_combined(&reason, &notice.message, now) {
            (format!("(combined from similar events): {}", notice.message), (reason, None))
        } else {
            (notice.message.clone(), (reason, Some(notice.message.clone())))
        };
        let observed = match self.observed.get(&key) {
            Some(earlier) => Observed { message, count: earlier.count.saturating_add(1), ..earlier.clone() },
            None => Observed { name, message, count: 1, first: now },
        };
        self.observed.put(key, observed.clone());
        // Last, so that events are counted that are not written.
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
        let full = || Allowance { events: BURST, as_of: now };
        let allowance = self.allowances.get_or_insert_mut(object, full);
        let refilled = since(now, allowance.as_of).as_secs_f64() / REFILL_EVERY.as_secs_f64();
        allowance.events = (allowance.events + refilled).min(BURST);
        allowance.as_of = now;
        let is_allowed = allowance.events >= 1.0;
        if is_allowed {
            allowance.events -= 1.0;
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

    fn notice(node: &str, reason: &'static str, message: &str) -> ObjectEvent {
        let metadata = ObjectMeta { name: Some(node.to_owned()), ..ObjectMeta::default() };
        let node = k8s_openapi::api::core::v1::Node { metadata, ..Default::default() };
        ObjectEvent::normal(&node, reason, message)
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).expect("a time")
    }

    /// Name, message and count.
    fn correlated(
        correlator: &mut Correlator,
        notice: &ObjectEvent,
        seconds: i64,
    ) -> Option<(String, String, i32)> {
        let observed = correlator.correlate(notice, format!("e{seconds}"), at(seconds))?;
        Some((observed.name, observed.message, observed.count))
    }

    #[test]
    fn same_event_is_counted_under_its_first_name_and_time() {
        let mut correlator = Correlator::default();
        let event = notice("a", "Unconsolidatable", "m");
        let first = correlator.correlate(&event, "one".to_owned(), at(0)).expect("written");
        assert_eq!(
            first,
            Observed { name: "one".to_owned(), message: "m".to_owned(), count: 1, first: at(0) }
        );
        let second = correlator.correlate(&event, "two".to_owned(), at(900)).expect("written");
        assert_eq!(second, Observed { count: 2, ..first.clone() });
        for other in [
            notice("b", "Unconsolidatable", "m"),
            notice("a", "Other", "m"),
            notice("a", "Unconsolidatable", "n"),
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
            let event = notice("a", "R", &format!("message {number}"));
            let (_, message, count) = correlated(&mut correlator, &event, number).expect("written");
            assert_eq!((message, count), (format!("message {number}"), 1));
        }
        for (number, count) in [(9, 1), (10, 2)] {
            let event = notice("a", "R", &format!("message {number}"));
            let combined = format!("(combined from similar events): message {number}");
            assert_eq!(correlated(&mut correlator, &event, number), Some(("e9".to_owned(), combined, count)));
        }
        // After ten minutes without one they are single events again.
        let event = notice("a", "R", "message 11");
        let late = 10 + 601;
        assert_eq!(
            correlated(&mut correlator, &event, late),
            Some((format!("e{late}"), "message 11".to_owned(), 1))
        );
    }

    #[test]
    fn object_gets_25_events_at_once_and_one_more_every_five_minutes() {
        let mut correlator = Correlator::default();
        let event = notice("a", "R", "m");
        let written = (0..30).filter(|_| correlated(&mut correlator, &event, 0).is_some()).count();
        assert_eq!(written, 25);
        assert!(correlated(&mut correlator, &event, 299).is_none());
        let (_, _, count) = correlated(&mut correlator, &event, 300).expect("one more");
        assert_eq!(count, 32, "events that were not written count");
        assert!(correlated(&mut correlator, &event, 301).is_none());
        assert!(correlated(&mut correlator, &notice("b", "R", "m"), 301).is_some(), "another object");
    }
}
