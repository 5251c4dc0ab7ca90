//! Calls that are put together: requests that are alike wait for each other for a moment and become one call.
//!
//! A window closes when nothing came for a while, when its first request has waited long enough, or when it is full.
//! What the one call is and whose answer is whose is the caller's business ([`Batcher::new`]'s `execute`).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use karpenter_cluster::clock::Clock;
use tokio::sync::{Notify, Semaphore, oneshot};

use crate::api::AwsError;

/// When a window closes, and how many calls may be under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Windows {
    pub idle: Duration,
    pub longest: Duration,
    pub items_max: usize,
    pub concurrent_calls_max: usize,
}

/// What became of one window, for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchTold {
    pub batcher: &'static str,
    pub size: usize,
    /// From the first request to the call.
    pub waited: Duration,
}

type Answer<T> = Result<T, AwsError>;
type Execute<K, R, T> = dyn Fn(K, Vec<R>) -> BoxFuture<'static, Vec<Answer<T>>> + Send + Sync;
type Tell = dyn Fn(BatchTold) + Send + Sync;

/// Puts requests with equal keys together.
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
    tell: Box<Tell>,
    permits: Semaphore,
    open: Mutex<BTreeMap<K, Window<R, T>>>,
}

struct Window<R, T> {
    items: Vec<(R, oneshot::Sender<Answer<T>>)>,
    changed: Arc<Notify>,
}

impl<K, R, T> Batcher<K, R, T>
where
    K: Ord + Clone + Send + 'static,
    R: Send + 'static,
    T: Send + 'static,
{
    /// `execute` makes one call of requests and gives one answer per request, in their order.
    pub fn new(
        name: &'static str,
        clock: Clock,
        windows: Windows,
        execute: impl Fn(K, Vec<R>) -> BoxFuture<'static, Vec<Answer<T>>> + Send + Sync + 'static,
        tell: impl Fn(BatchTold) + Send + Sync + 'static,
    ) -> Self {
        let shared = Shared {
            name,
            clock,
            windows,
            execute: Box::new(execute),
            tell: Box::new(tell),
            permits: Semaphore::new(windows.concurrent_calls_max.clamp(1, Semaphore::MAX_PERMITS)),
            open: Mutex::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// One request's answer. A caller that goes away does not take its request back.
    pub async fn call(&self, key: K, request: R) -> Answer<T> {
        let (sender, receiver) = oneshot::channel();
        self.add(key, request, sender);
        receiver
            .await
            .unwrap_or_else(|_| Err(AwsError::unreachable("the call was given up before its answer came")))
    }

    fn add(&self, key: K, request: R, sender: oneshot::Sender<Answer<T>>) {
        let mut open = self.shared.open();
        if let Some(window) = open.get_mut(&key) {
            window.items.push((request, sender));
            window.changed.notify_one();
            if window.items.len() < self.shared.windows.items_max {
                return;
            }
            // It is full: whoever comes next opens another one.
            if let Some(window) = open.remove(&key) {
                drop(open);
                window.changed.notify_one();
                let shared = Arc::clone(&self.shared);
                // The task that watches the window finds it gone, so the call is made here.
                tokio::spawn(async move { shared.make_call(key, window.items, None).await });
            }
            return;
        }
        let changed = Arc::new(Notify::new());
        open.insert(key.clone(), Window { items: vec![(request, sender)], changed: Arc::clone(&changed) });
        drop(open);
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move { shared.watch(key, changed).await });
    }
}

impl<K: Ord + Clone, R, T> Shared<K, R, T> {
    fn open(&self) -> MutexGuard<'_, BTreeMap<K, Window<R, T>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the window closes, then makes its call.
    async fn watch(&self, key: K, changed: Arc<Notify>) {
        let opened = tokio::time::Instant::now();
        let longest = self.clock.deadline(self.windows.longest);
        loop {
            let idle = self.clock.deadline(self.windows.idle).min(longest);
            tokio::select! {
                biased;
                () = changed.notified() => {
                    let is_mine = self.open().get(&key).is_some_and(|window| Arc::ptr_eq(&window.changed, &changed));
                    if !is_mine {
                        return;
                    }
                    if tokio::time::Instant::now() >= longest {
                        break;
                    }
                }
                () = tokio::time::sleep_until(idle) => break,
            }
        }
        let window = {
            let mut open = self.open();
            let is_mine = open.get(&key).is_some_and(|window| Arc::ptr_eq(&window.changed, &changed));
            if is_mine { open.remove(&key) } else { None }
        };
        if let Some(window) = window {
            self.make_call(key, window.items, Some(opened)).await;
        }
    }

    async fn make_call(
        &self,
        key: K,
        items: Vec<(R, oneshot::Sender<Answer<T>>)>,
        opened: Option<tokio::time::Instant>,
    ) {
        let waited = opened.map(|opened| opened.elapsed()).unwrap_or_default();
        (self.tell)(BatchTold { batcher: self.name, size: items.len(), waited });
        let (requests, senders): (Vec<R>, Vec<_>) = items.into_iter().unzip();
        // The semaphore is never closed.
        let _permit = self.permits.acquire().await;
        let answers = (self.execute)(key, requests).await;
        for (sender, answer) in senders.into_iter().zip(answers) {
            // A caller that went away does not want it.
            let _ = sender.send(answer);
        }
    }
}

#[cfg(test)]
mod tests;
