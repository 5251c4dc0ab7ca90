//! Tests of the workload generators: equal seeds give equal workloads, with the documented counts and shapes.

use std::collections::BTreeSet;

use karpenter_model::problem::{EFFORT_DEFAULT, Mode, Problem};

use super::measure;
use super::report::violation_lines;
use super::rng::SplitMix64;
use super::workloads::{Case, cases};

fn pods(problem: &Problem) -> u64 {
    problem.pods.iter().map(|group| u64::from(group.count())).sum()
}

fn small_cases() -> Vec<Case> {
    cases(2).into_iter().filter(|case| case.pods <= 2000).collect()
}

#[test]
fn generator_matches_published_sequence() {
    let mut rng = SplitMix64::new(1_234_567);
    let drawn: Vec<u64> = (0..3).map(|_| rng.next()).collect();
    assert_eq!(drawn, [6457827717110365317, 3203168211198807973, 9817491932198370423]);
}

#[test]
fn case_is_deterministic_and_has_its_number_of_pods() {
    for case in small_cases() {
        let (first, second) = (case.problem(), case.problem());
        assert_eq!(pods(&first), u64::from(case.pods), "{}", case.name);
        let specs = |problem: &Problem| -> Vec<_> {
            problem.pods.iter().map(|group| (group.spec.clone(), group.names.clone())).collect()
        };
        assert_eq!(specs(&first), specs(&second), "{}", case.name);
    }
}

#[test]
fn different_seeds_give_different_workloads() {
    let grids: Vec<Problem> =
        small_cases().iter().filter(|case| case.workload == 2).map(Case::problem).collect();
    let counts = |problem: &Problem| -> Vec<u32> { problem.pods.iter().map(|group| group.count()).collect() };
    let different: BTreeSet<Vec<u32>> = grids.iter().map(counts).collect();
    assert_eq!(different.len(), 2, "two seeds on two pools");
}

#[test]
fn upstream_mix_has_a_fifth_of_each_kind() {
    let case = small_cases().into_iter().find(|case| case.name == "mix 1000").expect("listed");
    let problem = case.problem();
    let count = |kind: fn(&karpenter_model::pod::PodSpec) -> bool| -> u32 {
        problem.pods.iter().filter(|group| kind(&group.spec)).map(|group| group.count()).sum()
    };
    assert_eq!(count(|spec| spec.spread.iter().any(|spread| &*spread.key == "kubernetes.io/hostname")), 200);
    assert_eq!(count(|spec| spec.spread.iter().any(|spread| spread.key.ends_with("/zone"))), 200);
    assert_eq!(count(|spec| !spec.affinity.is_empty()), 200);
    assert_eq!(count(|spec| !spec.anti_affinity.is_empty()), 200);
    assert_eq!(problem.catalogs[0].len(), 400);
    assert_eq!(problem.catalogs[0][9].allocatable().get("cpu"), 9900);
}

#[test]
fn capped_nodepool_allows_only_its_sizes() {
    let case = small_cases().into_iter().find(|case| case.name == "grid 4-32 vCPU").expect("listed");
    let problem = case.problem();
    let requirements = &problem.pools[0].requirements;
    let cpus: BTreeSet<i64> = problem.catalogs[0]
        .iter()
        .filter(|instance_type| instance_type.requirements.intersects(requirements))
        .map(|instance_type| instance_type.capacity.get("cpu"))
        .collect();
    assert_eq!(cpus, [4000, 8000, 16_000, 32_000].into());
}

#[test]
fn at_most_three_violations_are_printed_and_others_counted() {
    let case = small_cases().into_iter().min_by_key(|case| case.pods).expect("listed");
    let mut run = measure::run(&case, Mode::Compat, 0);
    assert_eq!((run.violation_count, violation_lines(&run)), (0, vec![]));
    run.violations = (1..=20).map(|number| format!("rule {number}")).collect();
    run.violation_count = 25;
    let lines = violation_lines(&run);
    assert_eq!(lines.len(), 4, "{lines:?}");
    assert!(lines[2].ends_with("compat: rule 3"), "{lines:?}");
    assert_eq!(lines[3], "... and 22 more");
    run.violation_count = 3;
    run.violations.truncate(3);
    assert_eq!(violation_lines(&run).len(), 3);
}

#[test]
fn plans_for_upstream_mix_are_valid_in_both_modes() {
    for case in small_cases().into_iter().filter(|case| case.workload == 1) {
        for mode in [Mode::Compat, Mode::Cost] {
            let run = measure::run(&case, mode, EFFORT_DEFAULT);
            assert_eq!(run.violations, Vec::<String>::new(), "{} {}", case.name, run.mode);
            assert_eq!(run.unschedulable, 0, "{} {}", case.name, run.mode);
        }
    }
}

#[test]
fn consolidation_of_fragmented_clusters_ends_near_the_lower_bound() {
    for case in super::consolidation::cases(1, Some(2_000)) {
        let again = super::consolidation::cases(1, Some(2_000));
        let same = again.iter().find(|other| other.name == case.name).expect("listed");
        assert_eq!(case.cluster().state_nodes.len(), same.cluster().state_nodes.len(), "{}", case.name);
        let run =
            super::consolidation::run(&case, karpenter_disruption::settings::Mode::Cost, EFFORT_DEFAULT);
        assert!((70..=250).contains(&run.nodes), "{}: {} nodes", run.name, run.nodes);
        assert!(run.gap_before_percent > 30.0, "{}: {:.1} %", run.name, run.gap_before_percent);
        assert!(run.is_at_rest, "{}", run.name);
        assert!(run.gap_after_percent < run.gap_before_percent / 3.0, "{run:?}");
        assert!(run.curve.windows(2).all(|steps| steps[1].1 < steps[0].1), "{}", run.name);
    }
}
