//! Decides what a candidate does with the observed lease. Pure functions.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use tokio::time::Instant;

/// The lease as this candidate last read it, and when it first read this version.
#[derive(Debug, Clone)]
pub(super) struct Observed {
    pub(super) lease: Lease,
    pub(super) since: Instant,
}

impl Observed {
    pub(super) fn holder(&self) -> Option<&str> {
        let holder = self.lease.spec.as_ref()?.holder_identity.as_deref();
        holder.filter(|holder| !holder.is_empty())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeaseAction {
    /// The lease does not exist: create it.
    Create,
    /// The lease has no holder, or its holder did not renew it in time: acquire it.
    Acquire,
    /// This candidate holds the lease: renew it.
    Renew,
    /// Another candidate holds the lease.
    Wait,
}

/// Decides what to do with the lease. `duration` is the lease duration of this candidate's settings, not the one in the
/// lease.
pub(super) fn decide(
    observed: Option<&Observed>,
    identity: &str,
    duration: Duration,
    now: Instant,
) -> LeaseAction {
    let Some(observed) = observed else { return LeaseAction::Create };
    match observed.holder() {
        Some(holder) if holder == identity => LeaseAction::Renew,
        Some(_) if observed.since + duration > now => LeaseAction::Wait,
        _ => LeaseAction::Acquire,
    }
}
