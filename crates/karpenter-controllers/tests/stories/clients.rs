//! Clients of the API server for tests: one counts requests, and one simulates a crash of the process.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use http::{Method, Request};
use karpenter_apiserver::ApiServer;
use kube::Client;
use kube::client::Body;
use tower::{BoxError, Service, service_fn};

/// At which of its counted writes the process crashes, and whether the server has applied that write.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WriteCrash {
    pub(crate) at_write: u32,
    pub(crate) is_written: bool,
}

/// Whether the process has crashed. Clones share the state.
#[derive(Debug, Clone, Default)]
pub(crate) struct CrashState(Arc<AtomicBool>);

impl CrashState {
    pub(crate) fn has_crashed(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn crash_now(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

pub(crate) fn is_write(request: &Request<Body>) -> bool {
    request.method() != Method::GET
}

/// Whether the request writes an object that is not an Event. Events are left out, because nothing depends on them.
pub(crate) fn is_write_but_event(request: &Request<Body>) -> bool {
    is_write(request) && !request.uri().path().contains("/events")
}

/// A client that simulates a crash of the process: requests after the crash never return.
pub(crate) fn crashing(
    server: ApiServer,
    crash: WriteCrash,
    counts: fn(&Request<Body>) -> bool,
    crash_state: CrashState,
) -> Client {
    let writes = Arc::new(AtomicU32::new(0));
    let service = service_fn(move |request: Request<Body>| {
        let (mut server, writes, crash_state) = (server.clone(), writes.clone(), crash_state.clone());
        async move {
            let is_crashing_write =
                counts(&request) && writes.fetch_add(1, Ordering::Relaxed) + 1 == crash.at_write;
            if is_crashing_write && !crash.is_written || crash_state.has_crashed() {
                crash_state.crash_now();
                return std::future::pending().await;
            }
            let answer = server.call(request).await;
            if is_crashing_write {
                crash_state.crash_now();
                return std::future::pending().await;
            }
            answer.map_err(BoxError::from)
        }
    });
    Client::new(service, "default")
}

/// Counts requests by method and path. Clones share the counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct RequestCounter(Arc<Mutex<BTreeMap<String, u32>>>);

impl RequestCounter {
    pub(crate) fn client(&self, mut server: ApiServer) -> Client {
        let counted = self.clone();
        let service = service_fn(move |request: Request<Body>| {
            let what = format!("{} {}", request.method(), request.uri().path());
            *counted.0.lock().unwrap_or_else(PoisonError::into_inner).entry(what).or_default() += 1;
            let answer = server.call(request);
            async move { answer.await.map_err(BoxError::from) }
        });
        Client::new(service, "default")
    }

    /// Returns the counts and resets them.
    pub(crate) fn take(&self) -> BTreeMap<String, u32> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
