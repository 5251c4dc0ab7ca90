//! Planner faults during evaluation. If the planner panics, the pass is repeated in compat mode, and then without the
//! commands or candidates that cause the panic; these candidates are not disrupted for a while. Started commands
//! continue, because they need no planner.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use karpenter_disruption::cluster::{Cluster, Reason};
use karpenter_disruption::settings::{Mode, Settings as Rules};
use karpenter_disruption::validate::Rejection;
use karpenter_model::problem::Mode as EngineMode;
use karpenter_runtime::clock::since;
use karpenter_scheduling::validated::{Cause, Fault, isolate};

use super::command_queue::ActiveCommand;
use super::evaluate::{EvaluationInput, EvaluationResult, PassOutcome};
use crate::compute::catch;

/// How long a claim is excluded from disruption after it made a pass panic.
const SUSPECT_HOLD_OFF: Duration = Duration::from_secs(600);
/// How long compat mode is used after a pass in cost mode panicked.
const COST_MODE_PAUSE: Duration = Duration::from_secs(3600);
/// The maximum number of evaluations to find the commands or claims that cause a panic. Each attempt evaluates the
/// whole cluster without some of them.
const ATTEMPTS_MAX: usize = 16;

/// A function that tests can set to inject faults. It is called before each evaluation.
pub type Inspect = Arc<dyn Fn(&Cluster, &Rules) + Send + Sync>;

/// The result of a pass in which panics of the planner were caught.
pub(super) struct CatchPanics {
    /// `None` if no part of the cluster could be evaluated.
    pub(super) result: Option<EvaluationResult>,
    pub(super) faults: Vec<Fault>,
    /// Claims that are excluded because of the faults.
    pub(super) suspects: Vec<Arc<str>>,
}

/// Evaluates the cluster and catches panics. After a panic, the evaluation is repeated with as few commands and claims
/// as possible left out.
pub(super) fn evaluate_contained(input: &EvaluationInput, rules: &Rules) -> CatchPanics {
    let mut faults = Vec::new();
    let whole = attempt(input, &input.due, &[], rules, &mut faults);
    let compat = Rules { mode: Mode::Compat, ..rules.clone() };
    let without_numbers = match whole {
        None if rules.mode == Mode::Cost => attempt(input, &input.due, &[], &compat, &mut faults),
        whole => whole,
    };
    if without_numbers.is_some() {
        return CatchPanics { result: without_numbers, faults, suspects: Vec::new() };
    }
    // Only the panics of the attempts above are reported; those of the following attempts have the same cause.
    let mut known = Vec::new();
    if !input.due.is_empty() {
        let found = isolate(&input.due, ATTEMPTS_MAX, |kept| attempt(input, kept, &[], &compat, &mut known));
        let result = found.best.map(|result| reject_left_out(result, found.left_out));
        return CatchPanics { result, faults, suspects: Vec::new() };
    }
    let claims: Vec<Arc<str>> = input.claims();
    let found = isolate(&claims, ATTEMPTS_MAX, |kept| {
        let kept: BTreeSet<&Arc<str>> = kept.iter().collect();
        let others: Vec<Arc<str>> = claims.iter().filter(|claim| !kept.contains(claim)).cloned().collect();
        attempt(input, &[], &others, &compat, &mut known)
    });
    CatchPanics { result: found.best, faults, suspects: found.left_out }
}

fn attempt(
    input: &EvaluationInput,
    due: &[ActiveCommand],
    excluded: &[Arc<str>],
    rules: &Rules,
    faults: &mut Vec<Fault>,
) -> Option<EvaluationResult> {
    let mode = match rules.mode {
        Mode::Cost => EngineMode::Cost,
        Mode::Compat => EngineMode::Compat,
    };
    catch(|| input.evaluate(due, excluded, rules))
        .map_err(|fault| faults.push(Fault { mode, cause: Cause::Panicked(fault) }))
        .ok()
}

/// Rejects the commands whose validation panicked.
fn reject_left_out(mut result: EvaluationResult, left_out: Vec<ActiveCommand>) -> EvaluationResult {
    let rejected = left_out.into_iter().map(|active| (active, Some(Err(Rejection::PlannerFault))));
    match &mut result.outcome {
        PassOutcome::Validated(verdicts) => verdicts.extend(rejected),
        // All due commands were left out as faulty, so the cluster was evaluated instead. That evaluation is dropped;
        // the next pass finds its commands again.
        first => *first = PassOutcome::Validated(rejected.collect()),
    }
    result
}

/// Every reason to disrupt a claim.
pub(super) fn all_reasons() -> BTreeSet<Reason> {
    Reason::ALL.into_iter().chain([Reason::Expired]).collect()
}

/// Claims that made the planner panic in recent passes, and when cost mode last panicked.
#[derive(Debug, Default)]
pub(super) struct Suspects {
    claims: BTreeMap<Arc<str>, Timestamp>,
    cost_ended_at: Option<Timestamp>,
}

impl Suspects {
    pub(super) fn remember(&mut self, contained: &CatchPanics, now: Timestamp) {
        if contained.faults.iter().any(|fault| fault.mode == EngineMode::Cost) {
            self.cost_ended_at = Some(now);
        }
        self.claims.extend(contained.suspects.iter().map(|claim| (claim.clone(), now)));
    }

    /// The claims that are excluded from disruption at this time.
    pub(super) fn current(&mut self, now: Timestamp) -> Vec<Arc<str>> {
        self.claims.retain(|_, at| since(now, *at) < SUSPECT_HOLD_OFF);
        self.claims.keys().cloned().collect()
    }

    /// The mode of the next pass.
    pub(super) fn mode(&self, asked: Mode, now: Timestamp) -> Mode {
        let rests = self.cost_ended_at.is_some_and(|at| since(now, at) < COST_MODE_PAUSE);
        if rests { Mode::Compat } else { asked }
    }
}
