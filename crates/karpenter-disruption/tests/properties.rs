//! Properties that hold for every generated cluster: budgets and PodDisruptionBudgets hold, cost falls, every pod has a
//! valid target, and the cluster settles.

#[path = "support/builders.rs"]
mod builders;
#[path = "support/guarantees.rs"]
mod guarantees;
#[path = "support/interleavings.rs"]
mod interleavings;
#[path = "support/replacement.rs"]
mod replacement;
#[path = "support/rich.rs"]
mod rich;
#[path = "support/upstream.rs"]
mod upstream;

use std::collections::{BTreeMap, BTreeSet};

use builders::*;
use guarantees::{check_commands, check_places};
use interleavings::{Event, Run};
use karpenter_disruption::apply::after;
use karpenter_disruption::cluster::{Cluster, Reason};
use karpenter_disruption::command::{Command, Method};
use karpenter_disruption::evaluate::evaluate;
use karpenter_disruption::settings::Settings;
use karpenter_disruption::validate::revalidate;
use karpenter_model::labels;
use karpenter_model::pod::{PodAffinityTerm, PodSpec, TopologySpread};
use karpenter_model::problem::Mobility;
use karpenter_model::selector::LabelSelector;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};

/// A generated node.
#[derive(Debug, Clone)]
struct Drawn {
    type_index: usize,
    pool: usize,
    state: u8,
    pods: Vec<(u8, i64)>,
}

#[derive(Debug, Clone)]
struct World {
    state_nodes: Vec<Drawn>,
    /// How many nodes the budgets of each of the two NodePools allow, by reason.
    allowed: Vec<u32>,
    /// How many evictions the PodDisruptionBudgets of three applications allow.
    evictions: Vec<u32>,
}

const APPS: [&str; 3] = ["plain", "spread", "apart"];
const TYPES: [&str; 3] = ["small", "medium", "large"];

fn worlds() -> impl Strategy<Value = World> {
    let pod = (0u8..3, prop::sample::select(vec![100i64, 300, 700, 1200, 1800]));
    let state_node = (0usize..3, 0usize..2, 0u8..12, prop::collection::vec(pod, 0..5))
        .prop_map(|(type_index, pool, state, pods)| Drawn { type_index, pool, state, pods });
    let allowed = prop::collection::vec(0u32..5, 8);
    let evictions = prop::collection::vec(0u32..6, 3);
    (prop::collection::vec(state_node, 1..12), allowed, evictions)
        .prop_map(|(state_nodes, allowed, evictions)| World { state_nodes, allowed, evictions })
}

fn spec(app: u8, cpu_millis: i64) -> PodSpec {
    let app = APPS[app as usize];
    let mut spec = pod(app, cpu_millis);
    let selector = Some(LabelSelector::from_match_labels(&label_map(&[("app", app)])));
    match app {
        "spread" => spec.spread.push(TopologySpread {
            key: labels::HOSTNAME.into(),
            max_skew: 3,
            min_domains: None,
            hard: true,
            selector,
            honor_affinity: true,
            honor_taints: false,
        }),
        "apart" => spec.anti_affinity.push(PodAffinityTerm {
            key: labels::HOSTNAME.into(),
            selector,
            namespaces: BTreeSet::from(["default".into()]),
        }),
        _ => {}
    }
    spec
}

fn build(world: &World) -> Cluster {
    let mut cluster = cluster();
    add_pool(&mut cluster, "mixed", &[labels::CAPACITY_TYPE_ON_DEMAND, labels::CAPACITY_TYPE_SPOT]);
    for (number, drawn) in world.state_nodes.iter().enumerate() {
        let (pool, kind) = match (drawn.pool, number % 2) {
            (0, _) => ("general", labels::CAPACITY_TYPE_ON_DEMAND),
            (_, 0) => ("mixed", labels::CAPACITY_TYPE_ON_DEMAND),
            (_, _) => ("mixed", labels::CAPACITY_TYPE_SPOT),
        };
        let name = format!("m{number:02}");
        let state_node = add_to(&mut cluster, &name, pool, TYPES[drawn.type_index], kind, &[]);
        let mut free = cluster.problem.nodes[state_node].allocatable.get("cpu");
        let mut is_apart = false;
        for (app, cpu_millis) in &drawn.pods {
            // Only valid states are generated: no node has more pods than its capacity, or two pods with anti-affinity
            // to each other.
            let is_second = APPS[*app as usize] == "apart" && is_apart;
            if *cpu_millis <= free && !is_second {
                free -= cpu_millis;
                is_apart |= APPS[*app as usize] == "apart";
                bind(&mut cluster, state_node, spec(*app, *cpu_millis)).budgets.push(u32::from(*app));
            }
        }
        set_state(&mut cluster, state_node, drawn.state);
    }
    for (number, app) in APPS.iter().enumerate() {
        guard(&mut cluster, &format!("default/{app}"), world.evictions[number], &[]);
    }
    let reasons = ["general", "mixed"].into_iter().flat_map(|pool| Reason::ALL.map(|reason| (pool, reason)));
    for ((pool, reason), count) in reasons.zip(&world.allowed) {
        allow(&mut cluster, pool, reason, *count);
    }
    cluster
}

fn set_state(cluster: &mut Cluster, state_node: usize, state: u8) {
    let one = &mut cluster.state_nodes[state_node];
    match state {
        0 => one.drifted_since_secs = Some(state_node as i64),
        1 => one.is_ready = false,
        2 => one.is_do_not_disrupt = true,
        3 => one.is_nominated = true,
        4 => one.repair = sick(state_node as f64),
        5 => {
            one.is_initialized = false;
            cluster.problem.nodes[state_node].initialized = false;
        }
        6 => {
            for (node_pod, pod) in
                one.pods.iter_mut().zip(&mut cluster.problem.nodes[state_node].pods).take(1)
            {
                node_pod.is_do_not_disrupt = true;
                pod.mobility = Mobility::Blocked;
            }
        }
        _ => {}
    }
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        5 => Just(Event::Evaluate),
        4 => Just(Event::Validate),
        3 => Just(Event::Done),
        1 => (0u8..2, 0u8..4, 0u32..5).prop_map(|(pool, reason, count)| Event::Allow { pool, reason, count }),
        1 => (0u8..12, any::<bool>()).prop_map(|(state_node, is_ready)| Event::Ready { state_node, is_ready }),
    ];
    prop::collection::vec(event, 1..25)
}

fn settings() -> [Settings; 2] {
    let effort = 50;
    [Settings { effort, ..compat() }, Settings { effort, ..cost() }]
}

fn price_of(cluster: &Cluster) -> f64 {
    cluster.state_nodes.iter().map(|state_node| state_node.price_per_hour).sum()
}

/// The commands in a form that does not depend on indexes, for comparisons.
fn essence(commands: &[Command]) -> Vec<(Vec<String>, String)> {
    let mut essence: Vec<_> = commands
        .iter()
        .map(|command| {
            let mut claims: Vec<String> = claims_of(command).into_iter().map(str::to_owned).collect();
            claims.sort();
            (
                claims,
                format!("{:?} {:?} {:.9}", command.method, command.decision, command.price_after_per_hour),
            )
        })
        .collect();
    essence.sort();
    essence
}

/// Applies commands until there are none: every evaluation fulfils the guarantees, and consolidation lowers the price.
fn come_to_an_end(cluster: &mut Cluster, settings: &Settings) {
    for _ in 0..=60 {
        let commands = evaluate(cluster, settings).commands;
        let Some(first) = commands.first() else { return };
        check_commands(cluster, settings, &commands);
        check_some_of(cluster, &commands);
        let next = after(cluster, &commands);
        let is_saving = first.method.reason() == Reason::Underutilized;
        assert!(!is_saving || price_of(&next) < price_of(cluster), "the cluster became more expensive");
        *cluster = next;
    }
    panic!("the cluster does not settle: {:?}", essence(&evaluate(cluster, settings).commands));
}

/// Some of the commands may be dropped or delayed because of budgets. So after any subset of the commands, every pod
/// that consolidation moves must have a valid target.
fn check_some_of(cluster: &Cluster, commands: &[Command]) {
    if commands.iter().any(|command| command.method.reason() != Reason::Underutilized) {
        return;
    }
    for (number, command) in commands.iter().enumerate() {
        check_places(cluster, std::slice::from_ref(command));
        check_places(cluster, &commands[number..]);
        check_places(cluster, &commands[..number]);
    }
}

/// The same cluster with the nodes in reverse order.
fn reversed(cluster: &Cluster) -> Cluster {
    let mut cluster = cluster.clone();
    cluster.state_nodes.reverse();
    cluster
}

/// The generated clusters must often have commands, or the properties would test little.
#[test]
fn generated_clusters_cover_every_method() {
    let mut runner = TestRunner::deterministic();
    let mut seen: BTreeMap<Method, usize> = BTreeMap::new();
    for _ in 0..200 {
        let world = worlds().new_tree(&mut runner).expect("a world").current();
        for settings in settings() {
            for command in evaluate(&build(&world), &settings).commands {
                *seen.entry(command.method).or_default() += 1;
            }
        }
    }
    for method in
        Method::ORDER.into_iter().filter(|method| !matches!(method, Method::StaticDrift | Method::Expiration))
    {
        assert!(seen.get(&method).is_some_and(|count| *count >= 5), "{method:?} is rare: {seen:?}");
    }
}

/// The clusters with more features (`rich`) must have commands of every method and of every kind.
#[test]
fn rich_clusters_cover_every_method_and_kind() {
    let mut runner = TestRunner::deterministic();
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for _ in 0..400 {
        let world = rich::worlds().new_tree(&mut runner).expect("a world").current();
        let cluster = rich::build(&world);
        for settings in rich::settings(&world) {
            let evaluation = evaluate(&cluster, &settings);
            for command in &evaluation.commands {
                *seen.entry(format!("{:?}", command.method)).or_default() += 1;
                for kind in rich::kinds(&cluster, command) {
                    *seen.entry(kind.to_owned()).or_default() += 1;
                }
            }
            *seen.entry("rehearsal".to_owned()).or_default() += evaluation.dry_run_commands.len();
        }
    }
    let methods = Method::ORDER.into_iter().filter(|method| *method != Method::Expiration);
    let methods = methods.map(|method| format!("{method:?}"));
    let kinds = rich::KINDS.into_iter().chain(["rehearsal"]).map(str::to_owned);
    for one in methods.chain(kinds) {
        assert!(seen.get(&one).is_some_and(|count| *count >= 5), "{one} is rare: {seen:?}");
    }
}

/// Pods of equal size and different kinds have no defined order. Placed one by one or grouped by kind, they are placed
/// on different nodes, here on one that is not initialized. The validator must place them in the planner's order.
#[test]
fn validator_places_equal_pods_in_planners_order() {
    let state_node =
        |type_index, pool, state, pods: &[(u8, i64)]| Drawn { type_index, pool, state, pods: pods.to_vec() };
    let (kept, coming, quiet) = (2, 5, 7);
    let world = World {
        state_nodes: vec![
            state_node(0, 0, quiet, &[]),
            state_node(0, 0, quiet, &[(2, 300), (0, 700)]),
            state_node(1, 0, kept, &[]),
            state_node(0, 1, quiet, &[(0, 1800)]),
            state_node(1, 0, kept, &[]),
            state_node(2, 1, quiet, &[(0, 1800), (2, 1800), (0, 1200)]),
            state_node(0, 0, coming, &[]),
            state_node(1, 0, quiet, &[(2, 300), (0, 1800)]),
            state_node(1, 0, kept, &[]),
        ],
        allowed: vec![0, 0, 0, 2, 0, 0, 0, 2],
        evictions: vec![1, 0, 1],
    };
    let cluster = build(&world);
    let evaluation = evaluate(&cluster, &settings()[0]);
    assert_eq!(evaluation.commands[0].candidates.len(), 4, "{:?}", essence(&evaluation.commands));
    upstream::check(&cluster, &settings()[0], &evaluation);
}

/// Commands that were planned together are validated one by one. If pods are planned in another order, they may need
/// one more node, so validation may reject a valid command; this must be rare. A rejected command is planned again.
#[test]
fn validation_of_unchanged_cluster_rejects_almost_nothing() {
    let mut runner = TestRunner::deterministic();
    let (mut validated, mut rejected) = (0, 0);
    for _ in 0..5_000 {
        let world = rich::worlds().new_tree(&mut runner).expect("a world").current();
        let cluster = rich::build(&world);
        for settings in rich::settings(&world) {
            for command in
                evaluate(&cluster, &settings).commands.iter().filter(|one| one.method == Method::Rebalance)
            {
                validated += 1;
                rejected += usize::from(revalidate(command, &cluster, &settings).is_err());
            }
        }
    }
    assert!(validated > 1_000 && rejected * 500 <= validated, "{rejected} of {validated}");
}

/// Zonal constraints matter most after several rounds of commands, so this test runs many clusters with fixed seeds
/// until they settle.
#[test]
fn rich_clusters_settle() {
    let config = ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let ended = TestRunner::new_with_rng(config, rng).run(&rich::worlds(), |world| {
        for settings in rich::settings(&world) {
            come_to_an_end(&mut rich::build(&world), &settings);
        }
        Ok(())
    });
    ended.unwrap_or_else(|verdict| panic!("{verdict}"));
}

/// Some of the generated runs must have commands that awaited a budget and started.
#[test]
fn generated_runs_cover_commands_awaiting_budget() {
    let mut runner = TestRunner::deterministic();
    let (mut awaited, mut started) = (0, 0);
    for _ in 0..150 {
        let world = rich::worlds().new_tree(&mut runner).expect("a world").current();
        let events = events().new_tree(&mut runner).expect("events").current();
        let settings = &settings()[1];
        let mut run = Run::planning_beyond_budgets(rich::build(&world), settings);
        events.iter().for_each(|event| run.happen(*event));
        awaited += run.awaited_budget_count;
        started += run.started_after_budget_wait_count;
    }
    assert!(awaited >= 30 && started >= 5, "{awaited} awaited a budget, {started} of them started");
}

/// Some of the generated runs must have several commands in progress at once. Otherwise no events of different commands
/// would be interleaved.
#[test]
fn generated_runs_cover_concurrent_commands() {
    let mut runner = TestRunner::deterministic();
    let mut counts = Vec::new();
    for _ in 0..100 {
        let world = worlds().new_tree(&mut runner).expect("a world").current();
        let events = events().new_tree(&mut runner).expect("events").current();
        let settings = &settings()[1];
        let mut run = Run::new(build(&world), settings);
        events.iter().for_each(|event| run.happen(*event));
        counts.push(run.started_count);
    }
    let several = counts.iter().filter(|count| **count >= 2).count();
    assert!(several >= 15, "{several} of 100: {counts:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn guarantees_hold(world in worlds()) {
        let cluster = build(&world);
        for settings in settings() {
            let evaluation = evaluate(&cluster, &settings);
            prop_assert_eq!(evaluation.verdicts.len(), cluster.state_nodes.len());
            check_commands(&cluster, &settings, &evaluation.commands);
        }
    }

    #[test]
    fn compat_mode_equals_upstream(world in worlds()) {
        let mut cluster = build(&world);
        // Repair has tests of its own, so it is left out here.
        cluster.state_nodes.iter_mut().for_each(|state_node| state_node.repair = None);
        let settings = &settings()[0];
        upstream::check(&cluster, settings, &evaluate(&cluster, settings));
    }

    #[test]
    fn compat_mode_equals_upstream_in_rich_clusters(world in rich::worlds()) {
        let mut cluster = rich::build(&world);
        rich::leave_to_upstream(&mut cluster);
        let settings = &rich::settings(&world)[0];
        upstream::check(&cluster, settings, &evaluate(&cluster, settings));
    }

    #[test]
    fn result_is_independent_of_node_order(world in worlds()) {
        let cluster = build(&world);
        for settings in settings() {
            let (one, other) = (evaluate(&cluster, &settings), evaluate(&reversed(&cluster), &settings));
            prop_assert_eq!(essence(&one.commands), essence(&other.commands));
            let words = |verdicts: &[karpenter_disruption::verdict::NodeVerdict]| -> BTreeMap<String, String> {
                let words = verdicts.iter().map(|one| (one.claim.to_string(), one.verdict.to_string()));
                words.collect()
            };
            prop_assert_eq!(words(&one.verdicts), words(&other.verdicts));
        }
    }

    #[test]
    fn validation_without_change_agrees(world in worlds()) {
        let cluster = build(&world);
        for settings in settings() {
            for command in evaluate(&cluster, &settings).commands.iter().filter(|one| one.method.is_validated()) {
                let again = revalidate(command, &cluster, &settings);
                prop_assert!(again.is_ok(), "{:?}: {:?}", essence(std::slice::from_ref(command)), again.err());
            }
        }
    }

    #[test]
    fn budgets_hold_under_any_interleaving(world in worlds(), events in events()) {
        for settings in settings() {
            let mut run = Run::new(build(&world), &settings);
            for event in &events {
                run.happen(*event);
            }
        }
    }

    #[test]
    fn budgets_hold_for_commands_awaiting_budget(world in rich::worlds(), events in events()) {
        for settings in rich::settings(&world) {
            let mut run = Run::planning_beyond_budgets(rich::build(&world), &settings);
            for event in &events {
                run.happen(*event);
            }
        }
    }

    #[test]
    fn guarantees_hold_in_rich_clusters(world in rich::worlds()) {
        let cluster = rich::build(&world);
        for settings in rich::settings(&world) {
            let evaluation = evaluate(&cluster, &settings);
            prop_assert_eq!(evaluation.verdicts.len(), cluster.state_nodes.len());
            check_commands(&cluster, &settings, &evaluation.commands);
            let is_settled = |one: &&Command| one.method.is_validated() && one.method != Method::Rebalance;
            for command in evaluation.commands.iter().filter(is_settled) {
                let again = revalidate(command, &cluster, &settings);
                prop_assert!(again.is_ok(), "{:?}: {:?}", essence(std::slice::from_ref(command)), again.err());
            }
        }
    }

    #[test]
    fn clusters_settle(world in worlds()) {
        for settings in settings() {
            let mut cluster = build(&world);
            come_to_an_end(&mut cluster, &settings);
        }
    }
}
