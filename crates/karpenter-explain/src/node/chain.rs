//! The blocker chain of a node. A simulation asks for a command with this node as the only candidate. If the verdict is
//! against it, the cause of the verdict is removed from a copy of the cluster, and the simulation is repeated.

use std::sync::Arc;

use karpenter_disruption::cluster::Cluster;
use karpenter_disruption::command::Command;
use karpenter_disruption::evaluate::{evaluate, explain_node};
use karpenter_disruption::settings::Settings;
use karpenter_disruption::verdict::Verdict;
use karpenter_model::resources::NODES;

use super::lift::{Lift, lift_for};
use crate::pod::chain::{capacity, round_up};

const STEPS_MAX: usize = 6;
/// The factors by which a replacement is counted in a limit. A run of the planner may count a node with its largest
/// instance type option, so a limit that is exactly sufficient for the cheapest option may be too low.
const LIMIT_FACTORS: [i64; 3] = [1, 2, 4];

/// A blocker, and the change that removes it.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub(crate) verdict: Verdict,
    pub(crate) lift: Lift,
}

#[derive(Debug, Clone)]
pub(crate) struct NodeChain {
    pub(crate) steps: Vec<Step>,
    /// The command that is found without the blockers, and the cluster to which its indexes refer. If no command is
    /// found, the last verdict.
    pub(crate) end: Result<Box<(Cluster, Command)>, Verdict>,
}

/// The blocker chain of the node with this index in `Cluster::state_nodes`.
pub(crate) fn chain(cluster: &Cluster, settings: &Settings, index: usize) -> NodeChain {
    let (mut copy, mut copied_settings) = (only_candidate(cluster, index), settings.clone());
    let mut steps: Vec<Step> = Vec::new();
    loop {
        let verdict = match ask(&copy, &copied_settings, index) {
            Ok(command) => return with_amounts(cluster, settings, index, steps, copy, command),
            Err(verdict) => verdict,
        };
        let lift = lift_for(&cluster.state_nodes[index], &verdict)
            .or_else(|| blocking_limit(&copy, &copied_settings, index, &verdict));
        let lift =
            lift.filter(|lift| steps.len() < STEPS_MAX && !steps.iter().any(|step| step.lift == *lift));
        let Some(lift) = lift else { return NodeChain { steps, end: Err(verdict) } };
        lift.apply(&mut copy, &mut copied_settings, index);
        steps.push(Step { verdict, lift });
    }
}

/// The cluster with only one candidate; the other nodes remain targets of moves.
fn only_candidate(cluster: &Cluster, index: usize) -> Cluster {
    let mut cluster = cluster.clone();
    for (position, state_node) in cluster.state_nodes.iter_mut().enumerate() {
        state_node.is_do_not_disrupt |= position != index;
    }
    cluster
}

/// The command that disrupts the node, or why there is none.
fn ask(cluster: &Cluster, settings: &Settings, index: usize) -> Result<Command, Verdict> {
    // If a rule excludes the node, single-node consolidation shows this faster than a plan for the whole cluster.
    let alone = match explain_node(cluster, settings, index) {
        Err(verdict) if !is_final(&verdict) => return Err(verdict),
        alone => alone,
    };
    let evaluation = evaluate(cluster, settings);
    let has_node = |command: &&Command| command.candidates.iter().any(|one| one.state_node == index);
    if let Some(command) = evaluation.commands.iter().find(has_node) {
        return Ok(command.clone());
    }
    let of_node = evaluation.verdicts.into_iter().find(|one| one.state_node == index);
    Err(match of_node.map(|one| one.verdict) {
        Some(Verdict::Fine | Verdict::NotNow) | None => alone.err().unwrap_or(Verdict::Fine),
        // What a simulation of this node found is more concrete than the terms of the objective.
        Some(stays @ Verdict::Stays { .. }) => alone.err().unwrap_or(stays),
        Some(other) => other,
    })
}

/// Whether single-node consolidation compared prices and found nothing. Other methods may still find a command: for a
/// node that is empty or has drifted, or with several replacements.
fn is_final(verdict: &Verdict) -> bool {
    matches!(
        verdict,
        Verdict::Fine
            | Verdict::NotCheaper { .. }
            | Verdict::NeedsSeveralNodes { .. }
            | Verdict::WouldNotFit { .. }
            | Verdict::TooFewTypes { .. }
            | Verdict::BelowThreshold { .. }
            | Verdict::Unbalanced { .. }
            | Verdict::SpotToSpotInflexible { .. }
    )
}

/// A limit of a NodePool that changes the verdict if it is removed. Until the node is deleted, both the node and its
/// replacements count against the limits.
fn blocking_limit(cluster: &Cluster, settings: &Settings, index: usize, verdict: &Verdict) -> Option<Lift> {
    if !is_final(verdict) {
        return None;
    }
    let own = cluster.state_nodes[index].pool.as_deref();
    let mut limits: Vec<(bool, Arc<str>, Arc<str>)> = Vec::new();
    for pool in &cluster.problem.pools {
        let of_pool = pool
            .limits
            .iter()
            .map(|(resource, _)| (Some(&*pool.name) != own, pool.name.clone(), resource.clone()));
        limits.extend(of_pool);
    }
    limits.sort();
    limits.into_iter().map(|(_, pool, resource)| Lift::Limit { pool, resource, amount: None }).find(|lift| {
        let (mut copy, mut copied_settings) = (cluster.clone(), settings.clone());
        lift.apply(&mut copy, &mut copied_settings, index);
        ask(&copy, &copied_settings, index).map_or_else(|other| !is_final(&other), |_| true)
    })
}

/// Replaces removed limits and PodDisruptionBudgets by the amounts that suffice, and simulates again with these
/// amounts.
fn with_amounts(
    cluster: &Cluster,
    settings: &Settings,
    index: usize,
    steps: Vec<Step>,
    lifted: Cluster,
    command: Command,
) -> NodeChain {
    for factor in LIMIT_FACTORS {
        let mut steps = steps.clone();
        for step in &mut steps {
            match &mut step.lift {
                Lift::Limit { pool, resource, amount } => {
                    *amount = required_limit(&lifted, &command, pool, resource, factor);
                }
                Lift::PodBudget { name, allowed } => *allowed = Some(evictions(cluster, index, name)),
                _ => {}
            }
        }
        let (mut copy, mut copied_settings) = (only_candidate(cluster, index), settings.clone());
        for step in &steps {
            step.lift.apply(&mut copy, &mut copied_settings, index);
        }
        if let Ok(command) = ask(&copy, &copied_settings, index) {
            return NodeChain { steps, end: Ok(Box::new((copy, command))) };
        }
    }
    NodeChain { steps, end: Ok(Box::new((lifted, command))) }
}

/// The evictions of the node's drain that count against the PodDisruptionBudget.
pub(crate) fn evictions(cluster: &Cluster, index: usize, name: &str) -> u32 {
    let Some(position) = cluster.pod_budgets.iter().position(|one| &*one.name == name) else { return 0 };
    let pods = cluster.state_nodes[index].pods.iter();
    // A pod with a do-not-disrupt annotation is evicted once the annotation is removed.
    let evicted = pods.filter(|one| {
        let is_evicted = one.is_evictable || (one.is_do_not_disrupt && one.is_reschedulable);
        one.is_active && is_evicted && one.budgets.contains(&(position as u32))
    });
    evicted.count() as u32
}

/// The usage of the NodePool's limit while the node and its replacements exist.
fn required_limit(
    cluster: &Cluster,
    command: &Command,
    pool: &str,
    resource: &str,
    factor: i64,
) -> Option<i64> {
    let problem = &cluster.problem;
    let position = problem.pools.iter().position(|one| &*one.name == pool)?;
    let used = problem.pools[position].usage.get(resource);
    let replacements = command.replacements.iter().filter(|node| node.pool == position);
    let added: i64 = replacements
        .map(|node| match resource {
            NODES => 1,
            resource => capacity(problem, node.pool, node.instance_type).get(resource),
        })
        .sum();
    Some(round_up(resource, used.saturating_add(added.saturating_mul(factor))))
}
