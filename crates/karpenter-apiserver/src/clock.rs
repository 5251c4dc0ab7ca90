//! The source of time. The caller injects it, so that tests control it.

use jiff::Timestamp;

/// Wall-clock time, which the server writes into timestamps of objects.
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

/// Formats a time as Kubernetes formats `metav1.Time`: RFC 3339 in UTC, whole seconds.
pub fn rfc3339_seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
