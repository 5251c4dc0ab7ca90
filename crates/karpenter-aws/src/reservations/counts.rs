//! The available instances of each capacity reservation: EC2's last count, adjusted by launches and terminations since.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use karpenter_runtime::clock::{Clock, since};

/// A count is dropped if EC2 has not confirmed it for this long.
const KEPT_FOR: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Count {
    left: u32,
    synced_at: Timestamp,
}

/// A snapshot of the available counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AvailableCounts {
    /// A number that increases with every change.
    pub version: u64,
    pub by_id: BTreeMap<String, u32>,
}

impl AvailableCounts {
    pub fn of(&self, reservation_id: &str) -> u32 {
        self.by_id.get(reservation_id).copied().unwrap_or(0)
    }
}

/// Clones share all state.
#[derive(Debug, Clone)]
pub struct Counts {
    clock: Clock,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    counts: BTreeMap<String, Count>,
    current: Arc<AvailableCounts>,
}

impl Counts {
    pub fn new(clock: Clock) -> Self {
        Self { clock, state: Arc::default() }
    }

    /// Sets the counts from the response to a call that was made at `asked_at`.
    pub fn sync(&self, left: impl IntoIterator<Item = (String, u32)>, asked_at: Timestamp) {
        self.change(|counts| {
            counts.retain(|_, count| since(asked_at, count.synced_at) < KEPT_FOR);
            for (id, left) in left {
                counts.insert(id, Count { left, synced_at: asked_at });
            }
        });
    }

    /// Records that an instance was launched in the reservation by a call made at `launched_at`. If the last count is
    /// newer, it already includes the instance. In doubt the count is too high: the next launch then fails and corrects
    /// it.
    pub fn launched(&self, reservation_id: &str, launched_at: Timestamp) {
        self.change_one(reservation_id, |count| {
            if count.synced_at <= launched_at {
                count.left = count.left.saturating_sub(1);
            }
        });
    }

    /// Records that an instance of the reservation was terminated.
    pub fn terminated(&self, reservation_id: &str) {
        self.change_one(reservation_id, |count| count.left = count.left.saturating_add(1));
    }

    /// Records that a launch failed with insufficient capacity: the count is 0 until the next response of EC2.
    pub fn exhausted(&self, reservation_id: &str) {
        self.change_one(reservation_id, |count| count.left = 0);
    }

    pub fn current(&self) -> Arc<AvailableCounts> {
        Arc::clone(&self.lock().current)
    }

    pub fn left(&self, reservation_id: &str) -> u32 {
        self.lock().current.of(reservation_id)
    }

    /// Changes the count of a reservation; ignored if EC2 has not returned a count for it.
    fn change_one(&self, reservation_id: &str, change: impl FnOnce(&mut Count)) {
        self.change(|counts| {
            if let Some(count) = counts.get_mut(reservation_id) {
                change(count);
            }
        });
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<String, Count>)) {
        let mut state = self.lock();
        change(&mut state.counts);
        let by_id: BTreeMap<String, u32> =
            state.counts.iter().map(|(id, count)| (id.clone(), count.left)).collect();
        if by_id != state.current.by_id {
            state.current = Arc::new(AvailableCounts { version: state.current.version + 1, by_id });
        }
    }

    /// The current time of the clock that `launched_at` must use.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
