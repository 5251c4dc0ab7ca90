//! Where the control plane's time comes from: tokio's clock, so that a paused runtime drives everything.
//!
//! The wall time on objects and the time that timers wait for are the same line: a simulated day passes as quickly
//! as the runtime can advance it. Nothing in this crate asks the machine for the time elsewhere.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use tokio::time::Instant;

/// Wall time that advances with tokio's clock, `speed` times as fast.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    epoch: Timestamp,
    started: Instant,
    speed: f64,
}

impl Clock {
    /// The time of the machine from now on.
    pub fn system() -> Self {
        Self::starting_at(Timestamp::now())
    }

    /// A clock that shows `epoch` now and advances with tokio's.
    pub fn starting_at(epoch: Timestamp) -> Self {
        Self { epoch, started: Instant::now(), speed: 1.0 }
    }

    /// The same clock, but `speed` seconds pass on it for each second of tokio's. Must be positive.
    pub fn with_speed(self, speed: f64) -> Self {
        Self { epoch: self.now(), started: Instant::now(), speed: if speed > 0.0 { speed } else { 1.0 } }
    }

    pub fn now(&self) -> Timestamp {
        let passed = self.started.elapsed().mul_f64(self.speed);
        SignedDuration::try_from(passed)
            .ok()
            .and_then(|passed| self.epoch.checked_add(passed).ok())
            .unwrap_or(Timestamp::MAX)
    }

    /// Now as `metav1.Time` keeps it: whole seconds.
    pub fn time(&self) -> Time {
        Time(whole_seconds(self.now()))
    }

    /// Now as `metav1.MicroTime` keeps it.
    pub fn micro_time(&self) -> MicroTime {
        let now = self.now();
        MicroTime(Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now))
    }

    /// Waits until `duration` has passed on this clock.
    pub async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(self.real(duration)).await;
    }

    /// Until the clock shows `time`; at once if it already does.
    pub async fn sleep_until(&self, time: Timestamp) {
        self.sleep(until(self.now(), time)).await;
    }

    /// When tokio's clock will stand `duration` of this clock's time from now.
    pub fn deadline(&self, duration: Duration) -> Instant {
        Instant::now() + self.real(duration)
    }

    fn real(&self, duration: Duration) -> Duration {
        duration.div_f64(self.speed)
    }
}

/// How long it is from `now` to `time`, zero if that has passed.
pub fn until(now: Timestamp, time: Timestamp) -> Duration {
    Duration::try_from(time.duration_since(now)).unwrap_or(Duration::ZERO)
}

/// How long ago `time` was, zero if it is still to come.
pub fn since(now: Timestamp, time: Timestamp) -> Duration {
    until(time, now)
}

/// The time without its fraction of a second.
pub fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}
