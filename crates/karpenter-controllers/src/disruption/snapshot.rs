//! What the loop looks at: every machine with its pods, every pool with its prices, at one moment.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use karpenter_api::labels;
use karpenter_api::types::{Condition, ConditionStatus, NodeClaim, NodePool};
use karpenter_cluster::controllers::context::{is_deleting, label, name_of, namespace_of};
use karpenter_model::instance_type::InstanceType;

use crate::context::Context;
use crate::mirrors::{BY_NODE, BY_PROVIDER_ID};

/// Everything, by name.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    pub machines: Vec<Machine>,
    pub pools: BTreeMap<String, Pool>,
    /// Pods' disruption budgets by namespace.
    pub pod_budgets: BTreeMap<String, Vec<Arc<PodDisruptionBudget>>>,
}

/// A claim that was launched, with its node and what runs there.
#[derive(Debug, Clone, Default)]
pub struct Machine {
    pub claim: Arc<NodeClaim>,
    pub node: Option<Arc<Node>>,
    /// All pods that are bound to the node.
    pub pods: Vec<Arc<Pod>>,
    /// Pods are on their way to it.
    pub is_nominated: bool,
    /// Marked by this process, or said by the claim.
    pub is_leaving: bool,
}

impl Machine {
    pub fn name(&self) -> &str {
        name_of(&*self.claim)
    }

    pub fn pool(&self) -> Option<&str> {
        label(&*self.claim, labels::NODEPOOL)
    }

    pub fn is_registered(&self) -> bool {
        self.has_node_label(labels::REGISTERED)
    }

    pub fn is_initialized(&self) -> bool {
        self.has_node_label(labels::INITIALIZED)
    }

    pub fn is_ready(&self) -> bool {
        let status = self.node.as_ref().and_then(|node| node.status.as_ref());
        let conditions = status.into_iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
    }

    pub fn condition(&self, name: &str) -> Option<&Condition> {
        self.claim.status.as_ref()?.conditions.iter().find(|condition| condition.type_ == name)
    }

    pub fn is_true(&self, name: &str) -> bool {
        self.condition(name).is_some_and(|condition| condition.status == ConditionStatus::True)
    }

    fn has_node_label(&self, name: &str) -> bool {
        self.node.as_deref().is_some_and(|node| label(node, name) == Some("true"))
    }
}

/// A pool and what its machines cost.
#[derive(Debug, Clone, Default)]
pub struct Pool {
    pub pool: Arc<NodePool>,
    pub types: Arc<Vec<InstanceType>>,
}

impl Pool {
    /// The price of a machine by its labels, available or not; zero if it is not known.
    pub fn price_of(&self, claim: &NodeClaim) -> f64 {
        let value = |key: &str| label(claim, key).unwrap_or_default();
        let (zone, capacity_type) = (value(labels::ZONE), value(labels::CAPACITY_TYPE));
        let instance_type = self.types.iter().find(|one| *one.name == *value(labels::INSTANCE_TYPE));
        let offering = instance_type.and_then(|one| {
            one.offerings.iter().find(|offering| {
                offering.zone().is_some_and(|found| **found == *zone)
                    && offering.capacity_type().is_some_and(|found| **found == *capacity_type)
            })
        });
        offering.map_or(0.0, |offering| offering.price_per_hour)
    }

    pub fn is_static(&self) -> bool {
        self.pool.spec.replicas.is_some()
    }
}

/// Reads everything. `None` while a launch is under way or the mirrors are filling: what is about to appear is not
/// known well enough to judge what is superfluous.
pub(super) async fn observe(context: &Context) -> Option<Snapshot> {
    let mirrors = &context.mirrors;
    let are_filled = mirrors.pods.is_synced()
        && mirrors.nodes.is_synced()
        && mirrors.node_claims.is_synced()
        && mirrors.node_pools.is_synced()
        && mirrors.budgets.is_synced();
    if !are_filled {
        return None;
    }
    let now = context.clock.now();
    let mut snapshot = Snapshot::default();
    for claim in mirrors.node_claims.list() {
        if !context.is_managed(&claim.spec.node_class_ref) {
            continue;
        }
        snapshot.machines.push(observe_machine(context, claim, now)?);
    }
    for pool in mirrors.node_pools.list() {
        if !context.is_managed(&pool.spec.template.spec.node_class_ref) {
            continue;
        }
        // A pool whose prices cannot be had right now is left alone for now.
        if let Ok(types) = context.cloud.instance_types(&pool).await {
            snapshot.pools.insert(name_of(&*pool).to_owned(), Pool { pool, types });
        }
    }
    for budget in mirrors.budgets.list() {
        let of_namespace = snapshot.pod_budgets.entry(namespace_of(&*budget).to_owned()).or_default();
        of_namespace.push(budget);
    }
    Some(snapshot)
}

fn observe_machine(context: &Context, claim: Arc<NodeClaim>, now: Timestamp) -> Option<Machine> {
    let mirrors = &context.mirrors;
    let id = claim.status.as_ref().and_then(|status| status.provider_id.as_deref()).unwrap_or_default();
    if id.is_empty() {
        // A claim that goes before it was launched holds nobody up.
        return is_deleting(&*claim).then(|| Machine { claim, is_leaving: true, ..Machine::default() });
    }
    let mut nodes = mirrors.nodes.by(BY_PROVIDER_ID, id);
    let node = nodes.pop().filter(|_| nodes.is_empty());
    let node_name = node.as_deref().map(name_of).unwrap_or_default();
    let pods = if node_name.is_empty() { Vec::new() } else { mirrors.pods.by(BY_NODE, node_name) };
    let state = &context.state;
    let name = name_of(&*claim);
    let is_nominated = state.is_node_nominated(name, now)
        || state.is_node_nominated(node_name, now)
        || !state.places_on(name).is_empty();
    let mut machine = Machine { node, pods, is_nominated, ..Machine::default() };
    machine.is_leaving = state.is_leaving(name) || is_deleting(&*claim);
    machine.claim = claim;
    machine.is_leaving |= machine.is_true("InstanceTerminating");
    Some(machine)
}
