//! How often claims' machines were restarted lately: what two restarts have not healed is replaced.
//!
//! Held in memory and lost with the process, which costs a machine at most two more restarts.
//! Upstream: pkg/controllers/disruption/repair_history.go.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use karpenter_cluster::clock::since;

pub const REBOOTS_MAX: usize = 2;
pub const WINDOW: Duration = Duration::from_secs(24 * 60 * 60);

/// Times of restarts by the uid of the claim. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct RebootHistory {
    shared: Arc<Mutex<BTreeMap<String, Vec<Timestamp>>>>,
}

impl RebootHistory {
    /// Remembers a restart that was committed; to be called once for each.
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

    /// Whether another restart would be one too many.
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
    fn two_within_a_day_and_the_day_slides() {
        let at = |hours: i64| Timestamp::from_second(hours * 3600).expect("a time");
        let history = RebootHistory::default();
        history.record("a", at(0));
        assert!(!history.is_exhausted("a", at(1)));
        history.record("a", at(10));
        assert!(history.is_exhausted("a", at(11)));
        assert!(!history.is_exhausted("b", at(11)), "each claim counts for itself");
        assert!(history.is_exhausted("a", at(23)));
        assert!(!history.is_exhausted("a", at(24)), "the first is a day old");
        history.record("a", at(25));
        assert!(history.is_exhausted("a", at(26)), "the second and the third");
        assert!(!history.is_exhausted("a", at(34)));
    }
}
