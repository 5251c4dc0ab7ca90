//! Recent reboots by claim: after two reboots within 24 hours, a node is replaced instead of rebooted.
//!
//! The history is kept in memory, so after a restart of the controller a node may be rebooted twice more.
//!
//! Upstream: pkg/controllers/disruption/repair_history.go.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use karpenter_runtime::clock::since;

pub const REBOOTS_MAX: usize = 2;
pub const WINDOW: Duration = Duration::from_secs(24 * 60 * 60);

/// Times of reboots by the claim's uid. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct RebootHistory {
    shared: Arc<Mutex<BTreeMap<String, Vec<Timestamp>>>>,
}

impl RebootHistory {
    /// Records a requested reboot.
    pub fn record(&self, uid: &str, now: Timestamp) {
        let mut reboots = self.reboots();
        reboots.retain(|_, times| {
            times.retain(|at| is_recent(*at, now));
            !times.is_empty()
        });
        let times = reboots.entry(uid.to_owned()).or_default();
        if times.len() < REBOOTS_MAX {
            times.push(now);
        }
    }

    /// Whether the maximum number of reboots within the window is reached.
    pub fn is_exhausted(&self, uid: &str, now: Timestamp) -> bool {
        let reboots = self.reboots();
        let recent = reboots.get(uid).into_iter().flatten().filter(|at| is_recent(**at, now));
        recent.count() >= REBOOTS_MAX
    }

    fn reboots(&self) -> MutexGuard<'_, BTreeMap<String, Vec<Timestamp>>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_recent(at: Timestamp, now: Timestamp) -> bool {
    since(now, at) < WINDOW
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_reboots_within_a_sliding_day_are_the_maximum() {
        let at = |hours: i64| Timestamp::from_second(hours * 3600).expect("a time");
        let history = RebootHistory::default();
        history.record("a", at(0));
        assert!(!history.is_exhausted("a", at(1)));
        history.record("a", at(10));
        assert!(history.is_exhausted("a", at(11)));
        assert!(!history.is_exhausted("b", at(11)), "claims are counted separately");
        assert!(history.is_exhausted("a", at(23)));
        assert!(!history.is_exhausted("a", at(24)), "the first is a day old");
        history.record("a", at(25));
        assert!(history.is_exhausted("a", at(26)), "the second and the third");
        assert!(!history.is_exhausted("a", at(34)));
    }
}
