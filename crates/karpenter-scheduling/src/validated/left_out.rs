//! The pods and nodes that a planning attempt leaves out, the reduced problem without them, and the conversion of its
//! plan to the indexes of the whole problem.
//!
//! Groups of pods keep their indexes; positions of pods within a reduced group are mapped back.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use karpenter_model::plan::{Place, Plan, PodRun, Unschedulable};
use karpenter_model::problem::{Mode, PodNames, Problem};
use karpenter_model::reason::{Reason, Refusal, Scope};
use karpenter_model::resources::ResourceList;

use super::ProblemRef;

/// Pods that are not planned, and existing nodes that get no pods.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// For each group: the positions of the pods that are left out, as ascending, disjoint ranges.
    pods: BTreeMap<u32, Vec<Range<u32>>>,
    nodes: BTreeSet<usize>,
}

impl LeftOut {
    pub fn is_empty(&self) -> bool {
        self.pods.is_empty() && self.nodes.is_empty()
    }

    pub fn pods(&self) -> impl Iterator<Item = PodRun> + '_ {
        self.pods.iter().flat_map(|(group, ranges)| {
            ranges.iter().map(|range| PodRun {
                group: *group,
                start: range.start,
                count: range.end - range.start,
            })
        })
    }

    pub fn pod_count(&self) -> u32 {
        self.pods().map(|run| run.count).sum()
    }

    /// Indexes into `Problem::nodes`.
    pub fn nodes(&self) -> impl Iterator<Item = usize> + '_ {
        self.nodes.iter().copied()
    }

    pub(super) fn add_run(&mut self, run: PodRun) {
        if run.count == 0 {
            return;
        }
        let ranges = self.pods.entry(run.group).or_default();
        ranges.push(run.start..run.start.saturating_add(run.count));
        ranges.sort_by_key(|range| range.start);
        let mut joined: Vec<Range<u32>> = Vec::with_capacity(ranges.len());
        for range in ranges.drain(..) {
            match joined.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => joined.push(range),
            }
        }
        *ranges = joined;
    }

    pub(super) fn add_group(&mut self, problem: &Problem, group: u32) {
        let count = problem.pods.get(group as usize).map_or(0, |group| group.count());
        self.add_run(PodRun { group, start: 0, count });
    }

    pub(super) fn has_group(&self, problem: &Problem, group: u32) -> bool {
        let count = problem.pods.get(group as usize).map_or(0, |group| group.count());
        let whole = 0..count;
        count == 0 || self.pods.get(&group).is_some_and(|ranges| ranges.contains(&whole))
    }

    pub(super) fn add_all(&mut self, problem: &Problem) {
        (0..problem.pods.len() as u32).for_each(|group| self.add_group(problem, group));
    }

    pub(super) fn add_node_named(&mut self, problem: &Problem, name: &str) {
        self.nodes.extend(problem.nodes.iter().position(|node| &*node.name == name));
    }

    /// Adds the pods that were left out to the unschedulable pods of a plan, with the reason.
    pub(super) fn list(&self, plan: &mut Plan) {
        let refusal = Refusal { scope: Scope::Pod, reason: Reason::PlannerFault };
        let left = self.pods().map(|pods| Unschedulable { pods, reasons: vec![refusal.clone()] });
        plan.unschedulable.extend(left);
    }
}

/// The problem without the parts that are left out, and the data to map its plan back.
pub(super) struct Part<'a> {
    pub(super) problem: ProblemRef<'a>,
    /// For each reduced group: the positions of the pods that remain.
    kept: BTreeMap<u32, Vec<Range<u32>>>,
}

impl<'a> Part<'a> {
    pub(super) fn of(problem: &'a Problem, left_out: &LeftOut, mode: Mode) -> Self {
        if left_out.is_empty() && problem.options.mode == mode {
            return Self { problem: Cow::Borrowed(problem), kept: BTreeMap::new() };
        }
        let mut part = problem.clone();
        part.options.mode = mode;
        for node in &left_out.nodes {
            // The node stays in the problem without allocatable resources, so it accepts no pods, and constraints still
            // count its bound pods.
            if let Some(node) = part.nodes.get_mut(*node) {
                node.allocatable = ResourceList::new();
            }
        }
        let mut kept = BTreeMap::new();
        for (group, ranges) in &left_out.pods {
            let Some(pods) = part.pods.get_mut(*group as usize) else { continue };
            let rest = gaps(ranges, pods.count());
            let names = rest.iter().cloned().flatten().map(|position| Arc::from(pods.names.name(position)));
            pods.names = PodNames::Listed(names.collect());
            kept.insert(*group, rest);
        }
        Self { problem: Cow::Owned(part), kept }
    }

    pub(super) fn into_owned(self) -> Part<'static> {
        Part { problem: Cow::Owned(self.problem.into_owned()), kept: self.kept }
    }

    /// Converts a run of pods in the reduced problem to runs in the whole problem.
    pub(super) fn original(&self, run: PodRun) -> Vec<PodRun> {
        let Some(kept) = self.kept.get(&run.group) else { return vec![run] };
        let wanted = run.start..run.start.saturating_add(run.count);
        let mut first = 0;
        let mut runs = Vec::new();
        for range in kept {
            let length = range.end - range.start;
            let start = wanted.start.max(first);
            let end = wanted.end.min(first + length);
            if start < end {
                runs.push(PodRun {
                    group: run.group,
                    start: range.start + (start - first),
                    count: end - start,
                });
            }
            first += length;
        }
        runs
    }

    /// Converts the plan of the reduced problem to a plan of the whole problem.
    pub(super) fn restore(&self, mut plan: Plan) -> Plan {
        if self.kept.is_empty() {
            return plan;
        }
        let all =
            |runs: &[PodRun]| -> Vec<PodRun> { runs.iter().flat_map(|run| self.original(*run)).collect() };
        for node in &mut plan.new_nodes {
            node.pods = all(&node.pods);
        }
        for placement in &mut plan.existing {
            placement.pods = all(&placement.pods);
        }
        let unschedulable = std::mem::take(&mut plan.unschedulable).into_iter();
        plan.unschedulable = unschedulable
            .flat_map(|one| {
                let split = self.original(one.pods).into_iter();
                split.map(move |pods| Unschedulable { pods, reasons: one.reasons.clone() })
            })
            .collect();
        let order = std::mem::take(&mut plan.order).into_iter();
        plan.order = order
            .flat_map(|(run, place): (PodRun, Place)| {
                self.original(run).into_iter().map(move |run| (run, place))
            })
            .collect();
        plan
    }
}

/// The parts of `0..count` that the ranges do not cover.
fn gaps(ranges: &[Range<u32>], count: u32) -> Vec<Range<u32>> {
    let mut rest = Vec::new();
    let mut next = 0;
    for range in ranges {
        if next < range.start.min(count) {
            rest.push(next..range.start.min(count));
        }
        next = next.max(range.end);
    }
    if next < count {
        rest.push(next..count);
    }
    rest
}
