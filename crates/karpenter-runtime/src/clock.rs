//! The clock of the control plane. It follows tokio's clock, so that a paused runtime controls all time.
//!
//! Timestamps on objects and timers use the same clock: a simulated day passes as fast as the runtime can advance its
//! clock. Everything in this crate reads the time from here.

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
    /// Starts at the system's current time.
    pub fn system() -> Self {
        Self::starting_at(Timestamp::now())
    }

    /// A clock that shows the time `epoch` at the moment of this call and advances with tokio's clock.
    pub fn starting_at(epoch: Timestamp) -> Self {
        Self { epoch, started: Instant::now(), speed: 1.0 }
    }

    /// The same clock, on which `speed` seconds pass per second of tokio's clock. `speed` must be positive.
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

    /// The current time as `metav1.Time`: whole seconds.
    pub fn time(&self) -> Time {
        Time(whole_seconds(self.now()))
    }

    /// The current time as `metav1.MicroTime`.
    pub fn micro_time(&self) -> MicroTime {
        let now = self.now();
        MicroTime(Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now))
    }

    /// Waits until `duration` has passed on this clock.
    pub async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(self.real(duration)).await;
    }

    /// Waits until the clock shows `time`; returns at once if it has passed.
    pub async fn sleep_until(&self, time: Timestamp) {
        self.sleep(until(self.now(), time)).await;
    }

    /// The instant of tokio's clock that is `duration` of this clock from now.
    pub fn deadline(&self, duration: Duration) -> Instant {
        Instant::now() + self.real(duration)
    }

    fn real(&self, duration: Duration) -> Duration {
        duration.div_f64(self.speed)
    }
}

/// The duration from `now` to `time`; zero if `time` has passed.
pub fn until(now: Timestamp, time: Timestamp) -> Duration {
    Duration::try_from(time.duration_since(now)).unwrap_or(Duration::ZERO)
}

/// The duration from `time` to `now`; zero if `time` is in the future.
pub fn since(now: Timestamp, time: Timestamp) -> Duration {
    until(time, now)
}

/// `now` plus `wait`.
pub fn after(now: Timestamp, wait: Duration) -> Timestamp {
    let wait = SignedDuration::try_from(wait).unwrap_or(SignedDuration::MAX);
    now.checked_add(wait).unwrap_or(Timestamp::MAX)
}

/// The time without its fraction of a second.
pub fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}
