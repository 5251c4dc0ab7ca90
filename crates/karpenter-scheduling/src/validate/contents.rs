//! The pods of each node: checks that the plan accounts for every pod exactly once, and counts the pods of each node by
//! class (pods with equal specs).
//!
//! This module does not check whether pods fit on nodes. A run of pods that do not exist in the problem is reported and
//! then ignored.

use std::collections::hash_map::Entry;
use std::sync::Arc;

use karpenter_model::plan::{Plan, PodRun};
use karpenter_model::pod::PodSpec;
use karpenter_model::problem::Problem;
use rustc_hash::FxHashMap;

use super::violation::{Place, Violation};

/// The pods of one class on one node; one of them serves as the example in messages.
#[derive(Debug, Clone, Copy)]
pub(super) struct Share {
    pub(super) class: u32,
    pub(super) count: u32,
    group: u32,
    position: u32,
}

/// Classes of pods with equal specs, and the number of pods of each class on each node.
pub(super) struct Contents<'a> {
    problem: &'a Problem,
    pub(super) classes: Vec<&'a PodSpec>,
    /// For each entry of `Problem::pods`: its class.
    pub(super) group_class: Vec<u32>,
    /// For each entry of `Plan::new_nodes`: the pods on the node.
    pub(super) planned: Vec<Vec<Share>>,
    /// For each entry of `Problem::nodes`: the pods that the plan places on the node.
    pub(super) existing: Vec<Vec<Share>>,
    /// For each entry of `Problem::nodes`: the class of every bound pod, and whether the pod is terminating.
    pub(super) bound: Vec<Vec<(u32, bool)>>,
}

impl Contents<'_> {
    pub(super) fn pod_name(&self, share: &Share) -> String {
        pod_name(self.problem, share.group, share.position)
    }
}

pub(super) fn pod_name(problem: &Problem, group: u32, position: u32) -> String {
    problem
        .pods
        .get(group as usize)
        .map(|group| format!("{}/{}", group.spec.namespace, group.names.name(position)))
        .unwrap_or_default()
}

#[derive(Default)]
struct Classes<'a> {
    specs: Vec<&'a PodSpec>,
    by_address: FxHashMap<usize, u32>,
    by_value: FxHashMap<&'a PodSpec, u32>,
}

impl<'a> Classes<'a> {
    fn intern(&mut self, spec: &'a Arc<PodSpec>) -> u32 {
        let address = Arc::as_ptr(spec) as usize;
        if let Some(class) = self.by_address.get(&address) {
            return *class;
        }
        let class = match self.by_value.entry(spec) {
            Entry::Occupied(entry) => *entry.get(),
            Entry::Vacant(entry) => {
                let class = self.specs.len() as u32;
                self.specs.push(spec);
                *entry.insert(class)
            }
        };
        self.by_address.insert(address, class);
        class
    }
}

pub(super) fn collect<'a>(
    problem: &'a Problem,
    plan: &Plan,
    violations: &mut Vec<Violation>,
) -> Contents<'a> {
    let mut classes = Classes::default();
    let group_class: Vec<u32> = problem.pods.iter().map(|group| classes.intern(&group.spec)).collect();
    let bound = problem
        .nodes
        .iter()
        .map(|node| node.pods.iter().map(|pod| (classes.intern(&pod.spec), pod.is_terminating)).collect())
        .collect();

    let mut runs: Vec<Vec<(u32, u32)>> = vec![Vec::new(); problem.pods.len()];
    let mut take = |shares: &mut Vec<Share>, place: &Place, run: &PodRun, violations: &mut Vec<Violation>| {
        let known = problem.pods.get(run.group as usize).map(|group| group.count());
        let end = run.start.checked_add(run.count);
        let (Some(known), Some(end)) = (known, end) else {
            violations.push(out_of_range(place, run));
            return;
        };
        if end > known {
            violations.push(out_of_range(place, run));
            return;
        }
        if run.count == 0 {
            return;
        }
        runs[run.group as usize].push((run.start, end));
        if *place == Place::Unschedulable {
            return;
        }
        if problem.pods[run.group as usize].spec.refusal.is_some() {
            violations.push(Violation::RefusedPodPlaced {
                place: place.clone(),
                pod: pod_name(problem, run.group, run.start),
            });
        }
        let class = group_class[run.group as usize];
        match shares.iter_mut().find(|share| share.class == class) {
            Some(share) => share.count += run.count,
            None => shares.push(Share { class, count: run.count, group: run.group, position: run.start }),
        }
    };

    let mut planned = Vec::with_capacity(plan.new_nodes.len());
    for (index, node) in plan.new_nodes.iter().enumerate() {
        let mut shares = Vec::new();
        for run in &node.pods {
            take(&mut shares, &Place::Planned(index), run, violations);
        }
        if shares.is_empty() {
            violations.push(Violation::NodeWithoutPods { node: index });
        }
        planned.push(shares);
    }
    let mut existing = vec![Vec::new(); problem.nodes.len()];
    for placement in &plan.existing {
        let Some(node) = problem.nodes.get(placement.node) else {
            violations.push(Violation::UnknownExistingNode { index: placement.node });
            continue;
        };
        let place = Place::Existing(node.name.clone());
        for run in &placement.pods {
            take(&mut existing[placement.node], &place, run, violations);
        }
    }
    let mut nowhere = Vec::new();
    for unschedulable in &plan.unschedulable {
        take(&mut nowhere, &Place::Unschedulable, &unschedulable.pods, violations);
    }
    for (group, runs) in runs.iter_mut().enumerate() {
        account(problem, group as u32, runs, violations);
    }
    Contents { problem, classes: classes.specs, group_class, planned, existing, bound }
}

fn out_of_range(place: &Place, run: &PodRun) -> Violation {
    Violation::RunOutOfRange { place: place.clone(), group: run.group, start: run.start, count: run.count }
}

/// Reports pods of one group that the plan does not mention or mentions twice.
fn account(problem: &Problem, group: u32, runs: &mut [(u32, u32)], violations: &mut Vec<Violation>) {
    runs.sort_unstable();
    let mut covered = 0;
    for &(start, end) in runs.iter() {
        if start > covered {
            violations.push(Violation::PodMissing {
                pod: pod_name(problem, group, covered),
                count: start - covered,
            });
        } else if start < covered {
            violations.push(Violation::PodPlacedTwice {
                pod: pod_name(problem, group, start),
                count: covered.min(end) - start,
            });
        }
        covered = covered.max(end);
    }
    let total = problem.pods[group as usize].count();
    if covered < total {
        violations
            .push(Violation::PodMissing { pod: pod_name(problem, group, covered), count: total - covered });
    }
}
