//! Errors that come back with every attempt: said when they are new, and then now and then.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::recent::RecentSet;

const LOG_REPEAT_AFTER: Duration = Duration::from_secs(5 * 60);

/// What was complained about lately. Clones share it.
#[derive(Clone)]
pub struct LogThrottle {
    said: Arc<RecentSet>,
}

impl Default for LogThrottle {
    fn default() -> Self {
        Self { said: Arc::new(RecentSet::within(LOG_REPEAT_AFTER)) }
    }
}

impl LogThrottle {
    /// Whether it is worth a line that something failed with an object: the same was not said lately. If it is, the
    /// caller says so.
    pub fn is_due(&self, what: &str, object: impl Display, now: Timestamp) -> bool {
        let key = format!("{what} {object}");
        if self.said.ago(&key, now).is_some() {
            return false;
        }
        self.said.note(&key, now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_said_once_in_a_while() {
        let log_throttle = LogThrottle::default();
        let at = |second: i64| Timestamp::from_second(second).expect("a time");
        let said = [("a", 0), ("b", 1), ("a", 2), ("a", 299), ("a", 300), ("a", 301)]
            .map(|(object, second)| log_throttle.is_due("ending", object, at(second)));
        assert_eq!(said, [true, true, false, false, true, false]);
        assert!(log_throttle.is_due("listing", "a", at(301)));
    }
}
