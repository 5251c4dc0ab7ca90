//! What all methods look at during one pass over a fleet.
//!
//! Holds what is computed once; decides nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use karpenter_model::problem::{Mode as EngineMode, Problem};
use karpenter_scheduling::simulate::{Outcome, SimulationRequest, Simulator};

use crate::balanced::{Totals, totals};
use crate::candidate::{Class, candidate_besides};
use crate::command::{Candidate, Command};
use crate::explain::Why;
use crate::fleet::{Fleet, Machine, Pool, Reason};
use crate::settings::{Mode, Settings};

pub(crate) struct Pass<'a> {
    pub(crate) fleet: &'a Fleet,
    pub(crate) settings: &'a Settings,
    /// The machine behind each node of the problem.
    pub(crate) machine_at: Vec<Option<usize>>,
    /// Nodes that are there to take pods.
    initialized: Vec<usize>,
    /// Cost and trouble of each pool, for policy Balanced.
    pub(crate) totals: BTreeMap<Arc<str>, Totals>,
    /// Claims of the command under a second look.
    own: BTreeSet<Arc<str>>,
    type_names: Vec<BTreeSet<&'a str>>,
    simulator: OnceLock<Simulator<'a>>,
    unsettled: OnceLock<Option<Problem>>,
}

/// Nodes that a method could disrupt, and what stands against others that it has an opinion about.
#[derive(Debug, Default)]
pub(crate) struct Eligible {
    pub(crate) candidates: Vec<Candidate>,
    pub(crate) refused: Vec<(usize, Why)>,
}

/// What a method made of its candidates.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) commands: Vec<Command>,
    /// What budgets will allow once nodes that are leaving are gone, best first.
    pub(crate) standby: Vec<Command>,
    pub(crate) refused: Vec<(usize, Why)>,
    pub(crate) lower_bound_per_hour: Option<f64>,
}

impl<'a> Pass<'a> {
    pub(crate) fn new(fleet: &'a Fleet, settings: &'a Settings) -> Self {
        Self::besides(fleet, settings, BTreeSet::new())
    }

    pub(crate) fn besides(fleet: &'a Fleet, settings: &'a Settings, own: BTreeSet<Arc<str>>) -> Self {
        let mut machine_at = vec![None; fleet.problem.nodes.len()];
        for (index, machine) in fleet.machines.iter().enumerate() {
            if let Some(slot) = machine.at.and_then(|at| machine_at.get_mut(at)) {
                *slot = Some(index);
            }
        }
        let type_names = fleet
            .problem
            .catalogs
            .iter()
            .map(|catalog| catalog.iter().map(|instance_type| &*instance_type.name).collect())
            .collect();
        Self {
            fleet,
            settings,
            machine_at,
            initialized: (0..fleet.problem.nodes.len())
                .filter(|node| fleet.problem.nodes[*node].initialized)
                .collect(),
            totals: totals(fleet),
            own,
            type_names,
            simulator: OnceLock::new(),
            unsettled: OnceLock::new(),
        }
    }

    pub(crate) fn own(&self) -> &BTreeSet<Arc<str>> {
        &self.own
    }

    pub(crate) fn candidate(&self, machine: usize, class: Class, reason: Reason) -> Result<Candidate, Why> {
        candidate_besides(self.fleet, machine, class, reason, &self.own).map_err(Why::Blocked)
    }

    pub(crate) fn machine(&self, candidate: &Candidate) -> &'a Machine {
        &self.fleet.machines[candidate.machine]
    }

    /// Candidates have a known pool.
    pub(crate) fn pool(&self, candidate: &Candidate) -> &'a Pool {
        &self.fleet.pools[&candidate.pool]
    }

    /// Machines with their pools, where these are known.
    pub(crate) fn machines(&self) -> impl Iterator<Item = (usize, &'a Machine, Option<&'a Pool>)> {
        let fleet = self.fleet;
        fleet.machines.iter().enumerate().map(move |(index, machine)| {
            let pool = machine.pool.as_ref().and_then(|name| fleet.pools.get(name));
            (index, machine, pool)
        })
    }

    /// Nodes of the candidates, ascending.
    pub(crate) fn nodes_of<'c>(&self, candidates: impl IntoIterator<Item = &'c Candidate>) -> Vec<usize> {
        let mut nodes: Vec<usize> =
            candidates.into_iter().filter_map(|candidate| self.machine(candidate).at).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    /// Whether the catalog of the machine's pool has its type. Without a catalog a name is as good as can be had.
    pub(crate) fn knows_type_of(&self, machine: &Machine, pool: &Pool) -> bool {
        let Some(name) = &machine.instance_type else { return false };
        let catalog = pool
            .launches_as
            .and_then(|index| self.fleet.problem.pools.get(index))
            .and_then(|pool| self.type_names.get(pool.catalog));
        catalog.is_none_or(|names| names.contains(&**name))
    }

    /// For moves that save money: nodes that settle take no moved pods.
    pub(crate) fn simulator(&self) -> &Simulator<'a> {
        self.simulator.get_or_init(|| Simulator::new(&self.fleet.problem))
    }

    /// For moves that have to be made: nodes that settle are as good as any, except those that are about to go.
    pub(crate) fn forceful_simulator(&self) -> Simulator<'_> {
        let unsettled = self.unsettled.get_or_init(|| {
            let problem = &self.fleet.problem;
            problem.nodes.iter().any(|node| node.is_settling).then(|| {
                let mut problem = problem.clone();
                for (node, machine) in problem.nodes.iter_mut().zip(&self.machine_at) {
                    let claim = machine.and_then(|index| self.fleet.machines.get(index));
                    node.is_settling =
                        claim.is_some_and(|machine| self.fleet.waits_in(&machine.claim).is_some());
                }
                problem
            })
        });
        Simulator::new(unsettled.as_ref().unwrap_or(&self.fleet.problem))
    }

    /// Asks a simulator of this pass.
    ///
    /// Upstream lets moved pods count on nodes that are coming up and then thinks better of the whole move; in mode
    /// Cost such nodes are no place to begin with.
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

/// Dearest per trouble first, names breaking ties.
pub(crate) fn by_savings_ratio(candidates: &mut [Candidate]) {
    candidates.sort_by(|one, other| {
        other.savings_ratio().total_cmp(&one.savings_ratio()).then_with(|| one.claim.cmp(&other.claim))
    });
}
