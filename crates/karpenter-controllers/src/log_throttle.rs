//! Limits how often an error is logged that occurs again with every attempt of an operation: it is logged once, and
//! again after five minutes.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::recent::RecentSet;

const LOG_REPEAT_AFTER: Duration = Duration::from_secs(5 * 60);

/// The errors that were logged recently. Clones share the state.
#[derive(Clone)]
pub struct LogThrottle {
    logged: Arc<RecentSet>,
}

impl Default for LogThrottle {
    fn default() -> Self {
        Self { logged: Arc::new(RecentSet::within(LOG_REPEAT_AFTER)) }
    }
}

impl LogThrottle {
    /// Whether to log now that an operation failed for an object: `false` if that was logged within the last five
    /// minutes. The caller must log it if the result is `true`, because the call records it as logged.
    pub fn is_due(&self, operation: &str, object: impl Display, now: Timestamp) -> bool {
        let key = format!("{operation} {object}");
        if self.logged.ago(&key, now).is_some() {
            return false;
        }
        self.logged.record(&key, now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_error_is_logged_again_after_five_minutes() {
        let log_throttle = LogThrottle::default();
        let at = |second: i64| Timestamp::from_second(second).expect("a time");
        let logged = [("a", 0), ("b", 1), ("a", 2), ("a", 299), ("a", 300), ("a", 301)]
            .map(|(object, second)| log_throttle.is_due("ending", object, at(second)));
        assert_eq!(logged, [true, true, false, false, true, false]);
        assert!(log_throttle.is_due("listing", "a", at(301)));
    }
}
