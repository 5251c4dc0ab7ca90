//! Selects instances without a NodeClaim: those of launches whose response was lost.
//!
//! The garbage collection of the `karpenter-controllers` crate terminates them too, but runs less often and needs two
//! runs. This one has launch times, so that one run is enough, and runs more often after a start, when instances of
//! the previous process are likely.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use karpenter_cluster::clock::since;

/// A NodeClaim has its provider id long before this.
const CLAIMED_WITHIN: Duration = Duration::from_secs(30);
const PERIOD_FIRST: Duration = Duration::from_secs(10);
const PERIOD: Duration = Duration::from_secs(2 * 60);
/// The number of runs with the shorter period.
const FREQUENT_LOOKS: u64 = 20;

/// The properties of an instance that matter here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    pub provider_id: String,
    pub launched_at: Option<Timestamp>,
    pub is_ending: bool,
}

/// Instances without a NodeClaim, in the given order. An instance with unknown launch time is skipped.
pub fn leaked<'a>(
    machines: &'a [Machine],
    claimed: &BTreeSet<String>,
    now: Timestamp,
) -> impl Iterator<Item = &'a Machine> {
    machines.iter().filter(move |machine| {
        let is_old = machine.launched_at.is_some_and(|at| since(now, at) > CLAIMED_WITHIN);
        !machine.is_ending && is_old && !claimed.contains(&machine.provider_id)
    })
}

/// The delay to the next run after this many runs.
pub const fn period(looks: u64) -> Duration {
    if looks <= FREQUENT_LOOKS { PERIOD_FIRST } else { PERIOD }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_old_machines_without_a_claim_are_leaked() {
        let now: Timestamp = "2026-01-01T00:10:00Z".parse().expect("a time");
        let claimed = BTreeSet::from(["aws:///z/i-claimed".to_owned()]);
        // Name, age in seconds, is terminating, expected.
        let table = [
            ("i-claimed", Some(600), false, false),
            ("i-lost", Some(600), false, true),
            ("i-lost", Some(31), false, true),
            ("i-lost", Some(30), false, false),
            ("i-lost", Some(0), false, false),
            ("i-lost", Some(-60), false, false),
            ("i-lost", Some(600), true, false),
            ("i-lost", None, false, false),
        ];
        for (name, age, is_ending, expected) in table {
            let launched_at = age.map(|age| now - jiff::SignedDuration::from_secs(age));
            let machines = [Machine { provider_id: format!("aws:///z/{name}"), launched_at, is_ending }];
            assert_eq!(leaked(&machines, &claimed, now).count() == 1, expected, "{name} {age:?} {is_ending}");
        }
    }

    #[test]
    fn looks_are_frequent_at_first() {
        assert_eq!(period(1), PERIOD_FIRST);
        assert_eq!(period(20), PERIOD_FIRST);
        assert_eq!(period(21), PERIOD);
    }
}
