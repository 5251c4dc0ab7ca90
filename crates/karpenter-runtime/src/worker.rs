//! Runs a controller, like controller-runtime: the keys of its [`Queue`] are reconciled by a number of tasks, each key by
//! one task at a time.

#[cfg(test)]
mod tests;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::clock::Clock;
use crate::object::ObjectKey;
use crate::queue::{Queue, back_off};

/// When to reconcile a key again without a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requeue {
    No,
    After(Duration),
}

impl Requeue {
    /// The earlier of two requeue times.
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

/// A controller that reconciles keys.
pub trait Reconcile: Send + Sync + 'static {
    /// Compares the actual with the desired state of the object and writes the differences. Must be idempotent.
    fn reconcile(&self, key: &ObjectKey) -> impl Future<Output = kube::Result<Requeue>> + Send;
}

/// The signal to stop all controllers. Clones share the signal.
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
        // The sender lives as long as this handle, so waiting cannot fail.
        let _ = self.sender.subscribe().wait_for(|requested| *requested).await;
    }
}

impl<R: Reconcile> Reconcile for Arc<R> {
    async fn reconcile(&self, key: &ObjectKey) -> kube::Result<Requeue> {
        (**self).reconcile(key).await
    }
}

/// Reconciles the keys of the queue until shutdown, up to `workers` different keys concurrently.
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
            () = queue.changed() => {}
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
