//! The work queue of a controller: an ordered queue of keys. The queue contains a key at most once and gives it to one
//! pass at a time. A key is added again after a failure, at a time that the controller chose, or when its object
//! changed.
//!
//! Keys are processed in the order in which they were added; nothing depends on hashing or randomness. The queue
//! contains only keys; the controller decides what it reconciles for a key.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::object::ObjectKey;

/// The metrics of a queue. The methods are called while the queue is locked.
pub trait Measure: Debug + Send + Sync {
    /// Called when a key was added that was not in the queue.
    fn added(&self);
    /// Called when a key was requeued after a failure, or for a later time.
    fn requeued(&self);
    /// Called when a pass began; `waited` is the time since its key was added.
    fn started(&self, waited: Duration);
    /// A pass ended.
    fn finished(&self, took: Duration);
}

/// The passes in progress.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct InProgress {
    /// The sum of the durations of the passes so far.
    pub total: Duration,
    /// The duration of the longest pass so far.
    pub longest: Duration,
}

/// The queue of a controller. Clones share the queue.
#[derive(Debug, Clone, Default)]
pub struct Queue {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<QueueState>,
    changed: Notify,
}

#[derive(Debug, Default)]
pub(crate) struct QueueState {
    ready: VecDeque<ObjectKey>,
    /// Since when.
    dirty: BTreeMap<ObjectKey, Instant>,
    /// Since when.
    in_flight: BTreeMap<ObjectKey, Instant>,
    pub(crate) due: BTreeSet<(Instant, ObjectKey)>,
    due_of: BTreeMap<ObjectKey, Instant>,
    pub(crate) failures: BTreeMap<ObjectKey, u32>,
    measure: Option<Arc<dyn Measure>>,
}

impl QueueState {
    fn add(&mut self, key: ObjectKey) -> bool {
        if self.dirty.contains_key(&key) {
            return false;
        }
        self.dirty.insert(key.clone(), Instant::now());
        if let Some(measure) = &self.measure {
            measure.added();
        }
        if self.in_flight.contains_key(&key) {
            return false;
        }
        self.ready.push_back(key);
        true
    }

    fn add_at(&mut self, key: ObjectKey, at: Instant) {
        if let Some(earlier) = self.due_of.get(&key).copied() {
            if earlier <= at {
                return;
            }
            self.due.remove(&(earlier, key.clone()));
        }
        self.due_of.insert(key.clone(), at);
        self.due.insert((at, key));
    }

    pub(crate) fn promote(&mut self, now: Instant) {
        while let Some((at, _)) = self.due.first() {
            if *at > now {
                break;
            }
            if let Some((_, key)) = self.due.pop_first() {
                self.due_of.remove(&key);
                self.add(key);
            }
        }
    }

    /// Takes the next key. If a requeue of the key is scheduled, it is cancelled, because the pass decides on a new
    /// one.
    pub(crate) fn take(&mut self) -> Option<ObjectKey> {
        let key = self.ready.pop_front()?;
        let (added, now) = (self.dirty.remove(&key), Instant::now());
        if let (Some(measure), Some(added)) = (&self.measure, added) {
            measure.started(now.saturating_duration_since(added));
        }
        if let Some(at) = self.due_of.remove(&key) {
            self.due.remove(&(at, key.clone()));
        }
        self.in_flight.insert(key.clone(), now);
        Some(key)
    }

    pub(crate) fn finish(&mut self, key: &ObjectKey) {
        let began = self.in_flight.remove(key);
        if let (Some(measure), Some(began)) = (&self.measure, began) {
            measure.finished(began.elapsed());
        }
        if self.dirty.contains_key(key) {
            self.ready.push_back(key.clone());
        }
    }

    /// Requeues the key after its pass.
    pub(crate) fn requeue_at(&mut self, key: ObjectKey, at: Instant) {
        if let Some(measure) = &self.measure {
            measure.requeued();
        }
        self.add_at(key, at);
    }
}

/// How long [`Queue::add_debounced`] waits before it adds the key.
const DEBOUNCE: Duration = Duration::from_millis(10);
/// The longest back-off of a key.
const BACK_OFF_MAX: Duration = Duration::from_secs(30);
const BACK_OFF_MIN: Duration = Duration::from_millis(5);

pub(crate) fn back_off(failures: u32) -> Duration {
    BACK_OFF_MIN.saturating_mul(1u32 << failures.min(16)).min(BACK_OFF_MAX)
}

impl Queue {
    /// A queue with metrics.
    pub fn measured(measure: Arc<dyn Measure>) -> Self {
        let queue = Self::default();
        queue.state().measure = Some(measure);
        queue
    }

    pub fn add(&self, key: ObjectKey) {
        if self.state().add(key) {
            self.shared.changed.notify_one();
        }
    }

    /// Adds the key after a short delay, so that many changes cause one pass. It is meant for keys that are expensive
    /// to reconcile and depend on many objects.
    pub fn add_debounced(&self, key: ObjectKey) {
        if !self.state().dirty.contains_key(&key) {
            self.add_at(key, Instant::now() + DEBOUNCE);
        }
    }

    /// Adds the key when tokio's clock reaches `at`, or earlier if it is already scheduled for an earlier time.
    pub fn add_at(&self, key: ObjectKey, at: Instant) {
        self.state().add_at(key, at);
        self.shared.changed.notify_one();
    }

    /// The number of keys that are ready. Keys that are scheduled for later do not count.
    pub fn len(&self) -> usize {
        self.state().ready.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn in_progress(&self) -> InProgress {
        let now = Instant::now();
        let state = self.state();
        let took = state.in_flight.values().map(|began| now.saturating_duration_since(*began));
        took.fold(InProgress::default(), |sum, one| InProgress {
            total: sum.total + one,
            longest: sum.longest.max(one),
        })
    }

    /// Returns when a key was added since the last call.
    pub(crate) async fn changed(&self) {
        self.shared.changed.notified().await;
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, QueueState> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
