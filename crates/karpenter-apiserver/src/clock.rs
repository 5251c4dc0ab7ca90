//! Where time comes from: always from outside.

use jiff::Timestamp;

/// Wall time as the server stamps it on objects.
pub trait Clock: Send + Sync + 'static {
    fn now(&self) -> Timestamp;
}

/// The time of the machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// A time as Kubernetes writes `metav1.Time`: UTC, whole seconds.
pub fn rfc3339_seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
