//! How long a node that takes the place of others stays closed for their pods. An open one would fill up with pods of
//! other commands in the meantime, whose own room fits nobody else; one that nobody comes to any more is kept for nothing.
//!
//! What is kept for pods that are gone is not given up here: a successor may still come and find its place.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use karpenter_cluster::clock::since;
use karpenter_state::pod::Pod;

use crate::context::Context;
use crate::mirrors::UNBOUND_BY_OWNER;
use crate::pods;
use crate::state::Place;

/// The longest that a node is kept closed.
const MOST: Duration = Duration::from_secs(60);
/// No pod that is on its way waits longer for the others.
const ON_THE_WAY_MOST: Duration = Duration::from_secs(3);
/// When nobody who could come has been seen for so long, nobody comes: a pod that left has its successor by now, and that
/// one runs elsewhere.
const DESERTED: Duration = Duration::from_secs(5);

/// Who is still to come to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Coming {
    /// Nobody but those who are on their way, or one of these has waited long enough.
    Enough,
    /// Pods that have not left their old node yet, or successors that have no place yet.
    Others,
    /// Places are kept, and nobody is seen who would take them.
    Nobody,
}

/// A node that is finished but for our taint.
#[derive(Debug, Clone, Copy)]
pub(super) struct Standby {
    since: Timestamp,
    deserted_since: Option<Timestamp>,
}

impl Standby {
    pub(super) fn from(now: Timestamp) -> Self {
        Self { since: now, deserted_since: None }
    }

    pub(super) fn since(&self) -> Timestamp {
        self.since
    }

    /// Whether it shall stay closed, to be asked again and again.
    pub(super) fn goes_on(&mut self, coming: Coming, now: Timestamp) -> bool {
        let is_in_vain = match coming {
            Coming::Enough => return false,
            Coming::Others => {
                self.deserted_since = None;
                false
            }
            Coming::Nobody => since(now, *self.deserted_since.get_or_insert(now)) >= DESERTED,
        };
        !is_in_vain && since(now, self.since) < MOST
    }
}

/// Who is still to come to the claim's node.
pub(super) fn coming(context: &Context, claim_name: &str, now: Timestamp) -> Coming {
    let mut owners = context.state.vacancies_of_moves(claim_name);
    let mut is_awaiting = !owners.is_empty();
    let mut is_left_to_leave = false;
    for place in context.state.places_on(claim_name) {
        let pod = pod_of(context, &place);
        if pod.as_ref().is_some_and(|pod| pods::is_waiting(pod)) {
            if since(now, place.since) >= ON_THE_WAY_MOST {
                return Coming::Enough;
            }
        } else if place.is_move {
            is_awaiting = true;
            is_left_to_leave |= pod.is_some_and(|pod| pods::is_reschedulable(&pod));
            owners.extend(place.owner);
        }
    }
    match is_awaiting {
        false => Coming::Enough,
        true if is_left_to_leave || is_any_homeless(context, &owners) => Coming::Others,
        true => Coming::Nobody,
    }
}

/// Whether somebody has a place on the host and is not known to be elsewhere, or will find one there.
pub(crate) fn is_anyone_expected(context: &Context, host: &str) -> bool {
    let mut owners = context.state.vacancies_of_moves(host);
    for place in context.state.places_on(host) {
        match pod_of(context, &place) {
            Some(pod) if pods::is_reschedulable(&pod) => return true,
            _ if place.is_move => owners.extend(place.owner),
            _ => {}
        }
    }
    is_any_homeless(context, &owners)
}

fn pod_of(context: &Context, place: &Place) -> Option<Arc<Pod>> {
    context.mirrors.pods.get_key(&place.pod).filter(|pod| pods::uid_of(pod) == place.uid)
}

/// Whether a pod of one of these owners waits that has no place: those that have one, on whichever node, come there.
fn is_any_homeless(context: &Context, owners: &BTreeSet<String>) -> bool {
    let is_homeless =
        |pod: &Arc<Pod>| pods::is_active(pod) && context.state.place_of(pods::uid_of(pod)).is_none();
    owners.iter().any(|owner| context.mirrors.pods.by(UNBOUND_BY_OWNER, owner).iter().any(is_homeless))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millisecond(millis).expect("a time")
    }

    #[test]
    fn a_node_is_not_kept_closed_for_nobody() {
        let mut standby = Standby::from(at(0));
        assert!(standby.goes_on(Coming::Others, at(10_000)));
        assert!(standby.goes_on(Coming::Nobody, at(20_000)));
        assert!(standby.goes_on(Coming::Nobody, at(24_900)));
        assert!(standby.goes_on(Coming::Others, at(24_950)), "a successor was made");
        assert!(standby.goes_on(Coming::Nobody, at(25_000)), "and is elsewhere, but there may be another");
        assert!(standby.goes_on(Coming::Nobody, at(29_900)));
        assert!(!standby.goes_on(Coming::Nobody, at(30_000)));
    }

    #[test]
    fn nobody_is_waited_for_longer_than_a_minute_or_when_all_are_on_their_way() {
        let mut standby = Standby::from(at(0));
        assert!(standby.goes_on(Coming::Others, at(59_900)));
        assert!(!standby.goes_on(Coming::Others, at(60_000)));
        assert!(!Standby::from(at(0)).goes_on(Coming::Enough, at(0)));
    }
}
