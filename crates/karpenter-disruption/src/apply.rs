//! Computes the cluster after a plan for an empty cluster was executed, or after commands were executed. Simulations
//! and benchmarks use it.
//!
//! Every launch uses the cheapest option, and every pod is bound to its planned node. No decisions are made here.

use std::collections::BTreeMap;
use std::sync::Arc;

use karpenter_model::labels;
use karpenter_model::plan::{Plan, PlannedNode};
use karpenter_model::problem::{BoundPod, Mobility, Node, Problem};
use karpenter_model::resources::NODES;

use crate::cluster::{Cluster, NodePod, NodePoolView, Reason, StateNode};
use crate::command::{Command, Destination};

/// The time from the start of commands to the next evaluation.
const CARRIED_OUT_SECS: i64 = 30;

/// The nodes of a plan for a cluster without nodes, with all pods bound. NodePools have no budgets.
pub fn cluster_of_plan(problem: &Problem, plan: &Plan) -> Cluster {
    let mut cluster = Cluster {
        problem: Problem { nodes: Vec::new(), pods: Vec::new(), ..problem.clone() },
        pools: problem
            .pools
            .iter()
            .enumerate()
            .map(|(index, pool)| (pool.name.clone(), free_pool(index, &pool.name)))
            .collect(),
        ..Cluster::default()
    };
    for (number, planned) in plan.new_nodes.iter().enumerate() {
        let (mut node, mut state_node) = launched(&cluster.problem, planned, &format!("node-{number:05}"));
        for run in &planned.pods {
            let group = &problem.pods[run.group as usize];
            for position in run.start..run.start + run.count {
                node.pods.push(BoundPod {
                    spec: group.spec.clone(),
                    is_daemon: false,
                    is_terminating: false,
                    mobility: Mobility::Moves,
                });
                let name: Arc<str> =
                    format!("{}/{}", group.spec.namespace, group.names.name(position)).into();
                state_node.pods.push(NodePod {
                    uid: name.clone(),
                    name,
                    is_active: true,
                    is_reschedulable: true,
                    is_evictable: true,
                    eviction_cost: 1.0,
                    ..NodePod::default()
                });
            }
        }
        push(&mut cluster, node, state_node);
    }
    cluster
}

fn free_pool(index: usize, name: &Arc<str>) -> NodePoolView {
    NodePoolView {
        name: name.clone(),
        launches_as: Some(index),
        is_ready: true,
        consolidate_after_secs: Some(0),
        allowed: Reason::ALL.into_iter().map(|reason| (reason, u32::MAX)).collect(),
        ..NodePoolView::default()
    }
}

/// The cluster after commands with different candidates and pods; their indexes refer to `cluster`. Moved pods and their
/// targets get the time of the move, as in the controller's move history.
pub fn after(cluster: &Cluster, commands: &[Command]) -> Cluster {
    let mut next = cluster.clone();
    next.revision += 1;
    next.now_secs += CARRIED_OUT_SECS;
    let mut state_node_of: BTreeMap<usize, usize> = BTreeMap::new();
    for (index, state_node) in next.state_nodes.iter().enumerate() {
        if let Some(at) = state_node.at {
            state_node_of.insert(at, index);
        }
    }
    let mut is_gone = vec![false; next.problem.nodes.len()];
    for command in commands {
        let mut launched_at = Vec::new();
        for planned in &command.replacements {
            let name = format!("node-r{}-{:05}", next.revision, next.state_nodes.len());
            let (node, state_node) = launched(&next.problem, planned, &name);
            let at = push(&mut next, node, state_node);
            state_node_of.insert(at, next.state_nodes.len() - 1);
            launched_at.push(at);
        }
        for (from, to) in &command.moves {
            let to = match to {
                Destination::Existing(at) => *at,
                Destination::New(replacement) => launched_at[*replacement],
            };
            let (node, pod) = (from.node as usize, from.pod as usize);
            let moved = next.problem.nodes[node].pods[pod].clone();
            next.problem.nodes[to].pods.push(moved);
            if let (Some(source), Some(target)) = (state_node_of.get(&node), state_node_of.get(&to)) {
                let mut node_pod = next.state_nodes[*source].pods.get(pod).cloned();
                let moved_at_secs = Some(cluster.now_secs);
                node_pod.iter_mut().for_each(|node_pod| node_pod.moved_at_secs = moved_at_secs);
                next.state_nodes[*target].pods.extend(node_pod);
                next.state_nodes[*target].moved_onto_at_secs = moved_at_secs;
            }
        }
        count_moves(&mut next, command);
        if command.static_pool.is_some() {
            // Each candidate is replaced by a node of the current template, with the same pods.
            for candidate in &command.candidates {
                next.state_nodes[candidate.state_node].drifted_since_secs = None;
            }
            continue;
        }
        for candidate in &command.candidates {
            if let Some(at) = next.state_nodes[candidate.state_node].at {
                is_gone.resize(next.problem.nodes.len(), false);
                is_gone[at] = true;
            }
        }
    }
    is_gone.resize(next.problem.nodes.len(), false);
    remove(&mut next, &is_gone);
    next
}

/// Counts the moved pods of each NodePool, because a NodePool may limit the moves per hour.
fn count_moves(cluster: &mut Cluster, command: &Command) {
    if command.method.reason() != Reason::Underutilized {
        return;
    }
    for candidate in &command.candidates {
        let moved = cluster.state_nodes[candidate.state_node].pods.iter().filter(|one| one.is_reschedulable);
        let moved = moved.count() as u32;
        if let Some(pool) = cluster.pools.get_mut(&candidate.pool) {
            pool.pool_policy.moved_last_hour = pool.pool_policy.moved_last_hour.saturating_add(moved);
        }
    }
}

/// The cluster with one more node, initialized and empty; it is the last node.
pub fn with_launched_node(cluster: &Cluster, planned: &PlannedNode) -> Cluster {
    let mut next = cluster.clone();
    next.revision += 1;
    let name = format!("node-r{}-{:05}", next.revision, next.state_nodes.len());
    let (node, state_node) = launched(&next.problem, planned, &name);
    push(&mut next, node, state_node);
    next
}

fn remove(cluster: &mut Cluster, is_gone: &[bool]) {
    let mut positions = Vec::with_capacity(is_gone.len());
    let mut kept = 0;
    for gone in is_gone {
        positions.push((!gone).then_some(kept));
        kept += usize::from(!gone);
    }
    for (at, node) in cluster.problem.nodes.iter().enumerate().filter(|(at, _)| is_gone[*at]) {
        let state_node = cluster.state_nodes.iter().find(|state_node| state_node.at == Some(at));
        let Some(pool) = cluster.problem.pools.iter_mut().find(|pool| Some(&pool.name) == node.pool.as_ref())
        else {
            continue;
        };
        let types = &cluster.problem.catalogs[pool.catalog];
        let name = state_node.and_then(|state_node| state_node.instance_type.as_ref());
        if let Some(instance_type) = types.iter().find(|one| Some(&one.name) == name) {
            pool.usage.subtract(&instance_type.capacity);
            pool.usage.set(NODES, pool.usage.get(NODES) - 1);
        }
    }
    let mut gone = is_gone.iter();
    cluster.problem.nodes.retain(|_| !gone.next().copied().unwrap_or(false));
    cluster.state_nodes.retain(|state_node| state_node.at.is_none_or(|at| !is_gone[at]));
    for state_node in &mut cluster.state_nodes {
        state_node.at = state_node.at.and_then(|at| positions[at]);
    }
}

/// Adds a state node with its node; returns the index of the node.
fn push(cluster: &mut Cluster, node: Node, mut state_node: StateNode) -> usize {
    let at = cluster.problem.nodes.len();
    state_node.at = Some(at);
    if let Some(pool) = cluster.problem.pools.iter_mut().find(|pool| Some(&pool.name) == node.pool.as_ref()) {
        let types = &cluster.problem.catalogs[pool.catalog];
        if let Some(instance_type) =
            types.iter().find(|one| Some(&one.name) == state_node.instance_type.as_ref())
        {
            pool.usage.add(&instance_type.capacity);
            pool.usage.set(NODES, pool.usage.get(NODES) + 1);
        }
    }
    cluster.problem.nodes.push(node);
    cluster.state_nodes.push(state_node);
    at
}

/// A planned node after its registration, without pods.
pub(crate) fn launched(problem: &Problem, planned: &PlannedNode, name: &str) -> (Node, StateNode) {
    let pool = &problem.pools[planned.pool];
    let instance_type = &problem.catalogs[pool.catalog][planned.instance_type];
    let offering = &instance_type.offerings[planned.offering];
    let mut all = pool.labels.clone();
    for requirements in [&planned.requirements, &instance_type.requirements, &offering.requirements] {
        for requirement in requirements.iter() {
            if let Some(value) = requirement.single_value() {
                all.insert(requirement.key.clone(), value.clone());
            }
        }
    }
    all.insert(labels::INSTANCE_TYPE.into(), instance_type.name.clone());
    all.insert(labels::HOSTNAME.into(), name.into());
    let node = Node {
        name: name.into(),
        labels: all,
        taints: pool.taints.clone(),
        initialized: true,
        pool: Some(pool.name.clone()),
        allocatable: instance_type.allocatable_of(offering),
        pods: Vec::new(),
        volume_limits: instance_type.volume_attachment_limits.clone(),
        price_per_hour: Some(planned.price_per_hour),
        is_settling: false,
    };
    let state_node = StateNode {
        claim: name.into(),
        uid: name.into(),
        node: Some(name.into()),
        pool: Some(pool.name.clone()),
        is_registered: true,
        is_initialized: true,
        is_ready: true,
        instance_type: Some(instance_type.name.clone()),
        zone: offering.zone().cloned(),
        capacity_type: offering.capacity_type().cloned(),
        price_per_hour: planned.price_per_hour,
        last_pod_event_secs: Some(0),
        ..StateNode::default()
    };
    (node, state_node)
}
