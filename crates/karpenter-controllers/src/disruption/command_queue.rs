//! The commands of this process in all states, and the hold-offs of candidates whose commands failed.
//!
//! Upstream: pkg/controllers/disruption/queue.go.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use karpenter_disruption::cluster::{ProposedCommand, Reason};
use karpenter_disruption::command::{Command, Method};
use karpenter_runtime::clock::{after, since};

use super::REEVALUATE_AFTER_MAX;
use super::command_state::{BUDGET_WAIT_MAX, ClaimId, ClaimObservation, CommandState};
use super::resolved_command::ResolvedCommand;

/// A command and its state.
#[derive(Debug, Clone)]
pub(super) struct ActiveCommand {
    /// The number of the command; unique within this process.
    pub(super) number: u64,
    /// The ID of the command in logs, events and the decision journal; unique across processes.
    pub(super) id: String,
    pub(super) resolved: Arc<ResolvedCommand>,
    pub(super) state: CommandState,
    /// The command as the evaluation found it; `None` once the command is validated.
    pub(super) proposed: Option<Arc<Command>>,
}

impl ActiveCommand {
    /// Until when the command may await a budget; `None` if it does not await one.
    pub(super) fn budget_deadline(&self) -> Option<Timestamp> {
        match self.state {
            CommandState::Proposed { budget_deadline, .. } => budget_deadline,
            _ => None,
        }
    }
}

/// The first hold-off of a candidate whose command failed: the candidate is not disrupted again for this long while a
/// replacement of that command is not initialized. It is as long as a node may take to register, and it doubles with
/// each failure.
const HOLD_OFF_MIN: Duration = Duration::from_secs(15 * 60);
const HOLD_OFF_MAX: Duration = Duration::from_secs(4 * 60 * 60);

/// The period in which a candidate whose command failed is not disrupted again. Without it, every retry would launch
/// another replacement.
#[derive(Debug, Clone)]
struct CandidateHoldOff {
    pool: String,
    /// The replacements of the command that failed last.
    replacements: Vec<ClaimId>,
    consecutive_failures: u32,
    until: Timestamp,
}

#[derive(Debug, Default)]
pub(super) struct CommandQueue {
    list: Vec<ActiveCommand>,
    /// Hold-offs by NodeClaim and disruption reason. A candidate that is held off for one reason can be disrupted for
    /// another.
    hold_offs: BTreeMap<(ClaimId, Reason), CandidateHoldOff>,
    last_number: u64,
    /// When a command was last dropped because no budget became free before its deadline.
    pub(super) budget_timeout_at: Option<Timestamp>,
    /// The last claim for which an evaluation explained why its node alone is not disrupted. The next explanations
    /// continue with the claims after it.
    pub(super) explained_through: Arc<str>,
    /// When an evaluation last explained verdicts of single nodes.
    pub(super) explained_at: Option<Timestamp>,
    /// Whether the commands of an earlier process were resumed.
    pub(super) is_resumed: bool,
}

impl CommandQueue {
    pub(super) fn add(
        &mut self,
        resolved: Arc<ResolvedCommand>,
        state: CommandState,
        proposed: Option<Arc<Command>>,
        now: Timestamp,
    ) -> ActiveCommand {
        self.last_number += 1;
        let id = format!("{}-{}", now.as_second(), self.last_number);
        self.add_with_id(id, resolved, state, proposed)
    }

    pub(super) fn add_with_id(
        &mut self,
        id: String,
        resolved: Arc<ResolvedCommand>,
        state: CommandState,
        proposed: Option<Arc<Command>>,
    ) -> ActiveCommand {
        self.last_number += 1;
        let active = ActiveCommand { number: self.last_number, id, resolved, state, proposed };
        self.list.push(active.clone());
        active
    }

    pub(super) fn update(&mut self, number: u64, resolved: Arc<ResolvedCommand>, state: CommandState) {
        if let Some(active) = self.list.iter_mut().find(|active| active.number == number) {
            active.resolved = resolved;
            active.state = state;
            active.proposed = None;
        }
    }

    pub(super) fn remove(&mut self, number: u64) {
        self.list.retain(|active| active.number != number);
    }

    /// The commands that have started; these are not proposed any more.
    pub(super) fn started(&self) -> Vec<ActiveCommand> {
        self.list.iter().filter(|active| active.proposed.is_none()).cloned().collect()
    }

    pub(super) fn proposals(&self) -> impl Iterator<Item = (&ActiveCommand, &Arc<Command>)> {
        self.list.iter().filter_map(|active| active.proposed.as_ref().map(|proposed| (active, proposed)))
    }

    /// At most `most` commands that are due for validation, in the order in which they were found.
    pub(super) fn due(&self, now: Timestamp, most: usize) -> Vec<ActiveCommand> {
        let is_due = |active: &&ActiveCommand| matches!(active.state, CommandState::Proposed { until, .. } if until <= now);
        self.list.iter().filter(is_due).take(most).cloned().collect()
    }

    /// Whether to look for commands that exceed the budgets and then wait for a free budget. `false` for some minutes
    /// after such a command was dropped at its deadline.
    pub(super) fn may_plan_beyond_budgets(&self, now: Timestamp) -> bool {
        self.budget_timeout_at.is_none_or(|at| since(now, at) >= REEVALUATE_AFTER_MAX)
    }

    /// Delays the validation of all commands of this method that await a budget, because no budget is free.
    pub(super) fn delay_validation(&mut self, method: Method, now: Timestamp, to: Timestamp) {
        for active in self.list.iter_mut().filter(|active| active.resolved.method == method) {
            if let CommandState::Proposed { until, budget_deadline: Some(_) } = &mut active.state
                && *until <= now
            {
                *until = to;
            }
        }
    }

    /// Makes the commands that await a budget due for validation at once, because a node was deleted. Returns whether
    /// there are any.
    pub(super) fn budget_may_be_free(&mut self, now: Timestamp) -> bool {
        let mut is_awaited = false;
        for active in &mut self.list {
            if let CommandState::Proposed { until, budget_deadline: Some(deadline) } = &mut active.state
                && deadline.checked_sub(BUDGET_WAIT_MAX).is_ok_and(|due| due <= now)
            {
                *until = (*until).min(now);
                is_awaited = true;
            }
        }
        is_awaited
    }

    /// Splits a proposed command in two: a new command with the claims in `taken`, which starts, and the rest, which
    /// remains proposed.
    pub(super) fn split(&mut self, active: &ActiveCommand, taken: &BTreeSet<&str>) -> Option<ActiveCommand> {
        let remainder = self.list.iter_mut().find(|one| one.number == active.number)?;
        let proposed = remainder.proposed.as_ref()?;
        let mut command = Command::clone(proposed);
        command.candidates.retain(|candidate| !taken.contains(&*candidate.claim));
        if command.candidates.is_empty() {
            return None;
        }
        let mut resolved = ResolvedCommand::clone(&remainder.resolved);
        resolved.candidates.retain(|candidate| !taken.contains(candidate.id.name.as_str()));
        remainder.resolved = Arc::new(resolved);
        remainder.proposed = Some(Arc::new(command));
        self.last_number += 1;
        let id = format!("{}-{}", active.id, self.last_number);
        Some(self.add_with_id(id, active.resolved.clone(), CommandState::Starting, None))
    }

    /// When the next command is due for validation.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        let times = self.list.iter().filter_map(|active| match active.state {
            CommandState::Proposed { until, .. } => Some(until),
            _ => None,
        });
        times.min()
    }

    /// The number of candidates of started commands.
    pub(super) fn queued(&self) -> usize {
        let started = self.list.iter().filter(|active| active.proposed.is_none());
        started.map(|active| active.resolved.candidates.len()).sum()
    }

    /// Starts the hold-off of the candidates of a command whose replacements did not become ready.
    pub(super) fn fail(&mut self, active: &ActiveCommand, now: Timestamp) {
        let CommandState::AwaitingReplacements { replacements, .. } = &active.state else { return };
        for candidate in &active.resolved.candidates {
            let key = (candidate.id.clone(), active.resolved.method.reason());
            let before = self.hold_offs.get(&key).map_or(0, |hold_off| hold_off.consecutive_failures);
            let delay = HOLD_OFF_MIN.saturating_mul(1 << before.min(16)).min(HOLD_OFF_MAX);
            let hold_off = CandidateHoldOff {
                pool: candidate.pool.clone(),
                replacements: replacements.clone(),
                consecutive_failures: before.saturating_add(1),
                until: after(now, delay),
            };
            self.hold_offs.insert(key, hold_off);
        }
    }

    /// Claims in a hold-off, with the disruption reasons: a command for this reason failed, and one of its replacements
    /// is still not initialized. The hold-off has an end, because a replacement may never initialize.
    ///
    /// If replacements of drifted nodes of a NodePool do not initialize, replacements of its other drifted nodes would
    /// not either, because they have the same template. So all claims of that NodePool are held off for drift.
    /// `claims_of` returns the claims of a NodePool.
    pub(super) fn held_off(
        &mut self,
        now: Timestamp,
        observe_claim: impl Fn(&ClaimId) -> ClaimObservation,
        claims_of: impl Fn(&str) -> Vec<String>,
    ) -> BTreeMap<Arc<str>, BTreeSet<Reason>> {
        self.hold_offs.retain(|(id, _), _| {
            matches!(observe_claim(id), ClaimObservation::NotReady | ClaimObservation::Ready)
        });
        let is_held_off = |hold_off: &CandidateHoldOff| {
            now < hold_off.until
                && hold_off.replacements.iter().any(|id| observe_claim(id) == ClaimObservation::NotReady)
        };
        let mut held_off: BTreeMap<Arc<str>, BTreeSet<Reason>> = BTreeMap::new();
        for ((id, reason), hold_off) in self.hold_offs.iter().filter(|(_, hold_off)| is_held_off(hold_off)) {
            held_off.entry(id.name.as_str().into()).or_default().insert(*reason);
            if *reason == Reason::Drifted {
                for claim in claims_of(&hold_off.pool) {
                    held_off.entry(claim.into()).or_default().insert(*reason);
                }
            }
        }
        held_off
    }

    /// The proposed commands in the form that the planner needs, each with its number.
    pub(super) fn proposed_commands(&self) -> Vec<(u64, ProposedCommand)> {
        let proposed = self.proposals().map(|(active, command)| {
            let proposed_commands = ProposedCommand {
                method: command.method,
                awaits_budget: active.budget_deadline().is_some(),
                claims: command.candidates.iter().map(|candidate| candidate.claim.clone()).collect(),
            };
            (active.number, proposed_commands)
        });
        proposed.collect()
    }

    /// Names of the candidates of all commands.
    pub(super) fn candidates(&self) -> BTreeSet<String> {
        let candidates = self.list.iter().flat_map(|active| &active.resolved.candidates);
        candidates.map(|candidate| candidate.id.name.clone()).collect()
    }

    /// Names of the candidates of started commands.
    pub(super) fn started_candidates(&self) -> BTreeSet<String> {
        let started = self.list.iter().filter(|active| active.proposed.is_none());
        started
            .flat_map(|active| &active.resolved.candidates)
            .map(|candidate| candidate.id.name.clone())
            .collect()
    }

    /// The names of the replacements that started commands wait for.
    pub(super) fn replacements(&self) -> BTreeSet<String> {
        let proposed_commands = self.list.iter().filter_map(|active| match &active.state {
            CommandState::AwaitingReplacements { replacements, .. } => Some(replacements),
            _ => None,
        });
        proposed_commands.flatten().map(|id| id.name.clone()).collect()
    }
}
