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

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use karpenter_model::plan::{Plan, PodRun};
use karpenter_model::problem::{BoundPod, Mobility, Mode, Node, Options, Problem, ReservedMode};
use karpenter_model::resources::ResourceList;

mod planned;
mod roster;
mod worth;

pub use worth::{Worth, likely_least_per_hour, worth};

use crate::cost::{self, Bound};
use crate::ledger::{Arrival, Ledger, free_room};
use roster::Roster;

/// A cluster that can be asked. Questions do not change it; threads may share it.
pub struct Simulator<'a> {
    problem: &'a Problem,
    roster: Roster,
    /// The cluster compiled, never asked itself.
    cluster: Ledger,
    /// Copies that have answered questions and know more about labels and types by now; one per thread that asks.
    workers: Mutex<Vec<Ledger>>,
    /// The same for the search for cheaper nodes. It takes labels in the order in which they were met, and that must not
    /// depend on what was asked before, so these forget what they have learnt.
    forgetful: Mutex<Vec<Ledger>>,
    /// By node: where it is in the ledgers.
    position_of: Vec<usize>,
    is_gone: Vec<bool>,
    /// Nodes that received pods, and those that were added.
    changed: BTreeMap<usize, Node>,
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
    /// Whether pods that are spread over zones go back to zones where pods of the same spread came from, where those are as
    /// good as others: outcomes that leave spreads as they are do not depend on each other.
    pub stays_home: bool,
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
    /// Compiles a problem: its waiting pods, and every bound pod that may have to move.
    pub fn new(problem: &'a Problem) -> Self {
        let mut roster = Roster::new(problem);
        let (cluster, class_of) = Ledger::compile(problem, roster.specs());
        roster.link(problem, &cluster.classes, class_of);
        let mut position_of = vec![0; problem.nodes.len()];
        for (position, node) in cluster.nodes.iter().enumerate() {
            position_of[node.facts.id] = position;
        }
        Self {
            problem,
            roster,
            cluster,
            workers: Mutex::new(Vec::new()),
            forgetful: Mutex::new(Vec::new()),
            position_of,
            is_gone: vec![false; problem.nodes.len()],
            changed: BTreeMap::new(),
        }
    }

    /// What was given to [`Simulator::new`]. Commits do not show in it.
    pub fn problem(&self) -> &'a Problem {
        self.problem
    }

    /// How many node indexes there are, those of nodes that are gone included.
    pub fn node_count(&self) -> usize {
        self.is_gone.len()
    }

    /// A node as it is after all commits; `None` if it is gone.
    pub fn node(&self, index: usize) -> Option<&Node> {
        if self.is_gone.get(index).is_none_or(|is_gone| *is_gone) {
            return None;
        }
        self.changed.get(&index).or_else(|| self.problem.nodes.get(index))
    }

    /// What a node has left for pods, daemons that are yet to come deducted; `None` if it is gone.
    pub fn free(&self, index: usize) -> Option<ResourceList> {
        self.node(index).map(|node| free_room(self.problem, node))
    }

    /// A simulator of its own that starts from the present state.
    pub fn fork(&self) -> Self {
        Self {
            problem: self.problem,
            roster: self.roster.clone(),
            cluster: self.cluster.clone(),
            workers: Mutex::new(Vec::new()),
            forgetful: Mutex::new(Vec::new()),
            position_of: self.position_of.clone(),
            is_gone: self.is_gone.clone(),
            changed: self.changed.clone(),
        }
    }

    /// Answers a question. Nodes that are gone or unknown are not missed.
    ///
    /// Of a pod without a place the reasons tell what each pool says; pods that wait anyway come without reasons, and
    /// the plan's lower bound is 0.
    pub fn ask(&self, question: &Question<'_>) -> Outcome {
        self.answer(question, None)
    }

    /// The same, with pods moving to no other existing nodes than these.
    pub fn ask_onto(&self, question: &Question<'_>, onto: &[usize]) -> Outcome {
        self.answer(question, Some(onto))
    }

    fn answer(&self, question: &Question<'_>, onto: Option<&[usize]>) -> Outcome {
        let without = self.present(question.without);
        let least = if question.moves_blocked { Mobility::Blocked } else { Mobility::Moves };
        let moving = self.roster.moving(&without, least);
        let gone: Vec<usize> = without.iter().map(|node| self.position_of[*node]).collect();
        let options = Options {
            mode: question.mode,
            effort: question.effort,
            reserved_mode: question.reserved_mode,
            ..self.problem.options.clone()
        };
        let workers = match question.mode {
            Mode::Compat => &self.workers,
            Mode::Cost => &self.forgetful,
        };
        let known = workers.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut ledger = known.unwrap_or_else(|| self.cluster.clone());
        self.roster.fill_queue(&mut ledger.classes, &moving);
        ledger.begin_question(&gone, options, question.credits);
        ledger.stays_home = question.stays_home;
        let closed_before = onto.map(|onto| {
            let positions = onto.iter().filter_map(|node| self.position_of.get(*node).copied());
            ledger.close_to_movers_except(positions)
        });
        let plan = cost::solve(&mut ledger, Bound::NotWanted);
        closed_before.into_iter().for_each(|closed| ledger.set_closed_to_movers(closed));
        ledger.end_question();
        if question.mode == Mode::Cost {
            ledger.forget_since(self.cluster.states.mark());
        }
        workers.lock().unwrap_or_else(PoisonError::into_inner).push(ledger);
        Outcome { plan, movers: moving.into_iter().map(|moving| moving.pods).collect() }
    }

    /// Makes an outcome of this simulator the present state. Returns the indexes of the new nodes, in the order of
    /// `plan.new_nodes`.
    ///
    /// New nodes count against their pools' limits and reservations; what their pools' former nodes had is given back
    /// to the limits.
    pub fn commit(&mut self, question: &Question<'_>, outcome: &Outcome) -> Range<usize> {
        let without = self.present(question.without);
        let gone: Vec<usize> = without.iter().map(|node| self.position_of[*node]).collect();
        let mut placed: Vec<(usize, usize, u32)> = Vec::new();
        for placement in &outcome.plan.existing {
            let Some(mut node) = self.node(placement.node).cloned() else { continue };
            for (class, count) in self.bind(placement.node, &mut node, &placement.pods, outcome) {
                placed.push((self.position_of[placement.node], class, count));
            }
            self.changed.insert(placement.node, node);
        }
        let first = self.node_count();
        let mut bare: Vec<Node> = Vec::new();
        let mut pods: Vec<Vec<(usize, u32)>> = Vec::new();
        for planned in &outcome.plan.new_nodes {
            let index = self.node_count();
            let mut node = planned::node(self.problem, planned, index);
            bare.push(node.clone());
            self.roster.add_node();
            self.position_of.push(self.cluster.nodes.len() + index - first);
            self.is_gone.push(false);
            pods.push(self.bind(index, &mut node, &planned.pods, outcome));
            self.changed.insert(index, node);
        }
        let arrivals: Vec<Arrival<'_>> = bare
            .iter()
            .zip(pods)
            .enumerate()
            .map(|(offset, (node, pods))| Arrival { id: first + offset, node, pods })
            .collect();
        let leavers: Vec<Node> = without.iter().filter_map(|node| self.node(*node).cloned()).collect();
        let workers = self.workers.get_mut().unwrap_or_else(PoisonError::into_inner);
        let forgetful = self.forgetful.get_mut().unwrap_or_else(PoisonError::into_inner);
        for ledger in std::iter::once(&mut self.cluster).chain(workers).chain(forgetful) {
            ledger.commit(&gone, &placed, &arrivals);
            leavers.iter().for_each(|node| planned::give_back_limits(ledger, node));
            outcome.plan.new_nodes.iter().for_each(|planned| planned::charge(ledger, planned));
        }
        for node in without {
            self.is_gone[node] = true;
            self.changed.remove(&node);
        }
        let left: Vec<PodRun> = outcome.plan.unschedulable.iter().map(|one| one.pods).collect();
        self.roster.keep_waiting(&left);
        first..self.node_count()
    }

    /// The named nodes that are there.
    fn present(&self, nodes: &[usize]) -> Vec<usize> {
        let is_there = |node: &usize| self.is_gone.get(*node).is_some_and(|is_gone| !is_gone);
        let mut present: Vec<usize> = nodes.iter().copied().filter(is_there).collect();
        present.sort_unstable();
        present.dedup();
        present
    }

    /// Puts pods on a node, and says of which class they are.
    fn bind(
        &mut self,
        index: usize,
        node: &mut Node,
        runs: &[PodRun],
        outcome: &Outcome,
    ) -> Vec<(usize, u32)> {
        let mut classes = Vec::new();
        for run in runs {
            let Some(spec) = self.roster.spec_of(run.group, &outcome.movers) else { continue };
            self.roster.settle(index, node.pods.len(), spec, run.count);
            classes.push((self.roster.class_of(spec), run.count));
            let pod = BoundPod {
                spec: self.roster.spec(spec).clone(),
                is_daemon: false,
                is_terminating: false,
                mobility: Mobility::Blocked,
            };
            node.pods.extend(std::iter::repeat_n(pod, run.count as usize));
        }
        classes
    }
}
