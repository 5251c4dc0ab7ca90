//! Assembles the input of disruption from the objects of a running cluster or of a dump.
//!
//! The problem is assembled as for provisioning ([`crate::cluster_input`]). In addition, the cluster has every claim
//! with its node, the properties of each pod for disruption, PodDisruptionBudgets, and the NodePools with the number of
//! disruptions that their budgets allow at present. The caller adds what no object contains: marks for deletion,
//! nominations and the move history. No decisions are made here.

mod node_pods;
mod pod_budgets;
mod pools;
mod state_nodes;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use karpenter_api::types::NodePool;
use karpenter_disruption::cluster::{Cluster, ProposedCommand, Repair};

pub use self::pools::PoolBudgetError;

use crate::cluster_input::{ClusterInput, Host, PoolInput, assemble_parts};
use crate::controls::ControlError;
use crate::cost::DeletionCosts;
use crate::pod::Pod;

/// Input of disruption beyond the problem.
#[derive(Debug, Clone, Default)]
pub struct DisruptionInput {
    pub now: Timestamp,
    /// NodePools of this provider that launch no nodes for pods: static ones, and those that are not ready or being
    /// deleted. Nodes of other NodePools, in neither this list nor that of the problem, are not disrupted.
    pub other_pools: Vec<PoolInput>,
    /// Names of the NodePools from which no nodes are launched at present because their launches keep failing. These
    /// NodePools are also in `other_pools`.
    pub pools_in_launch_backoff: BTreeSet<String>,
    pub pod_budgets: Vec<Arc<PodDisruptionBudget>>,
    /// Names of the claims and nodes for which pods are nominated, in addition to [`ClusterInput::expected`].
    pub nominated: BTreeSet<String>,
    /// When a command last moved a pod, by the uid of the pod or of its controller.
    pub pods_moved_at_secs: BTreeMap<String, i64>,
    /// When a command last moved pods to the node of a claim, by the uid of the claim.
    pub claims_moved_onto_at_secs: BTreeMap<String, i64>,
    /// Pods that consolidation moved within the last hour, by NodePool.
    pub moved_last_hour: BTreeMap<String, u32>,
    /// Matches of repair policies, by node name.
    pub repairs: BTreeMap<String, Repair>,
    /// Names of nodes with a condition that a repair policy names, even if its toleration has not elapsed yet.
    pub unhealthy: BTreeSet<String>,
    /// Commands that await their validation.
    pub proposed_commands: Vec<ProposedCommand>,
    pub deletion_costs: DeletionCosts,
    /// The resource version up to which objects were read.
    pub revision: u64,
}

/// The input of disruption, and the objects behind its indexes.
#[derive(Debug, Clone, Default)]
pub struct AssembledCluster {
    pub cluster: Cluster,
    /// The NodePool objects, one per NodePool of the problem.
    pub pools: Vec<Arc<NodePool>>,
    /// The objects behind the nodes, one entry per node of the problem.
    pub hosts: Vec<Host>,
    /// The pods of each pod group of the problem, in the order of the group.
    pub pods: Vec<Vec<Arc<Pod>>>,
    /// The pods of each node of the problem, in the order of `Node::pods`.
    pub pods_by_node: Vec<Vec<Arc<Pod>>>,
    /// The managed claims, each with its node if it has one.
    pub state_nodes: Vec<Host>,
    /// Invalid annotations of NodePools.
    pub control_errors: Vec<ControlError>,
    /// NodePools whose budgets cannot be evaluated and therefore allow no disruption.
    pub budget_errors: Vec<PoolBudgetError>,
}

/// Assembles the input of disruption.
///
/// # Guarantees
///
/// The claims are sorted by name; every managed claim is included. The pods of a claim are the pods of its
/// node, one to one; for a node that is being deleted, those that still have to be evicted. The same input
/// gives the same cluster.
pub fn assemble_disruption(cluster: &ClusterInput, input: &DisruptionInput) -> AssembledCluster {
    let parts = assemble_parts(cluster, &input.other_pools);
    let (mut problem, hosts) = (parts.assembled.problem, parts.assembled.hosts);
    let budgets = pod_budgets::PodBudgets::new(&input.pod_budgets);
    let mut reader = node_pods::NodePodReader::new(&budgets, input);
    let mut pods_of_nodes = Vec::with_capacity(problem.nodes.len());
    for (node, node_pods) in problem.nodes.iter_mut().zip(&parts.pods_by_node) {
        pods_of_nodes.push(reader.pods_of(node, node_pods));
    }
    let pools = pools::Pools::new(cluster, input);
    let mut state_nodes = state_nodes::StateNodes::new(cluster, input, &pools);
    for (at, ((node, host), node_pods)) in problem.nodes.iter_mut().zip(&hosts).zip(pods_of_nodes).enumerate()
    {
        state_nodes.add(Some(at), node, host, node_pods);
    }
    for (mut node, host, pods) in parts.deleting_nodes {
        state_nodes.add(None, &mut node, &host, reader.pods_left_on(&pods));
    }
    let (state_nodes, machine_hosts) = state_nodes.finish();
    let (pools, unusable) = pools.finish(&state_nodes, input);
    AssembledCluster {
        cluster: Cluster {
            problem,
            state_nodes,
            pools,
            pod_budgets: budgets.into_values(),
            now_secs: input.now.as_second(),
            revision: input.revision,
            proposed_commands: input.proposed_commands.clone(),
            disrupting_claims: BTreeSet::new(),
            held_off: BTreeMap::new(),
            plan_beyond_budgets: false,
            churn_ends_at_secs: None,
        },
        pools: parts.assembled.pools,
        hosts,
        pods: parts.assembled.pods,
        pods_by_node: parts.pods_by_node.into_iter().map(|node_pods| node_pods.pods).collect(),
        state_nodes: machine_hosts,
        control_errors: unusable.controls,
        budget_errors: unusable.budgets,
    }
}
