//! Reduces plans to what must not depend on the order of the input, and turns an executed plan into the next problem.

#![allow(dead_code)]

use std::collections::BTreeMap;
use std::sync::Arc;

use karpenter_model::labels;
use karpenter_model::plan::{Plan, PodRun};
use karpenter_model::problem::{BoundPod, Mode, Node, PodGroup, PodNames, Problem};
use karpenter_model::resources::NODES;

pub(crate) fn in_mode(problem: &Problem, mode: Mode) -> Problem {
    let mut problem = problem.clone();
    problem.options.mode = mode;
    problem
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NewNode {
    pub(crate) pool: String,
    pub(crate) instance_type: String,
    pub(crate) zone: String,
    pub(crate) capacity_type: String,
    pub(crate) options: Vec<String>,
    pub(crate) pods: Vec<(String, u32)>,
}

/// The content of a plan, with names instead of indexes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Sorted.
    pub(crate) new_nodes: Vec<NewNode>,
    pub(crate) existing: BTreeMap<String, Vec<(String, u32)>>,
    pub(crate) unschedulable: BTreeMap<String, u32>,
    pub(crate) price_micros_per_hour: i64,
}

fn counted(problem: &Problem, runs: &[PodRun]) -> Vec<(String, u32)> {
    let mut counts: BTreeMap<String, u32> = BTreeMap::new();
    for run in runs.iter().filter(|run| run.count > 0) {
        *counts.entry(group_name(problem, run.group)).or_insert(0) += run.count;
    }
    counts.into_iter().collect()
}

pub(crate) fn group_name(problem: &Problem, group: u32) -> String {
    let group = &problem.pods[group as usize];
    format!("{}/{}", group.spec.namespace, group.names.name(0))
}

pub(crate) fn outcome(problem: &Problem, plan: &Plan) -> Outcome {
    let mut new_nodes: Vec<_> = plan
        .new_nodes
        .iter()
        .map(|node| {
            let pool = &problem.pools[node.pool];
            let catalog = &problem.catalogs[pool.catalog];
            let offering = &catalog[node.instance_type].offerings[node.offering];
            let text = |value: Option<&Arc<str>>| value.map(|value| value.to_string()).unwrap_or_default();
            NewNode {
                pool: pool.name.to_string(),
                instance_type: catalog[node.instance_type].name.to_string(),
                zone: text(offering.zone()),
                capacity_type: text(offering.capacity_type()),
                options: node
                    .instance_type_options
                    .iter()
                    .map(|option| catalog[*option].name.to_string())
                    .collect(),
                pods: counted(problem, &node.pods),
            }
        })
        .collect();
    new_nodes.sort();
    let mut existing: BTreeMap<String, Vec<(String, u32)>> = BTreeMap::new();
    for placement in &plan.existing {
        let pods = counted(problem, &placement.pods);
        if !pods.is_empty() {
            existing.entry(problem.nodes[placement.node].name.to_string()).or_default().extend(pods);
        }
    }
    existing.values_mut().for_each(|pods| pods.sort());
    Outcome {
        new_nodes,
        existing,
        unschedulable: unschedulable(problem, plan),
        price_micros_per_hour: (plan.price_per_hour * 1e6).round() as i64,
    }
}

pub(crate) fn unschedulable(problem: &Problem, plan: &Plan) -> BTreeMap<String, u32> {
    let runs: Vec<PodRun> = plan.unschedulable.iter().map(|entry| entry.pods).collect();
    counted(problem, &runs).into_iter().collect()
}

/// The problem after the plan was executed: its nodes exist, its pods are bound, and its unschedulable pods are still
/// pending.
pub(crate) fn after(problem: &Problem, plan: &Plan) -> Problem {
    let mut next = problem.clone();
    let bound = |runs: &[PodRun]| -> Vec<BoundPod> {
        runs.iter()
            .flat_map(|run| {
                let spec = problem.pods[run.group as usize].spec.clone();
                (0..run.count).map(move |_| BoundPod {
                    spec: spec.clone(),
                    is_daemon: false,
                    is_terminating: false,
                    mobility: Default::default(),
                })
            })
            .collect()
    };
    for placement in &plan.existing {
        next.nodes[placement.node].pods.extend(bound(&placement.pods));
    }
    for (index, planned) in plan.new_nodes.iter().enumerate() {
        let pool = &problem.pools[planned.pool];
        let instance_type = &problem.catalogs[pool.catalog][planned.instance_type];
        let name: Arc<str> = format!("launched-{index}").into();
        let mut node_labels = pool.labels.clone();
        let sources = [
            &planned.requirements,
            &instance_type.requirements,
            &instance_type.offerings[planned.offering].requirements,
        ];
        for source in sources {
            for requirement in source.iter() {
                let is_custom = !problem.well_known.contains(&requirement.key);
                let value = match requirement.single_value() {
                    Some(value) => Some(value.clone()),
                    None if is_custom => requirement.any_value(),
                    None => None,
                };
                if let Some(value) = value {
                    node_labels.insert(requirement.key.clone(), value);
                }
            }
        }
        node_labels.insert(labels::HOSTNAME.into(), name.clone());
        node_labels.insert(labels::REGISTERED.into(), "true".into());
        node_labels.insert(labels::INITIALIZED.into(), "true".into());
        next.nodes.push(Node {
            name,
            labels: node_labels,
            taints: pool.taints.clone(),
            initialized: true,
            pool: Some(pool.name.clone()),
            allocatable: instance_type.allocatable(),
            pods: bound(&planned.pods),
            volume_limits: instance_type.volume_attachment_limits.clone(),
            price_per_hour: Some(planned.price_per_hour),
            is_settling: false,
        });
        let usage = &mut next.pools[planned.pool].usage;
        usage.add(&instance_type.capacity);
        usage.set(NODES, usage.get(NODES) + 1);
    }
    next.pods = plan
        .unschedulable
        .iter()
        .map(|entry| {
            let group = &problem.pods[entry.pods.group as usize];
            let names = (entry.pods.start..entry.pods.start + entry.pods.count)
                .map(|position| group.names.name(position).into())
                .collect();
            PodGroup { names: PodNames::Listed(names), ..group.clone() }
        })
        .collect();
    next
}
