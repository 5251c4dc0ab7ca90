//! Commands in whatever order they happen to be thought of, looked at again, begun and done: budgets hold at every moment.
//!
//! A command that has begun is modelled as the controllers see it: its machines are leaving and no place for anybody, its
//! pods are where they were planned. Drains and launches take until it is done.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use karpenter_disruption::command::{Command, Decision, Destination, Method};
use karpenter_disruption::fleet::{Fleet, Reason, Waiting};
use karpenter_disruption::propose::propose;
use karpenter_disruption::settings::{Mode, Settings};
use karpenter_disruption::validate::{Rejection, revalidate};
use karpenter_model::taints::{Effect, Taint};

/// One thing that happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    Look,
    SecondLook,
    Done,
    /// The budget of a pool for a reason becomes another.
    Allow {
        pool: u8,
        reason: u8,
        count: u32,
    },
    /// A node stops working, or works again.
    Ready {
        machine: u8,
        is_ready: bool,
    },
}

pub(crate) struct Run<'s> {
    pub(crate) fleet: Fleet,
    settings: &'s Settings,
    /// With whether they wait for budgets.
    proposed: VecDeque<(Command, bool)>,
    /// Claims of each command that has begun.
    begun: VecDeque<BTreeSet<Arc<str>>>,
    pub(crate) begun_count: usize,
    /// Proposals that waited for budgets, and those of them that had their way.
    pub(crate) stood_by_count: usize,
    pub(crate) begun_after_standby_count: usize,
}

impl<'s> Run<'s> {
    pub(crate) fn new(fleet: Fleet, settings: &'s Settings) -> Self {
        Self {
            fleet,
            settings,
            proposed: VecDeque::new(),
            begun: VecDeque::new(),
            begun_count: 0,
            stood_by_count: 0,
            begun_after_standby_count: 0,
        }
    }

    /// The same where commands are wanted that have to wait for budgets, as the controllers do in mode Cost.
    pub(crate) fn planning_ahead(fleet: Fleet, settings: &'s Settings) -> Self {
        let plans_ahead = settings.mode == Mode::Cost;
        Self::new(Fleet { plans_ahead, ..fleet }, settings)
    }

    fn propose(&mut self, command: Command, is_standby: bool) {
        let mut taken = self.proposed.iter().flat_map(|(one, _)| &one.candidates);
        // Nobody waits in two proposals.
        if !taken.any(|one| command.candidates.iter().any(|other| other.claim == one.claim)) {
            self.stood_by_count += usize::from(is_standby);
            self.proposed.push_back((command, is_standby));
            self.wait();
        }
    }

    /// All proposals wait.
    fn wait(&mut self) {
        let waiting = self.proposed.iter().map(|(command, is_standby)| Waiting {
            method: command.method,
            claims: command.candidates.iter().map(|one| one.claim.clone()).collect(),
            is_standby: *is_standby,
        });
        self.fleet.waiting = waiting.collect();
    }

    /// The first proposal is looked at again: it begins, waits on for budgets if it stands by, or is dropped.
    fn look_again(&mut self) {
        let Some((command, is_standby)) = self.proposed.pop_front() else { return };
        self.wait();
        match revalidate(&command, &self.fleet, self.settings) {
            Ok(fresh) => {
                let started: BTreeSet<&str> = fresh.candidates.iter().map(|one| &*one.claim).collect();
                let mut rest = command.clone();
                rest.candidates.retain(|one| !started.contains(&*one.claim));
                // Of empty nodes that stand by, the others wait on.
                if is_standby && command.method == Method::Emptiness && !rest.candidates.is_empty() {
                    self.proposed.push_back((rest, true));
                    self.wait();
                }
                self.begun_after_standby_count += usize::from(is_standby);
                self.begin(&fresh);
            }
            Err(Rejection::Budget { .. }) if is_standby => {
                self.proposed.push_back((command, true));
                self.wait();
            }
            Err(_) => {}
        }
    }

    pub(crate) fn happen(&mut self, event: Event) {
        match event {
            Event::Look => {
                let proposal = propose(&self.fleet, self.settings);
                for command in proposal.commands {
                    if command.method.is_validated() {
                        self.propose(command, false);
                    } else {
                        self.begin(&command);
                    }
                }
                for command in proposal.standby {
                    self.propose(command, true);
                }
            }
            Event::SecondLook => self.look_again(),
            Event::Done => {
                let Some(claims) = self.begun.pop_front() else { return };
                self.fleet.machines.retain(|machine| !claims.contains(&machine.claim));
            }
            Event::Allow { pool, reason, count } => {
                let name: &str = ["general", "mixed"][usize::from(pool) % 2];
                let reason = Reason::ALL[usize::from(reason) % Reason::ALL.len()];
                if let Some(pool) = self.fleet.pools.get_mut(name) {
                    pool.allowed.insert(reason, count);
                }
            }
            Event::Ready { machine, is_ready } => {
                let count = self.fleet.machines.len().max(1);
                if let Some(machine) = self.fleet.machines.get_mut(usize::from(machine) % count) {
                    machine.is_ready = is_ready;
                }
            }
        }
    }

    fn begin(&mut self, command: &Command) {
        self.check_node_budgets(command);
        self.begun_count += 1;
        if command.decision == Decision::Reboot {
            for candidate in &command.candidates {
                self.fleet.machines[candidate.machine].is_rebooting = true;
            }
            return;
        }
        if self.settings.mode == Mode::Cost && command.method.reason() == Reason::Underutilized {
            self.check_pod_budgets(command);
        }
        let first = self.fleet.problem.nodes.len();
        for planned in &command.replacements {
            let fleet = karpenter_disruption::carried_out::with_launched(&self.fleet, planned);
            self.fleet = fleet;
        }
        let machine_at: BTreeMap<usize, usize> = (self.fleet.machines.iter().enumerate())
            .filter_map(|(index, machine)| Some((machine.at?, index)))
            .collect();
        for (from, to) in &command.moves {
            let to = match to {
                Destination::Existing(node) => *node,
                Destination::New(number) => first + number,
            };
            let (node, pod) = (from.node as usize, from.pod as usize);
            let moved = self.fleet.problem.nodes[node].pods[pod].clone();
            self.fleet.problem.nodes[to].pods.push(moved);
            let occupant = self.fleet.machines[machine_at[&node]].occupants[pod].clone();
            if let Some(target) = machine_at.get(&to) {
                self.fleet.machines[*target].occupants.push(occupant);
            }
        }
        let mut claims = BTreeSet::new();
        for candidate in &command.candidates {
            let machine = &mut self.fleet.machines[candidate.machine];
            claims.insert(machine.claim.clone());
            machine.is_leaving = true;
            let Some(at) = machine.at.take() else { continue };
            let node = &mut self.fleet.problem.nodes[at];
            node.pods.clear();
            node.taints.push(Taint {
                key: "karpenter.sh/disrupted".into(),
                value: "".into(),
                effect: Effect::NoSchedule,
            });
        }
        self.begun.push_back(claims);
    }

    /// Counted here once more, by the words of the rule: nodes that are initialised and going, or not working unless the
    /// reason is that they do not, together with those that are to go now.
    fn check_node_budgets(&self, command: &Command) {
        let reason = command.method.reason();
        let mut going: BTreeMap<&str, u32> = BTreeMap::new();
        let mut wanted: BTreeMap<&str, u32> = BTreeMap::new();
        let chosen: BTreeSet<usize> = command.candidates.iter().map(|one| one.machine).collect();
        for (index, machine) in self.fleet.machines.iter().enumerate() {
            let Some(pool) = machine.pool.as_deref() else { continue };
            if !machine.is_initialized && !machine.is_rebooting {
                continue;
            }
            if chosen.contains(&index) {
                *wanted.entry(pool).or_default() += 1;
            } else if machine.is_leaving
                || machine.is_rebooting
                || (!machine.is_ready && reason != Reason::Unhealthy)
            {
                *going.entry(pool).or_default() += 1;
            }
        }
        for (pool, count) in wanted {
            let allowed = self.fleet.pools[pool].allowed.get(&reason).copied().unwrap_or(0);
            let before = going.get(pool).copied().unwrap_or(0);
            assert!(
                before + count <= allowed,
                "{pool}: {before} going, {count} more, {allowed} for {reason:?}"
            );
        }
    }

    fn check_pod_budgets(&self, command: &Command) {
        let chosen: BTreeSet<usize> = command.candidates.iter().map(|one| one.machine).collect();
        let mut evictions = vec![0; self.fleet.pod_budgets.len()];
        for (index, machine) in self.fleet.machines.iter().enumerate() {
            if chosen.contains(&index) || machine.is_leaving || machine.is_rebooting {
                for occupant in machine.occupants.iter().filter(|one| one.is_active && one.is_evictable) {
                    occupant.budgets.iter().for_each(|budget| evictions[*budget as usize] += 1);
                }
            }
        }
        let own = |index: usize| {
            chosen.iter().any(|machine| {
                let mut budgets = self.fleet.machines[*machine].occupants.iter().flat_map(|one| &one.budgets);
                budgets.any(|budget| *budget as usize == index)
            })
        };
        for (index, (budget, count)) in self.fleet.pod_budgets.iter().zip(evictions).enumerate() {
            let allowed = budget.disruptions_allowed;
            assert!(
                !own(index) || count <= allowed,
                "{count} evictions of {}, {allowed} allowed",
                budget.name
            );
        }
    }
}
