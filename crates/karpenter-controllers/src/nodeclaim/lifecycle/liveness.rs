//! The timeouts of launch and registration. Initialization has no timeout.
//!
//! Upstream: pkg/controllers/nodeclaim/lifecycle/liveness.go.

use std::time::Duration;

use jiff::Timestamp;
use karpenter_api::types::NodeClaim;
use karpenter_runtime::clock::since;
use karpenter_state::claim::{LAUNCHED, REGISTERED, condition, is_true};

use crate::claims::hooks::DeletionCause;

pub(super) const LAUNCH_TIMEOUT: Duration = Duration::from_secs(5 * 60);
pub(super) const REGISTRATION_TIMEOUT: Duration = Duration::from_secs(15 * 60);

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Liveness {
    Alive,
    CheckAfter(Duration),
    TimedOut(DeletionCause),
}

pub(super) fn decide(claim: &NodeClaim, now: Timestamp) -> Liveness {
    if is_true(claim, REGISTERED) {
        return Liveness::Alive;
    }
    if !is_true(claim, LAUNCHED) {
        return check(claim, LAUNCHED, LAUNCH_TIMEOUT, DeletionCause::LaunchTimeout, now);
    }
    check(claim, REGISTERED, REGISTRATION_TIMEOUT, DeletionCause::RegistrationTimeout, now)
}

/// Whether the condition `kind` has not become true within `limit`. The time counts from its last transition, or from
/// the creation of the claim if the condition is missing.
fn check(claim: &NodeClaim, kind: &str, limit: Duration, cause: DeletionCause, now: Timestamp) -> Liveness {
    let changed = condition(claim, kind).and_then(|condition| condition.last_transition_time.as_ref());
    let started = changed.or(claim.metadata.creation_timestamp.as_ref()).map_or(now, |time| time.0);
    match limit.checked_sub(since(now, started)).filter(|left| !left.is_zero()) {
        Some(left) => Liveness::CheckAfter(left),
        None => Liveness::TimedOut(cause),
    }
}
