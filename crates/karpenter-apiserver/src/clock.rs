//! Where the server gets the time from. The caller passes the clock, so that tests control it.

use jiff::Timestamp;

/// A wall clock, whose time the server writes into timestamps of objects.
pub trait Clock: Send + Sync + 'static {
    fn now(&self) -> Timestamp;
}

/// The system clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// Formats a time like Kubernetes' `metav1.Time`: RFC 3339 in UTC, with whole seconds.
pub fn rfc3339_seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
