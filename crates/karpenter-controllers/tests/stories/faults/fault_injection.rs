//! A connection between the controllers and the API server that injects faults. The faults are determined by a seed.
//! The connection also rejects requests that Karpenter's roles do not allow.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures::StreamExt;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, BodyStream, Full, StreamBody};
use karpenter_apiserver::ApiServer;
use kube::Client;
use kube::client::Body;
use serde_json::json;
use tokio::sync::watch;
use tower::BoxError;

use crate::rules::Rules;

/// The faults to inject: how many percent of the requests fail, and how.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FaultPlan {
    /// The percentage of writes that fail with a conflict.
    pub(crate) conflicts: u32,
    /// The percentage of requests that fail with status 429.
    pub(crate) throttled: u32,
    /// The percentage of requests that fail with an internal error.
    pub(crate) errors: u32,
    /// The percentage of requests that the server applies, but whose response is lost.
    pub(crate) lost_responses: u32,
    /// All requests fail.
    pub(crate) is_outage: bool,
}

/// Counts of requests.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RequestCounts {
    /// NodeClaims that the server created, with or without a response.
    pub(crate) claims_created: usize,
    pub(crate) faults: usize,
}

/// Clones share the connection.
#[derive(Clone)]
pub(crate) struct FaultyConnection {
    server: ApiServer,
    rules: Rules,
    state: Arc<Mutex<ConnectionState>>,
    /// A counter; each increment ends all watches that are running.
    cut: Arc<watch::Sender<u64>>,
}

struct ConnectionState {
    plan: FaultPlan,
    counts: RequestCounts,
    seed_state: u64,
    /// The requests that no role allows, among those sent so far.
    forbidden: BTreeSet<String>,
}

type ServerResponse = Response<UnsyncBoxBody<Bytes, BoxError>>;

enum Outcome {
    Pass,
    Reject(StatusCode, &'static str),
    Drop,
    DropResponse,
}

impl FaultyConnection {
    pub(crate) fn new(server: ApiServer, rules: Rules, seed: u64) -> Self {
        let (plan, counts, forbidden) = (FaultPlan::default(), RequestCounts::default(), BTreeSet::new());
        let state = Arc::new(Mutex::new(ConnectionState { plan, counts, seed_state: seed, forbidden }));
        Self { server, rules, state, cut: Arc::new(watch::Sender::new(0)) }
    }

    pub(crate) fn client(&self) -> Client {
        let connection = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let connection = connection.clone();
            async move { connection.send(request).await }
        });
        Client::new(service, "default")
    }

    pub(crate) fn inject(&self, plan: FaultPlan) {
        self.state().plan = plan;
        if plan.is_outage {
            self.cut_watches();
        }
    }

    pub(crate) fn cut_watches(&self) {
        self.cut.send_modify(|cuts| *cuts += 1);
    }

    pub(crate) fn counts(&self) -> RequestCounts {
        self.state().counts
    }

    /// The requests that no role allows, among those sent so far.
    pub(crate) fn forbidden(&self) -> Vec<String> {
        self.state().forbidden.iter().cloned().collect()
    }

    fn state(&self) -> MutexGuard<'_, ConnectionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn send(&self, request: Request<Body>) -> Result<ServerResponse, BoxError> {
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        let is_create = request.method() == Method::POST && request.uri().path().ends_with("/nodeclaims");
        if let Some(forbidden_request) = self.rules.forbidden(&request) {
            self.state().forbidden.insert(forbidden_request);
            return Ok(reject(StatusCode::FORBIDDEN, "Forbidden"));
        }
        let outcome = self.state().outcome(request.method());
        if let Outcome::Reject(code, reason) = outcome {
            return Ok(reject(code, reason));
        }
        if let Outcome::Drop = outcome {
            return Err("the connection was lost".into());
        }
        let mut cuts = self.cut.subscribe();
        let response = self.server.handle(request).await;
        if is_create && response.status().is_success() {
            self.state().counts.claims_created += 1;
        }
        if let Outcome::DropResponse = outcome {
            return Err("the connection was lost".into());
        }
        let (parts, body) = response.into_parts();
        let frames = BodyStream::new(body.map_err(|error| -> BoxError { Box::new(error) }));
        let frames: futures::stream::BoxStream<'static, _> = if is_watch {
            let is_cut = async move {
                let _ = cuts.changed().await;
            };
            frames.take_until(Box::pin(is_cut)).boxed()
        } else {
            StreamExt::boxed(frames)
        };
        Ok(Response::from_parts(parts, BodyExt::boxed_unsync(StreamBody::new(frames))))
    }
}

impl ConnectionState {
    fn outcome(&mut self, method: &Method) -> Outcome {
        let plan = self.plan;
        if plan.is_outage {
            self.counts.faults += 1;
            return Outcome::Drop;
        }
        let is_write = method != Method::GET;
        // Deterministic pseudo-random numbers.
        self.seed_state =
            self.seed_state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mut roll = ((self.seed_state >> 33) % 100) as u32;
        let mut is_hit = |share: u32| {
            let is_hit = roll < share;
            roll = roll.wrapping_sub(share);
            is_hit
        };
        let outcome = if is_write && method != Method::POST && is_hit(plan.conflicts) {
            Outcome::Reject(StatusCode::CONFLICT, "Conflict")
        } else if is_hit(plan.throttled) {
            Outcome::Reject(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests")
        } else if is_hit(plan.errors) {
            Outcome::Reject(StatusCode::INTERNAL_SERVER_ERROR, "InternalError")
        } else if is_hit(plan.lost_responses) {
            Outcome::DropResponse
        } else {
            return Outcome::Pass;
        };
        self.counts.faults += 1;
        outcome
    }
}

fn reject(code: StatusCode, reason: &str) -> ServerResponse {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "injected fault", "reason": reason, "code": code.as_u16()});
    let body = Full::new(Bytes::from(status.to_string())).map_err(|never| match never {});
    let mut response = Response::new(body.boxed_unsync());
    *response.status_mut() = code;
    response.headers_mut().insert("content-type", http::HeaderValue::from_static("application/json"));
    response
}
