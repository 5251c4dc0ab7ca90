//! Creates NodeClaims for static NodePools.
//! Upstream: pkg/controllers/static/provisioning/controller.go.

use std::time::Duration;

use karpenter_runtime::clock::until;
use karpenter_runtime::object::{ObjectKey, name_of};
use karpenter_runtime::queue::Queue;
use karpenter_runtime::worker::{Reconcile, Requeue};

use crate::claims::node_limits::{Counts, counts, reserve_nodes};
use crate::claims::static_pools::{RECHECK, is_ready, replicas, watch};
use crate::claims::{self, ClaimCreator};
use crate::inputs::Reads;
use crate::state::node_limit_grants::NodeLimitGrants;

/// How often a NodePool that reached its node limit is reconciled.
const AT_LIMIT: Duration = Duration::from_secs(30);

pub struct StaticProvisioning {
    pub reads: Reads,
    pub claims: ClaimCreator,
    pub node_limit_grants: NodeLimitGrants,
}

impl StaticProvisioning {
    pub fn watch(&self, queue: &Queue) {
        // This observer is registered before the one that triggers reconciles, so that a reconcile sees the back-off
        // after the change.
        let (launch_backoff, clock) = (self.claims.launch_backoff.clone(), self.reads.clock);
        self.reads.stores.node_claims.observe(move |change| {
            launch_backoff.note(change, clock.now());
        });
        watch(&self.reads, queue);
    }
}

/// How many NodeClaims to create. Candidates of a command count as nodes too: their replacements are created by the
/// command, not here.
pub(super) fn missing(counts: Counts, replicas: u32) -> u32 {
    if counts.active.saturating_add(counts.pending_disruption) >= replicas {
        return 0;
    }
    replicas.saturating_sub(counts.active)
}

impl Reconcile for StaticProvisioning {
    async fn reconcile(&self, key: &ObjectKey) -> kube::Result<Requeue> {
        let Self { reads, claims: creator, node_limit_grants } = self;
        let Some(pool) = reads.stores.node_pools.get_key(key) else { return Ok(Requeue::No) };
        let Some(replicas) = replicas(reads, &pool).filter(|_| is_ready(&pool)) else {
            return Ok(Requeue::No);
        };
        creator.resolve_unconfirmed_creates().await?;
        let counts = counts(reads, name_of(&*pool));
        let missing = missing(counts, replicas);
        if missing == 0 {
            return Ok(Requeue::After(RECHECK));
        }
        let now = reads.clock.now();
        let held = creator.launch_backoff.lock().held_until(name_of(&*pool), now);
        if let Some(held) = held {
            tracing::info!(until = %held, "launches failed repeatedly, waiting");
            return Ok(Requeue::After(until(now, held)));
        }
        let grant = reserve_nodes(reads, node_limit_grants, &pool, missing);
        if grant.granted() == 0 {
            tracing::info!("nodepool node limit reached");
            return Ok(Requeue::After(AT_LIMIT));
        }
        tracing::info!(
            current = counts.active,
            desired = replicas,
            provision_count = grant.granted(),
            "provisioning nodeclaims to satisfy replica count"
        );
        creator.launch_backoff.lock().begin_pass();
        let claim = claims::claim_from_template(&pool);
        for _ in 0..grant.granted() {
            creator.create(&claim).await?;
        }
        let is_limited = grant.granted() < missing;
        Ok(Requeue::After(if is_limited { AT_LIMIT } else { RECHECK }))
    }
}
