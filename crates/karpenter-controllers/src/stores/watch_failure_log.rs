//! Logs failures of watches. Without these log lines, a process that lacks a permission would wait and show no reason.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use karpenter_runtime::watch::failure::WatchFailure;
use tokio::time::Instant;

/// The same error is logged again after this time.
const LOG_REPEAT_AFTER: Duration = Duration::from_secs(5 * 60);

/// Returns a function that logs failures of the watch of a kind: the first failure, each one with another message than
/// the last, and the same message again after a pause.
pub(super) fn log_watch_failure(kind: &'static str) -> impl Fn(&WatchFailure) + Send + Sync + 'static {
    let last_logged = LastLogged::default();
    move |failure: &WatchFailure| {
        if !last_logged.is_due(&failure.message, Instant::now()) {
            return;
        }
        let error = failure.message.as_str();
        if failure.is_before_first_list {
            tracing::error!(
                kind,
                error,
                "failed to list objects, controllers do not start until it succeeds"
            );
        } else {
            tracing::warn!(
                kind,
                error,
                "failed to watch objects, using the last known state until it succeeds"
            );
        }
    }
}

/// The last logged message and its time.
#[derive(Debug, Default)]
struct LastLogged {
    logged: Mutex<Option<(String, Instant)>>,
}

impl LastLogged {
    fn is_due(&self, message: &str, now: Instant) -> bool {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        let is_repeated = logged
            .as_ref()
            .is_some_and(|(last, at)| last == message && now.duration_since(*at) < LOG_REPEAT_AFTER);
        if !is_repeated {
            *logged = Some((message.to_owned(), now));
        }
        !is_repeated
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_failure_is_logged_again_after_five_minutes() {
        let (last_logged, start) = (LastLogged::default(), Instant::now());
        let logged: Vec<bool> = [("a", 0), ("a", 1), ("b", 2), ("b", 3), ("b", 301), ("b", 302)]
            .map(|(message, second)| last_logged.is_due(message, start + Duration::from_secs(second)))
            .into();
        assert_eq!(logged, [true, false, true, false, false, true]);
    }
}
