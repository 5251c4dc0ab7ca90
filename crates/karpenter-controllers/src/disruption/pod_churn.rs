//! Whether pods are leaving their nodes: somebody scales in, or commands move them. A plan that is made in the middle of it
//! would be out of date before it begins, and would keep a better one waiting: pods do not always land where they were to.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use karpenter_cluster::clock::{Clock, since};
use karpenter_cluster::store::Change;
use karpenter_state::pod::Pod;

use super::command_state::after;
use crate::pods;
use crate::stores::Stores;

/// When no pod has left for so long, those that were to leave have left, and their successors have a place.
const CHURN_IDLE: Duration = Duration::from_secs(2);
/// While pods that left have yet to arrive elsewhere it is looked again so often.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Nobody waits longer than this for a cluster in which pods come and go all the time, or for drains that take their time.
const CHURN_WAIT_MAX: Duration = Duration::from_secs(15);

/// Clones share everything.
#[derive(Debug, Clone, Default)]
pub(super) struct PodChurn {
    period: Arc<Mutex<Option<ChurnPeriod>>>,
}

/// Pods that left one after the other.
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

    /// A command begins, so that pods will leave: these are worth waiting for, whatever went on before.
    pub(super) fn restart(&self, now: Timestamp) {
        *self.period.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(ChurnPeriod { first: now, last: now });
    }

    /// When it will be over if no other pod leaves; `None` if it is, or has gone on for too long to be waited for.
    /// `expects_pods`: pods have a place that they have not come to yet, or may still find one.
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
    fn it_is_over_when_no_pod_has_left_for_a_while() {
        let churn = PodChurn::default();
        assert_eq!(churn.ends_at(at(0), || false), None, "nothing has happened");
        churn.record_departure(at(2_000));
        churn.record_departure(at(3_500));
        assert_eq!(churn.ends_at(at(3_600), || false), Some(at(5_500)));
        assert_eq!(churn.ends_at(at(5_500), || false), None);
    }

    #[test]
    fn a_cluster_that_never_rests_is_not_waited_for() {
        let churn = PodChurn::default();
        for second in 0..20 {
            churn.record_departure(at(second * 1_000));
        }
        assert_eq!(churn.ends_at(at(14_900), || false), Some(at(15_000)));
        assert_eq!(churn.ends_at(at(19_100), || false), None, "it has gone on for long enough");
        churn.record_departure(at(30_000));
        assert_eq!(churn.ends_at(at(30_000), || false), Some(at(32_000)), "that is another one");
    }

    #[test]
    fn pods_of_commands_are_waited_for_whatever_went_on_before() {
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
    fn pods_that_have_yet_to_arrive_are_waited_for_but_not_for_ever() {
        let churn = PodChurn::default();
        assert_eq!(churn.ends_at(at(0), || true), None, "nobody has left");
        churn.restart(at(1_000));
        churn.record_departure(at(2_000));
        assert_eq!(churn.ends_at(at(2_500), || true), Some(at(4_000)));
        assert_eq!(churn.ends_at(at(5_000), || true), Some(at(6_000)));
        assert_eq!(churn.ends_at(at(5_900), || false), None, "all are there");
        assert_eq!(churn.ends_at(at(15_500), || true), Some(at(16_000)));
        assert_eq!(churn.ends_at(at(16_000), || true), None);
    }
}
