//! Back-off of requests that the API server may forbid. Requests are sent without a wait until the first response with
//! status 403. After each further 403 the wait doubles.

use jiff::{SignedDuration, Timestamp};

/// The wait after the first response with status 403.
const WAIT_MIN: SignedDuration = SignedDuration::from_secs(5);
/// The longest wait between two attempts.
const WAIT_MAX: SignedDuration = SignedDuration::from_mins(10);

#[derive(Debug, Default)]
pub(super) struct PermissionBackoff {
    in_a_row: u32,
    not_before: Option<Timestamp>,
    was_logged: bool,
}

impl PermissionBackoff {
    /// Whether to send the request now. During the back-off, this returns `true` to only one caller per wait.
    pub(super) fn may_try(&mut self, now: Timestamp) -> bool {
        let Some(until) = self.not_before else { return true };
        if now < until {
            return false;
        }
        self.wait(now);
        true
    }

    /// Records a response with status 403. Returns `true` only for the first such response in this process.
    pub(super) fn forbidden(&mut self, now: Timestamp) -> bool {
        if self.not_before.is_none() {
            self.wait(now);
        }
        !std::mem::replace(&mut self.was_logged, true)
    }

    /// Ends the back-off. After a later response with status 403, the waits start with [`WAIT_MIN`] again.
    pub(super) fn allowed(&mut self) {
        self.in_a_row = 0;
        self.not_before = None;
    }

    fn wait(&mut self, now: Timestamp) {
        let doublings = self.in_a_row.min(16);
        let wait = WAIT_MIN.saturating_mul(1 << doublings).min(WAIT_MAX);
        self.not_before = Some(now.checked_add(wait).unwrap_or(Timestamp::MAX));
        self.in_a_row = self.in_a_row.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    /// The seconds within the first hour at which a caller that tries every second sends a request. Every request is
    /// forbidden.
    fn attempted_at() -> Vec<i64> {
        let mut backoff = PermissionBackoff::default();
        let mut attempted = Vec::new();
        for second in 0..3600 {
            if backoff.may_try(at(second)) {
                attempted.push(second);
                backoff.forbidden(at(second));
            }
        }
        attempted
    }

    #[test]
    fn waits_double_up_to_ten_minutes() {
        let attempted = attempted_at();
        let waits: Vec<i64> = attempted.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(waits, [5, 10, 20, 40, 80, 160, 320, 600, 600, 600, 600]);
    }

    #[test]
    fn simultaneous_403s_count_once_and_are_logged_once() {
        let mut backoff = PermissionBackoff::default();
        let logged: Vec<bool> = (0..3).map(|_| backoff.forbidden(at(0))).collect();
        assert_eq!(logged, [true, false, false]);
        assert!(!backoff.may_try(at(4)));
        assert!(backoff.may_try(at(5)));
        assert!(!backoff.may_try(at(5)), "one caller per wait");
        backoff.allowed();
        assert!(backoff.may_try(at(5)) && backoff.may_try(at(5)));
        assert!(!backoff.forbidden(at(6)), "it was logged before");
        assert!(backoff.may_try(at(11)));
    }
}
