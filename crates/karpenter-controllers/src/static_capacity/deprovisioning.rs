//! Deletes surplus NodeClaims of static NodePools.
//! Upstream: pkg/controllers/static/deprovisioning/controller.go.

pub(super) mod surplus;

use std::sync::Arc;

use karpenter_api::types::NodeClaim;
use karpenter_runtime::object::{ObjectKey, is_deleting, name_of};
use karpenter_runtime::queue::Queue;
use karpenter_runtime::worker::{Reconcile, Requeue};
use karpenter_state::cost::DeletionCosts;
use karpenter_state::pod::Pod;
use kube::Client;

use self::surplus::{Member, choose};
use crate::claims::node_limits::{Counts, counts};
use crate::claims::static_pools::{RECHECK, replicas, watch};
use crate::inputs::Reads;
use crate::stores::{BY_NODE, BY_POOL};
use crate::writes;

pub struct StaticDeprovisioning {
    pub reads: Reads,
    pub client: Client,
    pub deletion_costs: DeletionCosts,
}

impl StaticDeprovisioning {
    pub fn watch(&self, queue: &Queue) {
        watch(&self.reads, queue);
    }

    /// The NodeClaims that may be deleted as surplus, with the pods of their nodes. NodeClaims that are deleted already
    /// or selected by a command are left out.
    fn members(&self, pool: &str) -> Vec<(Arc<NodeClaim>, Vec<Arc<Pod>>)> {
        let stores = &self.reads.stores;
        let claims = stores.node_claims.by(BY_POOL, pool).into_iter();
        let staying = claims.filter(|claim| {
            let counts = Counts::of([&**claim], |name| self.reads.state.is_marked_for_deletion(name));
            !is_deleting(&**claim) && counts.active == 1
        });
        staying
            .map(|claim| {
                let nodes = self.reads.stores.nodes_of(&claim);
                let pods = nodes.iter().flat_map(|node| stores.pods.by(BY_NODE, name_of(&**node))).collect();
                (claim, pods)
            })
            .collect()
    }
}

impl Reconcile for StaticDeprovisioning {
    async fn reconcile(&self, key: &ObjectKey) -> kube::Result<Requeue> {
        let reads = &self.reads;
        let Some(pool) = reads.stores.node_pools.get_key(key) else { return Ok(Requeue::No) };
        let Some(replicas) = replicas(reads, &pool) else { return Ok(Requeue::No) };
        let active = counts(reads, name_of(&*pool)).active;
        let surplus = active.saturating_sub(replicas);
        if surplus == 0 {
            return Ok(Requeue::After(RECHECK));
        }
        tracing::info!(
            current = active,
            desired = replicas,
            deprovision_count = surplus,
            "deprovisioning nodeclaims to satisfy replica count"
        );
        let members = self.members(name_of(&*pool));
        let views: Vec<Member<'_>> = members.iter().map(|(claim, pods)| Member { claim, pods }).collect();
        let chosen = choose(
            &views,
            usize::try_from(surplus).unwrap_or(usize::MAX),
            self.deletion_costs,
            reads.clock.now(),
        );
        for (claim, _) in
            members.iter().filter(|(claim, _)| chosen.iter().any(|name| name == name_of(&**claim)))
        {
            writes::delete(&self.client, &reads.stores.node_claims, &**claim).await?;
        }
        Ok(Requeue::After(RECHECK))
    }
}
