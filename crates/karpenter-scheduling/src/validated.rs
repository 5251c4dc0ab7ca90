//! A plan that the validator accepts, whatever part of the engine is at fault.
//!
//! A fault is a rule that a plan breaks, or an attempt that ended early. The mode asked for is tried first, then compat
//! mode, then compat mode without the pods and nodes that the fault is about, and in the end those are taken out of the
//! plan. So a fault costs the pods or the node concerned, and every fault is reported.

mod isolate;
mod left_out;
mod prune;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

use karpenter_model::plan::{Plan, PodRun};
use karpenter_model::problem::{Mode, Problem};

use crate::validate::{Violation, ViolationScope, validate};
pub use isolate::{Isolated, isolate};
pub use left_out::LeftOut;
use left_out::Part;

/// Attempts with pods and nodes left out, before they are taken out of the last plan instead.
const REPLANS_MAX: usize = 2;
/// Attempts to find the pods without which no attempt ends early. Enough for two groups of a thousand.
const ISOLATION_ATTEMPTS_MAX: usize = 48;

/// Plans problems and validates plans. An implementation decides what ends an attempt early; nothing is caught here.
pub trait Engine: Sync {
    fn plan(&self, problem: &Problem) -> Result<Plan, EngineFault>;

    fn validate(&self, problem: &Problem, plan: &Plan) -> Result<Vec<Violation>, EngineFault> {
        Ok(validate(problem, plan))
    }
}

/// The engine and the validator of this crate.
#[derive(Debug, Clone, Copy, Default)]
pub struct Solver;

impl Engine for Solver {
    fn plan(&self, problem: &Problem) -> Result<Plan, EngineFault> {
        Ok(crate::schedule(problem))
    }
}

/// An attempt that ended early.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineFault {
    pub message: String,
    /// File and line, where known.
    pub location: String,
}

impl fmt::Display for EngineFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "panicked at {}: {}", self.location, self.message)
    }
}

/// Why a plan was not used as it was.
#[derive(Debug, Clone, PartialEq)]
pub enum Cause {
    Panicked(EngineFault),
    Violated(Vec<Violation>),
}

impl Cause {
    /// A name for metrics: `panic`, or the first broken rule.
    pub fn name(&self) -> String {
        match self {
            Self::Panicked(_) => "panic".to_owned(),
            Self::Violated(violations) => violations.first().map(Violation::rule).unwrap_or_default(),
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Panicked(fault) => write!(f, "{fault}"),
            Self::Violated(violations) => {
                match violations.first() {
                    Some(first) => write!(f, "{first}")?,
                    None => f.write_str("no rule")?,
                }
                match violations.len() {
                    0 | 1 => Ok(()),
                    count => write!(f, " (and {} more)", count - 1),
                }
            }
        }
    }
}

/// A fault of the engine, and the mode it was asked in.
#[derive(Debug, Clone, PartialEq)]
pub struct Fault {
    pub mode: Mode,
    pub cause: Cause,
}

/// A plan and what it took to get it.
#[derive(Debug, Clone)]
pub struct Planned {
    /// Breaks no rule that matters. Pods that are left out are listed as unschedulable, with the reason.
    pub plan: Plan,
    /// The mode the plan was made in.
    pub mode: Mode,
    /// In the order in which they were found; empty if the first plan was good.
    pub faults: Vec<Fault>,
    /// What the plan does without because of them.
    pub left_out: LeftOut,
}

impl Planned {
    /// Whether the plan is all that was asked for, perhaps in compat mode.
    pub fn is_whole(&self) -> bool {
        self.left_out.is_empty()
    }
}

/// Plans, with the groups `held` left out from the start: they were the cause of a fault before.
pub fn plan_validated(problem: &Problem, held: &BTreeSet<u32>, engine: &dyn Engine) -> Planned {
    let mut left_out = LeftOut::default();
    for group in held {
        left_out.add_group(problem, *group);
    }
    let mut search = Search { problem, engine, faults: Vec::new() };
    if problem.options.mode == Mode::Cost
        && let Some((plan, violations)) = search.attempt(Mode::Cost, &left_out)
    {
        if violations.is_empty() {
            return search.done(plan, Mode::Cost, left_out);
        }
        search.fault(Mode::Cost, violations);
    }
    let first = search.attempt(Mode::Compat, &left_out);
    let Some((plan, violations)) = first.or_else(|| search.isolate(&mut left_out)) else {
        left_out.add_all(problem);
        return search.nothing(left_out);
    };
    search.settle(plan, violations, left_out)
}

struct Search<'a> {
    problem: &'a Problem,
    engine: &'a dyn Engine,
    faults: Vec<Fault>,
}

impl Search<'_> {
    /// A plan without what is left out, in the terms of the part that is planned.
    fn attempt(&mut self, mode: Mode, left_out: &LeftOut) -> Option<(Plan, Vec<Violation>)> {
        let part = Part::of(self.problem, left_out, mode);
        let plan = self.engine.plan(&part.problem);
        let judged = plan.and_then(|plan| {
            let violations = self.engine.validate(&part.problem, &plan)?;
            Ok((plan, violations))
        });
        judged.map_err(|fault| self.faults.push(Fault { mode, cause: Cause::Panicked(fault) })).ok()
    }

    fn fault(&mut self, mode: Mode, violations: Vec<Violation>) {
        self.faults.push(Fault { mode, cause: Cause::Violated(violations) });
    }

    /// Finds groups of pods without which an attempt ends as it should.
    fn isolate(&mut self, left_out: &mut LeftOut) -> Option<(Plan, Vec<Violation>)> {
        let problem = self.problem;
        let is_planned = |group: &u32| !left_out.has_group(problem, *group);
        let groups: Vec<u32> = (0..problem.pods.len() as u32).filter(is_planned).collect();
        let before = left_out.clone();
        let mut is_first = true;
        let found = isolate(&groups, ISOLATION_ATTEMPTS_MAX, |kept| {
            let mut without = before.clone();
            let kept: BTreeSet<u32> = kept.iter().copied().collect();
            for group in groups.iter().filter(|group| !kept.contains(group)) {
                without.add_group(problem, *group);
            }
            // What ended the first attempt has been reported; the others end the same way.
            let known = self.faults.len();
            let outcome = self.attempt(Mode::Compat, &without);
            if !std::mem::take(&mut is_first) {
                self.faults.truncate(known);
            }
            outcome
        });
        for group in &found.left_out {
            left_out.add_group(problem, *group);
        }
        found.best
    }

    /// From a plan of compat mode to one that breaks no rule that matters.
    fn settle(mut self, plan: Plan, violations: Vec<Violation>, left_out: LeftOut) -> Planned {
        let (mut plan, mut violations, mut left_out) = (plan, violations, left_out);
        for replan in 0..=REPLANS_MAX {
            if !violations.is_empty() {
                self.fault(Mode::Compat, violations.clone());
            }
            if !violations.iter().any(Violation::is_unsafe) {
                return self.done(plan, Mode::Compat, left_out);
            }
            let mut wider = left_out.clone();
            self.leave_out_scopes(&plan, &violations, &mut wider);
            if replan == REPLANS_MAX || wider == left_out {
                break;
            }
            let Some(next) = self.attempt(Mode::Compat, &wider) else { break };
            (plan, violations) = next;
            left_out = wider;
        }
        self.prune(plan, violations, left_out)
    }

    /// Widens what is left out by the pods and nodes that violations are about.
    fn leave_out_scopes(&self, plan: &Plan, violations: &[Violation], left_out: &mut LeftOut) {
        let part = Part::of(self.problem, left_out, Mode::Compat);
        let mut runs: Vec<PodRun> = Vec::new();
        for violation in violations.iter().filter(|one| one.is_unsafe()) {
            match violation.scope() {
                ViolationScope::PlannedNode(index) => {
                    runs.extend(plan.new_nodes.get(index).into_iter().flat_map(|node| &node.pods));
                }
                ViolationScope::ExistingNode(name) => left_out.add_node_named(self.problem, &name),
                // Which of them it is cannot be said; some are taken out of the plan.
                ViolationScope::Pool(_) | ViolationScope::Reservations | ViolationScope::Coverage => {}
            }
        }
        for run in runs {
            part.original(run).into_iter().for_each(|run| left_out.add_run(run));
        }
    }

    /// Takes out of the plan what is wrong with it until nothing is.
    fn prune(mut self, plan: Plan, violations: Vec<Violation>, left_out: LeftOut) -> Planned {
        let (mut plan, mut violations, mut left_out) = (plan, violations, left_out);
        let part = Part::of(self.problem, &left_out, Mode::Compat).into_owned();
        // Every step takes something out.
        for _ in 0..=plan.new_nodes.len() + plan.existing.len() + plan.unschedulable.len() {
            if !violations.iter().any(Violation::is_unsafe) {
                for run in prune::uncovered(&part.problem, &plan) {
                    part.original(run).into_iter().for_each(|run| left_out.add_run(run));
                }
                let whole = part.restore(plan);
                return self.finished(whole, Mode::Compat, left_out);
            }
            prune::take_out(&part.problem, &mut plan, &violations);
            let mut listed = plan.clone();
            prune::list_uncovered(&part.problem, &mut listed);
            violations = match self.engine.validate(&part.problem, &listed) {
                Ok(violations) => violations,
                Err(fault) => {
                    self.faults.push(Fault { mode: Mode::Compat, cause: Cause::Panicked(fault) });
                    break;
                }
            };
        }
        left_out.add_all(self.problem);
        self.nothing(left_out)
    }

    fn done(self, plan: Plan, mode: Mode, left_out: LeftOut) -> Planned {
        let whole = Part::of(self.problem, &left_out, mode).restore(plan);
        self.finished(whole, mode, left_out)
    }

    fn nothing(self, left_out: LeftOut) -> Planned {
        self.finished(Plan::default(), Mode::Compat, left_out)
    }

    fn finished(self, mut plan: Plan, mode: Mode, left_out: LeftOut) -> Planned {
        left_out.list(&mut plan);
        plan.stats.pods = self.problem.pods.iter().map(|group| u64::from(group.count())).sum();
        Planned { plan, mode, faults: self.faults, left_out }
    }
}

/// A problem as it is, or a changed one.
type Posed<'a> = Cow<'a, Problem>;
