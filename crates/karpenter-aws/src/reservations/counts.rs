//! How many machines still fit into each reservation: what EC2 said last, and what was started and ended since.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use karpenter_cluster::clock::{Clock, since};

/// A count that was not confirmed for so long is worth nothing.
const KEPT_FOR: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Count {
    left: u32,
    synced_at: Timestamp,
}

/// What is left at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Left {
    /// Grows with every change.
    pub version: u64,
    pub by_id: BTreeMap<String, u32>,
}

impl Left {
    pub fn of(&self, reservation_id: &str) -> u32 {
        self.by_id.get(reservation_id).copied().unwrap_or(0)
    }
}

/// Clones share everything.
#[derive(Debug, Clone)]
pub struct Counts {
    clock: Clock,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    counts: BTreeMap<String, Count>,
    current: Arc<Left>,
}

impl Counts {
    pub fn new(clock: Clock) -> Self {
        Self { clock, state: Arc::default() }
    }

    /// What EC2 said when asked at `asked_at`.
    pub fn sync(&self, left: impl IntoIterator<Item = (String, u32)>, asked_at: Timestamp) {
        self.change(|counts| {
            counts.retain(|_, count| since(asked_at, count.synced_at) < KEPT_FOR);
            for (id, left) in left {
                counts.insert(id, Count { left, synced_at: asked_at });
            }
        });
    }

    /// A machine was started in the reservation by a call made at `launched_at`. If EC2 was asked after that, it
    /// counted the machine itself. Rather too many left than too few: the next launch finds out.
    pub fn launched(&self, reservation_id: &str, launched_at: Timestamp) {
        self.change_one(reservation_id, |count| {
            if count.synced_at <= launched_at {
                count.left = count.left.saturating_sub(1);
            }
        });
    }

    /// A machine of the reservation is gone.
    pub fn terminated(&self, reservation_id: &str) {
        self.change_one(reservation_id, |count| count.left = count.left.saturating_add(1));
    }

    /// EC2 refused: nothing is left until it says otherwise.
    pub fn exhausted(&self, reservation_id: &str) {
        self.change_one(reservation_id, |count| count.left = 0);
    }

    pub fn current(&self) -> Arc<Left> {
        Arc::clone(&self.lock().current)
    }

    pub fn left(&self, reservation_id: &str) -> u32 {
        self.lock().current.of(reservation_id)
    }

    /// What is not known stays unknown: a count made up from launches alone would be wrong.
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
            state.current = Arc::new(Left { version: state.current.version + 1, by_id });
        }
    }

    /// Now, on the clock that `launched` is told by.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
