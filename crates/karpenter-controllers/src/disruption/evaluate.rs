//! The loop that looks at the whole cluster: proposals whose rest is over get their second look, else new commands are
//! sought. Deciding happens in the rules, off the event loop and from one snapshot per pass; what a pass decides on begins
//! at the same time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::stream::{self, StreamExt};
use jiff::Timestamp;
use karpenter_cluster::clock::{since, until};
use karpenter_disruption::command::{Command, Method};
use karpenter_disruption::fleet::Waiting;
use karpenter_disruption::propose::{Curiosity, Proposal, explain_some, propose_aloud};
use karpenter_disruption::settings::{Mode, Settings as Rules};
use karpenter_disruption::validate::Rejection;
use karpenter_model::problem::Mode as EngineMode;
use karpenter_scheduling::validated::{Cause, Fault};
use karpenter_state::{AssembledFleet, assemble_fleet};

use super::changes::next_look;
use super::faults::{Inspect, all_reasons, evaluate_contained};
use super::flight::{STANDBY_MOST, STANDBY_POLL, Stage, after};
use super::flights::Flight;
use super::observe::{self, Sight};
use super::order::Order;
use super::second_look::{Verdict, look_again, plain};
use super::{Disruption, IDLE_POLL, RETRY_POLL};
use crate::compute::{self, Lane};
use crate::decision_journal::DecisionRecord;
use crate::nomination;
use crate::provisioning::{faults, revision as provisioning_revision};

/// Nodes that a pass with nothing to do asks about one by one. Few and not too often, because each is a question of its
/// own, and a busy cluster is looked at all the time.
const EXPLAINED_MAX: usize = 10;
const EXPLAINED_EVERY: Duration = Duration::from_secs(60);

/// Proposals that one pass looks at again: what is seen should not be old when the last of them begins.
const SECOND_LOOKS_MAX: usize = 16;
/// Commands that begin at the same time.
const STARTS_AT_ONCE: usize = 8;

/// What is known of the moments to come.
#[derive(Debug, Clone, Copy)]
struct Ahead {
    /// Whether commands are wanted that have to wait for budgets.
    is_planned: bool,
    /// When pods that are leaving will have left.
    settles_at: Option<Timestamp>,
}

/// The first whole second that is not before the moment.
fn whole_second_from(moment: Timestamp) -> i64 {
    moment.as_second() + i64::from(moment.subsec_nanosecond() > 0)
}

/// What a pass leads to.
pub(super) enum Outcome {
    Second(Vec<Verdict>),
    First(Proposal),
}

/// What was found.
pub(super) struct Evaluation {
    pub(super) round: AssembledFleet,
    pub(super) outcome: Outcome,
    /// How long each method took that was asked.
    took: Vec<(Method, Duration)>,
    told_up_to: Option<Arc<str>>,
}

/// What a pass looks at.
pub(super) struct Look {
    sight: Sight,
    pub(super) due: Vec<Flight>,
    waiting: Vec<(u64, Waiting)>,
    ahead: Ahead,
    curiosity: Option<Curiosity>,
    inspect: Option<Inspect>,
}

impl Look {
    /// Names of all claims.
    pub(super) fn claims(&self) -> Vec<Arc<str>> {
        let names = self.sight.live.node_claims.iter().filter_map(|claim| claim.metadata.name.as_deref());
        names.map(Arc::from).collect()
    }

    /// The pure part: from objects to a decision about these commands, or new ones that leave some claims alone.
    pub(super) fn evaluate(&self, due: &[Flight], left_alone: &[Arc<str>], rules: &Rules) -> Evaluation {
        let (sight, ahead) = (&self.sight, self.ahead);
        let mut took = Vec::new();
        let mut round = assemble_fleet(&sight.live, &sight.input);
        round.fleet.waiting = sight.waiting.clone();
        round.fleet.in_commands = sight.in_commands.clone();
        round.fleet.resting = sight.resting.clone();
        for claim in left_alone {
            round.fleet.resting.entry(claim.clone()).or_default().extend(all_reasons());
        }
        round.fleet.plans_ahead = ahead.is_planned;
        round.fleet.settles_at_secs = ahead.settles_at.map(whole_second_from);
        if let Some(inspect) = &self.inspect {
            inspect(&round.fleet, rules);
        }
        let outcome = if due.is_empty() {
            let mut began = Instant::now();
            let mut is_through =
                |method: Method| took.push((method, std::mem::replace(&mut began, Instant::now()).elapsed()));
            Outcome::First(propose_aloud(&round.fleet, rules, &mut is_through))
        } else {
            Outcome::Second(look_again(&round.fleet, self.waiting.clone(), due.to_vec(), rules))
        };
        let mut told_up_to = None;
        let outcome = match (outcome, &self.curiosity) {
            // When there is nothing to do there is time to say why.
            (Outcome::First(mut proposal), Some(curiosity)) if proposal.is_quiet() => {
                told_up_to = Some(explain_some(&mut proposal, &round.fleet, rules, curiosity));
                Outcome::First(proposal)
            }
            (other, _) => other,
        };
        Evaluation { round, outcome, took, told_up_to }
    }
}

impl Disruption {
    pub(super) async fn evaluate(&self) -> Duration {
        let context = &self.context;
        let now = context.clock.now();
        if let Some(gap) = self.gaps.unusual(now)
            && context.log_throttle.is_due("looking at the whole cluster", "", now)
        {
            tracing::warn!(seconds = gap.as_secs(), "abnormal time between two looks at the whole cluster");
        }
        if !self.flights().is_resumed {
            return RETRY_POLL;
        }
        // Upstream looks at one command at a time.
        let due_max = if self.rules.mode == Mode::Cost { SECOND_LOOKS_MAX } else { 1 };
        let due = self.flights().due(now, due_max);
        let is_quiet = self.changes.quiet_until().is_some_and(|quiet| now < quiet);
        if due.is_empty() && is_quiet && !context.standings.is_asked() {
            self.gaps.looked(now);
            return self.rest(now);
        }
        self.remember_cool_downs();
        let number = self.changes.number();
        let (waiting, in_commands, resting, own) = {
            let mut flights = self.flights();
            let resting = flights.resting(
                now,
                |id| observe::see(context, id),
                |pool| observe::claims_of(context, pool),
            );
            let in_commands = flights.started_targets().iter().map(|name| name.as_str().into()).collect();
            (flights.waiting(), in_commands, resting, flights.replacements())
        };
        // Upstream thinks of the next command when the last is done.
        let is_planned = self.rules.mode == Mode::Cost && self.flights().may_plan_ahead(now);
        let ahead = Ahead { is_planned, settles_at: self.settles_at(now) };
        let Some(sight) = observe::observe(context, plain(&waiting), &own).await else { return RETRY_POLL };
        self.gaps.looked(now);
        let sight = Sight { in_commands, resting, ..sight };
        let mut rules = self.rules.clone();
        rules.mode = self.suspects().mode(rules.mode, now);
        let mut sight = sight;
        for claim in self.suspects().current(now) {
            sight.resting.entry(claim).or_default().extend(all_reasons());
        }
        let (curiosity, inspect) = (self.curiosity(now), self.inspect.clone());
        let look = Look { sight, due, waiting, ahead, curiosity, inspect };
        let work = move || {
            let contained = evaluate_contained(&look, &rules);
            (look, contained)
        };
        let started = context.clock.now();
        let evaluated = compute::run(Lane::Disruption, work).await;
        let seconds = since(context.clock.now(), started).as_secs_f64();
        context.metrics.scheduling_duration.with_label_values(&["disruption"]).observe(seconds);
        let (look, contained) = match evaluated {
            Ok(answer) => answer,
            Err(fault) => {
                self.report(&[Fault { mode: EngineMode::Compat, cause: Cause::Panicked(fault) }], &[]);
                return IDLE_POLL;
            }
        };
        self.suspects().remember(&contained, now);
        self.report(&contained.faults, &contained.suspects);
        let Look { sight, due, .. } = look;
        let Some(looked) = contained.evaluation else {
            // They would be due again at once.
            due.iter().for_each(|flight| self.flights().remove(flight.number));
            return IDLE_POLL;
        };
        if let Some(told_up_to) = looked.told_up_to {
            let mut flights = self.flights();
            (flights.told_up_to, flights.explained_at) = (told_up_to, Some(now));
        }
        match looked.outcome {
            Outcome::First(proposal) => {
                self.tell_pass(&looked.round, &proposal, &looked.took).await;
                self.tell_annotations(&looked.round, &sight.annotated).await;
                self.tell_costs(&looked.round, &sight.misvalued);
                let has_news = self.act_on(&looked.round, &proposal).await;
                match has_news {
                    News::Started => Duration::ZERO,
                    News::Failed => IDLE_POLL,
                    News::Nothing => {
                        let fleet = &looked.round.fleet;
                        let again = next_look(fleet, &proposal, &sight.moments, now);
                        let again = ahead.settles_at.map_or(again, |settled| again.min(settled));
                        self.changes.nothing_found(number, again);
                        self.rest(context.clock.now())
                    }
                }
            }
            Outcome::Second(verdicts) => self.second_looks(verdicts, &looked.round).await,
        }
    }

    /// Counts and logs faults of the planner.
    fn report(&self, found: &[Fault], left_alone: &[Arc<str>]) {
        let claims: Vec<&str> = left_alone.iter().map(|claim| &**claim).collect();
        faults::report(&self.context, "disruption", found, "", &claims.join(", "));
        let Some(first) = found.first() else { return };
        let now = self.context.clock.now();
        if self.context.log_throttle.is_due("journal of planner faults", first.cause.name(), now) {
            self.context.journal.record(DecisionRecord {
                at: now,
                by: "disruption",
                what: format!("{} nodes left alone because of a fault of the planner", claims.len()),
                why: found.iter().map(|fault| fault.cause.to_string()).collect(),
                revision: provisioning_revision(&self.context.stores),
                cost_before_per_hour: None,
                cost_after_per_hour: None,
            });
        }
    }

    /// Whom to ask about in this pass, if anybody. Mode Compat has words for every node.
    fn curiosity(&self, now: Timestamp) -> Option<Curiosity> {
        let wanted = self.context.standings.wanted(now);
        let flights = self.flights();
        let is_due = flights.explained_at.is_none_or(|at| since(now, at) >= EXPLAINED_EVERY);
        let is_curious = self.rules.mode == Mode::Cost && (is_due || !wanted.is_empty());
        is_curious.then(|| Curiosity { wanted, after: flights.told_up_to.clone(), most: EXPLAINED_MAX })
    }

    /// Until the next moment at which there may be something to do.
    fn rest(&self, now: Timestamp) -> Duration {
        let mut wait = IDLE_POLL;
        if let Some(quiet) = self.changes.quiet_until() {
            wait = wait.min(until(now, quiet));
        }
        if let Some(due) = self.flights().next_due() {
            wait = wait.min(until(now, due));
        }
        if let Some(settled) = self.settles_at(now).filter(|_| self.rules.mode == Mode::Cost) {
            wait = wait.min(until(now, settled));
        }
        wait
    }

    /// When pods that are leaving their nodes, or are on their way to others, will be where they stay.
    fn settles_at(&self, now: Timestamp) -> Option<Timestamp> {
        let context = &self.context;
        let expects_pods = || {
            context.state.hosts_with_reservations().iter().any(|host| nomination::expects_pods(context, host))
        };
        self.flux.until(now, expects_pods)
    }

    /// Drops what a second look refused, and begins the rest.
    async fn second_looks(&self, verdicts: Vec<Verdict>, round: &AssembledFleet) -> Duration {
        self.changes.disturb();
        let now = self.context.clock.now();
        let (mut refused, mut begin, mut unreadable) = (Vec::new(), Vec::new(), 0);
        for (flight, verdict) in verdicts {
            match verdict {
                None => {}
                Some(Ok(command)) => match self.order(&command, round) {
                    Some(order) => {
                        self.count_left_out(&flight, &order);
                        begin.push(self.take_out(flight, order));
                    }
                    None => {
                        self.flights().remove(flight.number);
                        unreadable += 1;
                    }
                },
                Some(Err(Rejection::Budget { .. })) if flight.standby_until().is_some() => {
                    self.wait_on(&flight, now);
                }
                Some(Err(rejection)) => {
                    self.flights().remove(flight.number);
                    refused.push((flight, rejection));
                }
            }
        }
        let wanted = begin.len();
        let started = self.start_all(begin, round).await;
        let has_failed = started == 0 && wanted + unreadable > 0;
        let is_all = refused.is_empty();
        for (flight, rejection) in refused {
            self.tell_rejected(&flight, &rejection).await;
        }
        if has_failed && is_all { IDLE_POLL } else { Duration::ZERO }
    }

    /// There is no budget for what stands by: it waits for one as long as it may.
    fn wait_on(&self, flight: &Flight, now: Timestamp) {
        let mut flights = self.flights();
        if flight.standby_until().is_some_and(|deadline| deadline <= now) {
            tracing::debug!(command = flight.id, "no budget opened for the command in time");
            flights.remove(flight.number);
            flights.gave_up_at = Some(now);
        } else {
            flights.postpone(flight.order.method, now, after(now, STANDBY_POLL));
        }
    }

    /// A proposal that is about to begin, with the order that a second look made of it.
    fn take_out(&self, flight: Flight, order: Order) -> Flight {
        let order = Arc::new(order);
        // Of empty nodes, those that a budget has opened for go, and the others wait on.
        let is_split = flight.standby_until().is_some() && order.method == Method::Emptiness;
        let started: BTreeSet<&str> = order.targets.iter().map(|target| target.id.name.as_str()).collect();
        let part = if is_split { self.flights().split(&flight, &started) } else { None };
        let flight = part.unwrap_or(flight);
        self.flights().update(flight.number, order.clone(), Stage::Starting);
        Flight { order, stage: Stage::Starting, proposed: None, ..flight }
    }

    /// Begins all of these at once; says how many have.
    async fn start_all(&self, flights: Vec<Flight>, round: &AssembledFleet) -> usize {
        let starts = stream::iter(flights).map(|flight| self.start(flight, round));
        starts
            .buffer_unordered(STARTS_AT_ONCE)
            .filter(|has_started| std::future::ready(*has_started))
            .count()
            .await
    }

    pub(super) fn order(&self, command: &Command, round: &AssembledFleet) -> Option<Order> {
        Order::read(command, round, |name| observe::find_pool(&self.context, name))
    }

    /// Takes up what was proposed: what need not rest begins at once.
    async fn act_on(&self, round: &AssembledFleet, proposal: &Proposal) -> News {
        let mut news = News::Nothing;
        let mut begin = Vec::new();
        let mut taken: BTreeSet<String> = self.flights().targets();
        let ready = proposal.commands.iter().map(|command| (command, false));
        for (command, is_standby) in ready.chain(proposal.standby.iter().map(|command| (command, true))) {
            let Some(order) = self.order(command, round) else { continue };
            let names: Vec<String> = order.targets.iter().map(|target| target.id.name.clone()).collect();
            if names.is_empty() || names.iter().any(|name| taken.contains(name)) {
                continue;
            }
            taken.extend(names);
            let order = Arc::new(order);
            let now = self.context.clock.now();
            if command.method.is_validated() {
                let until = after(now, self.validation_delay);
                let standby_until = is_standby.then(|| after(until, STANDBY_MOST));
                let stage = Stage::Proposed { until, standby_until };
                let proposed = Some(Arc::new(command.clone()));
                let flight = self.flights().add(order, stage, proposed, now);
                self.tell_proposed(&flight).await;
                self.tell_scores(command, &flight.order, round).await;
                news = news.max(News::Started);
            } else {
                begin.push(self.flights().add(order, Stage::Starting, None, now));
            }
        }
        if !begin.is_empty() {
            let started = self.start_all(begin, round).await;
            news = news.max(if started > 0 { News::Started } else { News::Failed });
        }
        if news != News::Nothing {
            self.changes.disturb();
        }
        news
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum News {
    Nothing,
    /// Something could not be begun; it is tried again a little later.
    Failed,
    Started,
}
