//! Records the last failure of a store's watch and notifies listeners. This module logs nothing.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube::runtime::watcher;

/// A failure of a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchFailure {
    /// The message of the server, if there is one.
    pub message: String,
    /// Whether the store has not completed its first list, so that no controller can use it.
    pub is_before_first_list: bool,
}

type Listener = Arc<dyn Fn(&WatchFailure) + Send + Sync>;

#[derive(Default)]
pub(crate) struct WatchFailures {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    last: Option<WatchFailure>,
    listeners: Vec<Listener>,
}

impl WatchFailures {
    pub(crate) fn last(&self) -> Option<WatchFailure> {
        self.inner().last.clone()
    }

    pub(crate) fn clear(&self) {
        self.inner().last = None;
    }

    pub(crate) fn record(&self, error: &watcher::Error, is_before_first_list: bool) {
        // An expired resource version is not recorded as a failure: the watcher lists again.
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

    /// Calls the listener with the current failure, if any, and all later ones.
    pub(crate) fn add_listener(&self, listener: Listener) {
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
