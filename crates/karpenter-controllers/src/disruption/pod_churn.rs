//! Detects pod churn: pods leave nodes because a workload is scaled in or commands move them. A plan that is made
//! during churn would be outdated before it starts, and would delay a better plan.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use karpenter_runtime::clock::{Clock, after, since};
use karpenter_runtime::store::Change;
use karpenter_state::pod::Pod;

use crate::pods;
use crate::stores::Stores;

/// Churn ends when no pod has left a node for this long; by then, the pods that replace the last ones are scheduled.
const CHURN_IDLE: Duration = Duration::from_secs(2);
/// The interval of checks while pods are nominated and not bound yet.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The longest wait for the end of churn. Without it, constant churn or slow drains would block evaluations.
const CHURN_WAIT_MAX: Duration = Duration::from_secs(15);

/// Clones share their state.
#[derive(Debug, Clone, Default)]
pub(super) struct PodChurn {
    period: Arc<Mutex<Option<ChurnPeriod>>>,
}

/// A period in which pods left nodes at short intervals.
#[derive(Debug, Clone, Copy)]
struct ChurnPeriod {
    first: Timestamp,
    last: Timestamp,
}

impl PodChurn {
    pub(super) fn watch(&self, stores: &Stores, clock: Clock) {
        let churn = self.clone();
        stores.pods.observe(move |change: &Change<Pod>| {
            let leaves = match change {
                Change::Applied { old: Some(old), new } => {
                    old.deleted_at.is_none() && new.deleted_at.is_some()
                        || !pods::is_terminal(old) && pods::is_terminal(new)
                }
                Change::Applied { old: None, .. } => false,
                Change::Deleted { .. } => true,
            };
            if leaves && pods::is_bound(change.object()) {
                churn.record_departure(clock.now());
            }
        });
    }

    fn record_departure(&self, now: Timestamp) {
        let mut period = self.period.lock().unwrap_or_else(PoisonError::into_inner);
        let goes_on = period.filter(|period| since(now, period.last) < CHURN_IDLE);
        *period = Some(ChurnPeriod { first: goes_on.map_or(now, |period| period.first), last: now });
    }

    /// Begins a new churn period, because a command starts and its pods will leave their nodes.
    pub(super) fn restart(&self, now: Timestamp) {
        *self.period.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(ChurnPeriod { first: now, last: now });
    }

    /// When churn ends if no other pod leaves its node; `None` if there is no churn, or if the maximum wait has passed.
    /// `expects_pods` returns whether pods are nominated and not bound yet.
    pub(super) fn ends_at(&self, now: Timestamp, expects_pods: impl FnOnce() -> bool) -> Option<Timestamp> {
        let period = (*self.period.lock().unwrap_or_else(PoisonError::into_inner))?;
        let most = after(period.first, CHURN_WAIT_MAX);
        let idle_at = match now < most && expects_pods() {
            true => after(now, POLL_INTERVAL).max(after(period.last, CHURN_IDLE)),
            false => after(period.last, CHURN_IDLE),
        };
        let idle_at = idle_at.min(most);
        (now < idle_at).then_some(idle_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millisecond(millis).expect("a time")
    }

    #[test]
    fn churn_ends_when_no_pod_leaves_for_a_while() {
        let churn = PodChurn::default();
        assert_eq!(churn.ends_at(at(0), || false), None, "no pod left");
        churn.record_departure(at(2_000));
        churn.record_departure(at(3_500));
        assert_eq!(churn.ends_at(at(3_600), || false), Some(at(5_500)));
        assert_eq!(churn.ends_at(at(5_500), || false), None);
    }

    #[test]
    fn constant_churn_is_not_awaited() {
        let churn = PodChurn::default();
        for second in 0..20 {
            churn.record_departure(at(second * 1_000));
        }
        assert_eq!(churn.ends_at(at(14_900), || false), Some(at(15_000)));
        assert_eq!(churn.ends_at(at(19_100), || false), None, "beyond the limit");
        churn.record_departure(at(30_000));
        assert_eq!(churn.ends_at(at(30_000), || false), Some(at(32_000)), "a new period");
    }

    #[test]
    fn started_command_begins_new_churn_period() {
        let churn = PodChurn::default();
        for second in 0..20 {
            churn.record_departure(at(second * 1_000));
        }
        churn.restart(at(19_500));
        assert_eq!(churn.ends_at(at(19_600), || false), Some(at(21_500)));
        churn.record_departure(at(21_000));
        assert_eq!(churn.ends_at(at(21_500), || false), Some(at(23_000)));
    }

    #[test]
    fn nominated_pods_extend_churn_up_to_limit() {
        let churn = PodChurn::default();
        assert_eq!(churn.ends_at(at(0), || true), None, "no pod has left");
        churn.restart(at(1_000));
        churn.record_departure(at(2_000));
        assert_eq!(churn.ends_at(at(2_500), || true), Some(at(4_000)));
        assert_eq!(churn.ends_at(at(5_000), || true), Some(at(6_000)));
        assert_eq!(churn.ends_at(at(5_900), || false), None, "all pods are bound");
        assert_eq!(churn.ends_at(at(15_500), || true), Some(at(16_000)));
        assert_eq!(churn.ends_at(at(16_000), || true), None);
    }
}
