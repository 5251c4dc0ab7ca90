//! The fleet that disruption decides about, from the objects of a running cluster or of a dump.
//!
//! Built on [`crate::live`]: the same problem that provisioning plans with, and next to it every claim as a machine,
//! what disruption has to know of each pod, the pods' budgets, and the pools with what their own budgets allow now.
//! What no object says (marks, nominations, what was moved when) comes from the caller. Nothing is decided here.

mod machines;
mod occupants;
mod pod_budgets;
mod pools;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use karpenter_api::types::NodePool;
use karpenter_disruption::fleet::{Fleet, Repair, Thorough, Waiting};

pub use self::pools::PoolBudgetError;

use crate::controls::ControlError;
use crate::cost::DeletionCosts;
use crate::live::{Host, Live, LivePool, assemble_parts};
use crate::pod::Pod;

/// What the fleet depends on beyond the problem.
#[derive(Debug, Clone, Default)]
pub struct FleetInput {
    pub now: Timestamp,
    /// Pools of this provider that launch nothing for pods: static ones, those that are not ready or are being deleted.
    /// A pool that is in neither list is not known: its nodes are left alone.
    pub other_pools: Vec<LivePool>,
    /// Names of pools that rest because launches from them keep failing; to be listed among the others.
    pub held_pools: BTreeSet<String>,
    pub pod_budgets: Vec<Arc<PodDisruptionBudget>>,
    /// Names of claims and of nodes that pods are on their way to, besides those of [`Live::expected`].
    pub nominated: BTreeSet<String>,
    /// When a command of ours last moved a pod, by its uid or by the uid of its controlling owner.
    pub pods_moved_at_secs: BTreeMap<String, i64>,
    /// When a command of ours last moved pods onto a claim's node, by the claim's uid.
    pub machines_moved_onto_at_secs: BTreeMap<String, i64>,
    /// Pods that were moved for savings within the last hour, by pool.
    pub moved_last_hour: BTreeMap<String, u32>,
    /// What repair policies say, by node name.
    pub repairs: BTreeMap<String, Repair>,
    /// Names of nodes with a condition that some repair policy names, tolerated for now or not.
    pub sick: BTreeSet<String>,
    /// Commands that wait for their second look.
    pub waiting: Vec<Waiting>,
    /// When pods were last moved for a poor yield.
    pub thorough: Option<Thorough>,
    pub deletion_costs: DeletionCosts,
    /// The version of the cluster that this was read from.
    pub revision: u64,
}

/// The fleet and what its numbers mean.
#[derive(Debug, Clone, Default)]
pub struct FleetRound {
    pub fleet: Fleet,
    /// One per pool of the problem.
    pub pools: Vec<Arc<NodePool>>,
    /// One per node of the problem.
    pub hosts: Vec<Host>,
    /// One list per pod group of the problem, in the group's order.
    pub pods: Vec<Vec<Arc<Pod>>>,
    /// One list per node of the problem: its pods, in the order of the node's list.
    pub aboard: Vec<Vec<Arc<Pod>>>,
    /// One per machine: its claim, and its node if it has one.
    pub machines: Vec<Host>,
    /// Annotations of pools that cannot be used as they are, by pool.
    pub control_errors: Vec<ControlError>,
    /// Pools whose budgets cannot be evaluated and therefore let nothing go.
    pub budget_errors: Vec<PoolBudgetError>,
}

/// Builds the fleet.
///
/// # Guarantees
/// Machines are in the order of their claims' names; every managed claim is one. A machine's occupants are its node's
/// pods, one to one; of one on its way out, those that wait for their eviction. The same input gives the same fleet.
pub fn assemble_fleet(live: &Live, input: &FleetInput) -> FleetRound {
    let parts = assemble_parts(live, &input.other_pools);
    let (mut problem, hosts) = (parts.round.problem, parts.round.hosts);
    let budgets = pod_budgets::PodBudgets::new(&input.pod_budgets);
    let mut reader = occupants::Occupants::new(&budgets, input);
    let mut occupants = Vec::with_capacity(problem.nodes.len());
    for (node, aboard) in problem.nodes.iter_mut().zip(&parts.aboard) {
        occupants.push(reader.board(node, aboard));
    }
    let pools = pools::Pools::new(live, input);
    let mut machines = machines::Machines::new(live, input, &pools);
    for (at, ((node, host), occupants)) in problem.nodes.iter_mut().zip(&hosts).zip(occupants).enumerate() {
        machines.add(Some(at), node, host, occupants);
    }
    for (mut node, host, pods) in parts.leaving {
        machines.add(None, &mut node, &host, reader.left_on(&pods));
    }
    let (machines, machine_hosts) = machines.finish();
    let (pools, unusable) = pools.finish(&machines, input);
    FleetRound {
        fleet: Fleet {
            problem,
            machines,
            pools,
            pod_budgets: budgets.into_values(),
            now_secs: input.now.as_second(),
            revision: input.revision,
            waiting: input.waiting.clone(),
            in_commands: BTreeSet::new(),
            resting: BTreeMap::new(),
            plans_ahead: false,
            settles_at_secs: None,
            thorough: input.thorough,
        },
        pools: parts.round.pools,
        hosts,
        pods: parts.round.pods,
        aboard: parts.aboard.into_iter().map(|aboard| aboard.pods).collect(),
        machines: machine_hosts,
        control_errors: unusable.controls,
        budget_errors: unusable.budgets,
    }
}
