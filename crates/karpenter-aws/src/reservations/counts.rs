//! How many instances can still be launched into each capacity reservation: EC2's last count, adjusted by later
//! launches and terminations.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use karpenter_runtime::clock::{Clock, since};

/// A count that EC2 did not confirm for this long is dropped.
const KEPT_FOR: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Count {
    left: u32,
    synced_at: Timestamp,
}

/// A snapshot of how many instances each reservation has available.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AvailableCounts {
    /// The version of the snapshot, which increases with every change.
    pub version: u64,
    pub by_id: BTreeMap<String, u32>,
}

impl AvailableCounts {
    pub fn of(&self, reservation_id: &str) -> u32 {
        self.by_id.get(reservation_id).copied().unwrap_or(0)
    }
}

/// The counts of all reservations. All clones share their state.
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

    /// Sets the counts from EC2's response to a call that was made at `asked_at`.
    pub fn sync(&self, left: impl IntoIterator<Item = (String, u32)>, asked_at: Timestamp) {
        self.change(|counts| {
            counts.retain(|_, count| since(asked_at, count.synced_at) < KEPT_FOR);
            for (id, left) in left {
                counts.insert(id, Count { left, synced_at: asked_at });
            }
        });
    }

    /// Records that a call made at `launched_at` launched an instance into the reservation. If EC2's last count is
    /// newer than that call, it already includes the instance. If this is uncertain, the count stays too high; then the
    /// next launch fails and corrects it.
    pub fn launched(&self, reservation_id: &str, launched_at: Timestamp) {
        self.change_one(reservation_id, |count| {
            if count.synced_at <= launched_at {
                count.left = count.left.saturating_sub(1);
            }
        });
    }

    /// Records that an instance in the reservation was terminated.
    pub fn terminated(&self, reservation_id: &str) {
        self.change_one(reservation_id, |count| count.left = count.left.saturating_add(1));
    }

    /// Records that a launch into the reservation failed with insufficient capacity: its count is 0 until EC2's next
    /// response.
    pub fn exhausted(&self, reservation_id: &str) {
        self.change_one(reservation_id, |count| count.left = 0);
    }

    pub fn current(&self) -> Arc<AvailableCounts> {
        Arc::clone(&self.lock().current)
    }

    pub fn left(&self, reservation_id: &str) -> u32 {
        self.lock().current.of(reservation_id)
    }

    /// Changes the count of a reservation; does nothing if EC2 has not returned a count for it.
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

    /// The current time by the clock that callers must use for `launched_at`.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
