//! Faults of the planner while the cluster is evaluated: a pass is tried again in compat mode, then without the commands or
//! the candidates concerned, which are left alone for a while. Commands that have begun need no planner and go on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use karpenter_cluster::clock::since;
use karpenter_disruption::cluster::{Cluster, Reason};
use karpenter_disruption::settings::{Mode, Settings as Rules};
use karpenter_disruption::validate::Rejection;
use karpenter_model::problem::Mode as EngineMode;
use karpenter_scheduling::validated::{Cause, Fault, isolate};

use super::command_queue::ActiveCommand;
use super::evaluate::{EvaluationInput, EvaluationResult, PassOutcome};
use crate::compute::catch;

/// How long candidates that a pass ended early with are left alone.
const SUSPECT_HOLD_OFF: Duration = Duration::from_secs(600);
/// How long compat mode plans after a pass in cost mode ended early.
const COST_MODE_PAUSE: Duration = Duration::from_secs(3600);
/// Passes to find the candidates or commands without which none ends early; each looks at the whole cluster.
const ATTEMPTS_MAX: usize = 16;

/// Called with what is about to be evaluated, so that tests can plant faults.
pub type Inspect = Arc<dyn Fn(&Cluster, &Rules) + Send + Sync>;

/// What a pass came to.
pub(super) struct CatchPanics {
    /// `None` if no part of the cluster could be evaluated.
    pub(super) result: Option<EvaluationResult>,
    pub(super) faults: Vec<Fault>,
    /// Claims that are left alone because of them.
    pub(super) suspects: Vec<Arc<str>>,
}

/// Evaluates, and gives up no more than it has to.
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
    // What ends the further attempts early has been reported.
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

/// Commands that could not be validated are not begun.
fn reject_left_out(mut result: EvaluationResult, left_out: Vec<ActiveCommand>) -> EvaluationResult {
    let rejected = left_out.into_iter().map(|active| (active, Some(Err(Rejection::PlannerFault))));
    match &mut result.outcome {
        PassOutcome::Validated(verdicts) => verdicts.extend(rejected),
        // Without any command that is due, new ones were sought; they wait until those are settled.
        first => *first = PassOutcome::Validated(rejected.collect()),
    }
    result
}

/// Every reason to disrupt a claim.
pub(super) fn all_reasons() -> BTreeSet<Reason> {
    Reason::ALL.into_iter().chain([Reason::Expired]).collect()
}

/// What is remembered of faults from pass to pass.
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

    /// Claims that are left alone for now.
    pub(super) fn current(&mut self, now: Timestamp) -> Vec<Arc<str>> {
        self.claims.retain(|_, at| since(now, *at) < SUSPECT_HOLD_OFF);
        self.claims.keys().cloned().collect()
    }

    /// The mode to plan in.
    pub(super) fn mode(&self, asked: Mode, now: Timestamp) -> Mode {
        let rests = self.cost_ended_at.is_some_and(|at| since(now, at) < COST_MODE_PAUSE);
        if rests { Mode::Compat } else { asked }
    }
}
