//! What lies between Karpenter and its API server: a line on which things go wrong, the same way in every run, and which
//! lets nothing through that Karpenter's roles do not allow.

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

/// How often things go wrong, in percent of requests.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Weather {
    /// Writes are refused as if somebody else had written in between.
    pub(crate) conflicts: u32,
    /// Requests are refused as too many.
    pub(crate) throttled: u32,
    /// Requests are refused with an internal error.
    pub(crate) errors: u32,
    /// Requests are carried out, and the answer is lost.
    pub(crate) lost_answers: u32,
    /// Nothing gets through at all.
    pub(crate) is_out: bool,
}

/// What got through, and what did not.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    /// Claims that the server took, whether or not the answer arrived.
    pub(crate) claims_created: usize,
    pub(crate) spoiled: usize,
}

/// Clones are the same line.
#[derive(Clone)]
pub(crate) struct Line {
    server: ApiServer,
    rules: Rules,
    state: Arc<Mutex<State>>,
    /// Watches that began before the last cut end.
    cut: Arc<watch::Sender<u64>>,
}

struct State {
    weather: Weather,
    tally: Tally,
    dice: u64,
    /// What was asked for and is not allowed.
    refused: BTreeSet<String>,
}

type Answer = Response<UnsyncBoxBody<Bytes, BoxError>>;

enum Fate {
    Passes,
    Refused(StatusCode, &'static str),
    Lost,
    AnswerLost,
}

impl Line {
    pub(crate) fn new(server: ApiServer, rules: Rules, seed: u64) -> Self {
        let (weather, tally, refused) = (Weather::default(), Tally::default(), BTreeSet::new());
        let state = Arc::new(Mutex::new(State { weather, tally, dice: seed, refused }));
        Self { server, rules, state, cut: Arc::new(watch::Sender::new(0)) }
    }

    pub(crate) fn client(&self) -> Client {
        let line = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let line = line.clone();
            async move { line.pass(request).await }
        });
        Client::new(service, "default")
    }

    pub(crate) fn set(&self, weather: Weather) {
        self.state().weather = weather;
        if weather.is_out {
            self.cut_watches();
        }
    }

    pub(crate) fn cut_watches(&self) {
        self.cut.send_modify(|cuts| *cuts += 1);
    }

    pub(crate) fn tally(&self) -> Tally {
        self.state().tally
    }

    /// What was asked for although no role allows it.
    pub(crate) fn refused(&self) -> Vec<String> {
        self.state().refused.iter().cloned().collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn pass(&self, request: Request<Body>) -> Result<Answer, BoxError> {
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        let is_create = request.method() == Method::POST && request.uri().path().ends_with("/nodeclaims");
        if let Some(refusal) = self.rules.refusal(&request) {
            self.state().refused.insert(refusal);
            return Ok(refuse(StatusCode::FORBIDDEN, "Forbidden"));
        }
        let fate = self.state().fate(request.method());
        if let Fate::Refused(code, reason) = fate {
            return Ok(refuse(code, reason));
        }
        if let Fate::Lost = fate {
            return Err("the connection was lost".into());
        }
        let mut cuts = self.cut.subscribe();
        let answer = self.server.handle(request).await;
        if is_create && answer.status().is_success() {
            self.state().tally.claims_created += 1;
        }
        if let Fate::AnswerLost = fate {
            return Err("the connection was lost".into());
        }
        let (parts, body) = answer.into_parts();
        let frames = BodyStream::new(body.map_err(|error| -> BoxError { Box::new(error) }));
        let frames: futures::stream::BoxStream<'static, _> = if is_watch {
            let is_cut = async move {
                // The sender lives as long as the line.
                let _ = cuts.changed().await;
            };
            frames.take_until(Box::pin(is_cut)).boxed()
        } else {
            StreamExt::boxed(frames)
        };
        Ok(Response::from_parts(parts, BodyExt::boxed_unsync(StreamBody::new(frames))))
    }
}

impl State {
    fn fate(&mut self, method: &Method) -> Fate {
        let weather = self.weather;
        if weather.is_out {
            self.tally.spoiled += 1;
            return Fate::Lost;
        }
        let is_write = method != Method::GET;
        // Numbers that look random and are the same in every run.
        self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mut roll = ((self.dice >> 33) % 100) as u32;
        let mut falls = |share: u32| {
            let falls = roll < share;
            roll = roll.wrapping_sub(share);
            falls
        };
        let fate = if is_write && method != Method::POST && falls(weather.conflicts) {
            Fate::Refused(StatusCode::CONFLICT, "Conflict")
        } else if falls(weather.throttled) {
            Fate::Refused(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests")
        } else if falls(weather.errors) {
            Fate::Refused(StatusCode::INTERNAL_SERVER_ERROR, "InternalError")
        } else if falls(weather.lost_answers) {
            Fate::AnswerLost
        } else {
            return Fate::Passes;
        };
        self.tally.spoiled += 1;
        fate
    }
}

fn refuse(code: StatusCode, reason: &str) -> Answer {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "the weather is bad", "reason": reason, "code": code.as_u16()});
    let body = Full::new(Bytes::from(status.to_string())).map_err(|never| match never {});
    let mut answer = Response::new(body.boxed_unsync());
    *answer.status_mut() = code;
    answer.headers_mut().insert("content-type", http::HeaderValue::from_static("application/json"));
    answer
}
