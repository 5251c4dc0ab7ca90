//! A map that remembers for a limited period when each key was last recorded. Expired entries are removed only when the
//! map has doubled in size, because looking for them at each insert would take quadratic time.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use karpenter_runtime::clock::since;

/// As long as the map has at most this many entries, none are removed.
const ENTRIES_MIN: usize = 128;

pub(crate) struct RecentSet {
    period: Duration,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    recorded_at: BTreeMap<String, Timestamp>,
    /// The number of entries after expired ones were last removed.
    kept_last: usize,
}

impl RecentSet {
    pub(crate) fn within(period: Duration) -> Self {
        Self { period, inner: Mutex::default() }
    }

    /// How long ago the key was recorded, if that was within the period.
    pub(crate) fn ago(&self, key: &str, now: Timestamp) -> Option<Duration> {
        self.inner().recorded_at.get(key).map(|last| since(now, *last)).filter(|ago| *ago < self.period)
    }

    pub(crate) fn record(&self, key: &str, now: Timestamp) {
        let mut inner = self.inner();
        inner.recorded_at.insert(key.to_owned(), now);
        if inner.recorded_at.len() > ENTRIES_MIN.max(2 * inner.kept_last) {
            inner.recorded_at.retain(|_, last| since(now, *last) < self.period);
            inner.kept_last = inner.recorded_at.len();
        }
    }

    pub(crate) fn remove(&self, key: &str) {
        self.inner().recorded_at.remove(key);
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_older_than_the_period_are_ignored() {
        let recent = RecentSet::within(Duration::from_secs(60));
        let at = |second: i64| Timestamp::from_second(second).expect("a time");
        recent.record("a", at(100));
        assert_eq!(recent.ago("a", at(130)), Some(Duration::from_secs(30)));
        assert_eq!(recent.ago("a", at(160)), None);
        assert_eq!(recent.ago("b", at(100)), None);
        recent.remove("a");
        assert_eq!(recent.ago("a", at(130)), None);
    }

    #[test]
    fn old_entries_are_removed() {
        let recent = RecentSet::within(Duration::from_secs(100));
        for second in 0..10_000 {
            recent.record(&second.to_string(), Timestamp::from_second(second).expect("a time"));
        }
        assert!(recent.inner().recorded_at.len() <= 201, "{}", recent.inner().recorded_at.len());
    }
}
