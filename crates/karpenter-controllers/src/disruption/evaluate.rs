//! The evaluation loop: validates the commands that are due; if none is due, evaluates the cluster for new commands.
//! Each pass decides on one snapshot of the cluster, on a thread outside of the async runtime. The commands of a pass
//! start concurrently.
//!
//! Upstream: pkg/controllers/disruption/controller.go.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::stream::{self, StreamExt};
use jiff::Timestamp;
use karpenter_disruption::cluster::ProposedCommand;
use karpenter_disruption::command::{Command, Method};
use karpenter_disruption::evaluate::{Evaluation, VerdictRequest, evaluate_timed, explain_nodes};
use karpenter_disruption::settings::{Mode, Settings as Rules};
use karpenter_disruption::validate::Rejection;
use karpenter_model::problem::Mode as EngineMode;
use karpenter_runtime::clock::{after, since, until};
use karpenter_scheduling::validated::{Cause, Fault};
use karpenter_state::{AssembledCluster, assemble_disruption};

use super::command_queue::ActiveCommand;
use super::command_state::{BUDGET_POLL, BUDGET_WAIT_MAX, CommandState};
use super::faults::{Inspect, all_reasons, evaluate_contained};
use super::observe;
use super::resolved_command::ResolvedCommand;
use super::trigger::next_evaluation_at;
use super::validate::{ValidationResult, validate_commands, without_numbers};
use super::{Disruption, IDLE_POLL, RETRY_POLL};
use crate::compute::{self, Lane};
use crate::decision_journal::DecisionRecord;
use crate::nominations::expects_pods;
use crate::planner_faults;
use crate::planner_input;
use crate::planner_input::disruption::DisruptionFacts;

/// If there is nothing to disrupt, an evaluation explains for single nodes why they are not disrupted: for at most this
/// many nodes, and only once per `EXPLAIN_INTERVAL`, because each explanation needs a simulation and busy clusters are
/// evaluated often.
const EXPLAINED_MAX: usize = 10;
const EXPLAIN_INTERVAL: Duration = Duration::from_secs(60);

/// The maximum number of commands that a pass validates: the snapshot must still be recent when the last of them
/// starts.
const VALIDATIONS_PER_PASS_MAX: usize = 16;
/// The maximum number of commands that start concurrently.
const CONCURRENT_STARTS_MAX: usize = 8;

/// The part of the input of an evaluation that depends on time and on earlier passes.
#[derive(Debug, Clone, Copy)]
struct EvaluationHints {
    /// Whether to look for commands that exceed the budgets and then wait for a free budget.
    plan_beyond_budgets: bool,
    /// When pods are expected to stop leaving nodes and nominated pods to be bound; `None` without pod churn.
    churn_ends_at: Option<Timestamp>,
}

/// Rounds a time up to whole seconds.
fn whole_second_from(moment: Timestamp) -> i64 {
    moment.as_second() + i64::from(moment.subsec_nanosecond() > 0)
}

/// What a pass did: it validated commands, or evaluated the cluster.
pub(super) enum PassOutcome {
    Validated(Vec<ValidationResult>),
    Evaluated(Evaluation),
}

/// The result of a pass.
pub(super) struct EvaluationResult {
    pub(super) assembled: AssembledCluster,
    pub(super) outcome: PassOutcome,
    /// The duration of each method that was evaluated.
    took: Vec<(Method, Duration)>,
    explained_through: Option<Arc<str>>,
}

/// The input of a pass.
pub(super) struct EvaluationInput {
    facts: DisruptionFacts,
    pub(super) due: Vec<ActiveCommand>,
    proposed_commands: Vec<(u64, ProposedCommand)>,
    hints: EvaluationHints,
    request: Option<VerdictRequest>,
    inspect: Option<Inspect>,
}

impl EvaluationInput {
    /// The names of all NodeClaims in the snapshot.
    pub(super) fn claims(&self) -> Vec<Arc<str>> {
        let names = self.facts.live.node_claims.iter().filter_map(|claim| claim.metadata.name.as_deref());
        names.map(Arc::from).collect()
    }

    /// The part of a pass without effects: validates the commands `due`. If there are none, evaluates the cluster
    /// without the claims `excluded`.
    pub(super) fn evaluate(
        &self,
        due: &[ActiveCommand],
        excluded: &[Arc<str>],
        rules: &Rules,
    ) -> EvaluationResult {
        let (facts, hints) = (&self.facts, self.hints);
        let mut took = Vec::new();
        let mut assembled = assemble_disruption(&facts.live, &facts.input);
        assembled.cluster.proposed_commands = facts.proposed_commands.clone();
        assembled.cluster.disrupting_claims = facts.disrupting_claims.clone();
        assembled.cluster.held_off = facts.held_off.clone();
        for claim in excluded {
            assembled.cluster.held_off.entry(claim.clone()).or_default().extend(all_reasons());
        }
        assembled.cluster.plan_beyond_budgets = hints.plan_beyond_budgets;
        assembled.cluster.churn_ends_at_secs = hints.churn_ends_at.map(whole_second_from);
        if let Some(inspect) = &self.inspect {
            inspect(&assembled.cluster, rules);
        }
        let outcome = if due.is_empty() {
            let mut began = Instant::now();
            let mut on_method_done =
                |method: Method| took.push((method, std::mem::replace(&mut began, Instant::now()).elapsed()));
            PassOutcome::Evaluated(evaluate_timed(&assembled.cluster, rules, &mut on_method_done))
        } else {
            PassOutcome::Validated(validate_commands(
                &assembled.cluster,
                self.proposed_commands.clone(),
                due.to_vec(),
                rules,
            ))
        };
        let mut explained_through = None;
        let outcome = match (outcome, &self.request) {
            // Verdicts are explained only if the evaluation found no commands, because explanations take long.
            (PassOutcome::Evaluated(mut evaluation), Some(request)) if evaluation.has_no_commands() => {
                explained_through = Some(explain_nodes(&mut evaluation, &assembled.cluster, rules, request));
                PassOutcome::Evaluated(evaluation)
            }
            (other, _) => other,
        };
        EvaluationResult { assembled, outcome, took, explained_through }
    }
}

impl Disruption {
    pub(super) async fn evaluate(&self) -> Duration {
        let now = self.reads.clock.now();
        if let Some(gap) = self.watchdog.exceeded_gap(now)
            && self.writes.log_throttle.is_due("evaluation", "", now)
        {
            tracing::warn!(seconds = gap.as_secs(), "abnormal time between runs of disruption");
        }
        if !self.command_queue().is_resumed {
            return RETRY_POLL;
        }
        // In compat mode, one command is validated at a time, as in upstream.
        let due_max = if self.rules.mode == Mode::Cost { VALIDATIONS_PER_PASS_MAX } else { 1 };
        let due = self.command_queue().due(now, due_max);
        let is_unchanged = self.trigger.unchanged_until().is_some_and(|until| now < until);
        if due.is_empty() && is_unchanged && !self.verdicts.has_new_request() {
            self.watchdog.evaluated(now);
            return self.until_next_pass(now);
        }
        self.retain_move_history();
        let generation = self.trigger.generation();
        let (proposed_commands, disrupting_claims, held_off, own) = {
            let mut command_queue = self.command_queue();
            let held_off = command_queue.held_off(
                now,
                |id| observe::observe_claim(&self.reads, id),
                |pool| observe::claims_of(&self.reads, pool),
            );
            let disrupting_claims =
                command_queue.started_candidates().iter().map(|name| name.as_str().into()).collect();
            (command_queue.proposed_commands(), disrupting_claims, held_off, command_queue.replacements())
        };
        // Only cost mode looks for commands that exceed the budgets. In compat mode, the next evaluation follows after
        // the previous command has ended, as in upstream.
        let plan_beyond_budgets =
            self.rules.mode == Mode::Cost && self.command_queue().may_plan_beyond_budgets(now);
        let hints = EvaluationHints { plan_beyond_budgets, churn_ends_at: self.churn_ends_at(now) };
        let Some(facts) =
            planner_input::disruption::observe(&self.reader, without_numbers(&proposed_commands), &own).await
        else {
            return RETRY_POLL;
        };
        self.watchdog.evaluated(now);
        let mut facts = DisruptionFacts { disrupting_claims, held_off, ..facts };
        let mut rules = self.rules.clone();
        rules.mode = self.suspects().mode(rules.mode, now);
        for claim in self.suspects().current(now) {
            facts.held_off.entry(claim).or_default().extend(all_reasons());
        }
        let (request, inspect) = (self.verdict_request(now), self.inspect.clone());
        let input = EvaluationInput { facts, due, proposed_commands, hints, request, inspect };
        let work = move || {
            let contained = evaluate_contained(&input, &rules);
            (input, contained)
        };
        let started = self.reads.clock.now();
        let evaluated = compute::run(Lane::Disruption, work).await;
        let seconds = since(self.reads.clock.now(), started).as_secs_f64();
        self.writes.metrics.scheduling_duration.with_label_values(&["disruption"]).observe(seconds);
        let (input, contained) = match evaluated {
            Ok(answer) => answer,
            Err(fault) => {
                self.report(&[Fault { mode: EngineMode::Compat, cause: Cause::Panicked(fault) }], &[]);
                return IDLE_POLL;
            }
        };
        self.suspects().remember(&contained, now);
        self.report(&contained.faults, &contained.suspects);
        let EvaluationInput { facts, due, .. } = input;
        let Some(result) = contained.result else {
            // The commands are removed: they would be due again at once, although they cannot be validated.
            due.iter().for_each(|active| self.command_queue().remove(active.number));
            return IDLE_POLL;
        };
        if let Some(explained_through) = result.explained_through {
            let mut command_queue = self.command_queue();
            (command_queue.explained_through, command_queue.explained_at) = (explained_through, Some(now));
        }
        match result.outcome {
            PassOutcome::Evaluated(evaluation) => {
                self.report_evaluation(&result.assembled, &evaluation, &result.took).await;
                self.report_pod_annotations(&result.assembled, &facts.annotated).await;
                self.report_unreadable_costs(&result.assembled, &facts.pods_with_unreadable_cost);
                let start_result = self.act_on(&result.assembled, &evaluation).await;
                match start_result {
                    StartResult::Started => Duration::ZERO,
                    StartResult::Failed => IDLE_POLL,
                    StartResult::Nothing => {
                        let cluster = &result.assembled.cluster;
                        let again = next_evaluation_at(cluster, &evaluation, &facts.deadlines, now);
                        let again = hints.churn_ends_at.map_or(again, |settled| again.min(settled));
                        self.trigger.nothing_found(generation, again);
                        self.until_next_pass(self.reads.clock.now())
                    }
                }
            }
            PassOutcome::Validated(verdicts) => self.finish_validation(verdicts, &result.assembled).await,
        }
    }

    /// Counts, logs and journals faults of the planner.
    fn report(&self, found: &[Fault], excluded: &[Arc<str>]) {
        let claims: Vec<&str> = excluded.iter().map(|claim| &**claim).collect();
        planner_faults::report(
            &self.writes,
            self.reads.clock.now(),
            "disruption",
            found,
            "",
            &claims.join(", "),
        );
        let Some(first) = found.first() else { return };
        let now = self.reads.clock.now();
        if self.writes.log_throttle.is_due("journal of planner faults", first.cause.name(), now) {
            self.journal.record(DecisionRecord {
                at: now,
                by: "disruption",
                what: format!("{} nodes are not disrupted because of a planner fault", claims.len()),
                why: found.iter().map(|fault| fault.cause.to_string()).collect(),
                revision: self.reads.stores.revision(),
                cost_before_per_hour: None,
                cost_after_per_hour: None,
            });
        }
    }

    /// The nodes for which this pass simulates a command, to explain why they are not disrupted; `None` if it explains
    /// none. Compat mode needs no such request, because it evaluates every node by itself.
    fn verdict_request(&self, now: Timestamp) -> Option<VerdictRequest> {
        let wanted = self.verdicts.take_requests(now);
        let command_queue = self.command_queue();
        let is_due = command_queue.explained_at.is_none_or(|at| since(now, at) >= EXPLAIN_INTERVAL);
        let is_curious = self.rules.mode == Mode::Cost && (is_due || !wanted.is_empty());
        is_curious.then(|| VerdictRequest {
            wanted,
            after: command_queue.explained_through.clone(),
            most: EXPLAINED_MAX,
        })
    }

    /// The time until the next pass, unless a change triggers one earlier.
    fn until_next_pass(&self, now: Timestamp) -> Duration {
        let mut wait = IDLE_POLL;
        if let Some(quiet) = self.trigger.unchanged_until() {
            wait = wait.min(until(now, quiet));
        }
        if let Some(due) = self.command_queue().next_due() {
            wait = wait.min(until(now, due));
        }
        if let Some(settled) = self.churn_ends_at(now).filter(|_| self.rules.mode == Mode::Cost) {
            wait = wait.min(until(now, settled));
        }
        wait
    }

    /// When pods are expected to stop leaving nodes, and nominated pods to be bound; `None` if no pod is being moved.
    fn churn_ends_at(&self, now: Timestamp) -> Option<Timestamp> {
        let reads = &self.reads;
        let expects_pods =
            || self.reads.state.hosts_with_reservations().iter().any(|host| expects_pods(reads, host));
        self.pod_churn.ends_at(now, expects_pods)
    }

    /// Handles the results of validations: drops rejected commands and starts the others. Returns the time until the
    /// next pass.
    async fn finish_validation(
        &self,
        verdicts: Vec<ValidationResult>,
        assembled: &AssembledCluster,
    ) -> Duration {
        self.trigger.reset();
        let now = self.reads.clock.now();
        let (mut rejected, mut begin, mut unreadable) = (Vec::new(), Vec::new(), 0);
        for (active, verdict) in verdicts {
            match verdict {
                None => {}
                Some(Ok(command)) => match self.resolve(&command, assembled) {
                    Some(resolved) => {
                        self.count_left_out(&active, &resolved);
                        begin.push(self.begin_starting(active, resolved));
                    }
                    None => {
                        self.command_queue().remove(active.number);
                        unreadable += 1;
                    }
                },
                Some(Err(Rejection::Budget { .. })) if active.budget_deadline().is_some() => {
                    self.keep_awaiting_budget(&active, now);
                }
                Some(Err(rejection)) => {
                    self.command_queue().remove(active.number);
                    rejected.push((active, rejection));
                }
            }
        }
        let wanted = begin.len();
        let started = self.start_all(begin, assembled).await;
        let has_failed = started == 0 && wanted + unreadable > 0;
        let is_all = rejected.is_empty();
        for (active, rejection) in rejected {
            self.report_rejected(&active, &rejection).await;
        }
        if has_failed && is_all { IDLE_POLL } else { Duration::ZERO }
    }

    /// Handles a command for which no budget is free: it is validated again later, or dropped at its deadline.
    fn keep_awaiting_budget(&self, active: &ActiveCommand, now: Timestamp) {
        let mut command_queue = self.command_queue();
        if active.budget_deadline().is_some_and(|deadline| deadline <= now) {
            tracing::debug!(command = active.id, "dropped disruption command, no budget became free in time");
            command_queue.remove(active.number);
            command_queue.budget_timeout_at = Some(now);
        } else {
            command_queue.delay_validation(active.resolved.method, now, after(now, BUDGET_POLL));
        }
    }

    /// Moves a validated command to the state `Starting`.
    fn begin_starting(&self, active: ActiveCommand, resolved: ResolvedCommand) -> ActiveCommand {
        let resolved = Arc::new(resolved);
        // If the budget allows only some of the empty nodes, these are deleted, and the command with the others
        // continues to await the budget.
        let is_split = active.budget_deadline().is_some() && resolved.method == Method::Emptiness;
        let started: BTreeSet<&str> =
            resolved.candidates.iter().map(|candidate| candidate.id.name.as_str()).collect();
        let part = if is_split { self.command_queue().split(&active, &started) } else { None };
        let active = part.unwrap_or(active);
        self.command_queue().update(active.number, resolved.clone(), CommandState::Starting);
        ActiveCommand { resolved, state: CommandState::Starting, proposed: None, ..active }
    }

    /// Starts these commands concurrently; returns how many started.
    async fn start_all(&self, command_queue: Vec<ActiveCommand>, assembled: &AssembledCluster) -> usize {
        let starts = stream::iter(command_queue).map(|active| self.start(active, assembled));
        starts
            .buffer_unordered(CONCURRENT_STARTS_MAX)
            .filter(|has_started| std::future::ready(*has_started))
            .count()
            .await
    }

    pub(super) fn resolve(&self, command: &Command, assembled: &AssembledCluster) -> Option<ResolvedCommand> {
        ResolvedCommand::read(command, assembled, |name| observe::find_pool(&self.reads, name))
    }

    /// Adds the commands of an evaluation to the queue, and starts those that need no validation.
    async fn act_on(&self, assembled: &AssembledCluster, evaluation: &Evaluation) -> StartResult {
        let mut start_result = StartResult::Nothing;
        let mut begin = Vec::new();
        let mut taken: BTreeSet<String> = self.command_queue().candidates();
        let ready = evaluation.commands.iter().map(|command| (command, false));
        for (command, awaits_budget) in
            ready.chain(evaluation.awaiting_budget.iter().map(|command| (command, true)))
        {
            let Some(resolved) = self.resolve(command, assembled) else { continue };
            let names: Vec<String> =
                resolved.candidates.iter().map(|candidate| candidate.id.name.clone()).collect();
            if names.is_empty() || names.iter().any(|name| taken.contains(name)) {
                continue;
            }
            taken.extend(names);
            let resolved = Arc::new(resolved);
            let now = self.reads.clock.now();
            if command.method.is_validated() {
                let until = after(now, self.validation_delay);
                let budget_deadline = awaits_budget.then(|| after(until, BUDGET_WAIT_MAX));
                let state = CommandState::Proposed { until, budget_deadline };
                let proposed = Some(Arc::new(command.clone()));
                let active = self.command_queue().add(resolved, state, proposed, now);
                self.report_candidates(&active).await;
                self.report_scores(command, &active.resolved, assembled).await;
                start_result = start_result.max(StartResult::Started);
            } else {
                begin.push(self.command_queue().add(resolved, CommandState::Starting, None, now));
            }
        }
        if !begin.is_empty() {
            let started = self.start_all(begin, assembled).await;
            start_result =
                start_result.max(if started > 0 { StartResult::Started } else { StartResult::Failed });
        }
        if start_result != StartResult::Nothing {
            self.trigger.reset();
        }
        start_result
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum StartResult {
    Nothing,
    /// A command could not start. The evaluation is repeated after a delay.
    Failed,
    Started,
}
