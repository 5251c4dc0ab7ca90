//! Ranks nodes for the annotation with the pod deletion cost, and limits how many nodes one pass writes. Pure
//! functions.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use karpenter_disruption::budgets;
use karpenter_disruption::candidate::{Blocked, DisruptionClass, candidate};
use karpenter_disruption::cluster::{Cluster, Reason, StateNode};

/// The maximum number of nodes whose pods are written in one pass, in addition to terminating nodes.
pub const NODES_MAX: usize = 50;

/// The value of the annotation with the deletion cost of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cost {
    Absent,
    /// Not a number.
    Unreadable,
    Is(i32),
}

/// A node to rank, with properties that are not in [`Cluster`].
#[derive(Debug, Clone, Default)]
pub struct Node {
    /// Index into `Cluster::state_nodes`.
    pub state_node: usize,
    /// Whether the node is deleted, marked for deletion, or tainted as disrupted.
    pub is_terminating: bool,
    /// Whether the node has a pod that keeps it out of the ranking, because no ReplicaSet, Job or DaemonSet controls
    /// the pod.
    pub is_pinned: bool,
    /// The current deletion costs of those pods on the node that belong to ReplicaSets.
    pub costs: Vec<Cost>,
}

/// The result of ranking: three groups of nodes, as indexes into the list of nodes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ranking {
    /// Terminating nodes: their pods get the lowest cost.
    pub going: Vec<usize>,
    /// Nodes in the estimated order in which disruption will select them.
    pub ranked: Vec<usize>,
    /// All other nodes: the annotation is removed from their pods.
    pub rest: Vec<usize>,
}

enum Group {
    Going,
    Drifted,
    Ordinary,
    Rest,
}

/// Ranks nodes by saving per disruption. Only as many nodes are ranked as the budgets allow to disrupt.
pub fn rank(cluster: &Cluster, nodes: &[Node]) -> Ranking {
    let mut order: Vec<(f64, &str, usize)> = nodes
        .iter()
        .enumerate()
        .filter_map(|(index, node)| {
            let state_node = cluster.state_nodes.get(node.state_node)?;
            Some((savings_ratio(state_node), state_node.node.as_deref()?, index))
        })
        .collect();
    order.sort_by(|one, two| match two.0.total_cmp(&one.0) {
        Ordering::Equal => one.1.cmp(two.1),
        other => other,
    });
    let mut ranking = Ranking::default();
    let (mut drifted, mut ordinary) = (Vec::new(), Vec::new());
    let mut left_for_drift = budgets::left(cluster, Reason::Drifted);
    let mut left_for_savings = budgets::left(cluster, Reason::Underutilized);
    for (_, _, index) in order {
        let Some(node) = nodes.get(index) else { continue };
        match group(cluster, node) {
            Group::Going => ranking.going.push(index),
            Group::Drifted if take(&mut left_for_drift, cluster, node) => drifted.push(index),
            Group::Ordinary if take(&mut left_for_savings, cluster, node) => ordinary.push(index),
            Group::Drifted | Group::Ordinary | Group::Rest => ranking.rest.push(index),
        }
    }
    ranking.ranked = drifted;
    ranking.ranked.append(&mut ordinary);
    ranking
}

fn group(cluster: &Cluster, node: &Node) -> Group {
    if node.is_terminating {
        return Group::Going;
    }
    let Some(state_node) = cluster.state_nodes.get(node.state_node) else { return Group::Rest };
    let is_free = match candidate(cluster, node.state_node, DisruptionClass::Graceful, Reason::Underutilized)
    {
        // A candidate of a proposed command is ranked, too, because the ranking estimates which nodes commands will
        // select.
        Ok(_) | Err(Blocked::InCommand) => true,
        Err(_) => false,
    };
    if !is_free || node.is_pinned || state_node.is_instance_type_unknown {
        return Group::Rest;
    }
    let pool = state_node.pool.as_ref().and_then(|pool| cluster.pools.get(pool));
    let Some(pool) = pool else { return Group::Rest };
    if state_node.drifted_since_secs.is_some() && pool.replicas.is_none() {
        Group::Drifted
    } else if pool.consolidate_after_secs.is_none() {
        Group::Rest
    } else {
        Group::Ordinary
    }
}

fn take(left: &mut BTreeMap<Arc<str>, u32>, cluster: &Cluster, node: &Node) -> bool {
    let pool = cluster.state_nodes.get(node.state_node).and_then(|state_node| state_node.pool.as_ref());
    match pool.and_then(|pool| left.get_mut(pool)) {
        Some(count) if *count > 0 => {
            *count -= 1;
            true
        }
        _ => false,
    }
}

fn savings_ratio(state_node: &StateNode) -> f64 {
    let moving = state_node.pods.iter().filter(|node_pod| node_pod.is_reschedulable);
    let cost = 1.0 + moving.map(|node_pod| node_pod.eviction_cost.max(0.0)).sum::<f64>();
    state_node.price_per_hour / cost
}

/// The nodes whose pods need another deletion cost, with that cost.
pub fn planned_writes(ranking: &Ranking, nodes: &[Node]) -> Vec<(usize, Cost)> {
    let changes = |index: &usize, cost: Cost| {
        nodes.get(*index).is_some_and(|node| node.costs.iter().any(|present| *present != cost))
    };
    let lowest = ranking.going.iter().map(|index| (*index, Cost::Is(i32::MIN)));
    let first = i32::try_from(ranking.ranked.len()).unwrap_or(i32::MAX).saturating_neg();
    let ranked = ranking.ranked.iter().zip(first..).map(|(index, cost)| (*index, Cost::Is(cost)));
    let cleared = ranking.rest.iter().map(|index| (*index, Cost::Absent));
    let mut writes: Vec<(usize, Cost)> = lowest.filter(|(index, cost)| changes(index, *cost)).collect();
    writes.extend(ranked.chain(cleared).filter(|(index, cost)| changes(index, *cost)).take(NODES_MAX));
    writes
}
