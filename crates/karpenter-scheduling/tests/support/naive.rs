//! The simulator's oracle: every question is a problem of its own, rebuilt and solved from scratch.

#![allow(dead_code)]

use std::collections::BTreeMap;
use std::sync::Arc;

use karpenter_model::plan::{Place, Plan};
use karpenter_model::pod::PodSpec;
use karpenter_model::problem::{Mobility, PodGroup, PodNames, Problem};
use karpenter_model::taints::{Effect, Taint, Toleration, TolerationOperator};
use karpenter_scheduling::schedule;
use karpenter_scheduling::simulate::{BoundAt, Outcome, Question};

/// A question as a problem: its groups beyond those of `problem` are the movers. Nodes that are left keep their order;
/// the second value says where they were.
pub(crate) fn rebuilt(
    problem: &Problem,
    question: &Question<'_>,
) -> (Problem, Vec<usize>, Vec<Vec<BoundAt>>) {
    let mut rebuilt = problem.clone();
    rebuilt.options.mode = question.mode;
    rebuilt.options.effort = question.effort;
    rebuilt.options.reserved_mode = question.reserved_mode;
    give_credits(&mut rebuilt, question.credits);
    let mut movers: Vec<(Arc<PodSpec>, Vec<BoundAt>)> = Vec::new();
    let least = if question.moves_blocked { Mobility::Blocked } else { Mobility::Moves };
    for node in question.without {
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
    let kept: Vec<usize> = (0..problem.nodes.len()).filter(|node| !question.without.contains(node)).collect();
    rebuilt.nodes = kept.iter().map(|node| problem.nodes[*node].clone()).collect();
    close_settling_nodes(&mut rebuilt);
    for (number, (spec, pods)) in movers.iter().enumerate() {
        let names = PodNames::Numbered { prefix: format!("moved-{number}").into(), count: pods.len() as u32 };
        rebuilt.pods.push(PodGroup { spec: spec.clone(), names, created_at_secs: 0 });
    }
    (rebuilt, kept, movers.into_iter().map(|(_, pods)| pods).collect())
}

pub(crate) fn ask(problem: &Problem, question: &Question<'_>) -> Outcome {
    let (problem, kept, movers) = rebuilt(problem, question);
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

/// Nodes that are closed to movers, said with a taint that everybody else tolerates.
fn close_settling_nodes(problem: &mut Problem) {
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

fn give_credits(problem: &mut Problem, credits: &BTreeMap<Arc<str>, u32>) {
    if credits.is_empty() {
        return;
    }
    for catalog in &mut problem.catalogs {
        for offering in Arc::make_mut(catalog).iter_mut().flat_map(|one| &mut one.offerings) {
            let credit = offering.reservation().and_then(|(_, id)| credits.get(id)).copied();
            if let Some(credit) = credit {
                offering.reservation_capacity = offering.reservation_capacity.map(|room| room + credit);
            }
        }
    }
}

/// Pods by the first group that has the same pods: which of several equal pods goes where is not part of an answer.
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

/// What an answer says, as far as it must not depend on how it was found.
#[derive(Debug, PartialEq)]
pub(crate) struct Summary {
    pub(crate) new_nodes: Vec<NewNode>,
    pub(crate) existing: BTreeMap<usize, Counts>,
    pub(crate) unschedulable: Counts,
    pub(crate) movers: Vec<Vec<BoundAt>>,
}

/// Names of the pods' groups do not matter, nor do labels, which decide nothing where nobody selects them.
fn first_alike(specs: &[Arc<PodSpec>], group: u32) -> u32 {
    let plain = |spec: &PodSpec| PodSpec { labels: Default::default(), ..spec.clone() };
    let wanted = plain(&specs[group as usize]);
    specs.iter().position(|spec| plain(spec) == wanted).map_or(group, |found| found as u32)
}

/// `nodes` finds the node of a mover.
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
        runs.for_each(|run| *counts.entry(first_alike(&specs, run.group)).or_insert(0) += run.count);
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
