//! How long a pool is left alone after its claims failed before they were launched.
//!
//! A first failure changes nothing: the provider now knows what cannot be had, and the next plan asks for something
//! else. Failures in a row mean that it does not help, and claims would come and go as fast as they can be made. It is the
//! pool that rests, whoever launches from it: for pods, for its fixed size, or in place of other nodes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use karpenter_api::types::NodeClaim;
use karpenter_cluster::controllers::context::{is_deleting, name_of};
use karpenter_cluster::mirror::Change;

use crate::nodeclaim::provider_id;

const FIRST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(300);

/// Failures by pool.
#[derive(Debug, Default)]
pub struct BackOff {
    /// Claims on their way to a launch: their pool, and the round that made them.
    launching: BTreeMap<String, (String, u64)>,
    pools: BTreeMap<String, Failures>,
    round: u64,
}

#[derive(Debug, Default)]
struct Failures {
    in_a_row: u32,
    /// The youngest round a failure of which was counted: claims of one round fail together and count once.
    counted_round: u64,
    not_before: Option<Timestamp>,
}

impl BackOff {
    /// A new round of claims begins.
    pub fn begin_round(&mut self) {
        self.round += 1;
    }

    pub fn created(&mut self, claim: &str, pool: &str) {
        self.launching.insert(claim.to_owned(), (pool.to_owned(), self.round));
    }

    /// The claim was not created after all.
    pub fn forget(&mut self, claim: &str) {
        self.launching.remove(claim);
    }

    /// The claim has a machine: its pool works.
    pub fn launched(&mut self, claim: &str) {
        if let Some((pool, _)) = self.launching.remove(claim) {
            self.pools.remove(&pool);
        }
    }

    /// The claim is gone and never had a machine.
    pub fn failed(&mut self, claim: &str, now: Timestamp) {
        let Some((pool, round)) = self.launching.remove(claim) else { return };
        let failures = self.pools.entry(pool).or_default();
        if round <= failures.counted_round {
            return;
        }
        failures.counted_round = self.round;
        failures.in_a_row = failures.in_a_row.saturating_add(1);
        let doublings = failures.in_a_row.saturating_sub(2).min(16);
        failures.not_before = (failures.in_a_row > 1).then(|| {
            let wait = FIRST.saturating_mul(1 << doublings).min(LONGEST);
            SignedDuration::try_from(wait).ok().and_then(|wait| now.checked_add(wait).ok()).unwrap_or(now)
        });
    }

    /// Until when nothing should be launched from the pool.
    pub fn held_until(&self, pool: &str, now: Timestamp) -> Option<Timestamp> {
        self.pools.get(pool)?.not_before.filter(|until| now < *until)
    }
}

/// What all who launch know together. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct SharedBackOff {
    shared: Arc<Mutex<BackOff>>,
}

impl SharedBackOff {
    pub fn lock(&self) -> MutexGuard<'_, BackOff> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Learns from a claim's fate whether its pool can be launched from. May hear of the same change twice.
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

    /// One round of claims that all fail; until when the pool is held afterwards.
    fn fail(back_off: &mut BackOff, claims: &[&str], second: i64) -> Option<i64> {
        back_off.begin_round();
        for claim in claims {
            back_off.created(claim, "general");
        }
        for claim in claims {
            back_off.failed(claim, at(second));
        }
        back_off.held_until("general", at(second)).map(Timestamp::as_second)
    }

    #[test]
    fn failures_in_a_row_double_the_wait() {
        let mut back_off = BackOff::default();
        let waits: Vec<Option<i64>> =
            (0..9).map(|_| fail(&mut back_off, &["a", "b", "c"], 1000).map(|until| until - 1000)).collect();
        let expected =
            [None, Some(10), Some(20), Some(40), Some(80), Some(160), Some(300), Some(300), Some(300)];
        assert_eq!(waits, expected);
        assert_eq!(back_off.held_until("other", at(1000)), None);
        assert_eq!(back_off.held_until("general", at(1300)), None);
    }

    #[test]
    fn a_launch_ends_it() {
        let mut back_off = BackOff::default();
        fail(&mut back_off, &["a"], 0);
        assert_eq!(fail(&mut back_off, &["b"], 0), Some(10));
        back_off.begin_round();
        back_off.created("c", "general");
        back_off.launched("c");
        assert_eq!(back_off.held_until("general", at(0)), None);
        // A claim that ends after its launch has not failed to launch.
        back_off.failed("c", at(0));
        assert_eq!(fail(&mut back_off, &["d"], 0), None);
    }
}
