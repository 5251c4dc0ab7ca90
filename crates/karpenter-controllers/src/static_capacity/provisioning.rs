//! Creates NodeClaims for static NodePools.
//! Upstream: pkg/controllers/static/provisioning/controller.go.

use std::time::Duration;

use karpenter_runtime::clock::until;
use karpenter_runtime::object::{ObjectKey, name_of};
use karpenter_runtime::queue::Queue;
use karpenter_runtime::worker::{Reconcile, Requeue};

use super::count::{Counts, counts, reserve_nodes};
use super::{RECHECK, is_ready, replicas, watch};
use crate::claims;
use crate::context::Context;

/// How often a NodePool that reached its node limit is reconciled.
const AT_LIMIT: Duration = Duration::from_secs(30);

pub struct StaticProvisioning {
    pub context: Context,
}

impl StaticProvisioning {
    pub fn watch(&self, queue: &Queue) {
        // This observer is registered first, so that the back-off is updated before the same change triggers a
        // reconcile.
        let context = self.context.clone();
        self.context.stores.node_claims.observe(move |change| {
            context.launch_backoff.note(change, context.clock.now());
        });
        watch(&self.context, queue);
    }
}

/// How many NodeClaims to create. Candidates of a command still count as nodes; their replacements take their place.
pub(super) fn missing(counts: Counts, replicas: u32) -> u32 {
    if counts.active.saturating_add(counts.pending_disruption) >= replicas {
        return 0;
    }
    replicas.saturating_sub(counts.active)
}

impl Reconcile for StaticProvisioning {
    async fn reconcile(&self, key: &ObjectKey) -> kube::Result<Requeue> {
        let context = &self.context;
        let Some(pool) = context.stores.node_pools.get_key(key) else { return Ok(Requeue::No) };
        let Some(replicas) = replicas(context, &pool).filter(|_| is_ready(&pool)) else {
            return Ok(Requeue::No);
        };
        claims::resolve_unconfirmed_creates(context).await?;
        let counts = counts(context, name_of(&*pool));
        let missing = missing(counts, replicas);
        if missing == 0 {
            return Ok(Requeue::After(RECHECK));
        }
        let now = context.clock.now();
        let held = context.launch_backoff.lock().held_until(name_of(&*pool), now);
        if let Some(held) = held {
            tracing::info!(until = %held, "launches failed repeatedly, waiting");
            return Ok(Requeue::After(until(now, held)));
        }
        let grant = reserve_nodes(context, &pool, missing);
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
        context.launch_backoff.lock().begin_pass();
        let claim = claims::claim_from_template(&pool);
        for _ in 0..grant.granted() {
            claims::create(context, &claim).await?;
        }
        let is_limited = grant.granted() < missing;
        Ok(Requeue::After(if is_limited { AT_LIMIT } else { RECHECK }))
    }
}
