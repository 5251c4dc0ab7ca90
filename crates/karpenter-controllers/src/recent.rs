//! When something was last done for each of many. What is older than the period is forgotten, in one go now and then:
//! looking through thousands for every single one would be quadratic.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use karpenter_cluster::clock::since;

/// Below this many nothing is cleared out.
const FEW: usize = 128;

pub(crate) struct RecentSet {
    period: Duration,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    at: BTreeMap<String, Timestamp>,
    /// How many were left after clearing out last.
    cleared: usize,
}

impl RecentSet {
    pub(crate) fn within(period: Duration) -> Self {
        Self { period, inner: Mutex::default() }
    }

    /// How long ago it was done, if that was within the period.
    pub(crate) fn ago(&self, key: &str, now: Timestamp) -> Option<Duration> {
        self.inner().at.get(key).map(|last| since(now, *last)).filter(|ago| *ago < self.period)
    }

    pub(crate) fn note(&self, key: &str, now: Timestamp) {
        let mut inner = self.inner();
        inner.at.insert(key.to_owned(), now);
        if inner.at.len() > FEW.max(2 * inner.cleared) {
            inner.at.retain(|_, last| since(now, *last) < self.period);
            inner.cleared = inner.at.len();
        }
    }

    pub(crate) fn forget(&self, key: &str) {
        self.inner().at.remove(key);
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_older_than_the_period_is_as_if_it_had_never_been() {
        let lately = RecentSet::within(Duration::from_secs(60));
        let at = |second: i64| Timestamp::from_second(second).expect("a time");
        lately.note("a", at(100));
        assert_eq!(lately.ago("a", at(130)), Some(Duration::from_secs(30)));
        assert_eq!(lately.ago("a", at(160)), None);
        assert_eq!(lately.ago("b", at(100)), None);
        lately.forget("a");
        assert_eq!(lately.ago("a", at(130)), None);
    }

    #[test]
    fn memory_follows_what_is_recent() {
        let lately = RecentSet::within(Duration::from_secs(100));
        for second in 0..10_000 {
            lately.note(&second.to_string(), Timestamp::from_second(second).expect("a time"));
        }
        assert!(lately.inner().at.len() <= 201, "{}", lately.inner().at.len());
    }
}
