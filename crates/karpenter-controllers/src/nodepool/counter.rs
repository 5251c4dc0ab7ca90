//! Writes `status.resources` and `status.nodes` of NodePools: the sum of the capacity of their nodes, and the number of
//! nodes.
//!
//! As for limits, terminating nodes and claims that are not launched do not count.
//!
//! Upstream: pkg/controllers/nodepool/counter.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use karpenter_api::labels;
use karpenter_api::types::{NodeClaim, NodePool, Quantities};
use karpenter_model::quantity::{Quantity, QuantityFormat};
use karpenter_runtime::object::{ObjectKey, is_deleting, label, name_of};
use karpenter_runtime::queue::Queue;
use karpenter_runtime::store::{Change, Store};
use karpenter_runtime::worker::{Reconcile, Requeue};
use karpenter_state::claim::is_instance_terminating;
use karpenter_state::node::is_tracked;
use kube::Resource;

use crate::inputs::{Reads, Writes};
use crate::stores::{BY_POOL, BY_PROVIDER_ID};
use crate::writes;

/// The resource name under which limits and status contain the number of nodes.
const NODES: &str = "nodes";
/// Resources that the status lists even if the NodePool has no nodes.
const ALWAYS_SHOWN: [&str; 5] = ["cpu", "memory", "pods", "ephemeral-storage", NODES];
/// Changes of nodes are batched for this time before the NodePool is counted again.
const SETTLE: Duration = Duration::from_secs(1);

pub struct NodePoolCounter {
    pub reads: Reads,
    pub writes: Writes,
}

impl NodePoolCounter {
    pub fn watch(&self, queue: &Queue) {
        let to = queue.clone();
        self.reads.stores.node_pools.observe(move |change: &Change<NodePool>| {
            if matches!(change, Change::Applied { old: None, .. }) {
                to.add(ObjectKey::of(&change.object().metadata));
            }
        });
        self.count_after_changes(&self.reads.stores.node_claims, queue);
        self.count_after_changes(&self.reads.stores.nodes, queue);
    }

    fn count_after_changes<K>(&self, store: &Store<K>, queue: &Queue)
    where
        K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + Send + Sync + 'static,
    {
        let (to, clock) = (queue.clone(), self.reads.clock);
        store.observe(move |change: &Change<K>| {
            if let Some(pool) = label(&**change.object(), labels::NODEPOOL) {
                to.add_at(ObjectKey::new("", pool), clock.deadline(SETTLE));
            }
        });
    }

    fn nodes_of_pool(&self, pool: &str) -> Vec<CountedNode> {
        let stores = &self.reads.stores;
        let mut nodes_and_claims: Vec<CountedNode> = stores
            .node_claims
            .by(BY_POOL, pool)
            .into_iter()
            .filter(|claim| !self.reads.state.is_marked_for_deletion(name_of(&**claim)))
            .filter_map(|claim| {
                let id = claim.status.as_ref()?.provider_id.clone().filter(|id| !id.is_empty())?;
                let node = stores.nodes.by(BY_PROVIDER_ID, &id).into_iter().next();
                Some(CountedNode { claim: Some(claim), node })
            })
            .collect();
        let without_claim = stores.nodes.by(BY_POOL, pool).into_iter().filter(|node| {
            let id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref()).unwrap_or_default();
            is_tracked(node) && stores.node_claims.by(BY_PROVIDER_ID, id).is_empty()
        });
        nodes_and_claims.extend(without_claim.map(|node| CountedNode { claim: None, node: Some(node) }));
        nodes_and_claims
    }
}

impl Reconcile for NodePoolCounter {
    async fn reconcile(&self, key: &ObjectKey) -> kube::Result<Requeue> {
        let store = &self.reads.stores.node_pools;
        let Some(pool) = store.get_key(key) else { return Ok(Requeue::No) };
        if !self.reads.is_managed(&pool.spec.template.spec.node_class_ref) {
            return Ok(Requeue::No);
        }
        let (resources, nodes) = count(&self.nodes_of_pool(&key.name));
        let old = pool.status.clone().unwrap_or_default();
        let mut new = old.clone();
        new.resources = Some(resources);
        new.nodes = Some(nodes);
        writes::status_unchanged(&self.writes.client, store, &*pool, &old, &new).await?;
        Ok(Requeue::No)
    }
}

/// A claim with its node, a claim without a node, or a node without a claim.
#[derive(Debug, Clone, Default)]
pub struct CountedNode {
    pub claim: Option<Arc<NodeClaim>>,
    pub node: Option<Arc<Node>>,
}

impl CountedNode {
    fn is_terminating(&self) -> bool {
        match (&self.claim, &self.node) {
            (Some(claim), _) => is_deleting(&**claim) || is_instance_terminating(claim),
            (None, Some(node)) => is_deleting(&**node),
            (None, None) => true,
        }
    }

    /// The capacity of the node. Until the node is initialized, quantities that it does not report are taken from the
    /// claim.
    fn capacity(&self) -> Quantities {
        let of_node = self.node.as_deref().map(node_capacity).unwrap_or_default();
        let is_initialized =
            self.node.as_deref().is_some_and(|node| label(node, labels::INITIALIZED) == Some("true"));
        let Some(claim) = self.claim.as_deref().filter(|_| !is_initialized) else { return of_node };
        let of_claim = claim.status.as_ref().and_then(|status| status.capacity.clone()).unwrap_or_default();
        let mut capacity = of_node;
        for (name, amount) in of_claim {
            let known = capacity.entry(name).or_insert(amount);
            if known.is_zero() {
                *known = amount;
            }
        }
        capacity
    }
}

fn node_capacity(node: &Node) -> Quantities {
    let capacity = node.status.iter().flat_map(|status| status.capacity.iter().flatten());
    // Parsing does not fail, because the API server admits only valid quantities.
    capacity.filter_map(|(name, amount)| Some((name.clone(), amount.0.parse().ok()?))).collect()
}

/// The sum of the capacity of all nodes that are not terminating, and the number of these nodes.
pub fn count(nodes_and_claims: &[CountedNode]) -> (Quantities, i64) {
    let zero = Quantity::from_value(0, QuantityFormat::DecimalSi);
    let mut resources: Quantities = ALWAYS_SHOWN.iter().map(|name| ((*name).to_owned(), zero)).collect();
    let mut nodes = 0i64;
    for counted in nodes_and_claims.iter().filter(|counted| !counted.is_terminating()) {
        nodes += 1;
        for (name, amount) in counted.capacity() {
            match resources.get_mut(&name) {
                Some(sum) if !sum.is_zero() => *sum += amount,
                // The first quantity determines the format of the sum: 32Gi instead of 34359738368.
                Some(sum) => *sum = amount,
                None => {
                    resources.insert(name, amount);
                }
            }
        }
    }
    resources.insert(NODES.to_owned(), Quantity::from_value(nodes, QuantityFormat::DecimalSi));
    (resources, nodes)
}
