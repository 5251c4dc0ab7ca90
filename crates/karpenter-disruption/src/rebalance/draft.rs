//! The fleet as it would be after the moves that were found so far, and the simulation of further moves.
//!
//! A move uses only existing nodes and its own replacements: no pod is moved to a replacement of another move. A node
//! that receives pods is not removed by the same plan, so no pod is moved twice.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use karpenter_model::plan::{PlannedNode, PodRun};
use karpenter_model::problem::{Mode, ReservedMode};
use karpenter_scheduling::simulate::{BoundAt, Outcome, SimulationRequest, Simulator};

use crate::cluster::Cluster;
use crate::command::{Candidate, Destination};

/// A set of candidates that could be removed, their replacements, and the target of each pod. Whether the move is worth
/// its disruption is decided elsewhere.
#[derive(Debug, Clone)]
pub(crate) struct Move {
    /// The indexes of the candidates, ascending.
    pub(crate) sources: Vec<usize>,
    pub(crate) replacements: Vec<PlannedNode>,
    pub(crate) moves: Vec<(BoundAt, Destination)>,
    pub(crate) price_before_per_hour: f64,
    pub(crate) price_after_per_hour: f64,
    /// The sum of the candidates' disruption costs.
    pub(crate) disruption_cost: f64,
}

impl Move {
    pub(crate) fn saving_per_hour(&self) -> f64 {
        self.price_before_per_hour - self.price_after_per_hour
    }

    /// Merges two moves that share no nodes into one.
    pub(crate) fn with(&self, other: &Self) -> Self {
        let mut sources = [&self.sources[..], &other.sources].concat();
        sources.sort_unstable();
        let shifted = |(from, to): &(BoundAt, Destination)| match to {
            Destination::New(number) => (*from, Destination::New(number + self.replacements.len())),
            Destination::Existing(_) => (*from, *to),
        };
        let mut moves: Vec<_> = self.moves.iter().copied().chain(other.moves.iter().map(shifted)).collect();
        moves.sort_unstable();
        Self {
            sources,
            replacements: [&self.replacements[..], &other.replacements].concat(),
            moves,
            price_before_per_hour: self.price_before_per_hour + other.price_before_per_hour,
            price_after_per_hour: self.price_after_per_hour + other.price_after_per_hour,
            disruption_cost: self.disruption_cost + other.disruption_cost,
        }
    }

    pub(crate) fn saving_per_disruption(&self) -> f64 {
        self.saving_per_hour() / self.disruption_cost.max(1e-9)
    }
}

/// A move, and the result of the simulation that it was read from.
#[derive(Clone)]
pub(crate) struct Found {
    pub(crate) one: Move,
    /// The existing nodes that the pods were allowed to be moved to.
    pub(crate) onto: Vec<usize>,
    removed_nodes: Vec<usize>,
    outcome: Outcome,
}

pub(crate) struct Draft<'a> {
    pub(crate) candidates: &'a [Candidate],
    /// The node of each candidate.
    pub(crate) node_of: Vec<usize>,
    pub(crate) simulator: Simulator<'a>,
    /// Candidates that can still be removed: this draft neither removed them nor moved pods to them.
    pub(crate) is_open: Vec<bool>,
    candidate_at: BTreeMap<usize, usize>,
    /// The number of existing nodes; nodes with higher indexes are planned.
    nodes: usize,
    /// The number of groups of pending pods. The draft has planned these pods; the groups contain only unschedulable ones.
    waiting: usize,
    /// Results of simulations since the last commit. They are kept because the same simulation is requested again with
    /// a lower minimum saving.
    answered: Mutex<BTreeMap<Asked, Option<Found>>>,
}

/// The input of a simulation: removed candidates, nodes that may receive pods, effort.
type Asked = (Vec<usize>, Vec<usize>, u64);

impl<'a> Draft<'a> {
    /// Starts with the current fleet, in which the pending pods are planned first.
    pub(crate) fn new(cluster: &Cluster, simulator: &Simulator<'a>, candidates: &'a [Candidate]) -> Self {
        let mut simulator = simulator.fork();
        let waiting = cluster.problem.pods.len();
        if waiting > 0 {
            let reservation_credits = BTreeMap::new();
            let simulation_request = simulation_request(&[], Mode::Compat, 0, &reservation_credits);
            let outcome = simulator.simulate(&simulation_request);
            simulator.commit(&simulation_request, &outcome);
        }
        let nodes = cluster.problem.nodes.len();
        let node_of: Vec<usize> = candidates
            .iter()
            .map(|candidate| {
                cluster
                    .state_nodes
                    .get(candidate.state_node)
                    .and_then(|state_node| state_node.at)
                    .unwrap_or(usize::MAX)
            })
            .collect();
        let is_open = node_of.iter().map(|node| *node < nodes).collect();
        let candidate_at = node_of.iter().enumerate().map(|(candidate, node)| (*node, candidate)).collect();
        Self {
            candidates,
            node_of,
            simulator,
            is_open,
            candidate_at,
            nodes,
            waiting,
            answered: Mutex::default(),
        }
    }

    /// An independent copy of the draft.
    pub(crate) fn fork(&self) -> Self {
        Self {
            candidates: self.candidates,
            node_of: self.node_of.clone(),
            simulator: self.simulator.fork(),
            is_open: self.is_open.clone(),
            candidate_at: self.candidate_at.clone(),
            nodes: self.nodes,
            waiting: self.waiting,
            answered: Mutex::default(),
        }
    }

    /// Nodes that pods may be moved to: existing nodes that this plan does not remove.
    pub(crate) fn receivers(&self) -> Vec<usize> {
        (0..self.nodes)
            .filter(|node| {
                self.simulator.node(*node).is_some_and(|node| node.initialized && !node.is_settling)
            })
            .collect()
    }

    /// Simulates the removal of these candidates. Their pods are moved to some of the nodes `onto` (ascending) or to new
    /// nodes. `None` if a pod would be unschedulable.
    pub(crate) fn ask(&self, sources: &[usize], onto: &[usize], mode: Mode, effort: u64) -> Option<Found> {
        if mode != Mode::Cost {
            return self.simulate(sources, onto, mode, effort);
        }
        let asked: Asked = (sources.to_vec(), onto.to_vec(), effort);
        if let Some(known) = self.answered().get(&asked) {
            return known.clone();
        }
        let found = self.simulate(sources, onto, mode, effort);
        self.answered().insert(asked, found.clone());
        found
    }

    fn answered(&self) -> MutexGuard<'_, BTreeMap<Asked, Option<Found>>> {
        self.answered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn simulate(&self, sources: &[usize], onto: &[usize], mode: Mode, effort: u64) -> Option<Found> {
        let mut removed_nodes: Vec<usize> = sources.iter().map(|source| self.node_of[*source]).collect();
        removed_nodes.sort_unstable();
        let reservation_credits = BTreeMap::new();
        let simulation_request = simulation_request(&removed_nodes, mode, effort, &reservation_credits);
        let mut outcome = self.simulator.simulate_onto(&simulation_request, onto);
        if simulation_request.prefers_vacated_domains && outcome.unschedulable_movers(self.waiting) > 0 {
            // The pods do not fit into the topology domains that they leave, so the simulation is repeated with all
            // domains.
            outcome = self.simulator.simulate_onto(
                &SimulationRequest { prefers_vacated_domains: false, ..simulation_request },
                onto,
            );
        }
        let one = self.read(sources, &outcome)?;
        Some(Found { one, onto: onto.to_vec(), removed_nodes, outcome })
    }

    fn read(&self, sources: &[usize], outcome: &Outcome) -> Option<Move> {
        if outcome.unschedulable_movers(self.waiting) > 0 {
            return None;
        }
        let mut moves: Vec<(BoundAt, Destination)> = Vec::new();
        let mut send = |run: &PodRun, to: Destination| {
            let Some(pods) =
                (run.group as usize).checked_sub(self.waiting).and_then(|group| outcome.movers.get(group))
            else {
                return;
            };
            moves.extend(
                pods[run.start as usize..(run.start + run.count) as usize].iter().map(|pod| (*pod, to)),
            );
        };
        for placement in &outcome.plan.existing {
            // The target is the replacement of another move, which does not exist yet.
            if placement.node >= self.nodes {
                return None;
            }
            placement.pods.iter().for_each(|run| send(run, Destination::Existing(placement.node)));
        }
        let mut replacements = outcome.plan.new_nodes.clone();
        for (number, node) in replacements.iter_mut().enumerate() {
            std::mem::take(&mut node.pods).iter().for_each(|run| send(run, Destination::New(number)));
        }
        moves.sort_unstable();
        let sum = |value: fn(&Candidate) -> f64| -> f64 {
            sources.iter().map(|source| value(&self.candidates[*source])).sum()
        };
        Some(Move {
            sources: sources.to_vec(),
            moves,
            price_before_per_hour: sum(|candidate| candidate.price_per_hour),
            price_after_per_hour: replacements.iter().map(|node| node.price_per_hour).fold(0.0, |a, b| a + b),
            disruption_cost: sum(|candidate| candidate.reschedule_cost),
            replacements,
        })
    }

    /// Applies a move to the draft.
    pub(crate) fn commit(&mut self, found: &Found) {
        self.answered().clear();
        let reservation_credits = BTreeMap::new();
        self.simulator.commit(
            &simulation_request(&found.removed_nodes, Mode::Compat, 0, &reservation_credits),
            &found.outcome,
        );
        for (_, to) in &found.one.moves {
            if let Destination::Existing(node) = to
                && let Some(receiver) = self.candidate_at.get(node)
            {
                self.is_open[*receiver] = false;
            }
        }
        for source in &found.one.sources {
            self.is_open[*source] = false;
        }
    }
}

fn simulation_request<'q>(
    removed_nodes: &'q [usize],
    mode: Mode,
    effort: u64,
    reservation_credits: &'q BTreeMap<std::sync::Arc<str>, u32>,
) -> SimulationRequest<'q> {
    SimulationRequest {
        removed_nodes,
        moves_blocked_pods: false,
        mode,
        effort,
        prefers_vacated_domains: true,
        reserved_mode: ReservedMode::Fallback,
        reservation_credits,
    }
}
