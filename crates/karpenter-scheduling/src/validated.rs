//! Plans with validation: returns a plan that the validator accepts, even if the planner has a fault.
//!
//! A fault is a plan that violates a rule, or a panic. The requested mode is tried first, then compat mode, then compat
//! mode without the pods and nodes that the fault concerns. If that fails too, these pods and nodes are removed from
//! the last plan. So a fault affects only the pods or the node concerned, and every fault is reported.

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

/// The maximum number of attempts to plan without the pods and nodes that faults concern; after that, they are removed
/// from the last plan.
const REPLANS_MAX: usize = 2;
/// The maximum number of attempts to find the pods that cause a panic; enough to find two groups among a thousand.
const ISOLATION_ATTEMPTS_MAX: usize = 48;

/// Plans problems and validates plans. An implementation must catch panics and return them as errors; its callers do
/// not catch them.
pub trait Planner: Sync {
    fn plan(&self, problem: &Problem) -> Result<Plan, PlannerPanic>;

    fn validate(&self, problem: &Problem, plan: &Plan) -> Result<Vec<Violation>, PlannerPanic> {
        Ok(validate(problem, plan))
    }
}

/// Plans and validates with the functions of this crate.
#[derive(Debug, Clone, Copy, Default)]
pub struct DefaultPlanner;

impl Planner for DefaultPlanner {
    fn plan(&self, problem: &Problem) -> Result<Plan, PlannerPanic> {
        Ok(crate::schedule(problem))
    }
}

/// A panic of the planner or the validator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannerPanic {
    pub message: String,
    /// File and line of the panic, if known.
    pub location: String,
}

impl fmt::Display for PlannerPanic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "panicked at {}: {}", self.location, self.message)
    }
}

/// Why a plan was rejected.
#[derive(Debug, Clone, PartialEq)]
pub enum Cause {
    Panicked(PlannerPanic),
    Violated(Vec<Violation>),
}

impl Cause {
    /// `panic`, or the name of the first violated rule; used as a metric label.
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

/// A planner fault, and the mode in which it occurred.
#[derive(Debug, Clone, PartialEq)]
pub struct Fault {
    pub mode: Mode,
    pub cause: Cause,
}

/// A valid plan, and the planner faults that occurred before it was found.
#[derive(Debug, Clone)]
pub struct ValidatedPlan {
    /// The plan; it has no unsafe violation. Pods that were left out are listed as unschedulable, with the reason.
    pub plan: Plan,
    /// The mode in which the plan was made.
    pub mode: Mode,
    /// The faults in order of occurrence; empty if the first plan was valid.
    pub faults: Vec<Fault>,
    /// The pods and nodes that were left out because of the faults.
    pub left_out: LeftOut,
}

impl ValidatedPlan {
    /// Whether the plan covers all pods and nodes; its mode may still differ from the requested one.
    pub fn is_whole(&self) -> bool {
        self.left_out.is_empty()
    }
}

/// Plans a problem and validates the plan. The groups in `held` are left out from the start, because they caused a
/// fault in an earlier run.
pub fn plan_validated(problem: &Problem, held: &BTreeSet<u32>, engine: &dyn Planner) -> ValidatedPlan {
    let mut left_out = LeftOut::default();
    for group in held {
        left_out.add_group(problem, *group);
    }
    let mut search = Attempts { problem, engine, faults: Vec::new() };
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
    search.repair_plan(plan, violations, left_out)
}

struct Attempts<'a> {
    problem: &'a Problem,
    engine: &'a dyn Planner,
    faults: Vec<Fault>,
}

impl Attempts<'_> {
    /// Plans the problem without the parts in `left_out`. The indexes in the plan are those of the reduced problem.
    fn attempt(&mut self, mode: Mode, left_out: &LeftOut) -> Option<(Plan, Vec<Violation>)> {
        let part = Part::of(self.problem, left_out, mode);
        let plan = self.engine.plan(&part.problem);
        let validated = plan.and_then(|plan| {
            let violations = self.engine.validate(&part.problem, &plan)?;
            Ok((plan, violations))
        });
        validated.map_err(|fault| self.faults.push(Fault { mode, cause: Cause::Panicked(fault) })).ok()
    }

    fn fault(&mut self, mode: Mode, violations: Vec<Violation>) {
        self.faults.push(Fault { mode, cause: Cause::Violated(violations) });
    }

    /// Finds the groups of pods that cause a panic of the planner.
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
            // Only the first panic is reported, because panics of further attempts have the same cause.
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

    /// Turns an invalid plan of compat mode into one without unsafe violations.
    fn repair_plan(mut self, plan: Plan, violations: Vec<Violation>, left_out: LeftOut) -> ValidatedPlan {
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

    /// Adds to `left_out` the pods and nodes that the violations concern.
    fn leave_out_scopes(&self, plan: &Plan, violations: &[Violation], left_out: &mut LeftOut) {
        let part = Part::of(self.problem, left_out, Mode::Compat);
        let mut runs: Vec<PodRun> = Vec::new();
        for violation in violations.iter().filter(|one| one.is_unsafe()) {
            match violation.scope() {
                ViolationScope::PlannedNode(index) => {
                    runs.extend(plan.new_nodes.get(index).into_iter().flat_map(|node| &node.pods));
                }
                ViolationScope::ExistingNode(name) => left_out.add_node_named(self.problem, &name),
                // The violation does not identify a node; `prune` removes some of the nodes concerned from the plan.
                ViolationScope::Pool(_) | ViolationScope::Reservations | ViolationScope::Coverage => {}
            }
        }
        for run in runs {
            part.original(run).into_iter().for_each(|run| left_out.add_run(run));
        }
    }

    /// Removes the parts that violate rules from the plan until it is valid.
    fn prune(mut self, plan: Plan, violations: Vec<Violation>, left_out: LeftOut) -> ValidatedPlan {
        let (mut plan, mut violations, mut left_out) = (plan, violations, left_out);
        let part = Part::of(self.problem, &left_out, Mode::Compat).into_owned();
        // Every iteration removes a part of the plan, so the loop ends.
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

    fn done(self, plan: Plan, mode: Mode, left_out: LeftOut) -> ValidatedPlan {
        let whole = Part::of(self.problem, &left_out, mode).restore(plan);
        self.finished(whole, mode, left_out)
    }

    fn nothing(self, left_out: LeftOut) -> ValidatedPlan {
        self.finished(Plan::default(), Mode::Compat, left_out)
    }

    fn finished(self, mut plan: Plan, mode: Mode, left_out: LeftOut) -> ValidatedPlan {
        left_out.list(&mut plan);
        plan.stats.pods = self.problem.pods.iter().map(|group| u64::from(group.count())).sum();
        ValidatedPlan { plan, mode, faults: self.faults, left_out }
    }
}

/// The original problem, or a copy with parts left out.
type ProblemRef<'a> = Cow<'a, Problem>;
