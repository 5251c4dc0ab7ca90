//! One pass over a fleet: the methods in their order, the commands of the first that finds something, and for every
//! machine how it stands.
//!
//! Nothing is remembered between passes; what waits or runs already is part of the fleet.
//!
//! Upstream: pkg/controllers/disruption/controller.go.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::budgets::{Remaining, left, remaining};
use crate::candidate::{Blocked, Class};
use crate::command::{Candidate, Command, Method};
pub use crate::explain::{Standing, Why};
use crate::fleet::{Fleet, Reason};
use crate::pass::{Eligible, Found, Pass};
use crate::pod_budgets::{Jointly, PodBudgetUse};
use crate::settings::{Mode, Settings};
use crate::{consolidation, drift, emptiness, expiration, multi, repair, savings, single, static_drift};

#[derive(Debug, Clone, Default)]
pub struct Proposal {
    /// To be carried out, all of one method, within all budgets together.
    pub commands: Vec<Command>,
    /// What is next once nodes that are leaving are gone and budgets open again, best first. Empty unless the fleet
    /// [`plans_ahead`](Fleet::plans_ahead).
    pub standby: Vec<Command>,
    /// What would be done if pools were not on a dry run. Not to be carried out.
    pub rehearsals: Vec<Command>,
    /// One per machine, in the fleet's order.
    pub standings: Vec<Standing>,
    /// One per method that was asked, in order.
    pub outcomes: Vec<MethodOutcome>,
    /// Budgets as they stood before the pass, for gauges and for events on pools.
    pub budgets: BTreeMap<(Arc<str>, Reason), Remaining>,
}

impl Proposal {
    /// Whether nothing is to be done, now or soon.
    pub fn is_quiet(&self) -> bool {
        self.commands.is_empty() && self.standby.is_empty()
    }
}

/// What became of one method in a pass.
#[derive(Debug, Clone, PartialEq)]
pub struct MethodOutcome {
    pub method: Method,
    /// Nodes that it could have disrupted.
    pub candidates: usize,
    pub commands: usize,
    /// It would have found more if budgets allowed more: look again even if nothing changes.
    pub is_constrained_by_budgets: bool,
    /// What no fleet for the same pods can cost less than, where the method knows.
    pub lower_bound_per_hour: Option<f64>,
}

/// The methods of a mode, in order.
pub fn methods(mode: Mode) -> &'static [Method] {
    match mode {
        Mode::Compat => &[
            Method::Repair,
            Method::Expiration,
            Method::Emptiness,
            Method::StaticDrift,
            Method::Drift,
            Method::MultiNodeConsolidation,
            Method::SingleNodeConsolidation,
        ],
        Mode::Cost => &[
            Method::Repair,
            Method::Expiration,
            Method::Emptiness,
            Method::StaticDrift,
            Method::Drift,
            Method::Rebalance,
        ],
    }
}

/// What to do now, and why not more.
///
/// # Guarantees
/// All commands are of one method, name different nodes, and keep node budgets together, with what is leaving, rebooting
/// or waiting already. A method with a command in `Fleet::waiting` is not asked; in mode Compat none is while one waits.
pub fn propose(fleet: &Fleet, settings: &Settings) -> Proposal {
    propose_aloud(fleet, settings, &mut |_| {})
}

/// The same, telling of every method when it is through, for whoever keeps time.
pub fn propose_aloud(fleet: &Fleet, settings: &Settings, is_through: &mut dyn FnMut(Method)) -> Proposal {
    let fleet = &*closed_to_moves(fleet);
    let pass = Pass::new(fleet, settings);
    let mut proposal = Proposal { budgets: all_budgets(fleet), ..Proposal::default() };
    let mut ledger = Ledger::new(fleet);
    let has_old_rules = fleet.pools.values().any(|pool| pool.old_rules.is_some());
    // Where there are only pools of v1, nobody hears of a method that they do not have.
    for method in methods(settings.mode).iter().filter(|one| has_old_rules || **one != Method::Expiration) {
        let Eligible { candidates, refused } = eligible(&pass, *method);
        ledger.refuse(*method, refused);
        let count = candidates.len();
        // What has to be is done all the same.
        let is_rehearsed =
            |candidate: &Candidate| method.is_for_savings() && pass.pool(candidate).controls.is_dry_run;
        let (rehearsed, real): (Vec<_>, Vec<_>) = candidates.into_iter().partition(is_rehearsed);
        // Upstream waits for the second look inside of its loop, and does nothing else meanwhile.
        let is_waiting = match settings.mode {
            Mode::Compat => !fleet.waiting.is_empty(),
            Mode::Cost => fleet.waiting.iter().any(|one| one.method == *method),
        };
        let settles_at =
            fleet.settles_at_secs.filter(|at| *method == Method::Rebalance && *at > fleet.now_secs);
        let before = ledger.constrained;
        let mut bound = None;
        let mut run =
            |candidates: Vec<Candidate>, into: &mut Vec<Command>, standby: Option<&mut Vec<Command>>| {
                let is_taken = standby.as_ref().is_some_and(|standby| !standby.is_empty());
                let is_later = is_waiting || settles_at.is_some();
                if is_later || is_taken || !into.is_empty() || candidates.is_empty() {
                    let why = match settles_at {
                        Some(until) => Why::Settling { until_secs: Some(until) },
                        None => Why::NotNow,
                    };
                    let later = candidates.into_iter().map(|candidate| (candidate.machine, why.clone()));
                    ledger.refuse(*method, later.collect());
                    return;
                }
                let asked: Vec<usize> = candidates.iter().map(|candidate| candidate.machine).collect();
                let found = find(&pass, *method, candidates);
                ledger.refuse(*method, asked.into_iter().map(|machine| (machine, Why::Fine)).collect());
                ledger.refuse(*method, found.refused);
                for command in &found.commands {
                    ledger.choose(command, standby.is_some());
                }
                if let Some(standby) = standby {
                    standby.extend(found.standby);
                }
                bound = bound.or(found.lower_bound_per_hour);
                into.extend(found.commands);
            };
        run(real, &mut proposal.commands, Some(&mut proposal.standby));
        run(rehearsed, &mut proposal.rehearsals, None);
        proposal.outcomes.push(MethodOutcome {
            method: *method,
            candidates: count,
            commands: proposal.commands.iter().filter(|command| command.method == *method).count(),
            is_constrained_by_budgets: ledger.constrained > before,
            lower_bound_per_hour: bound,
        });
        is_through(*method);
    }
    proposal.standings = ledger.standings(fleet);
    proposal
}

/// Why one machine is not consolidated now, with everything that would have to be asked for that. `Err` is the answer;
/// `Ok` what could be done with it alone.
pub fn why_not(fleet: &Fleet, settings: &Settings, machine: usize) -> Result<Command, Why> {
    let fleet = &*closed_to_moves(fleet);
    let is_strict = settings.mode == Mode::Cost;
    // One node alone is upstream's question, whatever is asked for the whole fleet.
    let settings = &Settings { mode: Mode::Compat, ..settings.clone() };
    let pass = Pass::new(fleet, settings);
    let Eligible { candidates, refused } = consolidation::eligible(&pass);
    match candidates.iter().find(|candidate| candidate.machine == machine) {
        Some(candidate) => {
            let pool = &candidate.pool;
            if left(fleet, Reason::Underutilized).get(pool).is_none_or(|left| *left == 0) {
                return Err(Why::BudgetExhausted { pool: pool.clone(), reason: Reason::Underutilized });
            }
            let command = single::one(&pass, candidate)?;
            if is_strict {
                PodBudgetUse::new(fleet).admit(fleet, [candidate], Jointly::Strictly)?;
            }
            Ok(command)
        }
        None => {
            let why = refused.into_iter().find(|(index, _)| *index == machine).map(|(_, why)| why);
            Err(why.unwrap_or(Why::Fine))
        }
    }
}

/// Whom to ask about when nothing is to be done.
#[derive(Debug, Clone, Default)]
pub struct Curiosity {
    /// Names of claims and nodes that somebody wants to know about.
    pub wanted: BTreeSet<String>,
    /// The last claim that was asked about; those after it are next, round and round.
    pub after: Arc<str>,
    /// How many are asked about at most.
    pub most: usize,
}

/// Mode Cost plans for all nodes together and has no words for the single one. This asks for some of those that it found
/// nothing for what stands against each by itself, and writes it into the standings. The last claim that was asked about.
pub fn explain_some(
    proposal: &mut Proposal,
    fleet: &Fleet,
    settings: &Settings,
    curiosity: &Curiosity,
) -> Arc<str> {
    let is_unexplained = |one: &&Standing| one.why == Why::Fine && one.method == Some(Method::Rebalance);
    let fine: Vec<&Standing> = proposal.standings.iter().filter(is_unexplained).collect();
    let is_wanted = |one: &&&Standing| {
        let node = fleet.machines.get(one.machine).and_then(|machine| machine.node.as_deref());
        curiosity.wanted.contains(&*one.claim) || node.is_some_and(|node| curiosity.wanted.contains(node))
    };
    let wanted: Vec<usize> = fine.iter().filter(is_wanted).map(|one| one.machine).collect();
    let (before, next): (Vec<&Standing>, Vec<&Standing>) =
        fine.iter().copied().partition(|one| one.claim <= curiosity.after);
    let turn = next.into_iter().chain(before).filter(|one| !wanted.contains(&one.machine));
    let asked: Vec<usize> =
        wanted.iter().copied().chain(turn.map(|one| one.machine)).take(curiosity.most).collect();
    let last = asked.iter().rev().find(|machine| !wanted.contains(machine));
    let last = last.and_then(|machine| fleet.machines.get(*machine)).map(|machine| machine.claim.clone());
    let last = last.unwrap_or_else(|| curiosity.after.clone());
    if asked.is_empty() {
        return last;
    }
    let fleet = &*closed_to_moves(fleet);
    let settings = &Settings { mode: Mode::Compat, ..settings.clone() };
    let pass = Pass::new(fleet, settings);
    for machine in asked {
        let answer = pass.candidate(machine, Class::Graceful, Reason::Underutilized);
        let answer = answer.and_then(|one| single::one(&pass, &one));
        if let (Err(why), Some(standing)) = (answer, proposal.standings.get_mut(machine)) {
            standing.why = why;
        }
    }
    last
}

/// Nodes that may be gone in a moment are no place to move pods to.
pub(crate) fn closed_to_moves(fleet: &Fleet) -> Cow<'_, Fleet> {
    if fleet.waiting.is_empty() {
        return Cow::Borrowed(fleet);
    }
    let mut fleet = fleet.clone();
    for index in 0..fleet.machines.len() {
        let machine = &fleet.machines[index];
        let is_waiting = fleet.waits_in(&machine.claim).is_some();
        if let Some(node) = machine.at.filter(|_| is_waiting).and_then(|at| fleet.problem.nodes.get_mut(at)) {
            node.is_settling = true;
        }
    }
    Cow::Owned(fleet)
}

fn all_budgets(fleet: &Fleet) -> BTreeMap<(Arc<str>, Reason), Remaining> {
    let mut budgets = BTreeMap::new();
    for reason in Reason::ALL {
        for (pool, remaining) in remaining(fleet, reason) {
            budgets.insert((pool, reason), remaining);
        }
    }
    budgets
}

pub(crate) fn eligible(pass: &Pass<'_>, method: Method) -> Eligible {
    match method {
        Method::Repair => repair::eligible(pass),
        Method::Expiration => expiration::eligible(pass),
        Method::Emptiness => emptiness::eligible(pass),
        Method::StaticDrift => static_drift::eligible(pass),
        Method::Drift => drift::eligible(pass),
        Method::MultiNodeConsolidation | Method::SingleNodeConsolidation | Method::Rebalance => {
            consolidation::eligible(pass)
        }
    }
}

fn find(pass: &Pass<'_>, method: Method, candidates: Vec<Candidate>) -> Found {
    match method {
        Method::Repair => repair::find(pass, candidates),
        Method::Expiration => expiration::find(pass, candidates),
        Method::Emptiness => emptiness::find(pass, candidates),
        Method::StaticDrift => static_drift::find(pass, candidates),
        Method::Drift => drift::find(pass, candidates),
        Method::MultiNodeConsolidation => multi::find(pass, candidates),
        Method::SingleNodeConsolidation => single::find(pass, candidates),
        Method::Rebalance => savings::find(pass, candidates),
    }
}

/// What was said about each machine, the weightiest kept.
struct Ledger {
    by_machine: Vec<Option<(Method, Why)>>,
    constrained: usize,
}

impl Ledger {
    fn new(fleet: &Fleet) -> Self {
        Self { by_machine: vec![None; fleet.machines.len()], constrained: 0 }
    }

    /// What has to happen to a node weighs more than what might save money.
    fn rank(method: Method) -> u8 {
        match method {
            Method::Repair => 0,
            Method::Expiration | Method::StaticDrift | Method::Drift => 1,
            Method::Emptiness => 2,
            Method::MultiNodeConsolidation | Method::SingleNodeConsolidation | Method::Rebalance => 3,
        }
    }

    fn refuse(&mut self, method: Method, refused: Vec<(usize, Why)>) {
        for (machine, why) in refused {
            self.constrained += usize::from(matches!(why, Why::BudgetExhausted { .. }));
            self.put(machine, method, why);
        }
    }

    fn put(&mut self, machine: usize, method: Method, why: Why) {
        let Some(slot) = self.by_machine.get_mut(machine) else { return };
        let is_final = |why: &Why| matches!(why, Why::Chosen { .. } | Why::DryRun { .. });
        match slot {
            Some((by, said)) if is_final(said) || Self::rank(*by) < Self::rank(method) => {}
            _ => *slot = Some((method, why)),
        }
    }

    fn choose(&mut self, command: &Command, is_real: bool) {
        let method = command.method;
        let why = if is_real { Why::Chosen { method } } else { Why::DryRun { method } };
        for candidate in &command.candidates {
            if let Some(slot) = self.by_machine.get_mut(candidate.machine) {
                *slot = Some((method, why.clone()));
            }
        }
    }

    fn standings(self, fleet: &Fleet) -> Vec<Standing> {
        let with_machines = self.by_machine.into_iter().zip(&fleet.machines).enumerate();
        with_machines
            .map(|(index, (said, machine))| {
                let unsaid = || {
                    let is_waiting = fleet.waits_in(&machine.claim).is_some();
                    if is_waiting { Why::Blocked(Blocked::InCommand) } else { Why::Fine }
                };
                let (method, why) = match said {
                    Some((method, why)) => (Some(method), why),
                    None => (None, unsaid()),
                };
                Standing { machine: index, claim: machine.claim.clone(), method, why }
            })
            .collect()
    }
}
