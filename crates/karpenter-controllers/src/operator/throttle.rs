//! Client-side rate limit of requests to the API server: client-go's token bucket, as a layer of the client.
//!
//! Requests for leases are exempt, as in upstream: if the renewal of the lease had to wait behind other requests of
//! this process, the leader would lose the lease.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use http::Request;
use tokio::time::Instant;
use tower::{Layer, Service};

use crate::metrics::client::OnWait;

/// The requests per second that client-go uses if the configured rate is 0.
const QPS_DEFAULT: f64 = 5.0;
/// The burst that client-go uses if the configured burst is 0.
const BURST_DEFAULT: f64 = 10.0;
const LEASES: &str = "/apis/coordination.k8s.io/";

/// A token bucket that allows `burst` requests at once, and then `qps` requests per second.
#[derive(Debug, Clone, PartialEq)]
struct TokenBucket {
    qps: f64,
    burst: f64,
    /// The number of available tokens. It is negative while requests wait.
    tokens: f64,
    as_of: Instant,
}

impl TokenBucket {
    /// Creates a full bucket; `None` if the rate is not limited.
    fn new(qps: f64, burst: i64, now: Instant) -> Option<Self> {
        let qps = if qps == 0.0 { QPS_DEFAULT } else { qps };
        let burst = if burst == 0 { BURST_DEFAULT } else { burst.max(1) as f64 };
        (qps > 0.0).then_some(Self { qps, burst, tokens: burst, as_of: now })
    }

    /// Takes a token and returns how long the request must wait for it.
    fn take(&mut self, now: Instant) -> Duration {
        let passed = now.saturating_duration_since(self.as_of);
        self.tokens = (self.tokens + passed.as_secs_f64() * self.qps).min(self.burst) - 1.0;
        self.as_of = self.as_of.max(now);
        Duration::try_from_secs_f64(-self.tokens / self.qps).unwrap_or_default()
    }
}

/// The rate limit, shared by all clients that use this layer.
#[derive(Clone)]
pub struct ThrottleLayer {
    bucket: Option<Arc<Mutex<TokenBucket>>>,
    on_wait: OnWait,
}

impl ThrottleLayer {
    /// Creates the layer. As in client-go, a rate of 0 means 5, a burst of 0 means 10, and a negative rate means no
    /// limit.
    pub fn new(qps: f64, burst: i64, on_wait: OnWait) -> Self {
        let bucket = TokenBucket::new(qps, burst, Instant::now());
        Self { bucket: bucket.map(|bucket| Arc::new(Mutex::new(bucket))), on_wait }
    }
}

impl<S> Layer<S> for ThrottleLayer {
    type Service = Throttle<S>;

    fn layer(&self, inner: S) -> Throttle<S> {
        Throttle { inner, limit: self.clone() }
    }
}

pub struct Throttle<S> {
    inner: S,
    limit: ThrottleLayer,
}

impl<S, B> Service<Request<B>> for Throttle<S>
where
    S: Service<Request<B>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut TaskContext<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let wait = match &self.limit.bucket {
            Some(bucket) if !request.uri().path().starts_with(LEASES) => {
                let wait = bucket.lock().unwrap_or_else(PoisonError::into_inner).take(Instant::now());
                (self.limit.on_wait)(request.method(), request.uri(), wait);
                wait
            }
            _ => Duration::ZERO,
        };
        // The inner service cannot be cloned, so the future for the request is created now. The request is sent when
        // that future is first polled, which is after the wait.
        let sending = self.inner.call(request);
        if wait.is_zero() {
            return Box::pin(sending);
        }
        Box::pin(async move {
            tokio::time::sleep(wait).await;
            sending.await
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Method;
    use std::convert::Infallible;
    use tower::{ServiceExt, service_fn};

    /// Starts this number of requests at the same time, and returns after how many seconds each is sent.
    async fn sent_after(layer: &ThrottleLayer, path: &str, requests: usize) -> Vec<f64> {
        let started = Instant::now();
        let service =
            service_fn(
                move |_: Request<()>| async move { Ok::<_, Infallible>(started.elapsed().as_secs_f64()) },
            );
        let one = || layer.layer(service).oneshot(Request::get(path).body(()).expect("a request"));
        let sent = futures::future::join_all((0..requests).map(|_| one())).await;
        // The test clock has a resolution of one millisecond.
        sent.into_iter()
            .map(|after| after.map(|after| (after * 100.0).round() / 100.0).unwrap_or_default())
            .collect()
    }

    fn layer(qps: f64, burst: i64) -> ThrottleLayer {
        ThrottleLayer::new(qps, burst, Arc::new(|_, _, _| {}))
    }

    #[tokio::test(start_paused = true)]
    async fn requests_beyond_burst_are_sent_at_rate() {
        let limit = layer(10.0, 3);
        assert_eq!(sent_after(&limit, "/api/v1/pods", 6).await, [0.0, 0.0, 0.0, 0.1, 0.2, 0.3]);
        // After a minute, the empty bucket has refilled up to the burst.
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(sent_after(&limit, "/api/v1/pods", 4).await, [0.0, 0.0, 0.0, 0.1]);
    }

    #[tokio::test(start_paused = true)]
    async fn zero_is_the_default_and_negative_is_no_limit() {
        let of_zero = sent_after(&layer(0.0, 0), "/api/v1/pods", 12).await;
        assert_eq!(of_zero[9..], [0.0, 0.2, 0.4]);
        assert_eq!(sent_after(&layer(-1.0, 1), "/api/v1/pods", 50).await, [0.0; 50]);
    }

    #[tokio::test(start_paused = true)]
    async fn leases_are_not_limited() {
        let limit = layer(1.0, 1);
        assert_eq!(sent_after(&limit, "/api/v1/pods", 2).await, [0.0, 1.0]);
        let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/karpenter-leader-election";
        assert_eq!(sent_after(&limit, lease, 2).await, [0.0, 0.0]);
    }

    #[tokio::test(start_paused = true)]
    async fn waits_are_passed_to_the_listener() {
        let seen: Arc<Mutex<Vec<(Method, String, Duration)>>> = Arc::default();
        let record = seen.clone();
        let on_wait: OnWait = Arc::new(move |method, uri, wait| {
            record.lock().expect("not poisoned").push((method.clone(), uri.path().to_owned(), wait));
        });
        sent_after(&ThrottleLayer::new(2.0, 1, on_wait), "/api/v1/pods", 2).await;
        let waits: Vec<Duration> =
            seen.lock().expect("not poisoned").iter().map(|(_, _, wait)| *wait).collect();
        assert_eq!(waits, [Duration::ZERO, Duration::from_millis(500)]);
        assert!(
            seen.lock()
                .expect("not poisoned")
                .iter()
                .all(|(method, path, _)| { method == Method::GET && path == "/api/v1/pods" })
        );
    }
}
