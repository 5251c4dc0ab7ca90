//! How long a claim may stay without a machine or without a node. There is no limit for initialization.

use std::time::Duration;

use jiff::Timestamp;
use karpenter_api::types::NodeClaim;
use karpenter_cluster::clock::since;

use crate::nodeclaim::hooks::GiveUp;
use crate::nodeclaim::{LAUNCHED, REGISTERED, condition, is_true};

pub(super) const LAUNCH_TIMEOUT: Duration = Duration::from_secs(5 * 60);
pub(super) const REGISTRATION_TIMEOUT: Duration = Duration::from_secs(15 * 60);

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Liveness {
    Alive,
    CheckAfter(Duration),
    TimedOut(GiveUp),
}

pub(super) fn decide(claim: &NodeClaim, now: Timestamp) -> Liveness {
    if is_true(claim, REGISTERED) {
        return Liveness::Alive;
    }
    if !is_true(claim, LAUNCHED) {
        return check(claim, LAUNCHED, LAUNCH_TIMEOUT, GiveUp::LaunchTimeout, now);
    }
    check(claim, REGISTERED, REGISTRATION_TIMEOUT, GiveUp::RegistrationTimeout, now)
}

/// A condition that never changed counts from the claim's creation.
fn check(claim: &NodeClaim, kind: &str, limit: Duration, why: GiveUp, now: Timestamp) -> Liveness {
    let changed = condition(claim, kind).and_then(|condition| condition.last_transition_time.as_ref());
    let started = changed.or(claim.metadata.creation_timestamp.as_ref()).map_or(now, |time| time.0);
    match limit.checked_sub(since(now, started)).filter(|left| !left.is_zero()) {
        Some(left) => Liveness::CheckAfter(left),
        None => Liveness::TimedOut(why),
    }
}
