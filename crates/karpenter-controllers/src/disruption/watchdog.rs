//! Detects that the evaluation loop has stopped running; nothing else would report that.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use karpenter_runtime::clock::since;

/// The maximum time without an evaluation; much longer than any regular interval.
const EVALUATION_GAP_MAX: Duration = Duration::from_secs(15 * 60);

#[derive(Debug, Default)]
pub(super) struct EvaluationWatchdog {
    evaluated_at: Mutex<Option<Timestamp>>,
}

impl EvaluationWatchdog {
    /// The time since the last evaluation, if it exceeds the maximum. The first call starts the measurement.
    pub(super) fn exceeded_gap(&self, now: Timestamp) -> Option<Duration> {
        let mut evaluated_at = self.evaluated_at.lock().unwrap_or_else(PoisonError::into_inner);
        let gap = since(now, *evaluated_at.get_or_insert(now));
        (gap > EVALUATION_GAP_MAX).then_some(gap)
    }

    /// Records that the evaluation loop ran: the cluster was evaluated, or needed no evaluation.
    pub(super) fn evaluated(&self, now: Timestamp) {
        *self.evaluated_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gap_above_fifteen_minutes_is_reported() {
        let at = |second| Timestamp::from_second(second).expect("a time");
        let watchdog = EvaluationWatchdog::default();
        assert_eq!(watchdog.exceeded_gap(at(1000)), None, "first call");
        assert_eq!(watchdog.exceeded_gap(at(1900)), None);
        assert_eq!(watchdog.exceeded_gap(at(1901)), Some(Duration::from_secs(901)), "no evaluation");
        watchdog.evaluated(at(1901));
        assert_eq!(watchdog.exceeded_gap(at(2801)), None);
        assert_eq!(watchdog.exceeded_gap(at(3000)), Some(Duration::from_secs(1099)));
    }
}
