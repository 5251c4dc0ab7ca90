//! What holds for every fleet: budgets, pods' budgets, falling cost, a valid place for every pod, and an end.

#[path = "support/builders.rs"]
mod builders;
#[path = "support/interleavings.rs"]
mod interleavings;
#[path = "support/upstream.rs"]
mod upstream;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use builders::*;
use interleavings::{Event, Run};
use karpenter_disruption::budgets::remaining;
use karpenter_disruption::carried_out::after;
use karpenter_disruption::command::{Command, Destination, Method};
use karpenter_disruption::fleet::{Fleet, Reason};
use karpenter_disruption::prices::{catalog_of, worst_launch_price};
use karpenter_disruption::propose::propose;
use karpenter_disruption::settings::{Mode, Settings};
use karpenter_disruption::validate::revalidate;
use karpenter_model::labels;
use karpenter_model::plan::{ExistingPlacement, Plan, PodRun};
use karpenter_model::pod::{PodAffinityTerm, PodSpec, TopologySpread};
use karpenter_model::problem::{Mobility, PodGroup, PodNames, Problem};
use karpenter_model::selector::LabelSelector;
use karpenter_scheduling::simulate::BoundAt;
use karpenter_scheduling::validate::validate;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

/// A machine as a strategy draws it.
#[derive(Debug, Clone)]
struct Drawn {
    type_index: usize,
    pool: usize,
    state: u8,
    pods: Vec<(u8, i64)>,
}

#[derive(Debug, Clone)]
struct World {
    machines: Vec<Drawn>,
    /// What each of two pools allows, by reason.
    allowed: Vec<u32>,
    /// What each of three applications' budgets allow.
    evictions: Vec<u32>,
}

const APPS: [&str; 3] = ["plain", "spread", "apart"];
const TYPES: [&str; 3] = ["small", "medium", "large"];

fn worlds() -> impl Strategy<Value = World> {
    let pod = (0u8..3, prop::sample::select(vec![100i64, 300, 700, 1200, 1800]));
    let machine = (0usize..3, 0usize..2, 0u8..12, prop::collection::vec(pod, 0..5))
        .prop_map(|(type_index, pool, state, pods)| Drawn { type_index, pool, state, pods });
    let allowed = prop::collection::vec(0u32..5, 8);
    let evictions = prop::collection::vec(0u32..6, 3);
    (prop::collection::vec(machine, 1..12), allowed, evictions)
        .prop_map(|(machines, allowed, evictions)| World { machines, allowed, evictions })
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

fn build(world: &World) -> Fleet {
    let mut fleet = fleet();
    add_pool(&mut fleet, "mixed", &[labels::CAPACITY_TYPE_ON_DEMAND, labels::CAPACITY_TYPE_SPOT]);
    for (number, drawn) in world.machines.iter().enumerate() {
        let (pool, kind) = match (drawn.pool, number % 2) {
            (0, _) => ("general", labels::CAPACITY_TYPE_ON_DEMAND),
            (_, 0) => ("mixed", labels::CAPACITY_TYPE_ON_DEMAND),
            (_, _) => ("mixed", labels::CAPACITY_TYPE_SPOT),
        };
        let name = format!("m{number:02}");
        let machine = add_to(&mut fleet, &name, pool, TYPES[drawn.type_index], kind, &[]);
        let mut free = fleet.problem.nodes[machine].allocatable.get("cpu");
        let mut is_apart = false;
        for (app, cpu_millis) in &drawn.pods {
            // Only what could be there: no node holds more than it has, nor two pods that stay apart.
            let is_second = APPS[*app as usize] == "apart" && is_apart;
            if *cpu_millis <= free && !is_second {
                free -= cpu_millis;
                is_apart |= APPS[*app as usize] == "apart";
                bind(&mut fleet, machine, spec(*app, *cpu_millis)).budgets.push(u32::from(*app));
            }
        }
        set_state(&mut fleet, machine, drawn.state);
    }
    for (number, app) in APPS.iter().enumerate() {
        guard(&mut fleet, &format!("default/{app}"), world.evictions[number], &[]);
    }
    let reasons = ["general", "mixed"].into_iter().flat_map(|pool| Reason::ALL.map(|reason| (pool, reason)));
    for ((pool, reason), count) in reasons.zip(&world.allowed) {
        allow(&mut fleet, pool, reason, *count);
    }
    fleet
}

fn set_state(fleet: &mut Fleet, machine: usize, state: u8) {
    let one = &mut fleet.machines[machine];
    match state {
        0 => one.drifted_since_secs = Some(machine as i64),
        1 => one.is_ready = false,
        2 => one.is_kept = true,
        3 => one.is_nominated = true,
        4 => one.repair = sick(machine as f64),
        5 => {
            one.is_initialized = false;
            fleet.problem.nodes[machine].initialized = false;
        }
        6 => {
            for (occupant, pod) in
                one.occupants.iter_mut().zip(&mut fleet.problem.nodes[machine].pods).take(1)
            {
                occupant.is_kept = true;
                pod.mobility = Mobility::Blocked;
            }
        }
        _ => {}
    }
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        5 => Just(Event::Look),
        4 => Just(Event::SecondLook),
        3 => Just(Event::Done),
        1 => (0u8..2, 0u8..4, 0u32..5).prop_map(|(pool, reason, count)| Event::Allow { pool, reason, count }),
        1 => (0u8..12, any::<bool>()).prop_map(|(machine, is_ready)| Event::Ready { machine, is_ready }),
    ];
    prop::collection::vec(event, 1..25)
}

fn settings() -> [Settings; 2] {
    let effort = 50;
    [Settings { effort, ..compat() }, Settings { effort, ..cost() }]
}

/// Everything that the commands of a proposal promise together.
fn check_commands(fleet: &Fleet, settings: &Settings, commands: &[Command]) {
    let mut seen = BTreeSet::new();
    let mut taken: BTreeMap<(Arc<str>, Reason), u32> = BTreeMap::new();
    for command in commands {
        assert_eq!(command.method, commands[0].method, "one method per proposal");
        for candidate in &command.candidates {
            assert!(seen.insert(candidate.machine), "{} twice", candidate.claim);
            if fleet.machines[candidate.machine].is_initialized {
                *taken.entry((candidate.pool.clone(), command.method.reason())).or_default() += 1;
            }
        }
    }
    for ((pool, reason), count) in taken {
        let left = remaining(fleet, reason)[&pool].left();
        assert!(count <= left, "{count} of {left} {reason:?} in {pool}");
    }
    if let Some(first) = commands.first()
        && first.method.reason() == Reason::Underutilized
    {
        check_savings(fleet, commands);
        if settings.mode == Mode::Cost {
            check_pod_budgets(fleet, commands);
        }
    }
    if commands.iter().all(|command| command.method != Method::Emptiness) {
        check_places(fleet, commands);
    }
}

fn check_savings(fleet: &Fleet, commands: &[Command]) {
    for command in commands {
        assert!(command.saving_per_hour() > 0.0, "{:?} saves nothing", claims_of(command));
        let worst = |node| {
            let catalog = catalog_of(&fleet.problem, node);
            let options = node.instance_type_options.iter().map(|option| &catalog[*option]);
            let prices = options
                .map(|one| worst_launch_price(one, &node.requirements, &fleet.problem.well_known).unwrap());
            prices.fold(0.0, f64::max)
        };
        let worst: f64 = command.replacements.iter().map(worst).sum();
        assert!(worst < command.price_before_per_hour, "{worst} could be the price in the end");
    }
}

fn check_pod_budgets(fleet: &Fleet, commands: &[Command]) {
    let mut evictions = vec![0; fleet.pod_budgets.len()];
    for candidate in commands.iter().flat_map(|command| &command.candidates) {
        for occupant in &fleet.machines[candidate.machine].occupants {
            occupant.budgets.iter().for_each(|budget| evictions[*budget as usize] += 1);
        }
    }
    for (budget, count) in fleet.pod_budgets.iter().zip(evictions) {
        assert!(count <= budget.disruptions_allowed, "{count} evictions of {}", budget.name);
    }
}

/// Every pod that has to move has one place, and the judge of plans agrees with all of them together.
fn check_places(fleet: &Fleet, commands: &[Command]) {
    let gone: BTreeSet<usize> = commands
        .iter()
        .flat_map(|command| &command.candidates)
        .filter_map(|candidate| fleet.machines[candidate.machine].at)
        .collect();
    let least = |command: &Command| match command.method {
        Method::Repair => Mobility::Blocked,
        _ => Mobility::Moves,
    };
    let mut position = BTreeMap::new();
    let mut problem = Problem { nodes: Vec::new(), ..fleet.problem.clone() };
    for (index, node) in fleet.problem.nodes.iter().enumerate().filter(|(index, _)| !gone.contains(index)) {
        position.insert(index, problem.nodes.len());
        problem.nodes.push(node.clone());
    }
    let mut plan = Plan::default();
    let mut existing: BTreeMap<usize, Vec<PodRun>> = BTreeMap::new();
    for command in commands {
        let mut expected = BTreeSet::new();
        for candidate in &command.candidates {
            let node = fleet.machines[candidate.machine].at.expect("candidates have nodes");
            let pods = fleet.problem.nodes[node].pods.iter().enumerate();
            let moving = pods.filter(|(_, pod)| pod.mobility >= least(command));
            expected.extend(moving.map(|(pod, _)| BoundAt { node: node as u32, pod: pod as u32 }));
        }
        let moved: Vec<BoundAt> = command.moves.iter().map(|(pod, _)| *pod).collect();
        assert_eq!(moved, expected.into_iter().collect::<Vec<_>>(), "each pod once");
        let first = plan.new_nodes.len();
        plan.new_nodes.extend(command.replacements.iter().cloned());
        for (pod, to) in &command.moves {
            let run = PodRun { group: problem.pods.len() as u32, start: 0, count: 1 };
            problem.pods.push(PodGroup {
                spec: fleet.problem.nodes[pod.node as usize].pods[pod.pod as usize].spec.clone(),
                names: PodNames::Numbered { prefix: format!("pod-{}", problem.pods.len()).into(), count: 1 },
                created_at_secs: 0,
            });
            match to {
                Destination::New(number) => plan.new_nodes[first + number].pods.push(run),
                Destination::Existing(node) => {
                    assert!(fleet.problem.nodes[*node].initialized, "a node that is coming up is no place");
                    existing.entry(position[node]).or_default().push(run);
                }
            }
        }
    }
    plan.existing = existing.into_iter().map(|(node, pods)| ExistingPlacement { node, pods }).collect();
    plan.price_per_hour = plan.new_nodes.iter().map(|node| node.price_per_hour).sum();
    plan.compat_price_per_hour = plan.price_per_hour;
    let violations = validate(&problem, &plan);
    assert!(violations.is_empty(), "{violations:?}");
}

fn price_of(fleet: &Fleet) -> f64 {
    fleet.machines.iter().map(|machine| machine.price_per_hour).sum()
}

/// What was decided, whatever the indexes are.
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

/// The same fleet with machines listed the other way round.
fn reversed(fleet: &Fleet) -> Fleet {
    let mut fleet = fleet.clone();
    fleet.machines.reverse();
    fleet
}

/// The properties would be worth little if worlds in which something happens were rare.
#[test]
fn worlds_have_something_for_every_method() {
    let mut runner = TestRunner::deterministic();
    let mut seen: BTreeMap<Method, usize> = BTreeMap::new();
    for _ in 0..200 {
        let world = worlds().new_tree(&mut runner).expect("a world").current();
        for settings in settings() {
            for command in propose(&build(&world), &settings).commands {
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

/// Several commands are under way at once in some of the runs, else nothing would be interleaved.
#[test]
fn runs_have_several_commands() {
    let mut runner = TestRunner::deterministic();
    let mut counts = Vec::new();
    for _ in 0..100 {
        let world = worlds().new_tree(&mut runner).expect("a world").current();
        let events = events().new_tree(&mut runner).expect("events").current();
        let settings = &settings()[1];
        let mut run = Run::new(build(&world), settings);
        events.iter().for_each(|event| run.happen(*event));
        counts.push(run.begun_count);
    }
    let several = counts.iter().filter(|count| **count >= 2).count();
    assert!(several >= 15, "{several} of 100: {counts:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn promises_hold_together(world in worlds()) {
        let fleet = build(&world);
        for settings in settings() {
            let proposal = propose(&fleet, &settings);
            prop_assert_eq!(proposal.standings.len(), fleet.machines.len());
            check_commands(&fleet, &settings, &proposal.commands);
        }
    }

    #[test]
    fn mode_compat_does_what_upstream_would(world in worlds()) {
        let mut fleet = build(&world);
        // Repair has rules of its own, see there.
        fleet.machines.iter_mut().for_each(|machine| machine.repair = None);
        upstream::check(&fleet, &propose(&fleet, &settings()[0]));
    }

    #[test]
    fn the_order_of_machines_does_not_matter(world in worlds()) {
        let fleet = build(&world);
        for settings in settings() {
            let (one, other) = (propose(&fleet, &settings), propose(&reversed(&fleet), &settings));
            prop_assert_eq!(essence(&one.commands), essence(&other.commands));
            let words = |standings: &[karpenter_disruption::explain::Standing]| -> BTreeMap<String, String> {
                let words = standings.iter().map(|one| (one.claim.to_string(), one.why.to_string()));
                words.collect()
            };
            prop_assert_eq!(words(&one.standings), words(&other.standings));
        }
    }

    #[test]
    fn a_second_look_without_change_agrees(world in worlds()) {
        let fleet = build(&world);
        for settings in settings() {
            for command in propose(&fleet, &settings).commands.iter().filter(|one| one.method.is_validated()) {
                let again = revalidate(command, &fleet, &settings);
                prop_assert!(again.is_ok(), "{:?}: {:?}", essence(std::slice::from_ref(command)), again.err());
            }
        }
    }

    #[test]
    fn budgets_hold_whatever_happens_in_whatever_order(world in worlds(), events in events()) {
        for settings in settings() {
            let mut run = Run::new(build(&world), &settings);
            for event in &events {
                run.happen(*event);
            }
        }
    }

    #[test]
    fn there_is_an_end_and_it_is_quiet(world in worlds()) {
        for settings in settings() {
            let mut fleet = build(&world);
            let mut rounds = 0;
            loop {
                let proposal = propose(&fleet, &settings);
                if proposal.commands.is_empty() {
                    break;
                }
                check_commands(&fleet, &settings, &proposal.commands);
                let next = after(&fleet, &proposal.commands);
                let is_saving = proposal.commands[0].method.reason() == Reason::Underutilized;
                if is_saving {
                    prop_assert!(price_of(&next) < price_of(&fleet), "the fleet got dearer");
                }
                fleet = next;
                rounds += 1;
                prop_assert!(rounds <= 60, "no end in sight: {:?}", essence(&proposal.commands));
            }
            prop_assert!(propose(&fleet, &settings).commands.is_empty());
        }
    }
}
