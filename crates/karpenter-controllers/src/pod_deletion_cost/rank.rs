//! Which nodes' pods should end first, and how much of that is written at once. Pure.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use karpenter_disruption::budgets;
use karpenter_disruption::candidate::{Blocked, DisruptionClass, candidate};
use karpenter_disruption::cluster::{Cluster, Reason, StateNode};

/// Nodes with changes in one pass, besides those that are going anyway.
pub const NODES_MAX: usize = 50;

/// The annotation of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cost {
    Absent,
    /// Something that is not a number.
    Unreadable,
    Is(i32),
}

/// What the order depends on beyond the cluster.
#[derive(Debug, Clone, Default)]
pub struct Node {
    /// Index into `Cluster::state_nodes`.
    pub state_node: usize,
    /// Deleted, marked for deletion or closed by a command.
    pub is_terminating: bool,
    /// Holds a pod that nothing would bring back elsewhere.
    pub is_pinned: bool,
    /// Of the pods that are written.
    pub costs: Vec<Cost>,
}

/// Nodes in groups, by their index.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ranking {
    /// On their way out: their pods go before all others.
    pub going: Vec<usize>,
    /// What disruption would take, first things first.
    pub ranked: Vec<usize>,
    /// Everything else: nothing is said about its pods.
    pub rest: Vec<usize>,
}

enum Group {
    Going,
    Drifted,
    Ordinary,
    Rest,
}

/// Sorts all nodes by what their end would save per trouble, and sees how far the budgets reach.
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
        // A proposal that waits for its second look is what this order tries to foresee.
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

/// Nodes whose pods have to be written, with what they should say. Nodes that say it already cost nothing.
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
