//! Whether the whole cluster is looked at as often as it should be: a loop that stands still says nothing by itself.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use karpenter_cluster::clock::since;

/// Much longer than any rest between two looks.
const EVALUATION_GAP_MAX: Duration = Duration::from_secs(15 * 60);

#[derive(Debug, Default)]
pub(super) struct EvaluationWatchdog {
    evaluated_at: Mutex<Option<Timestamp>>,
}

impl EvaluationWatchdog {
    /// How long nobody has looked, if that is longer than usual. Counted from the first question on.
    pub(super) fn exceeded_gap(&self, now: Timestamp) -> Option<Duration> {
        let mut evaluated_at = self.evaluated_at.lock().unwrap_or_else(PoisonError::into_inner);
        let gap = since(now, *evaluated_at.get_or_insert(now));
        (gap > EVALUATION_GAP_MAX).then_some(gap)
    }

    /// The cluster was looked at, or is known to be as it was.
    pub(super) fn result(&self, now: Timestamp) {
        *self.evaluated_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_of_an_hour_without_a_look_is_unusual() {
        let at = |second| Timestamp::from_second(second).expect("a time");
        let watchdog = EvaluationWatchdog::default();
        assert_eq!(watchdog.exceeded_gap(at(1000)), None, "it begins");
        assert_eq!(watchdog.exceeded_gap(at(1900)), None);
        assert_eq!(watchdog.exceeded_gap(at(1901)), Some(Duration::from_secs(901)), "it never looked");
        watchdog.result(at(1901));
        assert_eq!(watchdog.exceeded_gap(at(2801)), None);
        assert_eq!(watchdog.exceeded_gap(at(3000)), Some(Duration::from_secs(1099)));
    }
}
