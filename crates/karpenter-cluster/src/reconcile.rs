//! Runs a controller: keys that may need work wait in an ordered queue, each is reconciled by one task at a time, and
//! is looked at again after a failure, at a deadline it named, or when something about it changed.
//!
//! The order is that in which keys became dirty; nothing depends on hashing or on a random number. What a controller
//! decides is its own business: the harness knows keys only.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Debug;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::clock::Clock;
use crate::store::ObjectKey;

/// When a key should be looked at again although nothing about it changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requeue {
    No,
    After(Duration),
}

impl Requeue {
    /// The earlier of two wishes.
    pub fn earlier(self, other: Self) -> Self {
        match (self, other) {
            (Self::After(one), Self::After(two)) => Self::After(one.min(two)),
            (Self::No, wish) | (wish, Self::No) => wish,
        }
    }
}

impl From<Option<Duration>> for Requeue {
    fn from(wait: Option<Duration>) -> Self {
        wait.map_or(Self::No, Self::After)
    }
}

/// One kind of work, done key by key.
pub trait Reconcile: Send + Sync + 'static {
    /// Compares what is with what should be, and takes the next steps. Must be repeatable.
    fn reconcile(&self, key: &ObjectKey) -> impl Future<Output = kube::Result<Requeue>> + Send;
}

/// Tells everything that runs in a cluster to stop.
#[derive(Debug, Clone)]
pub struct Shutdown {
    sender: Arc<watch::Sender<bool>>,
}

impl Default for Shutdown {
    fn default() -> Self {
        Self { sender: Arc::new(watch::Sender::new(false)) }
    }
}

impl Shutdown {
    pub fn request(&self) {
        self.sender.send_replace(true);
    }

    pub fn is_requested(&self) -> bool {
        *self.sender.borrow()
    }

    pub async fn requested(&self) {
        // The sender lives as long as this handle.
        let _ = self.sender.subscribe().wait_for(|requested| *requested).await;
    }
}

impl<R: Reconcile> Reconcile for Arc<R> {
    async fn reconcile(&self, key: &ObjectKey) -> kube::Result<Requeue> {
        (**self).reconcile(key).await
    }
}

/// Counts what happens to the keys of a queue. Called while the queue is locked.
pub trait Measure: Debug + Send + Sync {
    /// A key that was not in the queue has become ready.
    fn added(&self);
    /// A key is to be reconciled again after a failure, or at a deadline that its pass named.
    fn requeued(&self);
    /// A pass begins, so long after its key was added.
    fn started(&self, waited: Duration);
    /// A pass is over.
    fn finished(&self, took: Duration);
}

/// Passes that have begun and are not over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct InProgress {
    /// How long they have taken, all together.
    pub total: Duration,
    /// How long the first of them has taken.
    pub longest: Duration,
}

/// Keys that wait for their controller. Clones share the queue.
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
struct QueueState {
    ready: VecDeque<ObjectKey>,
    /// Since when.
    dirty: BTreeMap<ObjectKey, Instant>,
    /// Since when.
    in_flight: BTreeMap<ObjectKey, Instant>,
    due: BTreeSet<(Instant, ObjectKey)>,
    due_of: BTreeMap<ObjectKey, Instant>,
    failures: BTreeMap<ObjectKey, u32>,
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

    fn promote(&mut self, now: Instant) {
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

    /// The next key to work on. Its deadline is forgotten: the work will name a new one.
    fn take(&mut self) -> Option<ObjectKey> {
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

    fn finish(&mut self, key: &ObjectKey) {
        let began = self.in_flight.remove(key);
        if let (Some(measure), Some(began)) = (&self.measure, began) {
            measure.finished(began.elapsed());
        }
        if self.dirty.contains_key(key) {
            self.ready.push_back(key.clone());
        }
    }

    /// Adds the key again after its pass.
    fn requeue_at(&mut self, key: ObjectKey, at: Instant) {
        if let Some(measure) = &self.measure {
            measure.requeued();
        }
        self.add_at(key, at);
    }
}

/// How long changes gather before work on them starts, where it may wait.
const SETTLE: Duration = Duration::from_millis(10);
/// The longest pause between two tries of the same key.
const BACK_OFF_MAX: Duration = Duration::from_secs(30);
const BACK_OFF_FIRST: Duration = Duration::from_millis(5);

fn back_off(failures: u32) -> Duration {
    BACK_OFF_FIRST.saturating_mul(1u32 << failures.min(16)).min(BACK_OFF_MAX)
}

impl Queue {
    /// A queue whose keys are counted.
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

    /// Adds the key a moment later, so that many changes at once make one piece of work. For what is costly to look
    /// at and changes with each of its many parts.
    pub fn add_debounced(&self, key: ObjectKey) {
        if !self.state().dirty.contains_key(&key) {
            self.add_at(key, Instant::now() + SETTLE);
        }
    }

    /// Adds the key when tokio's clock reaches `at`, or earlier if it asked for that before.
    pub fn add_at(&self, key: ObjectKey, at: Instant) {
        self.state().add_at(key, at);
        self.shared.changed.notify_one();
    }

    /// How many keys wait for a worker right now; those with a deadline that is still to come do not count.
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

    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Works on the queue until told to stop, on up to `workers` different keys at once.
pub async fn run<R: Reconcile>(work: Arc<R>, queue: Queue, workers: usize, clock: Clock, shutdown: Shutdown) {
    let mut running = FuturesUnordered::new();
    loop {
        let mut next_due = None;
        if !shutdown.is_requested() {
            let mut state = queue.state();
            state.promote(Instant::now());
            while running.len() < workers.max(1) {
                let Some(key) = state.take() else { break };
                let work = work.clone();
                running.push(async move {
                    let outcome = work.reconcile(&key).await;
                    (key, outcome)
                });
            }
            next_due = state.due.first().map(|(at, _)| *at);
        } else if running.is_empty() {
            return;
        }
        tokio::select! {
            biased;
            () = shutdown.requested(), if !shutdown.is_requested() => {}
            Some((key, outcome)) = running.next(), if !running.is_empty() => {
                let mut state = queue.state();
                state.finish(&key);
                match outcome {
                    Ok(after) => {
                        state.failures.remove(&key);
                        if let Requeue::After(wait) = after {
                            state.requeue_at(key, clock.deadline(wait));
                        }
                    }
                    Err(_) => {
                        let failures = state.failures.entry(key.clone()).or_insert(0);
                        *failures += 1;
                        let wait = back_off(*failures);
                        state.requeue_at(key, Instant::now() + wait);
                    }
                }
            }
            () = queue.shared.changed.notified() => {}
            () = wait_for(next_due), if next_due.is_some() => {}
        }
    }
}

async fn wait_for(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
