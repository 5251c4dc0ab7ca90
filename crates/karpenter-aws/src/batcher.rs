//! Batches AWS requests: requests with equal keys that arrive within one batching window are sent as one call.
//!
//! As in upstream, requests of all keys share one window. The window closes when no request was added for the idle
//! time, after the maximum time, or when it is full; then one call is made for each key. With a separate window for
//! each key, alternating requests of many NodePools would be sent in many small batches. The `execute` function passed
//! to [`Batcher::new`] makes the call and assigns responses to requests.
//!
//! Upstream: `pkg/batcher/batcher.go`

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use karpenter_runtime::clock::Clock;
use tokio::sync::{Notify, Semaphore, oneshot};
use tokio::time::Instant;

use crate::api::AwsError;

/// When a batching window closes, and how many calls may run at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Windows {
    pub idle: Duration,
    pub longest: Duration,
    pub items_max: usize,
    pub concurrent_calls_max: usize,
}

/// A closed batching window, for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchRecord {
    pub batcher: &'static str,
    pub size: usize,
    /// The time from the window's first request to the call.
    pub waited: Duration,
}

type Answer<T> = Result<T, AwsError>;
type Execute<K, R, T> = dyn Fn(K, Vec<R>) -> BoxFuture<'static, Vec<Answer<T>>> + Send + Sync;
type RecordBatch = dyn Fn(BatchRecord) + Send + Sync;

/// Batches requests with equal keys.
pub struct Batcher<K, R, T> {
    shared: Arc<Shared<K, R, T>>,
}

impl<K, R, T> Clone for Batcher<K, R, T> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

struct Shared<K, R, T> {
    name: &'static str,
    clock: Clock,
    windows: Windows,
    execute: Box<Execute<K, R, T>>,
    record: Box<RecordBatch>,
    permits: Semaphore,
    open: Mutex<Option<Window<K, R, T>>>,
}

type Items<R, T> = Vec<(R, oneshot::Sender<Answer<T>>)>;

struct Window<K, R, T> {
    by_key: BTreeMap<K, Items<R, T>>,
    items: usize,
    opened: Instant,
    changed: Arc<Notify>,
}

impl<K, R, T> Batcher<K, R, T>
where
    K: Ord + Clone + Send + 'static,
    R: Send + 'static,
    T: Send + 'static,
{
    /// `execute` makes one call for several requests. It returns one response per request, in the order of the
    /// requests.
    pub fn new(
        name: &'static str,
        clock: Clock,
        windows: Windows,
        execute: impl Fn(K, Vec<R>) -> BoxFuture<'static, Vec<Answer<T>>> + Send + Sync + 'static,
        record: impl Fn(BatchRecord) + Send + Sync + 'static,
    ) -> Self {
        let shared = Shared {
            name,
            clock,
            windows,
            execute: Box::new(execute),
            record: Box::new(record),
            permits: Semaphore::new(windows.concurrent_calls_max.clamp(1, Semaphore::MAX_PERMITS)),
            open: Mutex::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Adds a request to the window and waits for its response. If the caller is cancelled, the request is still sent.
    pub async fn call(&self, key: K, request: R) -> Answer<T> {
        let (sender, receiver) = oneshot::channel();
        self.add(key, request, sender);
        receiver
            .await
            .unwrap_or_else(|_| Err(AwsError::unreachable("the call was cancelled before its response")))
    }

    fn add(&self, key: K, request: R, sender: oneshot::Sender<Answer<T>>) {
        let shared = Arc::clone(&self.shared);
        let mut open = self.shared.open();
        let is_new = open.is_none();
        let window = open.get_or_insert_with(|| Window {
            by_key: BTreeMap::new(),
            items: 0,
            opened: Instant::now(),
            changed: Arc::default(),
        });
        window.by_key.entry(key).or_default().push((request, sender));
        window.items += 1;
        let changed = Arc::clone(&window.changed);
        if window.items >= self.shared.windows.items_max {
            // The window is full and closes here. The task that waits for it will find it closed, so the calls are made
            // here.
            if let Some(window) = open.take() {
                tokio::spawn(async move { shared.make_calls(window).await });
            }
        } else if is_new {
            tokio::spawn(async move { shared.watch(changed).await });
            return;
        }
        drop(open);
        changed.notify_one();
    }
}

impl<K: Ord, R, T> Shared<K, R, T> {
    fn open(&self) -> MutexGuard<'_, Option<Window<K, R, T>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the window closes, and then makes its calls.
    async fn watch(&self, changed: Arc<Notify>) {
        let longest = self.clock.deadline(self.windows.longest);
        let is_watched = |window: &mut Window<K, R, T>| Arc::ptr_eq(&window.changed, &changed);
        loop {
            let idle = self.clock.deadline(self.windows.idle).min(longest);
            tokio::select! {
                biased;
                () = changed.notified() => {
                    if !self.open().as_mut().is_some_and(is_watched) {
                        return;
                    }
                    if Instant::now() >= longest {
                        break;
                    }
                }
                () = tokio::time::sleep_until(idle) => break,
            }
        }
        let window = self.open().take_if(|window| is_watched(window));
        if let Some(window) = window {
            self.make_calls(window).await;
        }
    }

    /// Makes one call for each key of the window.
    async fn make_calls(&self, window: Window<K, R, T>) {
        let waited = window.opened.elapsed();
        join_all(window.by_key.into_iter().map(|(key, items)| self.make_call(key, items, waited))).await;
    }

    async fn make_call(&self, key: K, items: Items<R, T>, waited: Duration) {
        (self.record)(BatchRecord { batcher: self.name, size: items.len(), waited });
        let (requests, senders): (Vec<R>, Vec<_>) = items.into_iter().unzip();
        // This cannot fail, because the semaphore is never closed.
        let _permit = self.permits.acquire().await;
        let answers = (self.execute)(key, requests).await;
        for (sender, answer) in senders.into_iter().zip(answers) {
            // Sending fails if the caller was cancelled; the response is not needed then.
            let _ = sender.send(answer);
        }
    }
}

#[cfg(test)]
mod tests;
