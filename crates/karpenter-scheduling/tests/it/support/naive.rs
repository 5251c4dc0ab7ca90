//! The reference implementation of the simulator: it builds a new problem for every request and plans it from scratch.

#![allow(dead_code)]

use std::collections::BTreeMap;
use std::sync::Arc;

use karpenter_model::plan::{Place, Plan};
use karpenter_model::pod::PodSpec;
use karpenter_model::problem::{Mobility, PodGroup, PodNames, Problem};
use karpenter_model::taints::{Effect, Taint, Toleration, TolerationOperator};
use karpenter_scheduling::schedule;
use karpenter_scheduling::simulate::{BoundAt, Outcome, SimulationRequest};

/// The problem for a request. Groups after those of `problem` are the moved pods. Remaining nodes keep their order; the
/// second result has their original indexes.
pub(crate) fn rebuilt(
    problem: &Problem,
    request: &SimulationRequest<'_>,
) -> (Problem, Vec<usize>, Vec<Vec<BoundAt>>) {
    let mut rebuilt = problem.clone();
    rebuilt.options.mode = request.mode;
    rebuilt.options.effort = request.effort;
    rebuilt.options.reserved_mode = request.reserved_mode;
    add_reservation_credits(&mut rebuilt, request.reservation_credits);
    let mut movers: Vec<(Arc<PodSpec>, Vec<BoundAt>)> = Vec::new();
    let least = if request.moves_blocked_pods { Mobility::Blocked } else { Mobility::Moves };
    for node in request.removed_nodes {
        for (at, pod) in problem.nodes[*node].pods.iter().enumerate() {
            if pod.mobility < least {
                continue;
            }
            let place = BoundAt { node: *node as u32, pod: at as u32 };
            match movers.iter_mut().find(|(spec, _)| *spec == pod.spec) {
                Some((_, pods)) => pods.push(place),
                None => movers.push((pod.spec.clone(), vec![place])),
            }
        }
    }
    let kept: Vec<usize> =
        (0..problem.nodes.len()).filter(|node| !request.removed_nodes.contains(node)).collect();
    rebuilt.nodes = kept.iter().map(|node| problem.nodes[*node].clone()).collect();
    taint_nodes_closed_to_movers(&mut rebuilt);
    for (number, (spec, pods)) in movers.iter().enumerate() {
        let names = PodNames::Numbered { prefix: format!("moved-{number}").into(), count: pods.len() as u32 };
        rebuilt.pods.push(PodGroup { spec: spec.clone(), names, created_at_secs: 0 });
    }
    (rebuilt, kept, movers.into_iter().map(|(_, pods)| pods).collect())
}

pub(crate) fn ask(problem: &Problem, request: &SimulationRequest<'_>) -> Outcome {
    let (problem, kept, movers) = rebuilt(problem, request);
    Outcome { plan: with_old_indexes(schedule(&problem), &kept), movers }
}

fn with_old_indexes(mut plan: Plan, kept: &[usize]) -> Plan {
    plan.existing.iter_mut().for_each(|placement| placement.node = kept[placement.node]);
    for (_, place) in &mut plan.order {
        if let Place::Existing(node) = place {
            *node = kept[*node];
        }
    }
    plan
}

/// Gives nodes that do not accept moved pods a taint that all other pods tolerate.
fn taint_nodes_closed_to_movers(problem: &mut Problem) {
    if problem.nodes.iter().all(|node| !node.is_settling) {
        return;
    }
    let taint = Taint { key: "test/settling".into(), value: "".into(), effect: Effect::NoSchedule };
    let toleration =
        Toleration { key: taint.key.clone(), operator: TolerationOperator::Exists, effect: None };
    for node in problem.nodes.iter_mut().filter(|node| node.is_settling) {
        node.taints.push(taint.clone());
    }
    let groups = problem.pods.iter_mut().map(|group| &mut group.spec);
    for spec in groups.chain(problem.daemons.iter_mut().map(|daemon| &mut daemon.spec)) {
        Arc::make_mut(spec).tolerations.push(toleration.clone());
    }
}

fn add_reservation_credits(problem: &mut Problem, reservation_credits: &BTreeMap<Arc<str>, u32>) {
    if reservation_credits.is_empty() {
        return;
    }
    for catalog in &mut problem.catalogs {
        for offering in Arc::make_mut(catalog).iter_mut().flat_map(|one| &mut one.offerings) {
            let credit = offering.reservation().and_then(|(_, id)| reservation_credits.get(id)).copied();
            if let Some(credit) = credit {
                offering.reservation_capacity = offering.reservation_capacity.map(|room| room + credit);
            }
        }
    }
}

/// The number of pods, by the first group that has equal pods; it does not matter which of several equal pods is placed
/// where.
pub(crate) type Counts = BTreeMap<u32, u32>;

#[derive(Debug, PartialEq)]
pub(crate) struct NewNode {
    pool: usize,
    instance_type: usize,
    offering: usize,
    options: Vec<usize>,
    requirements: String,
    requests: String,
    pods: Counts,
}

/// The parts of an outcome that must not depend on how the outcome was computed.
#[derive(Debug, PartialEq)]
pub(crate) struct Summary {
    pub(crate) new_nodes: Vec<NewNode>,
    pub(crate) existing: BTreeMap<usize, Counts>,
    pub(crate) unschedulable: Counts,
    pub(crate) movers: Vec<Vec<BoundAt>>,
}

/// Groups are compared without their names and without labels that no selector uses.
fn first_equal_group(specs: &[Arc<PodSpec>], group: u32) -> u32 {
    let plain = |spec: &PodSpec| PodSpec { labels: Default::default(), ..spec.clone() };
    let wanted = plain(&specs[group as usize]);
    specs.iter().position(|spec| plain(spec) == wanted).map_or(group, |found| found as u32)
}

/// `nodes` is a function that returns the node of a moved pod.
pub(crate) fn summary<'a>(
    groups: &[PodGroup],
    node: impl Fn(usize) -> Option<&'a karpenter_model::problem::Node>,
    outcome: &Outcome,
) -> Summary {
    let mut specs: Vec<Arc<PodSpec>> = groups.iter().map(|group| group.spec.clone()).collect();
    for movers in &outcome.movers {
        let spec = movers.first().and_then(|at| node(at.node as usize)?.pods.get(at.pod as usize));
        specs.extend(spec.map(|pod| pod.spec.clone()));
    }
    let counts = |runs: &mut dyn Iterator<Item = karpenter_model::plan::PodRun>| {
        let mut counts = Counts::new();
        runs.for_each(|run| *counts.entry(first_equal_group(&specs, run.group)).or_insert(0) += run.count);
        counts
    };
    let plan = &outcome.plan;
    Summary {
        new_nodes: plan
            .new_nodes
            .iter()
            .map(|node| NewNode {
                pool: node.pool,
                instance_type: node.instance_type,
                offering: node.offering,
                options: node.instance_type_options.clone(),
                requirements: node.requirements.to_string(),
                requests: format!("{:?}", node.requests),
                pods: counts(&mut node.pods.iter().copied()),
            })
            .collect(),
        existing: plan
            .existing
            .iter()
            .map(|placement| (placement.node, counts(&mut placement.pods.iter().copied())))
            .collect(),
        unschedulable: counts(&mut plan.unschedulable.iter().map(|one| one.pods)),
        movers: outcome.movers.clone(),
    }
}
