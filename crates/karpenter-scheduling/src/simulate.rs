//! "What if these nodes were gone?", asked many times of one cluster.
//!
//! A question names nodes to take away; the answer is a plan for the pods that would have to move, next to those that
//! wait already. Nothing is decided here about whether that is a good idea.
//!
//! A planner that makes several moves on one snapshot goes on from an answer with [`Simulator::commit`] (or with
//! [`Simulator::fork`] first, to keep the present one):
//!
//! ```text
//! let question = Question { without: &[3, 7], … };
//! let outcome = simulator.ask(&question);
//! let new: Range<usize> = simulator.commit(&question, &outcome);
//! ```
//!
//! Nodes keep their indexes for good: those taken away stay as gaps ([`Simulator::node`] is `None`), planned ones come
//! after all others. Every pod that the answer placed, waiting ones included, sits where the plan put it and is
//! `Mobility::Blocked` from then on, so no pod moves twice. [`worth`] tells what pods are worth on their own.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use karpenter_model::plan::{Place, Plan, PodRun};
use karpenter_model::pod::PodSpec;
use karpenter_model::problem::{BoundPod, Mobility, Mode, Node, PodGroup, PodNames, Problem, ReservedMode};
use karpenter_model::resources::ResourceList;

use crate::schedule;

mod planned;
mod worth;

pub use worth::{Worth, worth};

/// A cluster that can be asked. Questions do not change it; threads may share it.
#[derive(Clone)]
pub struct Simulator<'a> {
    problem: Cow<'a, Problem>,
    gone: BTreeSet<usize>,
}

/// One question.
#[derive(Debug, Clone)]
pub struct Question<'a> {
    /// Indexes into `Problem::nodes`, ascending, without repetition.
    pub without: &'a [usize],
    /// Whether pods that may not be evicted at present are to be placed as well.
    pub moves_blocked: bool,
    /// `Compat`: upstream's choices. `Cost`: new nodes as cheap as the effort allows.
    pub mode: Mode,
    pub effort: u64,
    pub reserved_mode: ReservedMode,
    /// Instances that a reservation gains by the nodes' end, by reservation id.
    pub credits: &'a BTreeMap<Arc<str>, u32>,
}

/// A bound pod: the node's index in `Problem::nodes`, and its own in that node's list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BoundAt {
    pub node: u32,
    pub pod: u32,
}

/// The answer.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Groups below the number of `Problem::pods` are those; the others are `movers`, counted on from there.
    /// `Place::Existing` and `existing` name nodes by their index in the asked problem.
    pub plan: Plan,
    pub movers: Vec<Vec<BoundAt>>,
}

impl Outcome {
    /// Pods that would have to move and have no place.
    pub fn stranded(&self, waiting_groups: usize) -> u32 {
        let movers = self.plan.unschedulable.iter().filter(|one| one.pods.group as usize >= waiting_groups);
        movers.map(|one| one.pods.count).sum()
    }
}

impl<'a> Simulator<'a> {
    pub fn new(problem: &'a Problem) -> Self {
        Self { problem: Cow::Borrowed(problem), gone: BTreeSet::new() }
    }

    /// What was given to [`Simulator::new`], with the committed outcomes.
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    /// How many node indexes there are, those of nodes that are gone included.
    pub fn node_count(&self) -> usize {
        self.problem.nodes.len()
    }

    /// A node as it is after all commits; `None` if it is gone.
    pub fn node(&self, index: usize) -> Option<&Node> {
        self.problem.nodes.get(index).filter(|_| !self.gone.contains(&index))
    }

    /// What a node has left for pods, daemons that are yet to come deducted.
    pub fn free(&self, index: usize) -> Option<ResourceList> {
        let node = self.node(index)?;
        Some(crate::ledger::free_room(&self.problem, node))
    }

    /// A simulator of its own that starts from the present state.
    pub fn fork(&self) -> Self {
        self.clone()
    }

    /// Makes an outcome of this simulator the present state. Returns the indexes of the new nodes, in the order of
    /// `plan.new_nodes`.
    pub fn commit(&mut self, question: &Question<'_>, outcome: &Outcome) -> Range<usize> {
        let problem = self.problem.to_mut();
        let waiting = problem.pods.len();
        let spec_of = |problem: &Problem, group: usize| match group.checked_sub(waiting) {
            None => problem.pods.get(group).map(|group| group.spec.clone()),
            Some(mover) => {
                let at = outcome.movers.get(mover).and_then(|pods| pods.first());
                at.and_then(|at| problem.nodes.get(at.node as usize)?.pods.get(at.pod as usize))
                    .map(|pod| pod.spec.clone())
            }
        };
        let placed = |problem: &Problem, runs: &[PodRun]| -> Vec<BoundPod> {
            let pods = runs.iter().filter_map(|run| Some((spec_of(problem, run.group as usize)?, run.count)));
            pods.flat_map(|(spec, count)| {
                let pod =
                    BoundPod { spec, is_daemon: false, is_terminating: false, mobility: Mobility::Blocked };
                std::iter::repeat_n(pod, count as usize)
            })
            .collect()
        };
        for placement in &outcome.plan.existing {
            let pods = placed(problem, &placement.pods);
            if let Some(node) = problem.nodes.get_mut(placement.node) {
                node.pods.extend(pods);
            }
        }
        let first = problem.nodes.len();
        for planned in &outcome.plan.new_nodes {
            let pods = placed(problem, &planned.pods);
            let node = planned::node(problem, planned, problem.nodes.len(), pods);
            problem.nodes.push(node);
        }
        let mut left: Vec<Vec<PodRun>> = vec![Vec::new(); waiting];
        for one in &outcome.plan.unschedulable {
            if let Some(group) = left.get_mut(one.pods.group as usize) {
                group.push(one.pods);
            }
        }
        for (group, left) in problem.pods.iter_mut().zip(left) {
            let positions = left.iter().flat_map(|run| run.start..run.start + run.count);
            group.names =
                PodNames::Listed(positions.map(|position| group.names.name(position).into()).collect());
        }
        self.gone.extend(question.without);
        first..problem.nodes.len()
    }

    pub fn ask(&self, question: &Question<'_>) -> Outcome {
        let mut problem = Problem::clone(&self.problem);
        problem.options.mode = question.mode;
        problem.options.effort = question.effort;
        problem.options.reserved_mode = question.reserved_mode;
        let mut groups: Vec<(Arc<PodSpec>, Vec<BoundAt>)> = Vec::new();
        let mut by_spec: BTreeMap<Arc<PodSpec>, usize> = BTreeMap::new();
        let least = if question.moves_blocked { Mobility::Blocked } else { Mobility::Moves };
        for node in question.without {
            let pods = self.node(*node).map_or(&[][..], |node| &node.pods);
            for (at, pod) in pods.iter().enumerate().filter(|(_, pod)| pod.mobility >= least) {
                let group = *by_spec.entry(pod.spec.clone()).or_insert_with(|| {
                    groups.push((pod.spec.clone(), Vec::new()));
                    groups.len() - 1
                });
                groups[group].1.push(BoundAt { node: *node as u32, pod: at as u32 });
            }
        }
        let mut kept = Vec::new();
        problem.nodes.clear();
        for (index, node) in self.problem.nodes.iter().enumerate() {
            if question.without.binary_search(&index).is_err() && !self.gone.contains(&index) {
                kept.push(index);
                problem.nodes.push(node.clone());
            }
        }
        let mut movers = Vec::new();
        for (number, (spec, pods)) in groups.into_iter().enumerate() {
            let names =
                PodNames::Numbered { prefix: format!("moved-{number}").into(), count: pods.len() as u32 };
            problem.pods.push(PodGroup { spec, names, created_at_secs: 0 });
            movers.push(pods);
        }
        let mut plan = schedule(&problem);
        for placement in &mut plan.existing {
            placement.node = kept[placement.node];
        }
        for (_, place) in &mut plan.order {
            if let Place::Existing(node) = place {
                *node = kept[*node];
            }
        }
        Outcome { plan, movers }
    }
}
