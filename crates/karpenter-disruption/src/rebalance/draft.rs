//! The simulated cluster after the moves that the plan already has, and the simulation of further moves.
//!
//! Pods of a move are placed on existing nodes or on replacements of the same move, never on replacements of another
//! move. A node that receives pods is not removed by the same plan, so no pod is moved twice.

use std::collections::{BTreeMap, BTreeSet};

use karpenter_model::plan::PlannedNode;
use karpenter_model::problem::{Mobility, Mode, ReservedMode};
use karpenter_scheduling::simulate::{BoundAt, Outcome, SimulationRequest, Simulator};

use crate::command::{Candidate, Destination};
use crate::context::EvaluationContext;
use crate::simulation::{Placement, partial_placement};
use crate::verdict::Verdict;

/// A set of nodes that could be removed, their replacements, and the targets of their pods. Whether this is worth it is
/// decided elsewhere.
#[derive(Debug, Clone)]
pub(crate) struct Move {
    /// The indexes of the candidates, ascending.
    pub(crate) sources: Vec<usize>,
    pub(crate) replacements: Vec<PlannedNode>,
    pub(crate) moves: Vec<(BoundAt, Destination)>,
    pub(crate) price_before_per_hour: f64,
    pub(crate) price_after_per_hour: f64,
}

impl Move {
    pub(crate) fn saving_per_hour(&self) -> f64 {
        self.price_before_per_hour - self.price_after_per_hour
    }

    /// Merges two moves that share no nodes.
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
        }
    }

    /// The deletion of a node without a replacement.
    pub(crate) fn deletion(draft: &Draft<'_>, source: usize, moves: Vec<(BoundAt, Destination)>) -> Self {
        Self {
            sources: vec![source],
            replacements: Vec::new(),
            moves,
            price_before_per_hour: draft.candidates[source].price_per_hour,
            price_after_per_hour: 0.0,
        }
    }
}

/// A move, and the outcome of the simulation that it was read from.
#[derive(Clone)]
pub(crate) struct Found {
    pub(crate) one: Move,
    removed_nodes: Vec<usize>,
    outcome: Outcome,
}

pub(crate) struct Draft<'a> {
    context: &'a EvaluationContext<'a>,
    pub(crate) candidates: &'a [Candidate],
    /// The node of each candidate.
    pub(crate) node_of: Vec<usize>,
    pub(crate) simulator: Simulator<'a>,
    /// Candidates that may still be removed: this draft neither removes them nor places pods on them.
    pub(crate) is_open: Vec<bool>,
    candidate_at: BTreeMap<usize, usize>,
    /// The number of existing nodes; higher positions are planned nodes.
    nodes: usize,
    /// The number of groups of pending pods. Pods of these groups are placed already, except unschedulable ones.
    waiting: usize,
}

impl<'a> Draft<'a> {
    /// Places pending pods first, so that moves cannot use the capacity that these pods need.
    pub(crate) fn new(
        context: &'a EvaluationContext<'a>,
        simulator: &Simulator<'a>,
        candidates: &'a [Candidate],
    ) -> Self {
        let cluster = context.cluster;
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
        Self { context, candidates, node_of, simulator, is_open, candidate_at, nodes, waiting }
    }

    /// Nodes that may receive pods: existing, initialized, and not settling.
    pub(crate) fn receivers(&self) -> Vec<usize> {
        (0..self.nodes)
            .filter(|node| {
                self.simulator.node(*node).is_some_and(|node| node.initialized && !node.is_settling)
            })
            .collect()
    }

    /// Simulates the removal of these candidates, with their pods on the nodes `onto` (ascending) or on new ones. Fails if
    /// a pod would be unschedulable.
    pub(crate) fn simulate(
        &self,
        sources: &[usize],
        onto: &[usize],
        mode: Mode,
        effort: u64,
    ) -> Result<Found, Verdict> {
        let removed_nodes = self.nodes_of(sources);
        let reservation_credits = BTreeMap::new();
        let simulation_request = simulation_request(&removed_nodes, mode, effort, &reservation_credits);
        let mut outcome = self.simulator.simulate_onto(&simulation_request, onto);
        if outcome.unschedulable_movers(self.waiting) > 0 {
            // Other domains than those that the pods leave may have free capacity.
            outcome = self.simulator.simulate_onto(
                &SimulationRequest { prefers_vacated_domains: false, ..simulation_request },
                onto,
            );
        }
        let (placement, unschedulable) = partial_placement(self.context, &self.simulator, &outcome);
        if !unschedulable.is_empty() {
            return Err(Verdict::WouldNotFit { unschedulable });
        }
        Ok(Found { one: self.move_of(sources, placement), removed_nodes, outcome })
    }

    /// Simulates the removal of these candidates, with some of their pods on the given targets and all others on new
    /// nodes. If pods would be unschedulable, returns the candidates whose pods they are.
    pub(crate) fn simulate_targets(
        &self,
        sources: &[usize],
        targets: &[(BoundAt, usize)],
        onto: &[usize],
        mode: Mode,
        effort: u64,
    ) -> Result<Found, BTreeSet<usize>> {
        let removed_nodes = self.nodes_of(sources);
        let reservation_credits = BTreeMap::new();
        let simulation_request = simulation_request(&removed_nodes, mode, effort, &reservation_credits);
        let outcome = self.simulator.simulate_targets(&simulation_request, onto, targets);
        let (placement, unschedulable) = partial_placement(self.context, &self.simulator, &outcome);
        if !unschedulable.is_empty() {
            let placed: BTreeSet<BoundAt> = placement.moves.iter().map(|(pod, _)| *pod).collect();
            let unplaced = outcome.movers.iter().flatten().filter(|pod| !placed.contains(pod));
            return Err(unplaced
                .filter_map(|pod| self.candidate_at.get(&(pod.node as usize)).copied())
                .collect());
        }
        Ok(Found { one: self.move_of(sources, placement), removed_nodes, outcome })
    }

    fn nodes_of(&self, sources: &[usize]) -> Vec<usize> {
        let mut nodes: Vec<usize> = sources.iter().map(|source| self.node_of[*source]).collect();
        nodes.sort_unstable();
        nodes
    }

    fn move_of(&self, sources: &[usize], placement: Placement) -> Move {
        Move {
            sources: sources.to_vec(),
            price_before_per_hour: sources.iter().map(|source| self.candidates[*source].price_per_hour).sum(),
            price_after_per_hour: placement.price_per_hour(),
            replacements: placement.replacements,
            moves: placement.moves,
        }
    }

    /// The sources of a move whose pods are placed on new nodes.
    pub(crate) fn launching(&self, one: &Move) -> BTreeSet<usize> {
        let is_new = |to: &Destination| matches!(to, Destination::New(_));
        let from = one.moves.iter().filter(|(_, to)| is_new(to)).map(|(pod, _)| pod.node as usize);
        from.filter_map(|node| self.candidate_at.get(&node).copied()).collect()
    }

    /// The number of pods that have to move if a candidate is removed.
    pub(crate) fn movable_pods(&self, candidate: usize) -> usize {
        let node = self.simulator.problem().nodes.get(self.node_of[candidate]);
        node.map_or(0, |node| node.pods.iter().filter(|pod| pod.mobility == Mobility::Moves).count())
    }

    /// Applies a move to the simulated cluster.
    pub(crate) fn commit(&mut self, found: &Found) {
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
