//! What is said about kinds that cannot be watched. A process that lacks a permission would otherwise wait for ever without
//! a word.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use karpenter_cluster::store::watch_failure::WatchFailure;
use tokio::time::Instant;

/// What goes on and on is said again after this long.
const LOG_REPEAT_AFTER: Duration = Duration::from_secs(5 * 60);

/// Says what is wrong with the watch of a kind: the first time, when it is something else, and then now and then.
pub(super) fn log_watch_failure(kind: &'static str) -> impl Fn(&WatchFailure) + Send + Sync + 'static {
    let seldom = Seldom::default();
    move |failure: &WatchFailure| {
        if !seldom.is_due(&failure.message, Instant::now()) {
            return;
        }
        let error = failure.message.as_str();
        if failure.is_before_first_list {
            tracing::error!(kind, error, "listing objects; nothing is done until it works");
        } else {
            tracing::warn!(kind, error, "watching objects; what was seen last is used until it works again");
        }
    }
}

/// What was said last, and when.
#[derive(Debug, Default)]
struct Seldom {
    said: Mutex<Option<(String, Instant)>>,
}

impl Seldom {
    fn is_due(&self, message: &str, now: Instant) -> bool {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let is_said = said
            .as_ref()
            .is_some_and(|(last, at)| last == message && now.duration_since(*at) < LOG_REPEAT_AFTER);
        if !is_said {
            *said = Some((message.to_owned(), now));
        }
        !is_said
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_said_once_in_a_while() {
        let (seldom, start) = (Seldom::default(), Instant::now());
        let said: Vec<bool> = [("a", 0), ("a", 1), ("b", 2), ("b", 3), ("b", 301), ("b", 302)]
            .map(|(message, second)| seldom.is_due(message, start + Duration::from_secs(second)))
            .into();
        assert_eq!(said, [true, false, true, false, false, true]);
    }
}
