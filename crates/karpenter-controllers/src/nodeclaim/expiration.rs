//! Deletes NodeClaims that are older than `expireAfter`, without regard to budgets. Their nodes are drained as usual.
//!
//! Upstream: pkg/controllers/nodeclaim/expiration.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use karpenter_api::types::NodeClaim;
use karpenter_runtime::clock::until;
use karpenter_runtime::object::{ObjectKey, is_deleting};
use karpenter_runtime::queue::Queue;
use karpenter_runtime::worker::{Reconcile, Requeue};

use crate::claims::hooks::{DeletionCause, Hooks, LifecycleOutcome};
use crate::inputs::{Reads, Writes};
use crate::writes;

#[derive(Debug, PartialEq, Eq)]
enum Expiration {
    Never,
    After(Duration),
    Now,
}

/// Decides by the age of the claim and its own `expireAfter`; a later change of the NodePool's `expireAfter` has no
/// effect on it.
fn decide(claim: &NodeClaim, now: Timestamp) -> Expiration {
    let lifetime = claim.spec.expire_after.as_ref().and_then(|lifetime| lifetime.nanos());
    let (Some(lifetime), Some(created)) = (lifetime, claim.metadata.creation_timestamp.as_ref()) else {
        return Expiration::Never;
    };
    if is_deleting(claim) {
        return Expiration::Never;
    }
    let Ok(end) = created.0.checked_add(SignedDuration::from_nanos(lifetime)) else {
        return Expiration::Never;
    };
    if now < end { Expiration::After(until(now, end)) } else { Expiration::Now }
}

pub struct ExpirationController {
    pub reads: Reads,
    pub writes: Writes,
    pub hooks: Hooks,
}

impl ExpirationController {
    pub fn watch(&self, queue: &Queue) {
        self.reads.stores.enqueue_claims(queue);
    }
}

impl Reconcile for ExpirationController {
    async fn reconcile(&self, key: &ObjectKey) -> kube::Result<Requeue> {
        let Some(claim) = self.reads.managed_claim(key) else { return Ok(Requeue::No) };
        match decide(&claim, self.reads.clock.now()) {
            Expiration::Never => Ok(Requeue::No),
            Expiration::After(wait) => Ok(Requeue::After(wait)),
            Expiration::Now => {
                writes::delete(&self.writes.client, &self.reads.stores.node_claims, &*claim).await?;
                self.hooks.report(&claim, LifecycleOutcome::Deleted(DeletionCause::Expired));
                Ok(Requeue::No)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn claim_older_than_its_expire_after_expires() {
        let now: Timestamp = "2026-01-02T00:00:00Z".parse().expect("a time");
        let table = [
            (json!("Never"), json!(null), Expiration::Never),
            (json!(null), json!(null), Expiration::Never),
            (json!("24h"), json!(null), Expiration::Now),
            (json!("1h"), json!(null), Expiration::Now),
            (json!("1h"), json!("2026-01-01T12:00:00Z"), Expiration::Never),
            (json!("24h0m1s"), json!(null), Expiration::After(Duration::from_secs(1))),
        ];
        for (expire_after, deleted, expected) in table {
            let claim: NodeClaim = serde_json::from_value(json!({
                "metadata": {"creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": deleted},
                "spec": {"expireAfter": expire_after, "nodeClassRef": {}},
            }))
            .expect("a claim");
            assert_eq!(decide(&claim, now), expected, "{expire_after} {deleted}");
        }
    }
}
