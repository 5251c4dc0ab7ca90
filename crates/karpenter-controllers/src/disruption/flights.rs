//! The commands of this process, from proposals to those that are nearly done.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use karpenter_cluster::clock::since;
use karpenter_disruption::command::{Command, Method};
use karpenter_disruption::fleet::{Reason, Waiting};

use super::QUIET_MAX;
use super::flight::{ClaimId, STANDBY_MOST, Seen, Stage, after};
use super::order::Order;

/// A command and where it stands.
#[derive(Debug, Clone)]
pub(super) struct Flight {
    /// Tells commands of this process apart.
    pub(super) number: u64,
    /// Tells commands apart for people, and those of different processes.
    pub(super) id: String,
    pub(super) order: Arc<Order>,
    pub(super) stage: Stage,
    /// What was proposed, until it is looked at again.
    pub(super) proposed: Option<Arc<Command>>,
}

impl Flight {
    /// Until when it waits for budgets, if it does.
    pub(super) fn standby_until(&self) -> Option<Timestamp> {
        match self.stage {
            Stage::Proposed { standby_until, .. } => standby_until,
            _ => None,
        }
    }
}

/// How long a node is left alone after a command for it failed whose replacement is still coming up: at first as long
/// as a machine has for registering, twice as long after every further failure.
const REST_FIRST: Duration = Duration::from_secs(15 * 60);
const REST_MOST: Duration = Duration::from_secs(4 * 60 * 60);

/// What is remembered of a node for which commands failed. To try again at once would launch once more.
#[derive(Debug, Clone)]
struct Failed {
    pool: String,
    /// What the last command launched.
    replacements: Vec<ClaimId>,
    in_a_row: u32,
    until: Timestamp,
}

#[derive(Debug, Default)]
pub(super) struct Flights {
    list: Vec<Flight>,
    /// By claim and reason: what failed for one reason says nothing about another.
    failed: BTreeMap<(ClaimId, Reason), Failed>,
    last_number: u64,
    /// When a proposal waited for budgets in vain.
    pub(super) gave_up_at: Option<Timestamp>,
    /// The claim up to which nodes were told why nothing becomes of them.
    pub(super) told_up_to: Arc<str>,
    /// When that was last done.
    pub(super) explained_at: Option<Timestamp>,
    /// What a process before this one left behind was taken up.
    pub(super) is_resumed: bool,
}

impl Flights {
    pub(super) fn add(
        &mut self,
        order: Arc<Order>,
        stage: Stage,
        proposed: Option<Arc<Command>>,
        now: Timestamp,
    ) -> Flight {
        self.last_number += 1;
        let id = format!("{}-{}", now.as_second(), self.last_number);
        self.add_with_id(id, order, stage, proposed)
    }

    pub(super) fn add_with_id(
        &mut self,
        id: String,
        order: Arc<Order>,
        stage: Stage,
        proposed: Option<Arc<Command>>,
    ) -> Flight {
        self.last_number += 1;
        let flight = Flight { number: self.last_number, id, order, stage, proposed };
        self.list.push(flight.clone());
        flight
    }

    pub(super) fn update(&mut self, number: u64, order: Arc<Order>, stage: Stage) {
        if let Some(flight) = self.list.iter_mut().find(|flight| flight.number == number) {
            flight.order = order;
            flight.stage = stage;
            flight.proposed = None;
        }
    }

    pub(super) fn remove(&mut self, number: u64) {
        self.list.retain(|flight| flight.number != number);
    }

    /// Those that have begun.
    pub(super) fn started(&self) -> Vec<Flight> {
        self.list.iter().filter(|flight| flight.proposed.is_none()).cloned().collect()
    }

    pub(super) fn proposals(&self) -> impl Iterator<Item = (&Flight, &Arc<Command>)> {
        self.list.iter().filter_map(|flight| flight.proposed.as_ref().map(|proposed| (flight, proposed)))
    }

    /// The first proposals whose rest is over, so many at most.
    pub(super) fn due(&self, now: Timestamp, most: usize) -> Vec<Flight> {
        let is_due = |flight: &&Flight| matches!(flight.stage, Stage::Proposed { until, .. } if until <= now);
        self.list.iter().filter(is_due).take(most).cloned().collect()
    }

    /// Whether it is worth planning for budgets that are to open: not soon after that was in vain.
    pub(super) fn may_plan_ahead(&self, now: Timestamp) -> bool {
        self.gave_up_at.is_none_or(|at| since(now, at) >= QUIET_MAX)
    }

    /// There is no budget yet: those of the method that wait for one are not looked at before then.
    pub(super) fn postpone(&mut self, method: Method, now: Timestamp, to: Timestamp) {
        for flight in self.list.iter_mut().filter(|flight| flight.order.method == method) {
            if let Stage::Proposed { until, standby_until: Some(_) } = &mut flight.stage
                && *until <= now
            {
                *until = to;
            }
        }
    }

    /// A node is gone: whatever waits for budgets and has rested long enough is looked at now. Whether there is any.
    pub(super) fn hasten(&mut self, now: Timestamp) -> bool {
        let mut is_awaited = false;
        for flight in &mut self.list {
            if let Stage::Proposed { until, standby_until: Some(deadline) } = &mut flight.stage
                && deadline.checked_sub(STANDBY_MOST).is_ok_and(|due| due <= now)
            {
                *until = (*until).min(now);
                is_awaited = true;
            }
        }
        is_awaited
    }

    /// Leaves the rest of a proposal waiting, without these claims. What is taken out is a command of its own.
    pub(super) fn split(&mut self, flight: &Flight, taken: &BTreeSet<&str>) -> Option<Flight> {
        let rest = self.list.iter_mut().find(|one| one.number == flight.number)?;
        let proposed = rest.proposed.as_ref()?;
        let mut command = Command::clone(proposed);
        command.candidates.retain(|candidate| !taken.contains(&*candidate.claim));
        if command.candidates.is_empty() {
            return None;
        }
        let mut order = Order::clone(&rest.order);
        order.targets.retain(|target| !taken.contains(target.id.name.as_str()));
        rest.order = Arc::new(order);
        rest.proposed = Some(Arc::new(command));
        self.last_number += 1;
        let id = format!("{}-{}", flight.id, self.last_number);
        Some(self.add_with_id(id, flight.order.clone(), Stage::Starting, None))
    }

    /// When the next proposal is to be looked at again.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        let times = self.list.iter().filter_map(|flight| match flight.stage {
            Stage::Proposed { until, .. } => Some(until),
            _ => None,
        });
        times.min()
    }

    /// Nodes of commands that have begun.
    pub(super) fn queued(&self) -> usize {
        let started = self.list.iter().filter(|flight| flight.proposed.is_none());
        started.map(|flight| flight.order.targets.len()).sum()
    }

    /// Remembers a command that failed.
    pub(super) fn fail(&mut self, flight: &Flight, now: Timestamp) {
        let Stage::Waiting { replacements, .. } = &flight.stage else { return };
        for target in &flight.order.targets {
            let key = (target.id.clone(), flight.order.method.reason());
            let before = self.failed.get(&key).map_or(0, |failed| failed.in_a_row);
            let rest = REST_FIRST.saturating_mul(1 << before.min(16)).min(REST_MOST);
            let failed = Failed {
                pool: target.pool.clone(),
                replacements: replacements.clone(),
                in_a_row: before.saturating_add(1),
                until: after(now, rest),
            };
            self.failed.insert(key, failed);
        }
    }

    /// Claims that are left alone for now, and for which reasons: commands for them failed, and what was launched is still
    /// coming up. Not for ever, because a machine may never come up.
    ///
    /// If nodes of a pool's template do not come up, neither would those for its other nodes that drifted, and every try
    /// leaves a machine behind: these wait as well. `claims_of` knows the claims of a pool.
    pub(super) fn resting(
        &mut self,
        now: Timestamp,
        see: impl Fn(&ClaimId) -> Seen,
        claims_of: impl Fn(&str) -> Vec<String>,
    ) -> BTreeMap<Arc<str>, BTreeSet<Reason>> {
        self.failed.retain(|(id, _), _| matches!(see(id), Seen::Coming | Seen::Ready));
        let is_resting = |failed: &Failed| {
            now < failed.until && failed.replacements.iter().any(|id| see(id) == Seen::Coming)
        };
        let mut resting: BTreeMap<Arc<str>, BTreeSet<Reason>> = BTreeMap::new();
        for ((id, reason), failed) in self.failed.iter().filter(|(_, failed)| is_resting(failed)) {
            resting.entry(id.name.as_str().into()).or_default().insert(*reason);
            if *reason == Reason::Drifted {
                for claim in claims_of(&failed.pool) {
                    resting.entry(claim.into()).or_default().insert(*reason);
                }
            }
        }
        resting
    }

    /// Proposals as the rules see them, with their numbers.
    pub(super) fn waiting(&self) -> Vec<(u64, Waiting)> {
        let proposed = self.proposals().map(|(flight, command)| {
            let waiting = Waiting {
                method: command.method,
                is_standby: flight.standby_until().is_some(),
                claims: command.candidates.iter().map(|candidate| candidate.claim.clone()).collect(),
            };
            (flight.number, waiting)
        });
        proposed.collect()
    }

    /// Names of the claims that commands take away, proposals included.
    pub(super) fn targets(&self) -> BTreeSet<String> {
        let targets = self.list.iter().flat_map(|flight| &flight.order.targets);
        targets.map(|target| target.id.name.clone()).collect()
    }

    /// Names of the claims that commands have begun to take away.
    pub(super) fn started_targets(&self) -> BTreeSet<String> {
        let started = self.list.iter().filter(|flight| flight.proposed.is_none());
        started.flat_map(|flight| &flight.order.targets).map(|target| target.id.name.clone()).collect()
    }

    /// Names of the claims that commands wait for.
    pub(super) fn replacements(&self) -> BTreeSet<String> {
        let waiting = self.list.iter().filter_map(|flight| match &flight.stage {
            Stage::Waiting { replacements, .. } => Some(replacements),
            _ => None,
        });
        waiting.flatten().map(|id| id.name.clone()).collect()
    }
}
