//! Plans and validates, and handles planner faults.
//!
//! With [`plan_validated`], a planner fault affects only the pods concerned; all others are planned. This module prints
//! nothing.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use karpenter_controllers::compute::CatchPanics;
use karpenter_model::plan::{Plan, PodRun};
use karpenter_model::problem::{Mode, Problem};
use karpenter_scheduling::validate::Violation;
use karpenter_scheduling::validated::{Planner, PlannerPanic, ValidatedPlan, plan_validated};

/// The maximum number of omitted pods that a message names.
const NAMED_MAX: usize = 20;

/// The plan, and the duration of planning and validation over all attempts.
#[derive(Debug)]
pub(crate) struct Decision {
    pub(crate) planned: ValidatedPlan,
    pub(crate) schedule: Duration,
    pub(crate) validate: Duration,
}

impl Decision {
    /// Whether compat mode has a fault as well: a pod is omitted, or a statement of the plan is wrong.
    pub(crate) fn is_faulty(&self) -> bool {
        !self.planned.is_whole() || self.planned.faults.iter().any(|fault| fault.mode == Mode::Compat)
    }

    /// Messages about faults, one line each, the most severe last.
    pub(crate) fn lines(&self, problem: &Problem) -> Vec<String> {
        let planned = &self.planned;
        let mut lines: Vec<String> = Vec::new();
        for fault in &planned.faults {
            let plan = match fault.mode {
                Mode::Cost => "the cost plan",
                Mode::Compat => "the compatible plan",
            };
            lines.push(format!("internal: {plan} has a planner fault: {}", fault.cause));
        }
        let count = planned.left_out.pod_count();
        if count > 0 {
            let runs = planned.left_out.pods();
            let mut names: Vec<String> =
                runs.flat_map(|run| pod_names(problem, run)).take(NAMED_MAX).collect();
            if count as usize > NAMED_MAX {
                names.push("…".to_owned());
            }
            lines.push(format!("internal: omitted from the plan: {count} pods: {}", names.join(", ")));
        }
        let nodes: Vec<&str> = planned.left_out.nodes().map(|node| &*problem.nodes[node].name).collect();
        if !nodes.is_empty() {
            lines.push(format!("internal: no pod is planned onto these nodes: {}", nodes.join(", ")));
        }
        lines
    }
}

fn pod_names(problem: &Problem, run: PodRun) -> impl Iterator<Item = String> {
    let group = &problem.pods[run.group as usize];
    (run.start..run.start + run.count)
        .map(move |position| format!("{}/{}", group.spec.namespace, group.names.name(position)))
}

/// Plans with the given planner; the problem's options then have the mode that was used.
pub(crate) fn decide(problem: &mut Problem, engine: &dyn Planner) -> Decision {
    let timed = Timed { engine, took: Mutex::default() };
    let planned = plan_validated(problem, &BTreeSet::new(), &CatchPanics(&timed));
    let (schedule, validate) = timed.took.into_inner().unwrap_or_else(PoisonError::into_inner);
    problem.options.mode = planned.mode;
    Decision { planned, schedule, validate }
}

/// A planner with a time limit.
struct Timed<'a> {
    engine: &'a dyn Planner,
    took: Mutex<(Duration, Duration)>,
}

impl Planner for Timed<'_> {
    fn plan(&self, problem: &Problem) -> Result<Plan, PlannerPanic> {
        let started = Instant::now();
        let plan = self.engine.plan(problem);
        self.took.lock().unwrap_or_else(PoisonError::into_inner).0 += started.elapsed();
        plan
    }

    fn validate(&self, problem: &Problem, plan: &Plan) -> Result<Vec<Violation>, PlannerPanic> {
        let started = Instant::now();
        let violations = self.engine.validate(problem, plan);
        self.took.lock().unwrap_or_else(PoisonError::into_inner).1 += started.elapsed();
        violations
    }
}

#[cfg(test)]
mod tests {
    use karpenter_state::{CatalogChoice, Objects, assemble};

    use super::*;

    const INPUT: &str = "
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}
      requirements: [{key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}]
---
apiVersion: karpenter.kwok.sh/v1alpha1
kind: KWOKNodeClass
metadata: {name: default}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 5
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, resources: {requests: {cpu: 200}}}]}
";

    fn problem(mode: Mode) -> Problem {
        let manifests = karpenter_api::manifest::read("in.yaml", INPUT);
        assert_eq!(manifests.errors, []);
        let reading = Objects::from_documents(manifests.documents);
        assert!(reading.errors.is_empty(), "{:?}", reading.errors);
        let (mut problem, _) = assemble(&reading.objects, &CatalogChoice::Kwok);
        problem.options.mode = mode;
        problem
    }

    /// The real planner with simulated faults: in some modes it loses its first node or panics.
    struct Faulty {
        modes: &'static [Mode],
        panics: bool,
    }

    impl Planner for Faulty {
        fn plan(&self, problem: &Problem) -> Result<Plan, PlannerPanic> {
            let mut plan = karpenter_scheduling::schedule(problem);
            if self.modes.contains(&problem.options.mode) {
                assert!(!self.panics, "planted");
                plan.new_nodes.remove(0);
            }
            Ok(plan)
        }
    }

    #[test]
    fn valid_plan_is_used_unchanged() {
        let mut problem = problem(Mode::Cost);
        let decision = decide(&mut problem, &karpenter_scheduling::validated::DefaultPlanner);
        assert!(!decision.is_faulty());
        assert_eq!((decision.planned.plan.stats.pods, problem.options.mode), (5, Mode::Cost));
        assert_eq!(decision.lines(&problem), [""; 0]);
    }

    #[test]
    fn planner_fault_in_cost_mode_falls_back_to_compat_plan() {
        for panics in [false, true] {
            let mut problem = problem(Mode::Cost);
            let decision = decide(&mut problem, &Faulty { modes: &[Mode::Cost], panics });
            assert!(!decision.is_faulty());
            assert_eq!(problem.options.mode, Mode::Compat);
            let lines = decision.lines(&problem);
            assert!(lines[0].starts_with("internal: the cost plan has a planner fault: "), "{lines:?}");
        }
    }

    #[test]
    fn planner_fault_in_compat_mode_omits_and_names_pods() {
        for mode in [Mode::Cost, Mode::Compat] {
            let mut problem = problem(mode);
            let faulty = Faulty { modes: &[Mode::Cost, Mode::Compat], panics: false };
            let decision = decide(&mut problem, &faulty);
            assert!(decision.is_faulty());
            let lost = decision.planned.left_out.pod_count() as usize;
            let nodes = decision.planned.plan.new_nodes.len();
            assert!(lost >= 1 && nodes >= 1, "{lost} lost, {nodes} nodes");
            let lines = decision.lines(&problem);
            assert!(
                lines
                    .iter()
                    .any(|line| line.contains("omitted from the plan") && line.contains("default/web-"))
            );
        }
    }

    #[test]
    fn planner_that_always_panics_omits_all_pods() {
        let mut problem = problem(Mode::Cost);
        let faulty = Faulty { modes: &[Mode::Cost, Mode::Compat], panics: true };
        let decision = decide(&mut problem, &faulty);
        assert!(decision.is_faulty());
        assert_eq!(decision.planned.left_out.pod_count(), 5);
    }
}
