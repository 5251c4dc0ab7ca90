//! Metrics of requests to the API server, with client-go's names, as a layer of the client.
//!
//! The duration of a request ends when its response headers arrive. It includes the wait for the client-side rate
//! limit, because this layer is outside of the rate limit. Watches are counted, but their duration is not measured,
//! because the server decides when they end.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Method, Request, Response, Uri};
use prometheus::core::Collector;
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry, exponential_buckets};
use tokio::time::Instant;
use tower::{Layer, Service};

/// The value of the label `code` for a request that got no response.
const NO_RESPONSE: &str = "<error>";
/// Buckets of the wait for the rate limit, in seconds.
const WAIT_BUCKETS: &[f64] = &[0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];

/// Called for each request with the time that it waited for the rate limit before it was sent; the time is zero for
/// most requests.
pub type OnWait = Arc<dyn Fn(&Method, &Uri, Duration) + Send + Sync>;

/// The client metrics. They are created before the registry, because the client is needed before the controllers exist.
/// Clones share the series.
#[derive(Debug, Clone)]
pub struct ClientMetrics {
    /// Host and port of the API server.
    host: Arc<str>,
    requests: IntCounterVec,
    requests_by_host: IntCounterVec,
    duration: HistogramVec,
    waits: HistogramVec,
}

impl ClientMetrics {
    const VALID: &str = "names, labels and buckets are constants";

    pub fn new(server: &Uri) -> Self {
        let counter = |name: &str, help: &str, labels: &[&str]| {
            IntCounterVec::new(Opts::new(name, help), labels).expect(Self::VALID)
        };
        let histogram = |name: &str, help: &str, buckets: Vec<f64>, labels: &[&str]| {
            HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets), labels).expect(Self::VALID)
        };
        Self {
            host: server.authority().map_or("", |authority| authority.as_str()).into(),
            requests: counter(
                "client_go_request_total",
                "Number of requests to the API server, by status code and method.",
                &["code", "method"],
            ),
            requests_by_host: counter(
                "rest_client_requests_total",
                "Number of requests to the API server, by status code, method and host.",
                &["code", "method", "host"],
            ),
            duration: histogram(
                "client_go_request_duration_seconds",
                "Latency of requests to the API server, by verb and resource, without watches.",
                exponential_buckets(0.001, 1.5, 20).expect(Self::VALID),
                &["verb", "group", "version", "kind", "subresource"],
            ),
            waits: histogram(
                "rest_client_rate_limiter_duration_seconds",
                "How long requests waited for the client-side rate limit.",
                WAIT_BUCKETS.to_vec(),
                &["verb", "host"],
            ),
        }
    }

    pub fn register(&self, registry: &Registry) {
        let all: [Box<dyn Collector>; 4] = [
            Box::new(self.requests.clone()),
            Box::new(self.requests_by_host.clone()),
            Box::new(self.duration.clone()),
            Box::new(self.waits.clone()),
        ];
        for one in all {
            registry.register(one).expect(Self::VALID);
        }
    }

    /// The function that the rate limit calls with the wait of each request.
    pub fn on_wait(&self) -> OnWait {
        let metrics = self.clone();
        Arc::new(move |method, _, wait| {
            let labels = [method.as_str(), &*metrics.host];
            metrics.waits.with_label_values(&labels).observe(wait.as_secs_f64());
        })
    }

    fn answered(&self, asked: &Asked, code: &str, took: Duration) {
        let method = asked.method.as_str();
        self.requests.with_label_values(&[code, method]).inc();
        self.requests_by_host.with_label_values(&[code, method, &*self.host]).inc();
        if asked.is_watch {
            return;
        }
        if let Some(resource) = Resource::of(asked.uri.path()) {
            let verb = resource.verb(&asked.method);
            let labels = [verb, resource.group, resource.version, resource.kind, resource.subresource];
            self.duration.with_label_values(&labels).observe(took.as_secs_f64());
        }
    }
}

/// The resource that the path of a request names.
#[derive(Debug, PartialEq, Eq)]
struct Resource<'a> {
    group: &'a str,
    version: &'a str,
    /// The plural name, as in paths.
    kind: &'a str,
    subresource: &'a str,
    is_named: bool,
}

impl<'a> Resource<'a> {
    /// `None` if the path names no resource.
    fn of(path: &'a str) -> Option<Self> {
        let mut parts = path.split('/').skip(1);
        let group = match parts.next()? {
            "api" => "",
            "apis" => parts.next()?,
            _ => return None,
        };
        let version = parts.next()?;
        let mut rest: Vec<&str> = parts.collect();
        // The path of a Namespace object consists of `namespaces` and its name, and possibly one of two subresources.
        let is_namespaced = rest.first() == Some(&"namespaces")
            && rest.len() > 2
            && !(rest.len() == 3 && matches!(rest[2], "status" | "finalize"));
        if is_namespaced {
            rest.drain(..2);
        }
        let kind = *rest.first()?;
        let subresource = rest.get(2).copied().unwrap_or_default();
        Some(Self { group, version, kind, subresource, is_named: rest.len() > 1 })
    }

    fn verb<'m>(&self, method: &'m Method) -> &'m str {
        match *method {
            Method::POST => "CREATE",
            Method::GET if !self.is_named => "LIST",
            Method::PUT if self.is_named => "UPDATE",
            Method::PUT => "CREATE",
            _ => method.as_str(),
        }
    }
}

struct Asked {
    method: Method,
    uri: Uri,
    is_watch: bool,
    since: Instant,
}

impl<S> Layer<S> for ClientMetrics {
    type Service = Measured<S>;

    fn layer(&self, inner: S) -> Measured<S> {
        Measured { inner, metrics: self.clone() }
    }
}

pub struct Measured<S> {
    inner: S,
    metrics: ClientMetrics,
}

impl<S, B, A> Service<Request<B>> for Measured<S>
where
    S: Service<Request<B>, Response = Response<A>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let mut query = request.uri().query().unwrap_or_default().split('&');
        let asked = Asked {
            method: request.method().clone(),
            uri: request.uri().clone(),
            is_watch: query.any(|pair| matches!(pair, "watch=true" | "watch=1")),
            since: Instant::now(),
        };
        let metrics = self.metrics.clone();
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            let code = answer.as_ref().map(|answer| answer.status());
            let code = code.as_ref().map_or(NO_RESPONSE, |code| code.as_str());
            metrics.answered(&asked, code, asked.since.elapsed());
            answer
        })
    }
}

#[cfg(test)]
mod tests {
    use prometheus::TextEncoder;
    use tower::{ServiceExt, service_fn};

    use super::*;
    use crate::operator::throttle::ThrottleLayer;

    #[test]
    fn resource_and_verb_are_parsed_from_path() {
        let table = [
            (Method::GET, "/api/v1/pods", "LIST", ["", "v1", "pods", ""]),
            (Method::GET, "/api/v1/namespaces", "LIST", ["", "v1", "namespaces", ""]),
            (Method::GET, "/api/v1/namespaces/default", "GET", ["", "v1", "namespaces", ""]),
            (Method::GET, "/api/v1/namespaces/default/pods", "LIST", ["", "v1", "pods", ""]),
            (Method::PUT, "/api/v1/namespaces/default/status", "UPDATE", ["", "v1", "namespaces", "status"]),
            (
                Method::DELETE,
                "/apis/karpenter.sh/v1/nodeclaims/a",
                "DELETE",
                ["karpenter.sh", "v1", "nodeclaims", ""],
            ),
            (
                Method::PATCH,
                "/apis/karpenter.sh/v1/nodeclaims/a/status",
                "PATCH",
                ["karpenter.sh", "v1", "nodeclaims", "status"],
            ),
            (
                Method::PUT,
                "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/a",
                "UPDATE",
                ["coordination.k8s.io", "v1", "leases", ""],
            ),
            (
                Method::POST,
                "/api/v1/namespaces/default/pods/web/eviction",
                "CREATE",
                ["", "v1", "pods", "eviction"],
            ),
        ];
        for (method, path, verb, expected) in table {
            let found = Resource::of(path).expect("a resource");
            let labels = [found.group, found.version, found.kind, found.subresource];
            assert_eq!((found.verb(&method), labels), (verb, expected), "{method} {path}");
        }
        for path in ["/version", "/readyz", "/apis", "/api/v1", "/"] {
            assert_eq!(Resource::of(path), None, "{path}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn durations_of_requests_include_the_wait_for_the_rate_limit() {
        let metrics = ClientMetrics::new(&Uri::from_static("https://10.0.0.1:443/"));
        let registry = Registry::new();
        metrics.register(&registry);
        let throttle = ThrottleLayer::new(1.0, 1, metrics.on_wait());
        let send = async |path: &str| {
            let server = service_fn(|request: Request<()>| async move {
                match request.uri().path() {
                    "/api/v1/nodes" => Err("connection refused"),
                    _ => Ok(Response::new(())),
                }
            });
            let request = Request::get(path).body(()).expect("a request");
            let _ = metrics.layer(throttle.layer(server)).oneshot(request).await;
        };
        send("/api/v1/pods?limit=500").await;
        send("/api/v1/pods?limit=500").await;
        send("/api/v1/pods?watch=true&resourceVersion=7").await;
        send("/api/v1/nodes").await;
        send("/version").await;
        let page = TextEncoder::new().encode_to_string(&registry.gather()).expect("text");
        let pods = r#"group="",kind="pods",subresource="",verb="LIST",version="v1""#;
        for line in [
            r#"client_go_request_total{code="200",method="GET"} 4"#.to_owned(),
            r#"client_go_request_total{code="<error>",method="GET"} 1"#.to_owned(),
            r#"rest_client_requests_total{code="200",host="10.0.0.1:443",method="GET"} 4"#.to_owned(),
            format!("client_go_request_duration_seconds_count{{{pods}}} 2"),
            format!("client_go_request_duration_seconds_sum{{{pods}}} 1"),
            r#"rest_client_rate_limiter_duration_seconds_bucket{host="10.0.0.1:443",verb="GET",le="0.005"} 1"#
                .to_owned(),
            r#"rest_client_rate_limiter_duration_seconds_count{host="10.0.0.1:443",verb="GET"} 5"#.to_owned(),
        ] {
            assert!(page.lines().any(|found| found == line), "{line} is missing in\n{page}");
        }
        assert!(!page.contains("kind=\"\""), "{page}");
    }
}
