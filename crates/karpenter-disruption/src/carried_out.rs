//! What a cluster looks like once something was carried out: a plan for an empty cluster, or commands on a fleet.
//!
//! Every launch brings the cheapest option and every pod lands where it was planned. Nothing is decided here.

use std::collections::BTreeMap;
use std::sync::Arc;

use karpenter_model::labels;
use karpenter_model::plan::{Plan, PlannedNode};
use karpenter_model::problem::{BoundPod, Mobility, Node, Problem};
use karpenter_model::resources::NODES;

use crate::command::{Command, Destination};
use crate::fleet::{Fleet, Machine, Occupant, Pool, Reason, Thorough};

/// How long it takes until commands are carried out and somebody looks again.
const CARRIED_OUT_SECS: i64 = 30;

/// Pods that are moved for a poor yield after such a pause are moved for one again, not still.
const THOROUGH_PAUSE_SECS: i64 = 300;

/// The fleet that a plan for a cluster without nodes launches, with all its pods running. Pools get no limits on
/// disruption.
pub fn fleet_of(problem: &Problem, plan: &Plan) -> Fleet {
    let mut fleet = Fleet {
        problem: Problem { nodes: Vec::new(), pods: Vec::new(), ..problem.clone() },
        pools: problem
            .pools
            .iter()
            .enumerate()
            .map(|(index, pool)| (pool.name.clone(), free_pool(index, &pool.name)))
            .collect(),
        ..Fleet::default()
    };
    for (number, planned) in plan.new_nodes.iter().enumerate() {
        let (mut node, mut machine) = launched(&fleet.problem, planned, &format!("node-{number:05}"));
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
                machine.occupants.push(Occupant {
                    uid: name.clone(),
                    name,
                    is_active: true,
                    is_reschedulable: true,
                    is_evictable: true,
                    eviction_cost: 1.0,
                    ..Occupant::default()
                });
            }
        }
        push(&mut fleet, node, machine);
    }
    fleet
}

fn free_pool(index: usize, name: &Arc<str>) -> Pool {
    Pool {
        name: name.clone(),
        launches_as: Some(index),
        is_ready: true,
        consolidate_after_secs: Some(0),
        allowed: Reason::ALL.into_iter().map(|reason| (reason, u32::MAX)).collect(),
        ..Pool::default()
    }
}

/// The fleet after commands that name different nodes and pods; their indexes are those of `fleet`. What was moved says
/// when, as the controller would remember it.
pub fn after(fleet: &Fleet, commands: &[Command]) -> Fleet {
    let mut next = fleet.clone();
    next.revision += 1;
    next.now_secs += CARRIED_OUT_SECS;
    if commands.iter().any(|command| command.is_thorough) {
        let went_on = fleet.thorough.filter(|one| fleet.now_secs - one.last_secs < THOROUGH_PAUSE_SECS);
        let began_secs = went_on.map_or(fleet.now_secs, |thorough| thorough.began_secs);
        next.thorough = Some(Thorough { began_secs, last_secs: fleet.now_secs });
    }
    let mut machine_at: BTreeMap<usize, usize> = BTreeMap::new();
    for (index, machine) in next.machines.iter().enumerate() {
        if let Some(at) = machine.at {
            machine_at.insert(at, index);
        }
    }
    let mut is_gone = vec![false; next.problem.nodes.len()];
    for command in commands {
        let mut launched_at = Vec::new();
        for planned in &command.replacements {
            let name = format!("node-r{}-{:05}", next.revision, next.machines.len());
            let (node, machine) = launched(&next.problem, planned, &name);
            let at = push(&mut next, node, machine);
            machine_at.insert(at, next.machines.len() - 1);
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
            if let (Some(source), Some(target)) = (machine_at.get(&node), machine_at.get(&to)) {
                let mut occupant = next.machines[*source].occupants.get(pod).cloned();
                let moved_at_secs = Some(fleet.now_secs);
                occupant.iter_mut().for_each(|occupant| occupant.moved_at_secs = moved_at_secs);
                next.machines[*target].occupants.extend(occupant);
                next.machines[*target].moved_onto_at_secs = moved_at_secs;
            }
        }
        count_moves(&mut next, command);
        if command.static_pool.is_some() {
            // One like each takes its place, of the template as it is now, and its pods with it.
            for candidate in &command.candidates {
                next.machines[candidate.machine].drifted_since_secs = None;
            }
            continue;
        }
        for candidate in &command.candidates {
            if let Some(at) = next.machines[candidate.machine].at {
                is_gone.resize(next.problem.nodes.len(), false);
                is_gone[at] = true;
            }
        }
    }
    is_gone.resize(next.problem.nodes.len(), false);
    remove(&mut next, &is_gone);
    next
}

/// Pods that are moved for savings count for the hour of the pool that they leave.
fn count_moves(fleet: &mut Fleet, command: &Command) {
    if command.method.reason() != Reason::Underutilized {
        return;
    }
    for candidate in &command.candidates {
        let moved = fleet.machines[candidate.machine].occupants.iter().filter(|one| one.is_reschedulable);
        let moved = moved.count() as u32;
        if let Some(pool) = fleet.pools.get_mut(&candidate.pool) {
            pool.controls.moved_last_hour = pool.controls.moved_last_hour.saturating_add(moved);
        }
    }
}

/// The fleet with one more node, initialised and empty; it is the last of its nodes.
pub fn with_launched(fleet: &Fleet, planned: &PlannedNode) -> Fleet {
    let mut next = fleet.clone();
    next.revision += 1;
    let name = format!("node-r{}-{:05}", next.revision, next.machines.len());
    let (node, machine) = launched(&next.problem, planned, &name);
    push(&mut next, node, machine);
    next
}

fn remove(fleet: &mut Fleet, is_gone: &[bool]) {
    let mut positions = Vec::with_capacity(is_gone.len());
    let mut kept = 0;
    for gone in is_gone {
        positions.push((!gone).then_some(kept));
        kept += usize::from(!gone);
    }
    for (at, node) in fleet.problem.nodes.iter().enumerate().filter(|(at, _)| is_gone[*at]) {
        let machine = fleet.machines.iter().find(|machine| machine.at == Some(at));
        let Some(pool) = fleet.problem.pools.iter_mut().find(|pool| Some(&pool.name) == node.pool.as_ref())
        else {
            continue;
        };
        let types = &fleet.problem.catalogs[pool.catalog];
        let name = machine.and_then(|machine| machine.instance_type.as_ref());
        if let Some(instance_type) = types.iter().find(|one| Some(&one.name) == name) {
            pool.usage.subtract(&instance_type.capacity);
            pool.usage.set(NODES, pool.usage.get(NODES) - 1);
        }
    }
    let mut gone = is_gone.iter();
    fleet.problem.nodes.retain(|_| !gone.next().copied().unwrap_or(false));
    fleet.machines.retain(|machine| machine.at.is_none_or(|at| !is_gone[at]));
    for machine in &mut fleet.machines {
        machine.at = machine.at.and_then(|at| positions[at]);
    }
}

/// Adds a machine with its node; returns the node's index.
fn push(fleet: &mut Fleet, node: Node, mut machine: Machine) -> usize {
    let at = fleet.problem.nodes.len();
    machine.at = Some(at);
    if let Some(pool) = fleet.problem.pools.iter_mut().find(|pool| Some(&pool.name) == node.pool.as_ref()) {
        let types = &fleet.problem.catalogs[pool.catalog];
        if let Some(instance_type) =
            types.iter().find(|one| Some(&one.name) == machine.instance_type.as_ref())
        {
            pool.usage.add(&instance_type.capacity);
            pool.usage.set(NODES, pool.usage.get(NODES) + 1);
        }
    }
    fleet.problem.nodes.push(node);
    fleet.machines.push(machine);
    at
}

/// A planned node as it registers, without pods.
pub(crate) fn launched(problem: &Problem, planned: &PlannedNode, name: &str) -> (Node, Machine) {
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
    let machine = Machine {
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
        quiet_since_secs: Some(0),
        ..Machine::default()
    };
    (node, machine)
}
