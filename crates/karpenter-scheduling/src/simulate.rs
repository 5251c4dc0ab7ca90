//! Simulates the removal of nodes for disruption decisions; one compiled cluster serves many simulations.
//!
//! A request names nodes to remove. The outcome is a plan for the pods that would have to move, planned together with
//! the pending pods. The simulator does not decide whether a removal is worthwhile.
//!
//! To simulate one removal on the result of another, pass the first outcome to [`Simulator::commit`] (call
//! [`Simulator::fork`] before if the current state is still needed):
//!
//! ```text
//! let request = SimulationRequest { removed_nodes: &[3, 7], … };
//! let outcome = simulator.simulate(&request);
//! let new: Range<usize> = simulator.commit(&request, &outcome);
//! ```
//!
//! Nodes keep their indexes: a removed node leaves a gap ([`Simulator::node`] returns `None`), and new nodes are
//! appended. After a commit, every pod that the outcome placed, including pending pods, is on its planned node and is
//! `Mobility::Blocked`, so no pod moves twice. [`dual_prices`] values pods independently of the nodes they are on.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use karpenter_model::plan::{Plan, PodRun};
use karpenter_model::problem::{BoundPod, Mobility, Mode, Node, Options, Problem, ReservedMode};
use karpenter_model::resources::ResourceList;

mod dual_prices;
mod planned;
mod pod_index;
mod removal;

pub use dual_prices::{DualPrices, dual_prices};
pub use removal::{Launch, Removal, RemovalCandidate, RemovalRequest, Removals, Terms};

use crate::cost::{self, Bound};
use crate::ledger::{Arrival, Ledger, free_capacity_of};
use pod_index::PodIndex;

/// A cluster in which removals of nodes can be simulated. A simulation does not change it, and threads may share it.
pub struct Simulator<'a> {
    problem: &'a Problem,
    pod_index: PodIndex,
    /// The compiled cluster; simulations run on copies of it.
    cluster: Ledger,
    /// Copies of `cluster` that already ran simulations, with what they cached about labels and instance types; each is
    /// used by one thread at a time.
    workers: Mutex<Vec<Ledger>>,
    /// Like `workers`, but for cost mode. The search of cost mode depends on the order in which labels were first used.
    /// Its result must not depend on earlier simulations, so these copies drop what they cached.
    reset_workers: Mutex<Vec<Ledger>>,
    /// For each node index: the position of the node in the ledgers.
    position_of: Vec<usize>,
    is_gone: Vec<bool>,
    /// Nodes that commits added or put pods on, by node index.
    changed: BTreeMap<usize, Node>,
}

/// The input of one simulation.
#[derive(Debug, Clone)]
pub struct SimulationRequest<'a> {
    /// Indexes into `Problem::nodes`, in ascending order and without duplicates.
    pub removed_nodes: &'a [usize],
    /// Whether pods that must not be evicted now are moved as well.
    pub moves_blocked_pods: bool,
    /// `Compat`: place pods by upstream's choices. `Cost`: search for the cheapest new nodes within `effort`.
    pub mode: Mode,
    pub effort: u64,
    /// Whether a moved pod with a zonal spread prefers a zone from which the simulation removed a pod of the same
    /// spread, if the zone is as good as others. Then the distribution over zones stays the same, and outcomes of
    /// several simulations can be combined.
    pub prefers_vacated_domains: bool,
    pub reserved_mode: ReservedMode,
    /// Slots that a reservation gains when the nodes are removed, by reservation id.
    pub reservation_credits: &'a BTreeMap<Arc<str>, u32>,
}

/// A bound pod: the index of its node in `Problem::nodes`, and the index of the pod in that node's list of pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BoundAt {
    pub node: u32,
    pub pod: u32,
}

/// The result of a simulation.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// A group index below the length of `Problem::pods` refers to that list; higher indexes refer to `movers`. Node
    /// indexes in `Place::Existing` and `existing` are those of the simulator.
    pub plan: Plan,
    pub movers: Vec<Vec<BoundAt>>,
}

impl Outcome {
    /// The number of moved pods that are unschedulable.
    pub fn unschedulable_movers(&self, waiting_groups: usize) -> u32 {
        let movers = self.plan.unschedulable.iter().filter(|one| one.pods.group as usize >= waiting_groups);
        movers.map(|one| one.pods.count).sum()
    }
}

impl<'a> Simulator<'a> {
    /// Compiles a problem: its pending pods, and every bound pod that a simulation may have to move.
    pub fn new(problem: &'a Problem) -> Self {
        let mut pod_index = PodIndex::new(problem);
        let (cluster, class_of) = Ledger::compile(problem, pod_index.specs());
        pod_index.link(problem, &cluster.classes, class_of);
        let mut position_of = vec![0; problem.nodes.len()];
        for (position, node) in cluster.nodes.iter().enumerate() {
            position_of[node.facts.id] = position;
        }
        Self {
            problem,
            pod_index,
            cluster,
            workers: Mutex::new(Vec::new()),
            reset_workers: Mutex::new(Vec::new()),
            position_of,
            is_gone: vec![false; problem.nodes.len()],
            changed: BTreeMap::new(),
        }
    }

    /// The problem that was passed to [`Simulator::new`]; commits do not change it.
    pub fn problem(&self) -> &'a Problem {
        self.problem
    }

    /// The number of node indexes, including removed nodes.
    pub fn node_count(&self) -> usize {
        self.is_gone.len()
    }

    /// A node after all commits; `None` if it was removed.
    pub fn node(&self, index: usize) -> Option<&Node> {
        if self.is_gone.get(index).is_none_or(|is_gone| *is_gone) {
            return None;
        }
        self.changed.get(&index).or_else(|| self.problem.nodes.get(index))
    }

    /// The free capacity of a node after its pods and the DaemonSet pods that are still expected on it; `None` if the
    /// node was removed.
    pub fn free(&self, index: usize) -> Option<ResourceList> {
        self.node(index).map(|node| free_capacity_of(self.problem, node))
    }

    /// A copy of this simulator in its current state; later commits affect only one of them.
    pub fn fork(&self) -> Self {
        Self {
            problem: self.problem,
            pod_index: self.pod_index.clone(),
            cluster: self.cluster.clone(),
            workers: Mutex::new(Vec::new()),
            reset_workers: Mutex::new(Vec::new()),
            position_of: self.position_of.clone(),
            is_gone: self.is_gone.clone(),
            changed: self.changed.clone(),
        }
    }

    /// Runs a simulation. Node indexes in `removed_nodes` that are unknown or already removed are ignored.
    ///
    /// In the plan, only moved pods that are unschedulable have reasons, and the lower bound is 0.
    pub fn simulate(&self, request: &SimulationRequest<'_>) -> Outcome {
        self.run(request, None, None)
    }

    /// Like [`Simulator::simulate`], but pods move only to new nodes and to the existing nodes in `onto`.
    pub fn simulate_onto(&self, request: &SimulationRequest<'_>, onto: &[usize]) -> Outcome {
        self.run(request, Some(onto), None)
    }

    /// As [`Simulator::simulate_onto`], but the given pods go to the given nodes if these accept them, and all others
    /// go to new nodes.
    pub fn simulate_targets(
        &self,
        request: &SimulationRequest<'_>,
        onto: &[usize],
        targets: &[(BoundAt, usize)],
    ) -> Outcome {
        self.run(request, Some(onto), Some(targets))
    }

    fn run(
        &self,
        request: &SimulationRequest<'_>,
        onto: Option<&[usize]>,
        targets: Option<&[(BoundAt, usize)]>,
    ) -> Outcome {
        let removed_nodes = self.present(request.removed_nodes);
        let least = if request.moves_blocked_pods { Mobility::Blocked } else { Mobility::Moves };
        let moving = self.pod_index.moving(&removed_nodes, least);
        let gone: Vec<usize> = removed_nodes.iter().map(|node| self.position_of[*node]).collect();
        let options = Options {
            mode: request.mode,
            effort: request.effort,
            reserved_mode: request.reserved_mode,
            ..self.problem.options.clone()
        };
        let workers = match request.mode {
            Mode::Compat => &self.workers,
            Mode::Cost => &self.reset_workers,
        };
        let known = workers.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut ledger = known.unwrap_or_else(|| self.cluster.clone());
        self.pod_index.fill_queue(&mut ledger.classes, &moving);
        ledger.begin_simulation(&gone, options, request.reservation_credits);
        ledger.prefers_vacated_domains = request.prefers_vacated_domains;
        let closed_before = onto.map(|onto| {
            let positions = onto.iter().filter_map(|node| self.position_of.get(*node).copied());
            ledger.close_to_movers_except(positions)
        });
        for (pod, node) in targets.into_iter().flatten() {
            let class = self.pod_index.spec_at(*pod).map(|spec| self.pod_index.class_of(spec));
            if let (Some(class), Some(node)) = (class, self.position_of.get(*node)) {
                ledger.place_target(class, *node);
            }
        }
        if targets.is_some() {
            ledger.close_to_movers_except(std::iter::empty());
        }
        let plan = cost::solve(&mut ledger, Bound::NotWanted);
        closed_before.into_iter().for_each(|closed| ledger.set_closed_to_movers(closed));
        ledger.end_simulation();
        if request.mode == Mode::Cost {
            ledger.drop_since(self.cluster.states.checkpoint());
        }
        workers.lock().unwrap_or_else(PoisonError::into_inner).push(ledger);
        Outcome { plan, movers: moving.into_iter().map(|moving| moving.pods).collect() }
    }

    /// Applies an outcome of this simulator permanently. Returns the indexes of the new nodes, in the order of
    /// `plan.new_nodes`.
    ///
    /// New nodes count against the limits and reservations of their NodePools; for removed nodes, the limits get their
    /// resources back.
    pub fn commit(&mut self, request: &SimulationRequest<'_>, outcome: &Outcome) -> Range<usize> {
        let removed_nodes = self.present(request.removed_nodes);
        let gone: Vec<usize> = removed_nodes.iter().map(|node| self.position_of[*node]).collect();
        let mut placed: Vec<(usize, usize, u32)> = Vec::new();
        for placement in &outcome.plan.existing {
            let Some(mut node) = self.node(placement.node).cloned() else { continue };
            for (class, count) in self.bind(placement.node, &mut node, &placement.pods, outcome) {
                placed.push((self.position_of[placement.node], class, count));
            }
            self.changed.insert(placement.node, node);
        }
        let first = self.node_count();
        let mut empty_nodes: Vec<Node> = Vec::new();
        let mut pods: Vec<Vec<(usize, u32)>> = Vec::new();
        for planned in &outcome.plan.new_nodes {
            let index = self.node_count();
            let mut node = planned::node(self.problem, planned, index);
            empty_nodes.push(node.clone());
            self.pod_index.add_node();
            self.position_of.push(self.cluster.nodes.len() + index - first);
            self.is_gone.push(false);
            pods.push(self.bind(index, &mut node, &planned.pods, outcome));
            self.changed.insert(index, node);
        }
        let arrivals: Vec<Arrival<'_>> = empty_nodes
            .iter()
            .zip(pods)
            .enumerate()
            .map(|(offset, (node, pods))| Arrival { id: first + offset, node, pods })
            .collect();
        let removed: Vec<Node> = removed_nodes.iter().filter_map(|node| self.node(*node).cloned()).collect();
        let workers = self.workers.get_mut().unwrap_or_else(PoisonError::into_inner);
        let reset_workers = self.reset_workers.get_mut().unwrap_or_else(PoisonError::into_inner);
        for ledger in std::iter::once(&mut self.cluster).chain(workers).chain(reset_workers) {
            ledger.commit(&gone, &placed, &arrivals);
            removed.iter().for_each(|node| planned::give_back_limits(ledger, node));
            outcome.plan.new_nodes.iter().for_each(|planned| planned::charge(ledger, planned));
        }
        for node in removed_nodes {
            self.is_gone[node] = true;
            self.changed.remove(&node);
        }
        let left: Vec<PodRun> = outcome.plan.unschedulable.iter().map(|one| one.pods).collect();
        self.pod_index.retain_pending(&left);
        first..self.node_count()
    }

    /// Those of the given nodes that have not been removed.
    fn present(&self, nodes: &[usize]) -> Vec<usize> {
        let is_there = |node: &usize| self.is_gone.get(*node).is_some_and(|is_gone| !is_gone);
        let mut present: Vec<usize> = nodes.iter().copied().filter(is_there).collect();
        present.sort_unstable();
        present.dedup();
        present
    }

    /// Adds pods to a node; returns the class and the count of each group of equal pods.
    fn bind(
        &mut self,
        index: usize,
        node: &mut Node,
        runs: &[PodRun],
        outcome: &Outcome,
    ) -> Vec<(usize, u32)> {
        let mut classes = Vec::new();
        for run in runs {
            let Some(spec) = self.pod_index.spec_of(run.group, &outcome.movers) else { continue };
            self.pod_index.add_moved_pods(index, node.pods.len(), spec, run.count);
            classes.push((self.pod_index.class_of(spec), run.count));
            let pod = BoundPod {
                spec: self.pod_index.spec(spec).clone(),
                is_daemon: false,
                is_terminating: false,
                mobility: Mobility::Blocked,
            };
            node.pods.extend(std::iter::repeat_n(pod, run.count as usize));
        }
        classes
    }
}
