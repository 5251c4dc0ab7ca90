//! What to do about a lease, from what was seen of it.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use tokio::time::Instant;

/// A lease, and since when it looks like this to us.
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
pub(super) enum Move {
    /// There is no lease.
    Create,
    /// It is nobody's, or its holder has been silent for too long.
    Take,
    /// It is ours.
    Renew,
    /// It is somebody else's.
    Wait,
}

/// How long the holder may be silent is what this candidate was told, not what the lease says.
pub(super) fn decide(observed: Option<&Observed>, identity: &str, duration: Duration, now: Instant) -> Move {
    let Some(observed) = observed else { return Move::Create };
    match observed.holder() {
        Some(holder) if holder == identity => Move::Renew,
        Some(_) if observed.since + duration > now => Move::Wait,
        _ => Move::Take,
    }
}
