//! The memory capacity of instance types, as their nodes report it. The hypervisor uses some of an instance's memory,
//! and only a running node shows how much is left.
//!
//! The smallest reported value is used. Each value belongs to an instance type and a set of AMIs. If no node confirms
//! it for 60 days, it is dropped.
//!
//! Upstream: `pkg/providers/instancetype/instancetype.go`

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use karpenter_runtime::clock::Clock;

const KEPT_FOR: Duration = Duration::from_secs(60 * 24 * 60 * 60);

/// A snapshot of the discovered memory values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemorySnapshot {
    pub version: u64,
    /// The memory in bytes, by instance type and by the key of the set of AMIs.
    bytes: BTreeMap<String, BTreeMap<String, i64>>,
}

impl MemorySnapshot {
    pub fn of(&self, instance_type: &str, images: &str) -> Option<i64> {
        self.bytes.get(instance_type)?.get(images).copied()
    }
}

/// The discovered memory values. All clones share their state.
#[derive(Debug, Clone)]
pub struct DiscoveredMemory {
    clock: Clock,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// When a node last confirmed the value of an instance type and set of AMIs.
    confirmed: BTreeMap<(String, String), Timestamp>,
    next_end: Option<Timestamp>,
    current: Arc<MemorySnapshot>,
}

impl DiscoveredMemory {
    pub fn new(clock: Clock) -> Self {
        Self { clock, state: Arc::default() }
    }

    /// Records the memory that a node reports; returns whether the value changed.
    pub fn record(&self, instance_type: &str, images: &str, bytes: i64) -> bool {
        if bytes <= 0 || instance_type.is_empty() {
            return false;
        }
        let mut state = self.lock();
        self.forget(&mut state);
        let known = state.current.of(instance_type, images);
        if known.is_some_and(|known| bytes > known) {
            return false;
        }
        state.confirmed.insert((instance_type.to_owned(), images.to_owned()), self.clock.now());
        state.next_end = next_end(&state.confirmed);
        if known == Some(bytes) {
            return false;
        }
        let current = Arc::make_mut(&mut state.current);
        current.version += 1;
        current.bytes.entry(instance_type.to_owned()).or_default().insert(images.to_owned(), bytes);
        true
    }

    pub fn current(&self) -> Arc<MemorySnapshot> {
        let mut state = self.lock();
        self.forget(&mut state);
        Arc::clone(&state.current)
    }

    fn forget(&self, state: &mut State) {
        let now = self.clock.now();
        if state.next_end.is_none_or(|end| end > now) {
            return;
        }
        let over: Vec<(String, String)> = state
            .confirmed
            .extract_if(.., |_, confirmed| end(*confirmed) <= now)
            .map(|(key, _)| key)
            .collect();
        state.next_end = next_end(&state.confirmed);
        let current = Arc::make_mut(&mut state.current);
        current.version += 1;
        for (instance_type, images) in over {
            if let Some(by_images) = current.bytes.get_mut(&instance_type) {
                by_images.remove(&images);
            }
        }
        current.bytes.retain(|_, by_images| !by_images.is_empty());
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn end(confirmed: Timestamp) -> Timestamp {
    confirmed.checked_add(KEPT_FOR).unwrap_or(Timestamp::MAX)
}

fn next_end(confirmed: &BTreeMap<(String, String), Timestamp>) -> Option<Timestamp> {
    confirmed.values().min().copied().map(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn smallest_memory_is_kept_for_sixty_days_after_confirmation() {
        const DAY: Duration = Duration::from_secs(24 * 60 * 60);
        let memory = DiscoveredMemory::new(Clock::starting_at(Timestamp::UNIX_EPOCH));
        let known = || memory.current().of("m5.large", "ami-1");
        assert_eq!(known(), None);
        assert!(memory.record("m5.large", "ami-1", 800));
        assert!(
            !memory.record("m5.large", "ami-1", 900),
            "a larger one is not what the next node can count on"
        );
        assert_eq!(known(), Some(800));
        assert!(memory.record("m5.large", "ami-1", 700));
        assert_eq!(known(), Some(700));
        assert_eq!(memory.current().of("m5.large", "ami-2"), None);
        assert_eq!(memory.current().of("m5.xlarge", "ami-1"), None);

        let version = memory.current().version;
        tokio::time::advance(40 * DAY).await;
        assert!(!memory.record("m5.large", "ami-1", 700), "confirmed, but no news");
        assert_eq!(memory.current().version, version);
        tokio::time::advance(59 * DAY).await;
        assert_eq!(known(), Some(700));
        tokio::time::advance(DAY).await;
        assert_eq!(known(), None);
        assert!(memory.current().version > version, "the version changes");
        assert!(memory.record("m5.large", "ami-1", 900));
    }

    #[tokio::test(start_paused = true)]
    async fn invalid_memory_is_ignored() {
        let memory = DiscoveredMemory::new(Clock::starting_at(Timestamp::UNIX_EPOCH));
        assert!(!memory.record("m5.large", "ami-1", 0));
        assert!(!memory.record("m5.large", "ami-1", -5));
        assert!(!memory.record("", "ami-1", 5));
        assert_eq!(memory.current().version, 0);
    }
}
