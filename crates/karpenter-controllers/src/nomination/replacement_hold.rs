//! Decides how long a replacement node stays closed for the pods that its command moves.
//!
//! An open replacement would be filled with pods of other commands. The own pods would then need another node, and the
//! replacements of the other commands may fit no other pods. A replacement to which no pods will move must open soon,
//! because an unused node costs money.
//!
//! This module does not remove the reservations of deleted pods, because the pods that replace them may still inherit
//! these.

use std::time::Duration;

use jiff::Timestamp;
use karpenter_runtime::clock::since;

use crate::inputs::Reads;
use crate::nominations::{has_unreserved_pod_of, pod_of};
use crate::pods;

/// How long a replacement stays closed at most.
const MOVED_PODS_WAIT_MAX: Duration = Duration::from_secs(60);
/// A replacement opens when one of its moved pods has been pending for this long, even if the other moved pods are not
/// pending yet.
const UNBOUND_POD_WAIT_MAX: Duration = Duration::from_secs(3);
/// A replacement opens if for this long no pod was seen that could use its reservations. By then, the pods that replace
/// the evicted ones exist and run elsewhere.
const NONE_SEEN_MAX: Duration = Duration::from_secs(5);

/// The pods that a command moves to a replacement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MovedPods {
    /// All moved pods are pending or bound, or one of them has been pending for long enough.
    NoneToWaitFor,
    /// Some moved pods are not evicted yet, or have a successor that has no reservation yet.
    Expected,
    /// Pods have reservations on the replacement, but no pod was seen that would use them.
    NoneSeen,
}

/// How long a replacement node has been kept closed. The node is ready except for the unregistered taint.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReplacementHold {
    since: Timestamp,
    none_seen_since: Option<Timestamp>,
}

impl ReplacementHold {
    pub(super) fn from(now: Timestamp) -> Self {
        Self { since: now, none_seen_since: None }
    }

    pub(super) fn since(&self) -> Timestamp {
        self.since
    }

    /// Whether the node must stay closed. The caller asks again at short intervals.
    pub(super) fn is_still_needed(&mut self, moved_pods: MovedPods, now: Timestamp) -> bool {
        let is_given_up = match moved_pods {
            MovedPods::NoneToWaitFor => return false,
            MovedPods::Expected => {
                self.none_seen_since = None;
                false
            }
            MovedPods::NoneSeen => since(now, *self.none_seen_since.get_or_insert(now)) >= NONE_SEEN_MAX,
        };
        !is_given_up && since(now, self.since) < MOVED_PODS_WAIT_MAX
    }
}

/// The state of the pods that commands move to the claim's node.
pub(super) fn moved_pods(reads: &Reads, claim_name: &str, now: Timestamp) -> MovedPods {
    let mut owners = reads.state.owners_of_moved_slots(claim_name);
    let mut is_awaiting = !owners.is_empty();
    let mut is_any_unevicted = false;
    for reservation in reads.state.reservations_on(claim_name) {
        let pod = pod_of(reads, &reservation);
        if pod.as_ref().is_some_and(|pod| pods::is_provisionable(pod)) {
            if since(now, reservation.since) >= UNBOUND_POD_WAIT_MAX {
                return MovedPods::NoneToWaitFor;
            }
        } else if reservation.is_move {
            is_awaiting = true;
            is_any_unevicted |= pod.is_some_and(|pod| pods::is_reschedulable(&pod));
            owners.extend(reservation.owner);
        }
    }
    match is_awaiting {
        false => MovedPods::NoneToWaitFor,
        true if is_any_unevicted || has_unreserved_pod_of(reads, &owners) => MovedPods::Expected,
        true => MovedPods::NoneSeen,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millisecond(millis).expect("a time")
    }

    #[test]
    fn replacement_opens_if_no_moved_pod_is_seen_for_five_seconds() {
        let mut hold = ReplacementHold::from(at(0));
        assert!(hold.is_still_needed(MovedPods::Expected, at(10_000)));
        assert!(hold.is_still_needed(MovedPods::NoneSeen, at(20_000)));
        assert!(hold.is_still_needed(MovedPods::NoneSeen, at(24_900)));
        assert!(hold.is_still_needed(MovedPods::Expected, at(24_950)), "a successor was created");
        assert!(
            hold.is_still_needed(MovedPods::NoneSeen, at(25_000)),
            "it was bound elsewhere, but there may be another"
        );
        assert!(hold.is_still_needed(MovedPods::NoneSeen, at(29_900)));
        assert!(!hold.is_still_needed(MovedPods::NoneSeen, at(30_000)));
    }

    #[test]
    fn replacement_opens_after_one_minute_or_when_all_moved_pods_are_pending() {
        let mut hold = ReplacementHold::from(at(0));
        assert!(hold.is_still_needed(MovedPods::Expected, at(59_900)));
        assert!(!hold.is_still_needed(MovedPods::Expected, at(60_000)));
        assert!(!ReplacementHold::from(at(0)).is_still_needed(MovedPods::NoneToWaitFor, at(0)));
    }
}
