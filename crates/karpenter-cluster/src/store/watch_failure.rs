//! What stands between a store and what it stores: the last failure of its watch, for whoever wants to tell about it.
//! Nothing is logged here.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube::runtime::watcher;

/// A failure of a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchFailure {
    /// The server's own words where there are any.
    pub message: String,
    /// Whether the store shows nothing yet, so that nobody can work with it.
    pub is_before_first_list: bool,
}

type Listener = Arc<dyn Fn(&WatchFailure) + Send + Sync>;

#[derive(Default)]
pub(super) struct WatchFailures {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    last: Option<WatchFailure>,
    listeners: Vec<Listener>,
}

impl WatchFailures {
    pub(super) fn last(&self) -> Option<WatchFailure> {
        self.inner().last.clone()
    }

    pub(super) fn over(&self) {
        self.inner().last = None;
    }

    pub(super) fn note(&self, error: &watcher::Error, is_before_first_list: bool) {
        // The server forgets the past after a while; the list that follows is all it takes.
        if is_expired(error) {
            return;
        }
        let failure = WatchFailure { message: message(error), is_before_first_list };
        let listeners = {
            let mut inner = self.inner();
            inner.last = Some(failure.clone());
            inner.listeners.clone()
        };
        for listener in listeners {
            listener(&failure);
        }
    }

    /// From now on, and of what is the matter already.
    pub(super) fn listen(&self, listener: Listener) {
        let last = {
            let mut inner = self.inner();
            inner.listeners.push(listener.clone());
            inner.last.clone()
        };
        if let Some(last) = last {
            listener(&last);
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const EXPIRED: u16 = 410;

fn is_expired(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::WatchError(status) if status.code == EXPIRED)
}

fn message(error: &watcher::Error) -> String {
    let status = match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status))
        | watcher::Error::WatchError(status) => Some(status),
        _ => None,
    };
    match status.filter(|status| !status.message.is_empty()) {
        Some(status) => status.message.clone(),
        None => error.to_string(),
    }
}
