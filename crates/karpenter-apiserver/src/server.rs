//! The server: its configuration, the state that its clones share, and the routing of requests to verbs, discovery and
//! OpenAPI.

mod bootstrap;
mod restore;

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, PoisonError, RwLock};
use std::task::{Context, Poll};

use http::{Method, Request, Response};
use http_body::Body;
use http_body_util::BodyExt;
use http_body_util::LengthLimitError;
use tokio::sync::watch;

use crate::clock::{Clock, SystemClock};
use crate::discovery;
use crate::encode::{Format, Reply, RespBody};
use crate::ids::Ids;
use crate::persist::{self, Journal, PersistError, Recovered};
use crate::registry::Registry;
use crate::request::{Incoming, Query, Route};
use crate::status::{ApiResult, Failure};
use crate::store::{CommitSink, Store};
use crate::verbs;

/// kube-apiserver's maximum size of a request body.
const BODY_BYTES_MAX: usize = 3 * 1024 * 1024;

/// The configuration of a server.
#[derive(Clone)]
pub struct Config {
    pub clock: Arc<dyn Clock>,
    /// The seed from which uids and generated names are computed.
    pub seed: u64,
    /// How many changes are kept per kind, for watches and for lists at earlier revisions.
    pub history_limit: usize,
    /// Whether to create the objects that every cluster has: namespaces, priority classes and the Service `kubernetes`.
    pub bootstrap: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self { clock: Arc::new(SystemClock), seed: 0, history_limit: 20_000, bootstrap: true }
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Config").field("seed", &self.seed).finish_non_exhaustive()
    }
}

/// The state that all clones of a server share.
pub(crate) struct Core {
    pub(crate) store: Store,
    registry: RwLock<Arc<Registry>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ids: Ids,
    journal: Option<Arc<Journal>>,
    /// Set to true once, at shutdown, which ends all watches.
    pub(crate) stopping: watch::Sender<bool>,
}

impl Core {
    pub(crate) fn registry(&self) -> Arc<Registry> {
        self.registry.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn change_registry(&self, change: impl FnOnce(&mut Registry)) {
        let mut current = self.registry.write().unwrap_or_else(PoisonError::into_inner);
        change(Arc::make_mut(&mut current));
    }
}

/// A Kubernetes API server. Clones share their state. Each clone is a `tower::Service` from which a `kube::Client` can
/// be built.
#[derive(Clone)]
pub struct ApiServer {
    core: Arc<Core>,
}

impl fmt::Debug for ApiServer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ApiServer").field("store", &self.core.store).finish_non_exhaustive()
    }
}

impl ApiServer {
    /// Creates a server that keeps its state only in memory.
    pub fn new(config: Config) -> Self {
        Self::build(config, None)
    }

    /// Creates a server that keeps its state in `directory`. It starts with the state that is stored there, and
    /// acknowledges a write only when the write is on disk.
    pub fn open(config: Config, directory: &Path) -> Result<Self, PersistError> {
        Ok(Self::build(config, Some(persist::recover(directory)?)))
    }

    fn build(config: Config, recovered: Option<Recovered>) -> Self {
        let (journal, state) = match recovered {
            None => (None, None),
            Some(Recovered { revision, objects, journal }) => {
                (Some(Arc::new(journal)), Some((revision, objects)))
            }
        };
        let sink = journal.clone().map(|journal| journal as Arc<dyn CommitSink>);
        let core = Arc::new(Core {
            store: Store::new(config.history_limit, sink),
            registry: RwLock::new(Arc::new(Registry::builtin())),
            clock: config.clock,
            ids: Ids::new(config.seed),
            journal,
            stopping: watch::Sender::new(false),
        });
        if let Some((revision, objects)) = state {
            restore::restore(&core, revision, objects);
        }
        if let Some(journal) = &core.journal {
            journal.attach(&core);
        }
        if config.bootstrap {
            bootstrap::create_missing(&core);
        }
        Self { core }
    }

    /// The revision of the last write.
    pub fn revision(&self) -> u64 {
        self.core.store.revision()
    }

    #[cfg(test)]
    pub(crate) fn core_for_tests(&self) -> &Core {
        &self.core
    }

    /// Ends all watches, including those that start later. Called at shutdown.
    pub fn stop(&self) {
        self.core.stopping.send_replace(true);
    }

    /// Processes one request.
    pub async fn handle<B>(&self, request: Request<B>) -> Response<RespBody>
    where
        B: Body + Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (parts, body) = request.into_parts();
        let body = match http_body_util::Limited::new(body, BODY_BYTES_MAX).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) => {
                let failure = if error.downcast_ref::<LengthLimitError>().is_some() {
                    let why = format!("Request entity too large: limit is {BODY_BYTES_MAX}");
                    Failure::new(413, "RequestEntityTooLarge", why)
                } else {
                    Failure::bad_request(format!("the body could not be read: {error}"))
                };
                return Reply::from(&failure).into_response();
            }
        };
        let incoming = Incoming {
            method: parts.method,
            path: parts.uri.path().to_string(),
            query: Query::parse(parts.uri.query().unwrap_or_default()),
            headers: parts.headers,
            body,
        };
        let reply = self.route(&incoming).unwrap_or_else(|failure| Reply::from(failure.as_ref()));
        if !matches!(incoming.method, Method::GET | Method::HEAD) {
            match &self.core.journal {
                // Without this, a client that writes without pause on this thread would keep watches from sending its
                // changes.
                None => tokio::task::yield_now().await,
                Some(journal) => {
                    if let Err(why) = journal.durable(self.core.store.revision()).await {
                        return Reply::from(&Failure::new(500, "InternalError", why)).into_response();
                    }
                }
            }
        }
        reply.into_response()
    }

    fn route(&self, incoming: &Incoming) -> ApiResult<Reply> {
        let route = Route::parse(&incoming.path);
        if let Route::Resource(path) = route {
            let answer = verbs::handle(&self.core, incoming, path);
            if !incoming.wants_yaml() {
                return answer;
            }
            return Ok(answer.unwrap_or_else(|failure| Reply::from(failure.as_ref())).into_yaml());
        }
        if !matches!(incoming.method, Method::GET | Method::HEAD) {
            return Err(Box::new(Failure::method_not_allowed()));
        }
        let registry = self.core.registry();
        let discovered = match incoming.format() {
            Some(Format::Discovery(version)) => Some(version),
            _ => None,
        };
        let found = match &route {
            Route::Health(_) => return Ok(Reply::text(200, "ok")),
            Route::Version => Some(discovery::version()),
            Route::Paths => Some(serde_json::json!({"paths": ["/api", "/apis", "/healthz", "/version"]})),
            Route::CoreVersions | Route::Groups => {
                let core = route == Route::CoreVersions;
                if let Some(version) = discovered {
                    let document = discovery::aggregated(&registry, core, version);
                    let mut reply = Reply::json(200, &document);
                    reply.content_type =
                        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
                    return Ok(reply);
                }
                Some(if core {
                    discovery::core_versions(incoming.header("host"))
                } else {
                    discovery::groups(&registry)
                })
            }
            Route::Group(name) => discovery::group(&registry, name),
            Route::GroupVersion { group, version } => {
                let found = discovery::resources(&registry, group, version);
                if found.is_none() && group.is_empty() {
                    return Err(Box::new(Failure::unknown_resource()));
                }
                found
            }
            Route::OpenApi(path) => discovery::openapi(&registry, path),
            Route::Resource(_) | Route::Unknown => None,
        };
        Ok(match found {
            Some(document) => {
                let mut reply = Reply::json(200, &document);
                if route == Route::OpenApi("v3".into()) {
                    reply.content_type = "text/plain; charset=utf-8";
                }
                reply
            }
            // For an unknown version of the core group, kube-apiserver responds with a Status object; for other unknown
            // groups, with a text page.
            None if matches!(&route, Route::GroupVersion { group, .. } if group.is_empty()) => {
                return Err(Box::new(Failure::unknown_resource()));
            }
            None => verbs::page_not_found(),
        })
    }
}

impl<B> tower::Service<Request<B>> for ApiServer
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<RespBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let server = self.clone();
        Box::pin(async move { Ok(server.handle(request).await) })
    }
}
