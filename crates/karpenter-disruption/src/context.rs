//! The data that all methods of one evaluation share, computed once. No decisions are made here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use karpenter_model::problem::{Mode as EngineMode, Problem};
use karpenter_scheduling::simulate::{Outcome, SimulationRequest, Simulator};

use crate::balanced::{Totals, totals};
use crate::candidate::{DisruptionClass, candidate_excluding};
use crate::cluster::{Cluster, NodePoolView, Reason, StateNode};
use crate::command::{Candidate, Command};
use crate::settings::{Mode, Settings};
use crate::verdict::Verdict;

pub(crate) struct EvaluationContext<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) settings: &'a Settings,
    /// For each node of the problem, the index of its `StateNode`.
    pub(crate) state_node_of: Vec<Option<usize>>,
    /// Initialized nodes: the targets of moves.
    initialized: Vec<usize>,
    /// Price and disruption cost of each NodePool, for the policy Balanced.
    pub(crate) totals: BTreeMap<Arc<str>, Totals>,
    /// The claims of the command that is being validated.
    own: BTreeSet<Arc<str>>,
    type_names: Vec<BTreeSet<&'a str>>,
    simulator: OnceLock<Simulator<'a>>,
    unsettled: OnceLock<Option<Problem>>,
}

/// The candidates of a method, and the verdicts for nodes that it considered and excluded.
#[derive(Debug, Default)]
pub(crate) struct MethodCandidates {
    pub(crate) candidates: Vec<Candidate>,
    pub(crate) rejected: Vec<(usize, Verdict)>,
}

/// The commands of a method, and the verdicts for candidates without one.
#[derive(Debug, Default)]
pub(crate) struct MethodResult {
    pub(crate) commands: Vec<Command>,
    /// Commands that exceed the budgets at present, best first.
    pub(crate) awaiting_budget: Vec<Command>,
    pub(crate) rejected: Vec<(usize, Verdict)>,
    pub(crate) lower_bound_per_hour: Option<f64>,
}

impl<'a> EvaluationContext<'a> {
    pub(crate) fn new(cluster: &'a Cluster, settings: &'a Settings) -> Self {
        Self::excluding(cluster, settings, BTreeSet::new())
    }

    pub(crate) fn excluding(cluster: &'a Cluster, settings: &'a Settings, own: BTreeSet<Arc<str>>) -> Self {
        let mut state_node_of = vec![None; cluster.problem.nodes.len()];
        for (index, state_node) in cluster.state_nodes.iter().enumerate() {
            if let Some(slot) = state_node.at.and_then(|at| state_node_of.get_mut(at)) {
                *slot = Some(index);
            }
        }
        let type_names = cluster
            .problem
            .catalogs
            .iter()
            .map(|catalog| catalog.iter().map(|instance_type| &*instance_type.name).collect())
            .collect();
        Self {
            cluster,
            settings,
            state_node_of,
            initialized: (0..cluster.problem.nodes.len())
                .filter(|node| cluster.problem.nodes[*node].initialized)
                .collect(),
            totals: totals(cluster),
            own,
            type_names,
            simulator: OnceLock::new(),
            unsettled: OnceLock::new(),
        }
    }

    pub(crate) fn own(&self) -> &BTreeSet<Arc<str>> {
        &self.own
    }

    pub(crate) fn candidate(
        &self,
        state_node: usize,
        class: DisruptionClass,
        reason: Reason,
    ) -> Result<Candidate, Verdict> {
        candidate_excluding(self.cluster, state_node, class, reason, &self.own).map_err(Verdict::Blocked)
    }

    pub(crate) fn state_node(&self, candidate: &Candidate) -> &'a StateNode {
        &self.cluster.state_nodes[candidate.state_node]
    }

    /// The NodePool of a candidate. Every candidate has one.
    pub(crate) fn pool(&self, candidate: &Candidate) -> &'a NodePoolView {
        &self.cluster.pools[&candidate.pool]
    }

    /// All nodes with their NodePools, if known.
    pub(crate) fn state_nodes(
        &self,
    ) -> impl Iterator<Item = (usize, &'a StateNode, Option<&'a NodePoolView>)> {
        let cluster = self.cluster;
        cluster.state_nodes.iter().enumerate().map(move |(index, state_node)| {
            let pool = state_node.pool.as_ref().and_then(|name| cluster.pools.get(name));
            (index, state_node, pool)
        })
    }

    /// Indexes of the candidates' nodes, ascending.
    pub(crate) fn nodes_of<'c>(&self, candidates: impl IntoIterator<Item = &'c Candidate>) -> Vec<usize> {
        let mut nodes: Vec<usize> =
            candidates.into_iter().filter_map(|candidate| self.state_node(candidate).at).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    /// Whether the catalog of the node's NodePool has its instance type; true if there is no catalog.
    pub(crate) fn knows_type_of(&self, state_node: &StateNode, pool: &NodePoolView) -> bool {
        let Some(name) = &state_node.instance_type else { return false };
        let catalog = pool
            .launches_as
            .and_then(|index| self.cluster.problem.pools.get(index))
            .and_then(|pool| self.type_names.get(pool.catalog));
        catalog.is_none_or(|names| names.contains(&**name))
    }

    /// The simulator for consolidation: nodes within `consolidateAfter` are not targets of moves.
    pub(crate) fn simulator(&self) -> &Simulator<'a> {
        self.simulator.get_or_init(|| Simulator::new(&self.cluster.problem))
    }

    /// The simulator for repair, drift and expiration: every node is a target of moves except candidates of proposed
    /// commands.
    pub(crate) fn unrestricted_simulator(&self) -> Simulator<'_> {
        let unsettled = self.unsettled.get_or_init(|| {
            let problem = &self.cluster.problem;
            problem.nodes.iter().any(|node| node.is_settling).then(|| {
                let mut problem = problem.clone();
                for (node, state_node) in problem.nodes.iter_mut().zip(&self.state_node_of) {
                    let claim = state_node.and_then(|index| self.cluster.state_nodes.get(index));
                    node.is_settling = claim
                        .is_some_and(|state_node| self.cluster.proposing_method(&state_node.claim).is_some());
                }
                problem
            })
        });
        Simulator::new(unsettled.as_ref().unwrap_or(&self.cluster.problem))
    }

    /// Runs a simulation.
    ///
    /// Upstream lets pods schedule to nodes that are not initialized and rejects the whole command afterwards. In cost
    /// mode, pods are not moved to such nodes.
    pub(crate) fn ask(
        &self,
        simulator: &Simulator<'_>,
        simulation_request: &SimulationRequest<'_>,
    ) -> Outcome {
        match self.settings.mode {
            Mode::Cost => simulator.simulate_onto(simulation_request, &self.initialized),
            Mode::Compat => simulator.simulate(simulation_request),
        }
    }

    pub(crate) fn engine_mode(&self) -> EngineMode {
        match self.settings.mode {
            Mode::Cost => EngineMode::Cost,
            Mode::Compat => EngineMode::Compat,
        }
    }
}

/// Sorts by saving per disruption, highest first, then by name.
pub(crate) fn by_savings_ratio(candidates: &mut [Candidate]) {
    candidates.sort_by(|one, other| {
        other.savings_ratio().total_cmp(&one.savings_ratio()).then_with(|| one.claim.cmp(&other.claim))
    });
}
