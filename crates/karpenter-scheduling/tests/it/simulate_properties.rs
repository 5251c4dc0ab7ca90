//! Property tests of the simulator: a simulation has the same outcome as planning the rebuilt problem, whatever the
//! order of simulations and the number of threads, and after commits as well.

use crate::support::naive;
use crate::support::recipes;

use std::collections::BTreeMap;
use std::sync::Arc;

use karpenter_model::problem::{BoundPod, Mobility, Mode, Problem, ReservedMode};
use karpenter_scheduling::simulate::{Outcome, SimulationRequest, Simulator};
use karpenter_scheduling::validate::validate;
use naive::{Summary, rebuilt};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};
use recipes::any_crowded_recipe;

const NO_CREDITS: &BTreeMap<Arc<str>, u32> = &BTreeMap::new();

fn config() -> Config {
    let chosen_outside = std::env::var_os("PROPTEST_RNG_SEED").is_some();
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { Config::default().cases } else { 150 };
    Config {
        cases,
        failure_persistence: None,
        rng_seed: if chosen_outside { Config::default().rng_seed } else { RngSeed::Fixed(20261117) },
        max_shrink_iters: 300,
        ..Config::default()
    }
}

/// Gives bound pods a mobility, and lets some of them belong to the pending Deployments.
fn with_movers(mut problem: Problem, salt: usize) -> Problem {
    let specs: Vec<_> = problem.pods.iter().map(|group| group.spec.clone()).collect();
    for (node, data) in problem.nodes.iter_mut().enumerate() {
        let wanted = specs.iter().enumerate().filter(|(group, _)| (group + node + salt).is_multiple_of(4));
        data.pods.extend(wanted.map(|(_, spec)| BoundPod {
            spec: spec.clone(),
            is_daemon: false,
            is_terminating: false,
            mobility: Mobility::Moves,
        }));
        for (at, pod) in data.pods.iter_mut().enumerate() {
            pod.mobility = match (node * 3 + at + salt) % 5 {
                _ if pod.is_terminating => Mobility::Stays,
                0 => Mobility::Stays,
                1 => Mobility::Blocked,
                _ => Mobility::Moves,
            };
        }
    }
    problem
}

fn subset(problem: &Problem, bits: u16) -> Vec<usize> {
    (0..problem.nodes.len()).filter(|node| bits & (1 << node) != 0).collect()
}

fn request<'a>(removed_nodes: &'a [usize], mode: Mode, moves_blocked_pods: bool) -> SimulationRequest<'a> {
    SimulationRequest {
        removed_nodes,
        moves_blocked_pods,
        mode,
        effort: 100,
        prefers_vacated_domains: false,
        reserved_mode: ReservedMode::Fallback,
        reservation_credits: NO_CREDITS,
    }
}

fn simulated(simulator: &Simulator<'_>, request: &SimulationRequest<'_>) -> Summary {
    summary_of(simulator, &simulator.simulate(request))
}

fn summary_of(simulator: &Simulator<'_>, outcome: &Outcome) -> Summary {
    naive::summary(&simulator.problem().pods, |node| simulator.node(node), outcome)
}

fn expected(problem: &Problem, request: &SimulationRequest<'_>) -> Summary {
    naive::summary(&problem.pods, |node| problem.nodes.get(node), &naive::ask(problem, request))
}

fn faults(problem: &Problem, request: &SimulationRequest<'_>, outcome: &Outcome) -> Vec<String> {
    let (problem, kept, _) = rebuilt(problem, request);
    let mut plan = outcome.plan.clone();
    let new_index = |node: &mut usize| *node = kept.binary_search(node).unwrap_or(usize::MAX);
    plan.existing.iter_mut().for_each(|placement| new_index(&mut placement.node));
    for (_, place) in &mut plan.order {
        if let karpenter_model::plan::Place::Existing(node) = place {
            new_index(node);
        }
    }
    validate(&problem, &plan).iter().map(ToString::to_string).collect()
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn outcome_equals_plan_of_rebuilt_problem(
        recipe in any_crowded_recipe(),
        salt in 0..20usize,
        sets in prop::collection::vec((any::<u16>(), any::<bool>()), 1..4),
    ) {
        let problem = with_movers(recipe.build(), salt);
        let simulator = Simulator::new(&problem);
        for (bits, moves_blocked_pods) in sets {
            let removed_nodes = subset(&problem, bits);
            let request = request(&removed_nodes, Mode::Compat, moves_blocked_pods);
            let expected = expected(&problem, &request);
            prop_assert_eq!(simulated(&simulator, &request), expected, "without {:?}", removed_nodes);
        }
    }

    #[test]
    fn nodes_closed_to_movers_accept_pending_pods_only(
        recipe in any_crowded_recipe(),
        salt in 0..20usize,
        (bits, settling) in (any::<u16>(), any::<u16>()),
    ) {
        let mut problem = with_movers(recipe.without_upstream_deviations().build(), salt);
        for spec in problem.nodes.iter_mut().flat_map(|node| &mut node.pods).map(|pod| &mut pod.spec) {
            if spec.spread.iter().any(|spread| spread.honor_taints) {
                Arc::make_mut(spec).spread.iter_mut().for_each(|spread| spread.honor_taints = false);
            }
        }
        for (node, data) in problem.nodes.iter_mut().enumerate() {
            data.is_settling = settling & (1 << node) != 0;
        }
        let removed_nodes = subset(&problem, bits);
        let request = request(&removed_nodes, Mode::Compat, false);
        prop_assert_eq!(simulated(&Simulator::new(&problem), &request), expected(&problem, &request));
    }

    #[test]
    fn cost_outcomes_are_valid_and_not_more_expensive(
        recipe in any_crowded_recipe(),
        salt in 0..20usize,
        bits: u16,
    ) {
        let problem = with_movers(recipe.without_upstream_deviations().build(), salt);
        let simulator = Simulator::new(&problem);
        let removed_nodes = subset(&problem, bits);
        let (compat, cost) = (request(&removed_nodes, Mode::Compat, false), request(&removed_nodes, Mode::Cost, false));
        let (plain, cheap) = (simulator.simulate(&compat), simulator.simulate(&cost));
        prop_assert_eq!(faults(&problem, &cost, &cheap), Vec::<String>::new());
        prop_assert_eq!(faults(&problem, &compat, &plain), Vec::<String>::new());
        prop_assert!(cheap.plan.price_per_hour <= plain.plan.price_per_hour + 1e-9);
        for request in [compat, cost] {
            let at_home = SimulationRequest { prefers_vacated_domains: true, ..request };
            let home = simulator.simulate(&at_home);
            prop_assert_eq!(faults(&problem, &at_home, &home), Vec::<String>::new());
        }
    }

    #[test]
    fn outcomes_do_not_depend_on_history_or_threads(
        recipe in any_crowded_recipe(),
        salt in 0..20usize,
        sets in prop::collection::vec(any::<u16>(), 2..5),
    ) {
        let problem = with_movers(recipe.build(), salt);
        let sets: Vec<Vec<usize>> = sets.into_iter().map(|bits| subset(&problem, bits)).collect();
        let ask_all = |simulator: &Simulator<'_>| -> Vec<Summary> {
            let modes = [Mode::Compat, Mode::Cost];
            let questions =
                modes.iter().flat_map(|mode| sets.iter().map(|removed_nodes| request(removed_nodes, *mode, false)));
            questions.map(|request| simulated(simulator, &request)).collect()
        };
        let simulator = Simulator::new(&problem);
        let first = ask_all(&simulator);
        let (second, third) = std::thread::scope(|scope| {
            let other = scope.spawn(|| ask_all(&simulator));
            (ask_all(&simulator), other.join())
        });
        prop_assert_eq!(&second, &first);
        let third = third.unwrap_or_default();
        prop_assert_eq!(&third, &first);
        let alone: Vec<Summary> = sets
            .iter()
            .map(|removed_nodes| simulated(&Simulator::new(&problem), &request(removed_nodes, Mode::Cost, false)))
            .collect();
        prop_assert_eq!(&first[sets.len()..], alone);
    }

    #[test]
    fn committed_outcome_becomes_the_cluster(
        recipe in any_crowded_recipe(),
        salt in 0..20usize,
        sets in prop::collection::vec((any::<u16>(), any::<bool>()), 2..4),
    ) {
        let mut recipe = recipe;
        // Limits are removed, because the problem does not say how much of a limit a removed node gives back.
        recipe.pools.iter_mut().for_each(|pool| (pool.cpu_limit, pool.node_limit) = (None, None));
        let problem = with_movers(recipe.build(), salt);
        let mut simulator = Simulator::new(&problem);
        let warm = request(&[], Mode::Compat, false);
        simulator.simulate(&warm);
        for (bits, moves_blocked_pods) in sets {
            let removed_nodes: Vec<usize> =
                subset(&problem, bits).into_iter().filter(|node| simulator.node(*node).is_some()).collect();
            let request = request(&removed_nodes, Mode::Compat, moves_blocked_pods);
            let outcome = simulator.simulate(&request);
            let fork = simulator.fork();
            let waiting_before = waiting(&problem, &outcome);
            let first_new = simulator.node_count();
            let new = simulator.commit(&request, &outcome);
            prop_assert_eq!(new, first_new..first_new + outcome.plan.new_nodes.len());
            // The commit did not change the fork.
            prop_assert_eq!(simulated(&fork, &request), summary_of(&fork, &outcome));
            let now = present_problem(&simulator, &waiting_before);
            let present: Vec<usize> =
                (0..simulator.node_count()).filter(|node| simulator.node(*node).is_some()).collect();
            for again in present.iter().take(3) {
                let removed_nodes = [*again];
                let ours = simulated(&simulator, &self::request(&removed_nodes, Mode::Compat, true));
                let position = present.iter().position(|node| node == again).into_iter().collect::<Vec<_>>();
                let theirs = expected(&now, &self::request(&position, Mode::Compat, true));
                prop_assert_eq!(renamed(ours, &present), theirs, "without {:?}", again);
            }
        }
    }
}

/// For each group: the number of pods that are still pending.
fn waiting(problem: &Problem, outcome: &Outcome) -> Vec<u32> {
    let mut left = vec![0; problem.pods.len()];
    for one in &outcome.plan.unschedulable {
        if let Some(group) = left.get_mut(one.pods.group as usize) {
            *group += one.pods.count;
        }
    }
    left
}

/// The current cluster of the simulator, as a problem.
fn present_problem(simulator: &Simulator<'_>, waiting: &[u32]) -> Problem {
    let mut problem = simulator.problem().clone();
    problem.nodes = (0..simulator.node_count()).filter_map(|node| simulator.node(node).cloned()).collect();
    for (group, left) in problem.pods.iter_mut().zip(waiting) {
        let names = (0..*left).map(|position| group.names.name(position).into()).collect();
        group.names = karpenter_model::problem::PodNames::Listed(names);
    }
    problem
}

/// Replaces node indexes by the index among the nodes that are not removed.
fn renamed(mut summary: Summary, present: &[usize]) -> Summary {
    let position = |node: usize| present.binary_search(&node).unwrap_or(usize::MAX);
    summary.existing = summary.existing.into_iter().map(|(node, pods)| (position(node), pods)).collect();
    for at in summary.movers.iter_mut().flatten() {
        at.node = position(at.node as usize) as u32;
    }
    summary
}
