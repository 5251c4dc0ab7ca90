//! A cache whose values expire, measured with the injected clock.
//!
//! The cache does not fetch values: on a miss the caller fetches the value (see [`crate::single_flight`]) and inserts
//! it. `get` never returns expired values. For values that need cleanup, expired ones can be kept until
//! [`Cache::take_expired`].

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use karpenter_runtime::clock::Clock;

/// If the cache has at least this many values, an insertion removes expired ones.
const SWEEP_AT_LEAST: usize = 64;

/// Values by key, each with an expiry time.
#[derive(Debug)]
pub struct Cache<K, V> {
    clock: Clock,
    ttl: Duration,
    keeps_expired: bool,
    state: Mutex<State<K, V>>,
}

#[derive(Debug)]
struct State<K, V> {
    entries: BTreeMap<K, Entry<V>>,
    sweep_at: usize,
}

#[derive(Debug, Clone)]
struct Entry<V> {
    value: V,
    expires_at: Timestamp,
}

impl<K: Ord + Clone, V: Clone> Cache<K, V> {
    pub fn new(clock: Clock, ttl: Duration) -> Self {
        let state = State { entries: BTreeMap::new(), sweep_at: SWEEP_AT_LEAST };
        Self { clock, ttl, keeps_expired: false, state: Mutex::new(state) }
    }

    /// Values never expire.
    pub fn without_expiry(clock: Clock) -> Self {
        Self::new(clock, Duration::MAX)
    }

    /// Makes the cache keep expired values until [`Cache::take_expired`].
    pub fn keeping_expired(mut self) -> Self {
        self.keeps_expired = true;
        self
    }

    pub fn get(&self, key: &K) -> Option<V> {
        let now = self.clock.now();
        self.lock().entries.get(key).filter(|entry| entry.expires_at > now).map(|entry| entry.value.clone())
    }

    /// Like [`Cache::get`], but the value's TTL starts again.
    pub fn get_and_renew(&self, key: &K) -> Option<V> {
        let now = self.clock.now();
        let mut state = self.lock();
        let entry = state.entries.get_mut(key).filter(|entry| entry.expires_at > now)?;
        entry.expires_at = after(now, self.ttl);
        Some(entry.value.clone())
    }

    pub fn contains(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    pub fn insert(&self, key: K, value: V) {
        self.insert_for(key, value, self.ttl);
    }

    pub fn insert_for(&self, key: K, value: V, ttl: Duration) {
        let now = self.clock.now();
        let mut state = self.lock();
        if !self.keeps_expired && state.entries.len() >= state.sweep_at {
            state.entries.retain(|_, entry| entry.expires_at > now);
            state.sweep_at = (state.entries.len() * 2).max(SWEEP_AT_LEAST);
        }
        state.entries.insert(key, Entry { value, expires_at: after(now, ttl) });
    }

    /// Changes a value without changing its expiry time; returns whether there is a value.
    pub fn update(&self, key: &K, change: impl FnOnce(&mut V)) -> bool {
        let now = self.clock.now();
        let mut state = self.lock();
        let entry = state.entries.get_mut(key).filter(|entry| entry.expires_at > now);
        entry.map(|entry| change(&mut entry.value)).is_some()
    }

    pub fn remove(&self, key: &K) -> Option<V> {
        self.lock().entries.remove(key).map(|entry| entry.value)
    }

    pub fn clear(&self) {
        self.lock().entries.clear();
    }

    pub fn retain(&self, mut keep: impl FnMut(&K, &V) -> bool) {
        self.lock().entries.retain(|key, entry| keep(key, &entry.value));
    }

    /// All values that have not expired.
    pub fn entries(&self) -> Vec<(K, V)> {
        let now = self.clock.now();
        let state = self.lock();
        let fresh = state.entries.iter().filter(|(_, entry)| entry.expires_at > now);
        fresh.map(|(key, entry)| (key.clone(), entry.value.clone())).collect()
    }

    /// Removes the expired values and returns them.
    pub fn take_expired(&self) -> Vec<(K, V)> {
        let now = self.clock.now();
        let mut state = self.lock();
        let old = state.entries.extract_if(.., |_, entry| entry.expires_at <= now);
        old.map(|(key, entry)| (key, entry.value)).collect()
    }

    /// The number of values, including expired ones.
    pub fn len(&self) -> usize {
        self.lock().entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lock(&self) -> MutexGuard<'_, State<K, V>> {
        // Every statement leaves the state consistent, so a poisoned lock can be used.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn after(now: Timestamp, ttl: Duration) -> Timestamp {
    now.checked_add(jiff::SignedDuration::try_from(ttl).unwrap_or(jiff::SignedDuration::MAX))
        .unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn clock() -> Clock {
        Clock::starting_at(Timestamp::UNIX_EPOCH)
    }

    #[tokio::test(start_paused = true)]
    async fn value_is_returned_until_it_expires() {
        let cache = Cache::new(clock(), MINUTE);
        cache.insert("a", 1);
        tokio::time::advance(Duration::from_secs(59)).await;
        assert_eq!(cache.get(&"a"), Some(1));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(cache.get(&"a"), None);
        assert_eq!(cache.entries(), []);
    }

    #[tokio::test(start_paused = true)]
    async fn renewal_restarts_ttl_and_reading_does_not() {
        let cache = Cache::new(clock(), MINUTE);
        cache.insert("read", 1);
        cache.insert("renewed", 2);
        tokio::time::advance(Duration::from_secs(40)).await;
        assert_eq!(cache.get(&"read"), Some(1));
        assert_eq!(cache.get_and_renew(&"renewed"), Some(2));
        tokio::time::advance(Duration::from_secs(40)).await;
        assert_eq!(cache.get(&"read"), None);
        assert_eq!(cache.get(&"renewed"), Some(2));
        tokio::time::advance(MINUTE).await;
        assert_eq!(cache.get_and_renew(&"renewed"), None, "what is too old cannot be renewed");
    }

    #[tokio::test(start_paused = true)]
    async fn update_keeps_expiry() {
        let cache = Cache::new(clock(), MINUTE);
        cache.insert("a", 1);
        tokio::time::advance(Duration::from_secs(40)).await;
        assert!(cache.update(&"a", |value| *value += 1));
        assert_eq!(cache.get(&"a"), Some(2));
        tokio::time::advance(Duration::from_secs(20)).await;
        assert!(!cache.update(&"a", |value| *value += 1));
    }

    #[tokio::test(start_paused = true)]
    async fn expired_values_are_taken_once() {
        let cache = Cache::new(clock(), MINUTE).keeping_expired();
        cache.insert("old", 1);
        tokio::time::advance(MINUTE).await;
        for number in 0..200 {
            cache.insert("new", number);
        }
        assert_eq!(cache.take_expired(), [("old", 1)]);
        assert_eq!(cache.take_expired(), []);
        assert_eq!(cache.get(&"new"), Some(199));
    }

    #[tokio::test(start_paused = true)]
    async fn expired_values_are_removed_on_insertion() {
        let cache = Cache::new(clock(), Duration::from_secs(1));
        for number in 0..10_000 {
            cache.insert(number, ());
            tokio::time::advance(Duration::from_millis(100)).await;
        }
        assert!(cache.len() <= SWEEP_AT_LEAST, "{}", cache.len());
    }

    #[tokio::test(start_paused = true)]
    async fn values_without_expiry_never_expire() {
        let cache = Cache::without_expiry(clock());
        cache.insert("a", 1);
        tokio::time::advance(Duration::from_secs(100 * 365 * 86_400)).await;
        assert_eq!(cache.get(&"a"), Some(1));
        assert_eq!(cache.remove(&"a"), Some(1));
        assert!(cache.is_empty());
    }
}
