//! Launch back-off per NodePool: delays launches after claims of the NodePool failed to launch.
//!
//! A single failure causes no back-off: the offering is marked as unavailable, and the next plan uses another one. If
//! the next launches fail too, the offering was not the cause. Without a back-off, claims would then be created and
//! deleted continuously. The back-off applies to all launches of the NodePool: for pods, for static NodePools, and for
//! replacements.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use karpenter_api::types::NodeClaim;
use karpenter_runtime::object::{is_deleting, name_of};
use karpenter_runtime::store::Change;
use karpenter_state::claim::provider_id;

/// The back-off after the second failure in a row; it doubles with each further failure.
const BACKOFF_MIN: Duration = Duration::from_secs(10);
const BACKOFF_MAX: Duration = Duration::from_secs(300);

/// The state of the launch back-off: failures by NodePool, and claims that are not launched yet.
#[derive(Debug, Default)]
pub struct LaunchBackoff {
    /// Claims that are not launched yet, with their NodePool and the pass that created them.
    launching: BTreeMap<String, (String, u64)>,
    pools: BTreeMap<String, Failures>,
    /// The number of the current pass.
    pass: u64,
}

#[derive(Debug, Default)]
struct Failures {
    in_a_row: u32,
    /// The last pass for which a failure was counted. If several claims of one pass fail, they count as one failure.
    counted_pass: u64,
    not_before: Option<Timestamp>,
}

impl LaunchBackoff {
    /// Starts a new pass: claims that are created from now on belong to it.
    pub fn begin_pass(&mut self) {
        self.pass += 1;
    }

    pub fn created(&mut self, claim: &str, pool: &str) {
        self.launching.insert(claim.to_owned(), (pool.to_owned(), self.pass));
    }

    /// Undoes [`Self::created`]: the claim was not created.
    pub fn forget(&mut self, claim: &str) {
        self.launching.remove(claim);
    }

    /// Records that the claim was launched. This ends the back-off of its NodePool.
    pub fn launched(&mut self, claim: &str) {
        if let Some((pool, _)) = self.launching.remove(claim) {
            self.pools.remove(&pool);
        }
    }

    /// Records that the claim was deleted before it was launched.
    pub fn failed(&mut self, claim: &str, now: Timestamp) {
        let Some((pool, pass)) = self.launching.remove(claim) else { return };
        let failures = self.pools.entry(pool).or_default();
        if pass <= failures.counted_pass {
            return;
        }
        failures.counted_pass = self.pass;
        failures.in_a_row = failures.in_a_row.saturating_add(1);
        let doublings = failures.in_a_row.saturating_sub(2).min(16);
        failures.not_before = (failures.in_a_row > 1).then(|| {
            let wait = BACKOFF_MIN.saturating_mul(1 << doublings).min(BACKOFF_MAX);
            SignedDuration::try_from(wait).ok().and_then(|wait| now.checked_add(wait).ok()).unwrap_or(now)
        });
    }

    /// Until when no nodes of the NodePool should be launched; `None` if they may be launched now.
    pub fn held_until(&self, pool: &str, now: Timestamp) -> Option<Timestamp> {
        self.pools.get(pool)?.not_before.filter(|until| now < *until)
    }
}

/// The launch back-off, shared by all controllers that create claims. Clones share the state.
#[derive(Debug, Clone, Default)]
pub struct SharedLaunchBackoff {
    shared: Arc<Mutex<LaunchBackoff>>,
}

impl SharedLaunchBackoff {
    pub fn lock(&self) -> MutexGuard<'_, LaunchBackoff> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records from the change of a claim whether it was launched or failed. It is safe to pass the same change twice.
    pub fn note(&self, change: &Change<NodeClaim>, now: Timestamp) {
        let claim = &**change.object();
        if provider_id(claim).is_some() {
            self.lock().launched(name_of(claim));
        } else if change.is_deleted() || is_deleting(claim) {
            self.lock().failed(name_of(claim), now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    /// Runs a pass that creates these claims, all of which fail. Returns the end of the NodePool's back-off.
    fn fail(launch_backoff: &mut LaunchBackoff, claims: &[&str], second: i64) -> Option<i64> {
        launch_backoff.begin_pass();
        for claim in claims {
            launch_backoff.created(claim, "general");
        }
        for claim in claims {
            launch_backoff.failed(claim, at(second));
        }
        launch_backoff.held_until("general", at(second)).map(Timestamp::as_second)
    }

    #[test]
    fn consecutive_failures_double_the_back_off() {
        let mut launch_backoff = LaunchBackoff::default();
        let waits: Vec<Option<i64>> = (0..9)
            .map(|_| fail(&mut launch_backoff, &["a", "b", "c"], 1000).map(|until| until - 1000))
            .collect();
        let expected =
            [None, Some(10), Some(20), Some(40), Some(80), Some(160), Some(300), Some(300), Some(300)];
        assert_eq!(waits, expected);
        assert_eq!(launch_backoff.held_until("other", at(1000)), None);
        assert_eq!(launch_backoff.held_until("general", at(1300)), None);
    }

    #[test]
    fn launch_ends_the_back_off() {
        let mut launch_backoff = LaunchBackoff::default();
        fail(&mut launch_backoff, &["a"], 0);
        assert_eq!(fail(&mut launch_backoff, &["b"], 0), Some(10));
        launch_backoff.begin_pass();
        launch_backoff.created("c", "general");
        launch_backoff.launched("c");
        assert_eq!(launch_backoff.held_until("general", at(0)), None);
        // A claim that is deleted after it was launched does not count as a failed launch.
        launch_backoff.failed("c", at(0));
        assert_eq!(fail(&mut launch_backoff, &["d"], 0), None);
    }
}
