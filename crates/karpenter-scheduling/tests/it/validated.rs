//! Tests that planner faults affect only the pods or the node concerned: even if plans are corrupted or the planner
//! panics, the rest is planned.

use crate::support::builders;
use crate::support::outcomes;
use crate::support::recipes;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use builders::{ZONES, group, node, pod, world};
use karpenter_model::plan::{Plan, PodRun};
use karpenter_model::problem::{Mode, Problem};
use karpenter_model::reason::Reason;
use karpenter_scheduling::schedule;
use karpenter_scheduling::validate::{Violation, validate};
use karpenter_scheduling::validated::{Cause, Planner, PlannerPanic, ValidatedPlan, plan_validated};
use outcomes::in_mode;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};
use recipes::any_recipe;

/// The real planner, with faults injected into its plans.
struct Faulty<F> {
    goes_wrong: F,
    calls: AtomicUsize,
}

impl<F: Fn(&Problem, &mut Plan) -> Result<(), PlannerPanic> + Sync> Planner for Faulty<F> {
    fn plan(&self, problem: &Problem) -> Result<Plan, PlannerPanic> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let mut plan = schedule(problem);
        (self.goes_wrong)(problem, &mut plan)?;
        Ok(plan)
    }
}

fn faulty<F: Fn(&Problem, &mut Plan) -> Result<(), PlannerPanic> + Sync>(goes_wrong: F) -> Faulty<F> {
    Faulty { goes_wrong, calls: AtomicUsize::new(0) }
}

fn panic_of_planner() -> Result<(), PlannerPanic> {
    Err(PlannerPanic { message: "planted".to_owned(), location: "here.rs:1".to_owned() })
}

fn planned(problem: &Problem, planner: &dyn Planner) -> ValidatedPlan {
    let planned = plan_validated(problem, &BTreeSet::new(), planner);
    let problem = in_mode(problem, planned.mode);
    let broken: Vec<Violation> =
        validate(&problem, &planned.plan).into_iter().filter(Violation::is_unsafe).collect();
    assert_eq!(broken, [], "the plan has no unsafe violation");
    planned
}

fn names(problem: &Problem, runs: impl Iterator<Item = PodRun>) -> BTreeSet<String> {
    let name = |run: PodRun, at: u32| problem.pods[run.group as usize].names.name(at);
    runs.flat_map(|run| (run.start..run.start + run.count).map(move |at| name(run, at))).collect()
}

fn placed(problem: &Problem, plan: &Plan) -> BTreeSet<String> {
    let new = plan.new_nodes.iter().flat_map(|node| &node.pods);
    let existing = plan.existing.iter().flat_map(|placement| &placement.pods);
    names(problem, new.chain(existing).copied())
}

fn holds(problem: &Problem, plan: &Plan, index: usize, pod: &str) -> bool {
    names(problem, plan.new_nodes[index].pods.iter().copied()).contains(pod)
}

/// A problem with twenty pods that need one node each, and five pods that fit on an existing node.
fn twenty_nodes(mode: Mode) -> Problem {
    let mut problem = world();
    problem.options.mode = mode;
    problem.nodes = vec![node("here", ZONES[0], 2), node("there", ZONES[1], 2)];
    problem.pods = vec![group("large", pod("large", 7000), 20), group("small", pod("small", 300), 5)];
    problem
}

const MODES: [Mode; 2] = [Mode::Cost, Mode::Compat];

#[test]
fn valid_plan_is_unchanged() {
    for mode in MODES {
        let problem = twenty_nodes(mode);
        let planner = faulty(|_, _| Ok(()));
        let planned = planned(&problem, &planner);
        assert_eq!((planned.mode, planned.faults.len()), (mode, 0));
        assert!(planned.is_whole());
        assert_eq!(placed(&problem, &planned.plan).len(), 25);
        assert_eq!(planner.calls.into_inner(), 1);
    }
}

#[test]
fn fault_in_cost_mode_falls_back_to_compat_mode() {
    let problem = twenty_nodes(Mode::Cost);
    let lost = faulty(|problem, plan| {
        if problem.options.mode == Mode::Cost {
            plan.new_nodes.remove(0);
        }
        Ok(())
    });
    let panicking =
        faulty(|problem, _| if problem.options.mode == Mode::Cost { panic_of_planner() } else { Ok(()) });
    for planner in [&lost as &dyn Planner, &panicking] {
        let planned = planned(&problem, planner);
        assert_eq!((planned.mode, planned.faults.len()), (Mode::Compat, 1));
        assert_eq!(planned.faults[0].mode, Mode::Cost);
        assert!(planned.is_whole());
        assert_eq!(placed(&problem, &planned.plan).len(), 25);
    }
}

#[test]
fn fault_of_planned_node_affects_its_pods_only() {
    type Corruption = fn(&mut Plan, usize);
    let corruptions: [(&str, Corruption); 4] = [
        ("OptionTooSmall", |plan, node| {
            plan.new_nodes[node].instance_type_options = vec![builders::SMALL];
            plan.new_nodes[node].instance_type = builders::SMALL;
        }),
        ("UnknownPool", |plan, node| plan.new_nodes[node].pool = 7),
        ("UnknownOffering", |plan, node| plan.new_nodes[node].offering = 99),
        ("PodMissing", |plan, node| {
            plan.new_nodes.remove(node);
        }),
    ];
    for (rule, corrupt) in corruptions {
        for mode in MODES {
            let problem = twenty_nodes(mode);
            // The injected fault concerns only the node of one pod.
            let planner = faulty(|problem, plan| {
                if let Some(node) =
                    (0..plan.new_nodes.len()).find(|node| holds(problem, plan, *node, "large-3"))
                {
                    corrupt(plan, node);
                }
                Ok(())
            });
            let planned = planned(&problem, &planner);
            assert_eq!(
                names(&problem, planned.left_out.pods()),
                ["large-3".to_owned()].into(),
                "{rule} {mode:?}"
            );
            assert_eq!(placed(&problem, &planned.plan).len(), 24, "{rule} {mode:?}");
            assert!(planned.faults.iter().any(|fault| fault.cause.name() == rule), "{:?}", planned.faults);
            let left = planned.plan.unschedulable.iter().find(|left| left.pods.group == 0).expect("listed");
            assert_eq!(left.reasons[0].reason, Reason::PlannerFault);
        }
    }
}

#[test]
fn fault_of_existing_node_excludes_it() {
    for mode in MODES {
        let problem = twenty_nodes(mode);
        let planner = faulty(|problem, plan| {
            // As long as any pod is placed on the existing node, the corrupted plan exceeds its capacity.
            let Some(here) = plan.existing.iter().position(|one| &*problem.nodes[one.node].name == "here")
            else {
                return Ok(());
            };
            let whole = plan.new_nodes.pop().expect("a planned node");
            plan.existing[here].pods.extend(whole.pods);
            Ok(())
        });
        let planned = planned(&problem, &planner);
        assert_eq!(planned.left_out.nodes().collect::<Vec<_>>(), [0], "{mode:?}");
        assert_eq!(
            (planned.left_out.pod_count(), placed(&problem, &planned.plan).len()),
            (0, 25),
            "{mode:?}"
        );
        assert!(planned.plan.existing.iter().all(|placement| placement.node == 1));
    }
}

#[test]
fn repeated_fault_of_a_node_keeps_the_others() {
    let problem = twenty_nodes(Mode::Cost);
    let planner = faulty(|_, plan| {
        if let Some(node) = plan.new_nodes.first_mut() {
            node.pool = 7;
        }
        Ok(())
    });
    let planned = planned(&problem, &planner);
    assert!(placed(&problem, &planned.plan).len() >= 22, "{:?}", planned.left_out);
    assert!(planner.calls.into_inner() <= 4);
}

#[test]
fn safe_violation_does_not_reject_compat_plan() {
    let problem = twenty_nodes(Mode::Cost);
    let planner = faulty(|_, plan| {
        plan.price_per_hour += 1.0;
        plan.new_nodes.iter_mut().for_each(|node| node.requests.set("cpu", 1));
        Ok(())
    });
    let planned = planned(&problem, &planner);
    assert!(planned.is_whole());
    assert_eq!((planned.mode, planned.faults.len()), (Mode::Compat, 2), "both are reported");
    assert_eq!(placed(&problem, &planned.plan).len(), 25);
}

#[test]
fn exceeded_limit_removes_nodes_of_that_pool() {
    let mut problem = twenty_nodes(Mode::Compat);
    problem.pools[0].limits.set("nodes", 5);
    let planner = faulty(|problem, plan| {
        let mut without = problem.clone();
        without.pools[0].limits.set("nodes", 100);
        *plan = schedule(&without);
        Ok(())
    });
    let planned = planned(&problem, &planner);
    let nodes = planned.plan.new_nodes.len();
    assert!((3..=5).contains(&nodes), "{nodes}");
    assert_eq!(planned.faults[0].cause.name(), "LimitExceeded");
}

#[test]
fn panic_excludes_the_class_that_causes_it() {
    for mode in MODES {
        let mut problem = twenty_nodes(mode);
        for number in 0..40 {
            problem.pods.push(group(&format!("g{number}"), pod(&format!("g{number}"), 100 + number), 2));
        }
        let planner = faulty(|problem, _| {
            let has = |name: &str| {
                problem.pods.iter().any(|group| group.count() > 0 && group.names.name(0).starts_with(name))
            };
            if has("g17-") || has("large-") { panic_of_planner() } else { Ok(()) }
        });
        let planned = planned(&problem, &planner);
        let left_out: BTreeSet<u32> = planned.left_out.pods().map(|run| run.group).collect();
        assert_eq!(left_out, [0, 19].into(), "{mode:?}");
        assert_eq!(placed(&problem, &planned.plan).len(), 5 + 39 * 2);
        assert!(matches!(planned.faults[0].cause, Cause::Panicked(_)));

        // The pods that caused the fault are left out from the start, so one call in the requested mode is enough.
        let planner = faulty(planner.goes_wrong);
        let again = plan_validated(&problem, &left_out, &planner);
        assert_eq!((again.mode, again.faults.len(), planner.calls.into_inner()), (mode, 0, 1));
        assert_eq!(again.left_out, planned.left_out);
    }
}

#[test]
fn planner_that_always_panics_leaves_all_pods_out() {
    let problem = twenty_nodes(Mode::Cost);
    let planner = faulty(|_, _| panic_of_planner());
    let planned = planned(&problem, &planner);
    assert_eq!(planned.left_out.pod_count(), 25);
    assert_eq!(planned.plan.new_nodes.len() + planned.plan.existing.len(), 0);
    assert_eq!(planner.calls.into_inner(), 3, "each mode, and once without any pods");
}

fn config() -> Config {
    let chosen_outside = std::env::var_os("PROPTEST_RNG_SEED").is_some();
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { Config::default().cases } else { 200 };
    Config {
        cases,
        failure_persistence: None,
        rng_seed: if chosen_outside { Config::default().rng_seed } else { RngSeed::Fixed(20261118) },
        ..Config::default()
    }
}

/// Corrupts one planned node of the plan in one of five ways.
fn corrupt_one(plan: &mut Plan, kind: usize, which: usize) {
    let count = plan.new_nodes.len();
    if count == 0 {
        return;
    }
    let index = which % count;
    match kind {
        0 => plan.new_nodes[index].pool = usize::MAX,
        1 => plan.new_nodes[index].requests.set("cpu", 1),
        2 => drop(plan.new_nodes.remove(index)),
        3 => plan.new_nodes[index].instance_type_options.push(usize::MAX),
        _ => {
            let pods = plan.new_nodes[index].pods.clone();
            plan.new_nodes[(index + 1) % count].pods.extend(pods);
        }
    }
}

/// The maximum number of planner calls for one plan: one in cost mode, one in compat mode, and two with pods left out.
const CALLS_MAX: usize = 4;

proptest! {
    #![proptest_config(config())]

    /// One planned node of every plan is corrupted; the plan that is returned must be safe.
    #[test]
    fn plan_of_corrupting_planner_is_safe(
        recipe in any_recipe(), kind in 0..5usize, which in 0..8usize, in_cost_mode in any::<bool>(),
    ) {
        let problem = in_mode(&recipe.build(), if in_cost_mode { Mode::Cost } else { Mode::Compat });
        let planner = faulty(|_, plan| { corrupt_one(plan, kind, which); Ok(()) });
        planned(&problem, &planner);
        prop_assert!(planner.calls.into_inner() <= CALLS_MAX);
    }

    /// A corruption affects at most two nodes; the returned plan must still launch all others.
    #[test]
    fn corrupted_node_does_not_affect_the_others(
        kind in 0..5usize, which in 0..20usize, in_cost_mode in any::<bool>(),
    ) {
        let problem = twenty_nodes(if in_cost_mode { Mode::Cost } else { Mode::Compat });
        let planner = faulty(|_, plan| { corrupt_one(plan, kind, which); Ok(()) });
        let planned = planned(&problem, &planner);
        let nodes = planned.plan.new_nodes.len();
        prop_assert!(nodes >= 20 - 2 * CALLS_MAX, "{nodes} of 20 nodes");
    }
}
