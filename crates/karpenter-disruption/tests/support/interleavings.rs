//! Commands that are found, validated, started and finished in any order: budgets hold at every moment.
//!
//! A command that has started is modelled as the controllers see it: its candidates are marked for deletion and not targets
//! of moves, and its pods are on their planned nodes. Drains and launches last until the command is done.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use karpenter_disruption::cluster::{Cluster, ProposedCommand, Reason};
use karpenter_disruption::command::{Command, Decision, Destination, Method};
use karpenter_disruption::evaluate::evaluate;
use karpenter_disruption::settings::{Mode, Settings};
use karpenter_disruption::validate::{Rejection, revalidate};
use karpenter_model::taints::{Effect, Taint};

/// One event of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    Evaluate,
    Validate,
    Done,
    /// The budget of a NodePool for a reason changes.
    Allow {
        pool: u8,
        reason: u8,
        count: u32,
    },
    /// A node becomes ready or not ready.
    Ready {
        state_node: u8,
        is_ready: bool,
    },
}

pub(crate) struct Run<'s> {
    pub(crate) cluster: Cluster,
    settings: &'s Settings,
    /// The proposed commands, and whether each awaits a budget.
    proposed: VecDeque<(Command, bool)>,
    /// The claims of each command that has started.
    running: VecDeque<BTreeSet<Arc<str>>>,
    pub(crate) started_count: usize,
    /// Commands that awaited a budget.
    pub(crate) awaited_budget_count: usize,
    pub(crate) started_after_budget_wait_count: usize,
}

impl<'s> Run<'s> {
    pub(crate) fn new(cluster: Cluster, settings: &'s Settings) -> Self {
        Self {
            cluster,
            settings,
            proposed: VecDeque::new(),
            running: VecDeque::new(),
            started_count: 0,
            awaited_budget_count: 0,
            started_after_budget_wait_count: 0,
        }
    }

    /// Starts a run in which commands beyond the budgets are planned, as the controller does in cost mode.
    pub(crate) fn planning_beyond_budgets(cluster: Cluster, settings: &'s Settings) -> Self {
        let plan_beyond_budgets = settings.mode == Mode::Cost;
        Self::new(Cluster { plan_beyond_budgets, ..cluster }, settings)
    }

    fn await_validation(&mut self, command: Command, awaits_budget: bool) {
        let mut taken = self.proposed.iter().flat_map(|(one, _)| &one.candidates);
        // A claim is part of one proposed command at most.
        if !taken.any(|one| command.candidates.iter().any(|other| other.claim == one.claim)) {
            self.awaited_budget_count += usize::from(awaits_budget);
            self.proposed.push_back((command, awaits_budget));
            self.wait();
        }
    }

    /// Adds all proposed commands to the cluster.
    fn wait(&mut self) {
        let waiting = self.proposed.iter().map(|(command, awaits_budget)| ProposedCommand {
            method: command.method,
            claims: command.candidates.iter().map(|one| one.claim.clone()).collect(),
            awaits_budget: *awaits_budget,
        });
        self.cluster.proposed_commands = waiting.collect();
    }

    /// Validates the first proposed command: it starts, continues to await a budget, or is dropped.
    fn validate_first(&mut self) {
        let Some((command, awaits_budget)) = self.proposed.pop_front() else { return };
        self.wait();
        match revalidate(&command, &self.cluster, self.settings) {
            Ok(fresh) => {
                let started: BTreeSet<&str> = fresh.candidates.iter().map(|one| &*one.claim).collect();
                let mut rest = command.clone();
                rest.candidates.retain(|one| !started.contains(&*one.claim));
                // Candidates of Emptiness beyond the budget remain a proposed command that awaits a budget.
                if awaits_budget && command.method == Method::Emptiness && !rest.candidates.is_empty() {
                    self.proposed.push_back((rest, true));
                    self.wait();
                }
                self.started_after_budget_wait_count += usize::from(awaits_budget);
                self.start(&fresh);
            }
            Err(Rejection::Budget { .. }) if awaits_budget => {
                self.proposed.push_back((command, true));
                self.wait();
            }
            Err(_) => {}
        }
    }

    pub(crate) fn happen(&mut self, event: Event) {
        match event {
            Event::Evaluate => {
                let evaluation = evaluate(&self.cluster, self.settings);
                for command in evaluation.commands {
                    if command.method.is_validated() {
                        self.await_validation(command, false);
                    } else {
                        self.start(&command);
                    }
                }
                for command in evaluation.awaiting_budget {
                    self.await_validation(command, true);
                }
            }
            Event::Validate => self.validate_first(),
            Event::Done => {
                let Some(claims) = self.running.pop_front() else { return };
                self.cluster.state_nodes.retain(|state_node| !claims.contains(&state_node.claim));
            }
            Event::Allow { pool, reason, count } => {
                let name: &str = ["general", "mixed"][usize::from(pool) % 2];
                let reason = Reason::ALL[usize::from(reason) % Reason::ALL.len()];
                if let Some(pool) = self.cluster.pools.get_mut(name) {
                    pool.allowed.insert(reason, count);
                }
            }
            Event::Ready { state_node, is_ready } => {
                let count = self.cluster.state_nodes.len().max(1);
                if let Some(state_node) = self.cluster.state_nodes.get_mut(usize::from(state_node) % count) {
                    state_node.is_ready = is_ready;
                }
            }
        }
    }

    fn start(&mut self, command: &Command) {
        self.check_node_budgets(command);
        self.started_count += 1;
        if command.decision == Decision::Reboot {
            for candidate in &command.candidates {
                self.cluster.state_nodes[candidate.state_node].is_rebooting = true;
            }
            return;
        }
        if self.settings.mode == Mode::Cost && command.method.reason() == Reason::Underutilized {
            self.check_pod_budgets(command);
        }
        let first = self.cluster.problem.nodes.len();
        for planned in &command.replacements {
            let cluster = karpenter_disruption::apply::with_launched_node(&self.cluster, planned);
            self.cluster = cluster;
        }
        let state_node_of: BTreeMap<usize, usize> = (self.cluster.state_nodes.iter().enumerate())
            .filter_map(|(index, state_node)| Some((state_node.at?, index)))
            .collect();
        for (from, to) in &command.moves {
            let to = match to {
                Destination::Existing(node) => *node,
                Destination::New(number) => first + number,
            };
            let (node, pod) = (from.node as usize, from.pod as usize);
            let moved = self.cluster.problem.nodes[node].pods[pod].clone();
            self.cluster.problem.nodes[to].pods.push(moved);
            let node_pod = self.cluster.state_nodes[state_node_of[&node]].pods[pod].clone();
            if let Some(target) = state_node_of.get(&to) {
                self.cluster.state_nodes[*target].pods.push(node_pod);
            }
        }
        let mut claims = BTreeSet::new();
        for candidate in &command.candidates {
            let state_node = &mut self.cluster.state_nodes[candidate.state_node];
            claims.insert(state_node.claim.clone());
            state_node.is_marked_for_deletion = true;
            let Some(at) = state_node.at.take() else { continue };
            let node = &mut self.cluster.problem.nodes[at];
            node.pods.clear();
            node.taints.push(Taint {
                key: "karpenter.sh/disrupted".into(),
                value: "".into(),
                effect: Effect::NoSchedule,
            });
        }
        self.running.push_back(claims);
    }

    /// Counts independently of the implementation: initialized nodes that are marked for deletion, or not ready unless the reason
    /// is Unhealthy, together with the new candidates.
    fn check_node_budgets(&self, command: &Command) {
        let reason = command.method.reason();
        let mut going: BTreeMap<&str, u32> = BTreeMap::new();
        let mut wanted: BTreeMap<&str, u32> = BTreeMap::new();
        let chosen: BTreeSet<usize> = command.candidates.iter().map(|one| one.state_node).collect();
        for (index, state_node) in self.cluster.state_nodes.iter().enumerate() {
            let Some(pool) = state_node.pool.as_deref() else { continue };
            if !state_node.is_initialized && !state_node.is_rebooting {
                continue;
            }
            if chosen.contains(&index) {
                *wanted.entry(pool).or_default() += 1;
            } else if state_node.is_marked_for_deletion
                || state_node.is_rebooting
                || (!state_node.is_ready && reason != Reason::Unhealthy)
            {
                *going.entry(pool).or_default() += 1;
            }
        }
        for (pool, count) in wanted {
            let allowed = self.cluster.pools[pool].allowed.get(&reason).copied().unwrap_or(0);
            let before = going.get(pool).copied().unwrap_or(0);
            assert!(
                before + count <= allowed,
                "{pool}: {before} going, {count} more, {allowed} for {reason:?}"
            );
        }
    }

    fn check_pod_budgets(&self, command: &Command) {
        let chosen: BTreeSet<usize> = command.candidates.iter().map(|one| one.state_node).collect();
        let mut evictions = vec![0; self.cluster.pod_budgets.len()];
        for (index, state_node) in self.cluster.state_nodes.iter().enumerate() {
            if chosen.contains(&index) || state_node.is_marked_for_deletion || state_node.is_rebooting {
                for node_pod in state_node.pods.iter().filter(|one| one.is_active && one.is_evictable) {
                    node_pod.budgets.iter().for_each(|budget| evictions[*budget as usize] += 1);
                }
            }
        }
        let own = |index: usize| {
            chosen.iter().any(|state_node| {
                let mut budgets =
                    self.cluster.state_nodes[*state_node].pods.iter().flat_map(|one| &one.budgets);
                budgets.any(|budget| *budget as usize == index)
            })
        };
        for (index, (budget, count)) in self.cluster.pod_budgets.iter().zip(evictions).enumerate() {
            let allowed = budget.disruptions_allowed;
            assert!(
                !own(index) || count <= allowed,
                "{count} evictions of {}, {allowed} allowed",
                budget.name
            );
        }
    }
}
