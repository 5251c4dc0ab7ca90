//! Selects instances without a NodeClaim, which exist if the response to a launch was lost.
//!
//! The garbage collection in the `karpenter-controllers` crate terminates such instances as well, but it runs less
//! often and needs two runs, because it does not know launch times. This controller knows them and needs one run. After
//! a start it runs more often, because the previous process is likely to have left such instances.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use karpenter_runtime::clock::since;

/// An instance that is older than this and has no NodeClaim is terminated. A NodeClaim gets its provider id much sooner
/// after the launch.
const CLAIMED_WITHIN: Duration = Duration::from_secs(30);
const PERIOD_FIRST: Duration = Duration::from_secs(10);
const PERIOD: Duration = Duration::from_secs(2 * 60);
/// How many runs after the start use the shorter period.
const FREQUENT_RUNS: u64 = 20;

/// The properties of an instance that garbage collection needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedInstance {
    pub provider_id: String,
    pub launched_at: Option<Timestamp>,
    pub is_terminating: bool,
}

/// Those of the given instances that have no NodeClaim, in their order. An instance whose launch time is unknown is
/// skipped.
pub fn leaked<'a>(
    instances: &'a [ListedInstance],
    claimed: &BTreeSet<String>,
    now: Timestamp,
) -> impl Iterator<Item = &'a ListedInstance> {
    instances.iter().filter(move |instance| {
        let is_old = instance.launched_at.is_some_and(|at| since(now, at) > CLAIMED_WITHIN);
        !instance.is_terminating && is_old && !claimed.contains(&instance.provider_id)
    })
}

/// The delay before the next run, given the number of runs so far.
pub const fn period(runs: u64) -> Duration {
    if runs <= FREQUENT_RUNS { PERIOD_FIRST } else { PERIOD }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_old_instances_without_nodeclaim_are_leaked() {
        let now: Timestamp = "2026-01-01T00:10:00Z".parse().expect("a time");
        let claimed = BTreeSet::from(["aws:///z/i-claimed".to_owned()]);
        // Columns: NodePool name, age of the instance in seconds, whether it is terminating, expected result.
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
        for (name, age, is_terminating, expected) in table {
            let launched_at = age.map(|age| now - jiff::SignedDuration::from_secs(age));
            let instances =
                [ListedInstance { provider_id: format!("aws:///z/{name}"), launched_at, is_terminating }];
            assert_eq!(
                leaked(&instances, &claimed, now).count() == 1,
                expected,
                "{name} {age:?} {is_terminating}"
            );
        }
    }

    #[test]
    fn collection_is_frequent_after_start() {
        assert_eq!(period(1), PERIOD_FIRST);
        assert_eq!(period(20), PERIOD_FIRST);
        assert_eq!(period(21), PERIOD);
    }
}
