//! Shares concurrent calls: for each key only one call is in flight at a time, and callers that arrive in the meantime
//! get its result.
//!
//! Results are not cached: a caller that arrives after a call has finished starts a new one. If all callers are
//! cancelled, the call is cancelled.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::{BoxFuture, FutureExt, Shared, WeakShared};

type Flight<V> = BoxFuture<'static, V>;

/// The calls in flight.
pub struct SingleFlight<K, V: Clone> {
    flights: Arc<Mutex<BTreeMap<K, WeakShared<Flight<V>>>>>,
}

impl<K, V: Clone> Clone for SingleFlight<K, V> {
    fn clone(&self) -> Self {
        Self { flights: Arc::clone(&self.flights) }
    }
}

impl<K, V: Clone> Default for SingleFlight<K, V> {
    fn default() -> Self {
        Self { flights: Arc::default() }
    }
}

impl<K, V> SingleFlight<K, V>
where
    K: Ord + Clone + Send + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// The result of the call that is in flight for `key`; if there is none, starts one.
    pub async fn run<F>(&self, key: K, question: impl FnOnce() -> F) -> V
    where
        F: Future<Output = V> + Send + 'static,
    {
        let flight = self.join(key, question);
        flight.await
    }

    fn join<F>(&self, key: K, question: impl FnOnce() -> F) -> Shared<Flight<V>>
    where
        F: Future<Output = V> + Send + 'static,
    {
        let mut flights = self.flights.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(flight) = flights.get(&key).and_then(WeakShared::upgrade) {
            return flight;
        }
        // The keys of cancelled calls are removed here.
        flights.retain(|_, flight| flight.upgrade().is_some());
        let all = Arc::clone(&self.flights);
        let (own_key, question) = (key.clone(), question());
        let flight = async move {
            let answer = question.await;
            // The call is removed before its result is returned, so that no caller joins a finished call.
            all.lock().unwrap_or_else(PoisonError::into_inner).remove(&own_key);
            answer
        };
        let flight = flight.boxed().shared();
        if let Some(weak) = flight.downgrade() {
            flights.insert(key, weak);
        }
        flight
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use super::*;

    async fn slow(asked: Arc<AtomicU32>) -> u32 {
        let number = asked.fetch_add(1, Ordering::Relaxed) + 1;
        tokio::time::sleep(Duration::from_secs(1)).await;
        number
    }

    #[tokio::test(start_paused = true)]
    async fn calls_are_shared_per_key() {
        let flights = SingleFlight::default();
        let asked = Arc::new(AtomicU32::new(0));
        let ask = |key: &'static str| flights.run(key, || slow(Arc::clone(&asked)));
        let (one, two, other) = tokio::join!(ask("a"), ask("a"), ask("b"));
        assert_eq!((one, two, other), (1, 1, 2));
        assert_eq!(ask("a").await, 3, "an answer is not remembered");
        assert!(flights.flights.lock().unwrap().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn call_outlives_its_first_caller() {
        let flights = SingleFlight::default();
        let asked = Arc::new(AtomicU32::new(0));
        let first = flights.join("a", || slow(Arc::clone(&asked)));
        let second = flights.join("a", || slow(Arc::clone(&asked)));
        drop(first);
        assert_eq!(second.await, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn call_without_callers_is_cancelled() {
        let flights = SingleFlight::default();
        let asked = Arc::new(AtomicU32::new(0));
        let ask = flights.run("a", || slow(Arc::clone(&asked)));
        assert!(tokio::time::timeout(Duration::from_millis(1), ask).await.is_err());
        assert_eq!(flights.run("a", || slow(Arc::clone(&asked))).await, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn caller_after_result_starts_new_call() {
        let flights = SingleFlight::default();
        let asked = Arc::new(AtomicU32::new(0));
        let held = flights.join("a", || slow(Arc::clone(&asked)));
        assert_eq!(held.clone().await, 1);
        assert_eq!(flights.run("a", || slow(Arc::clone(&asked))).await, 2);
        drop(held);
    }
}
