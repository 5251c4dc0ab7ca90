//! Faults of the planner while the cluster is evaluated: a pass is tried again in compat mode, then without the commands or
//! the candidates concerned, which are left alone for a while. Commands that have begun need no planner and go on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use karpenter_cluster::clock::since;
use karpenter_disruption::fleet::{Fleet, Reason};
use karpenter_disruption::settings::{Mode, Settings as Rules};
use karpenter_disruption::validate::Rejection;
use karpenter_model::problem::Mode as EngineMode;
use karpenter_scheduling::validated::{Cause, Fault, isolate};

use super::evaluate::{Evaluation, Look, Outcome};
use super::flights::Flight;
use crate::compute::catch;

/// How long candidates that a pass ended early with are left alone.
const SUSPECT_FOR: Duration = Duration::from_secs(600);
/// How long compat mode plans after a pass in cost mode ended early.
const COST_RESTS_FOR: Duration = Duration::from_secs(3600);
/// Passes to find the candidates or commands without which none ends early; each looks at the whole cluster.
const ATTEMPTS_MAX: usize = 16;

/// Called with what is about to be evaluated, so that tests can plant faults.
pub type Inspect = Arc<dyn Fn(&Fleet, &Rules) + Send + Sync>;

/// What a pass came to.
pub(super) struct CatchPanics {
    /// `None` if no part of the cluster could be evaluated.
    pub(super) evaluation: Option<Evaluation>,
    pub(super) faults: Vec<Fault>,
    /// Claims that are left alone because of them.
    pub(super) suspects: Vec<Arc<str>>,
}

/// Evaluates, and gives up no more than it has to.
pub(super) fn evaluate_contained(look: &Look, rules: &Rules) -> CatchPanics {
    let mut faults = Vec::new();
    let whole = attempt(look, &look.due, &[], rules, &mut faults);
    let compat = Rules { mode: Mode::Compat, ..rules.clone() };
    let plain = match whole {
        None if rules.mode == Mode::Cost => attempt(look, &look.due, &[], &compat, &mut faults),
        whole => whole,
    };
    if plain.is_some() {
        return CatchPanics { evaluation: plain, faults, suspects: Vec::new() };
    }
    // What ends the further attempts early has been reported.
    let mut known = Vec::new();
    if !look.due.is_empty() {
        let found = isolate(&look.due, ATTEMPTS_MAX, |kept| attempt(look, kept, &[], &compat, &mut known));
        let evaluation = found.best.map(|evaluation| rejecting(evaluation, found.left_out));
        return CatchPanics { evaluation, faults, suspects: Vec::new() };
    }
    let claims: Vec<Arc<str>> = look.claims();
    let found = isolate(&claims, ATTEMPTS_MAX, |kept| {
        let kept: BTreeSet<&Arc<str>> = kept.iter().collect();
        let others: Vec<Arc<str>> = claims.iter().filter(|claim| !kept.contains(claim)).cloned().collect();
        attempt(look, &[], &others, &compat, &mut known)
    });
    CatchPanics { evaluation: found.best, faults, suspects: found.left_out }
}

fn attempt(
    look: &Look,
    due: &[Flight],
    left_alone: &[Arc<str>],
    rules: &Rules,
    faults: &mut Vec<Fault>,
) -> Option<Evaluation> {
    let mode = match rules.mode {
        Mode::Cost => EngineMode::Cost,
        Mode::Compat => EngineMode::Compat,
    };
    catch(|| look.evaluate(due, left_alone, rules))
        .map_err(|fault| faults.push(Fault { mode, cause: Cause::Panicked(fault) }))
        .ok()
}

/// Commands that could not be validated are not begun.
fn rejecting(mut evaluation: Evaluation, left_out: Vec<Flight>) -> Evaluation {
    let refused = left_out.into_iter().map(|flight| (flight, Some(Err(Rejection::PlannerFault))));
    match &mut evaluation.outcome {
        Outcome::Second(verdicts) => verdicts.extend(refused),
        // Without any command that is due, new ones were sought; they wait until those are settled.
        first => *first = Outcome::Second(refused.collect()),
    }
    evaluation
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
        self.claims.retain(|_, at| since(now, *at) < SUSPECT_FOR);
        self.claims.keys().cloned().collect()
    }

    /// The mode to plan in.
    pub(super) fn mode(&self, asked: Mode, now: Timestamp) -> Mode {
        let rests = self.cost_ended_at.is_some_and(|at| since(now, at) < COST_RESTS_FOR);
        if rests { Mode::Compat } else { asked }
    }
}
