//! Ways to the API server: one that is counted, and one that leads nowhere once a process is to end.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use http::{Method, Request};
use karpenter_apiserver::ApiServer;
use kube::Client;
use kube::client::Body;
use tower::{BoxError, Service, service_fn};

/// When a process ends: with its n-th write that counts, before or after the server has taken it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Crash {
    pub(crate) at_write: u32,
    pub(crate) is_written: bool,
}

/// Whether a process has ended.
#[derive(Debug, Clone, Default)]
pub(crate) struct Death(Arc<AtomicBool>);

impl Death {
    pub(crate) fn has_come(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn comes(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

pub(crate) fn is_write(request: &Request<Body>) -> bool {
    request.method() != Method::GET
}

/// Events are no writes that anything depends on.
pub(crate) fn is_write_but_event(request: &Request<Body>) -> bool {
    is_write(request) && !request.uri().path().contains("/events")
}

/// A way to the server that leads nowhere from the crash on.
pub(crate) fn crashing(
    server: ApiServer,
    crash: Crash,
    counts: fn(&Request<Body>) -> bool,
    death: Death,
) -> Client {
    let writes = Arc::new(AtomicU32::new(0));
    let service = service_fn(move |request: Request<Body>| {
        let (mut server, writes, death) = (server.clone(), writes.clone(), death.clone());
        async move {
            let is_last = counts(&request) && writes.fetch_add(1, Ordering::Relaxed) + 1 == crash.at_write;
            if is_last && !crash.is_written || death.has_come() {
                death.comes();
                return std::future::pending().await;
            }
            let answer = server.call(request).await;
            if is_last {
                death.comes();
                return std::future::pending().await;
            }
            answer.map_err(BoxError::from)
        }
    });
    Client::new(service, "default")
}

/// Requests by method and path. Clones count together.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counted(Arc<Mutex<BTreeMap<String, u32>>>);

impl Counted {
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

    /// What was counted so far; the count begins anew.
    pub(crate) fn take(&self) -> BTreeMap<String, u32> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
