//! From a problem to a plan that the validator accepts: a second, simpler plan where the first one breaks a rule.
//!
//! A broken plan is a bug of the cost search. Whoever asked still gets an answer: the plan of compat mode, which takes
//! none of the search's shortcuts, held to the same rules. Nothing here prints, and no rule is ever waived.

use std::time::{Duration, Instant};

use karpenter_model::plan::Plan;
use karpenter_model::problem::{Mode, Problem};
use karpenter_scheduling::validate::{Violation, validate};

/// What was decided and how long its two parts took, a second attempt included.
#[derive(Debug)]
pub(crate) struct Decision {
    /// A valid plan, or what is wrong with the last one tried.
    pub(crate) outcome: Result<Plan, Vec<Violation>>,
    /// The first rule that the cost plan broke, where compat mode had to step in; the problem's options then say so.
    pub(crate) given_up_for: Option<Violation>,
    pub(crate) schedule: Duration,
    pub(crate) validate: Duration,
}

/// Plans with the engine given and checks every plan with the real validator.
pub(crate) fn decide(problem: &mut Problem, engine: impl Fn(&Problem) -> Plan) -> Decision {
    let (mut schedule, mut validated) = (Duration::ZERO, Duration::ZERO);
    let mut attempt = |problem: &Problem| {
        let started = Instant::now();
        let plan = engine(problem);
        schedule += started.elapsed();
        let started = Instant::now();
        let violations = validate(problem, &plan);
        validated += started.elapsed();
        (plan, violations)
    };
    let (mut plan, mut violations) = attempt(problem);
    let mut given_up_for = None;
    if !violations.is_empty() && problem.options.mode == Mode::Cost {
        given_up_for = Some(violations.swap_remove(0));
        problem.options.mode = Mode::Compat;
        (plan, violations) = attempt(problem);
    }
    let outcome = if violations.is_empty() { Ok(plan) } else { Err(violations) };
    Decision { outcome, given_up_for, schedule, validate: validated }
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
    spec: {containers: [{name: c, resources: {requests: {cpu: 1}}}]}
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

    /// The real engine's plan with its first node lost, in the modes given.
    fn loses_a_node(modes: &'static [Mode]) -> impl Fn(&Problem) -> Plan {
        move |problem| {
            let mut plan = karpenter_scheduling::schedule(problem);
            if modes.contains(&problem.options.mode) {
                plan.new_nodes.remove(0);
            }
            plan
        }
    }

    #[test]
    fn a_valid_plan_is_taken_as_it_is() {
        let mut problem = problem(Mode::Cost);
        let decision = decide(&mut problem, karpenter_scheduling::schedule);
        assert_eq!(decision.outcome.expect("valid").stats.pods, 5);
        assert!(decision.given_up_for.is_none());
        assert_eq!(problem.options.mode, Mode::Cost);
    }

    #[test]
    fn a_broken_cost_plan_gives_way_to_the_compat_plan() {
        let mut problem = problem(Mode::Cost);
        let decision = decide(&mut problem, loses_a_node(&[Mode::Cost]));
        let plan = decision.outcome.expect("compat mode is not broken");
        assert!(decision.given_up_for.is_some());
        assert_eq!(problem.options.mode, Mode::Compat);
        assert!(validate(&problem, &plan).is_empty());
        assert!(!plan.new_nodes.is_empty());
    }

    #[test]
    fn a_broken_compat_plan_is_never_used() {
        for (mode, broken) in
            [(Mode::Cost, &[Mode::Cost, Mode::Compat][..]), (Mode::Compat, &[Mode::Compat][..])]
        {
            let decision = decide(&mut problem(mode), loses_a_node(broken));
            assert!(!decision.outcome.expect_err("every plan is broken").is_empty());
        }
    }
}
