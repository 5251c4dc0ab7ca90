//! Tests of rebalance on large clusters that were packed well and then lost pods.

#[path = "support/fragmented.rs"]
mod fragmented;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use karpenter_disruption::apply;
use karpenter_disruption::cluster::Cluster;
use karpenter_disruption::command::{Command, Destination};
use karpenter_disruption::rebalance::{self, Rebalancing};
use karpenter_disruption::settings::Settings;
use karpenter_disruption::validate::revalidate;
use karpenter_disruption::verdict::Verdict;
use karpenter_model::plan::{ExistingPlacement, Place, Plan, PodRun};
use karpenter_model::problem::{PodGroup, PodNames, Problem};
use karpenter_model::resources::{CPU, NODES};
use karpenter_scheduling::simulate::{BoundAt, Simulator};
use karpenter_scheduling::validate::validate;

fn plan(cluster: &Cluster) -> Rebalancing {
    let candidates = fragmented::candidates(cluster);
    let simulator = Simulator::new(&cluster.problem);
    rebalance::plan(cluster, &simulator, &candidates, &BTreeMap::new(), &Settings::default())
}

/// The violations of a plan that consists of all moves of the commands, found by the validator.
fn violations(cluster: &Cluster, commands: &[Command]) -> Vec<String> {
    let gone: BTreeSet<usize> = commands
        .iter()
        .flat_map(|command| &command.candidates)
        .filter_map(|candidate| cluster.state_nodes[candidate.state_node].at)
        .collect();
    let kept: Vec<usize> = (0..cluster.problem.nodes.len()).filter(|node| !gone.contains(node)).collect();
    let position: BTreeMap<usize, usize> = kept.iter().enumerate().map(|(at, node)| (*node, at)).collect();
    let mut problem = Problem {
        nodes: kept.iter().map(|node| cluster.problem.nodes[*node].clone()).collect(),
        ..cluster.problem.clone()
    };
    let mut plan = Plan::default();
    let mut received: BTreeMap<usize, Vec<PodRun>> = BTreeMap::new();
    for command in commands {
        let first_new = plan.new_nodes.len();
        plan.new_nodes.extend(command.replacements.iter().cloned());
        for (from, to) in &command.moves {
            let run = PodRun { group: problem.pods.len() as u32, start: 0, count: 1 };
            problem.pods.push(PodGroup {
                spec: cluster.problem.nodes[from.node as usize].pods[from.pod as usize].spec.clone(),
                names: PodNames::Listed(vec![Arc::from(format!("pod-{}-{}", from.node, from.pod))]),
                created_at_secs: 0,
            });
            let place = match to {
                Destination::Existing(node) => Place::Existing(position[node]),
                Destination::New(number) => Place::New(first_new + number),
            };
            match place {
                Place::Existing(node) => received.entry(node).or_default().push(run),
                Place::New(node) => plan.new_nodes[node].pods.push(run),
            }
        }
    }
    plan.existing = received.into_iter().map(|(node, pods)| ExistingPlacement { node, pods }).collect();
    plan.price_per_hour = plan.new_nodes.iter().map(|node| node.price_per_hour).fold(0.0, |a, b| a + b);
    plan.compat_price_per_hour = plan.price_per_hour;
    validate(&problem, &plan).iter().map(ToString::to_string).collect()
}

fn check(cluster: &Cluster, plan: &Rebalancing) {
    let mut price = fragmented::price(cluster);
    assert!((plan.price_now_per_hour - price).abs() < 1e-6);
    for (command, step) in plan.commands.iter().zip(&plan.steps) {
        assert!(command.saving_per_hour() > 0.0);
        assert!(step.price_per_hour < price, "every command makes the fleet cheaper");
        price = step.price_per_hour;
    }
    assert!(plan.price_after_all_per_hour >= plan.lower_bound_per_hour - 1e-6);
    let sources: Vec<usize> = plan
        .commands
        .iter()
        .flat_map(|command| &command.candidates)
        .filter_map(|candidate| cluster.state_nodes[candidate.state_node].at)
        .collect();
    let gone: BTreeSet<usize> = sources.iter().copied().collect();
    assert_eq!(gone.len(), sources.len(), "commands name different nodes");
    let mut moved = BTreeSet::new();
    for command in &plan.commands {
        let own: BTreeSet<usize> = command
            .candidates
            .iter()
            .filter_map(|candidate| cluster.state_nodes[candidate.state_node].at)
            .collect();
        for (from, to) in &command.moves {
            assert!(moved.insert(*from), "no pod moves twice");
            assert!(own.contains(&(from.node as usize)));
            match to {
                Destination::Existing(node) => {
                    assert!(*node < cluster.problem.nodes.len() && !gone.contains(node), "it stays");
                }
                Destination::New(number) => assert!(*number < command.replacements.len()),
            }
        }
        let pods: usize = own.iter().map(|node| cluster.problem.nodes[*node].pods.len()).sum();
        assert_eq!(command.moves.len(), pods, "every pod of a candidate has a target");
    }
    assert_eq!(violations(cluster, &plan.commands), Vec::<String>::new());
    check_each_alone(cluster, plan);
}

/// Budgets may delay any of the commands, so each must be valid without the others. With topology constraints across
/// nodes, its pods may then get other targets, which the validation finds.
fn check_each_alone(cluster: &Cluster, plan: &Rebalancing) {
    let is_spread =
        |node: &karpenter_model::problem::Node| node.pods.iter().any(|pod| !pod.spec.spread.is_empty());
    let is_counted = cluster.problem.nodes.iter().any(is_spread);
    for command in &plan.commands {
        let none = Vec::<String>::new();
        if !is_counted {
            if !command.replacements.is_empty() {
                assert_eq!(violations(cluster, std::slice::from_ref(command)), none);
            }
            continue;
        }
        // Emptiness handles empty nodes; only this test passes them to rebalance as candidates.
        if command.candidates.iter().any(|one| one.is_empty) {
            continue;
        }
        let alone = revalidate(command, cluster, &Settings::default());
        let alone = alone.unwrap_or_else(|verdict| panic!("{:?} by itself: {verdict}", command.candidates));
        let pods: usize = alone
            .candidates
            .iter()
            .filter_map(|one| cluster.state_nodes[one.state_node].at)
            .map(|node| cluster.problem.nodes[node].pods.len())
            .sum();
        assert_eq!(alone.moves.len(), pods, "every pod has a target");
        assert!(alone.saving_per_hour() > 0.0);
        assert_eq!(violations(cluster, &[alone]), none);
    }
}

/// Applies plans until there are no commands; returns the number of pods moved.
fn settle(cluster: &mut Cluster) -> usize {
    let mut pods_moved = 0;
    for _ in 0..20 {
        let plan = plan(cluster);
        if plan.commands.is_empty() {
            return pods_moved;
        }
        check(cluster, &plan);
        pods_moved += plan.steps.last().map_or(0, |step| step.pods_moved);
        *cluster = apply::after(cluster, &plan.commands);
        assert!((fragmented::price(cluster) - plan.price_after_all_per_hour).abs() < 1e-6);
    }
    panic!("no end after 20 plans");
}

#[test]
fn small_clusters_get_cheaper_and_settle() {
    for seed in 0..12 {
        let mut cluster = fragmented::fragmented(60 + 20 * seed as u32, seed);
        let before = fragmented::price(&cluster);
        settle(&mut cluster);
        assert!(fragmented::price(&cluster) < before, "seed {seed}");
    }
}

#[test]
fn rebalance_keeps_topology_spread() {
    for seed in 0..4 {
        let mut cluster = fragmented::constrained(200 + 50 * seed as u32, seed);
        let before = fragmented::price(&cluster);
        settle(&mut cluster);
        assert!(fragmented::price(&cluster) < before, "seed {seed}");
    }
}

#[test]
fn result_is_independent_of_thread_count() {
    let cluster = fragmented::fragmented(400, 3);
    let with_threads = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
        let plan = pool.install(|| plan(&cluster));
        (commands_of(&plan), plan.price_after_all_per_hour.to_bits())
    };
    assert_eq!(with_threads(1), with_threads(3));
}

/// Candidates of a command, and the moves of its pods.
type CommandMoves = (Vec<Arc<str>>, Vec<(BoundAt, Destination)>);

/// The commands in a comparable form.
fn commands_of(plan: &Rebalancing) -> Vec<CommandMoves> {
    let claims = |command: &Command| command.candidates.iter().map(|one| one.claim.clone()).collect();
    plan.commands.iter().map(|command| (claims(command), command.moves.clone())).collect()
}

#[test]
fn verdict_of_each_node_that_stays_is_true() {
    for seed in 1..5 {
        let mut cluster = fragmented::fragmented(1_000, seed);
        loop {
            let plan = plan(&cluster);
            let removed: BTreeSet<usize> =
                plan.commands.iter().flat_map(|one| &one.candidates).map(|one| one.state_node).collect();
            for (position, candidate) in fragmented::candidates(&cluster).iter().enumerate() {
                let verdict = plan.refused.get(&position);
                assert_eq!(verdict.is_some(), !removed.contains(&candidate.state_node));
                match verdict {
                    Some(Verdict::Stays {
                        price_per_hour,
                        pods_elsewhere_per_hour,
                        free_capacity_per_hour,
                        pods,
                        disruption_price_per_hour,
                    }) => {
                        let terms =
                            pods_elsewhere_per_hour + free_capacity_per_hour + disruption_price_per_hour;
                        assert!(*price_per_hour <= terms + 1e-6, "seed {seed}: {verdict:?}");
                        let node = cluster.state_nodes[candidate.state_node].at.expect("a node");
                        assert_eq!(*pods, cluster.problem.nodes[node].pods.len());
                    }
                    // Another command moves pods to the node.
                    Some(Verdict::NotNow) => assert!(!plan.commands.is_empty(), "seed {seed}"),
                    Some(other) => panic!("seed {seed}: {other}"),
                    None => {}
                }
            }
            if plan.commands.is_empty() {
                break;
            }
            cluster = apply::after(&cluster, &plan.commands);
        }
    }
}

#[test]
fn moves_are_priced_equally_in_every_pass() {
    let mut cluster = fragmented::fragmented(1_000, 2);
    let mut prices: Vec<f64> = Vec::new();
    loop {
        let plan = plan(&cluster);
        let with_moves = plan.commands.iter().filter(|command| command.pods_moved() > 0);
        prices.extend(with_moves.map(|one| one.disruption_price_per_hour / one.pods_moved() as f64));
        if plan.commands.is_empty() {
            break;
        }
        cluster = apply::after(&cluster, &plan.commands);
    }
    assert!(prices.len() > 1 && prices[0] > 0.0);
    assert!(prices.iter().all(|price| (price / prices[0] - 1.0).abs() < 0.01), "{prices:?}");
}

#[test]
fn distant_pool_limits_do_not_change_result() {
    let launching = |plan: &Rebalancing| plan.commands.iter().any(|one| !one.replacements.is_empty());
    let mut clusters = (1..6).map(|seed| fragmented::fragmented(2_000, seed));
    let free =
        clusters.find(|cluster| launching(&plan(cluster))).expect("a cluster for which nodes are launched");
    let mut limited = free.clone();
    for pool in &mut limited.problem.pools {
        pool.limits.set(CPU, 1_000_000_000);
        pool.limits.set(NODES, 1_000_000);
    }
    let free = plan(&free);
    assert!(launching(&free));
    assert_eq!(commands_of(&free), commands_of(&plan(&limited)));
}

#[test]
fn two_hundred_nodes_settle_within_two_percent_of_lower_bound() {
    for seed in [1, 2, 4] {
        let mut cluster = fragmented::fragmented(2_000, seed);
        let bound = fragmented::lower_bound(&cluster);
        let before = fragmented::price(&cluster) / bound - 1.0;
        assert!(before > 0.6, "seed {seed}: not fragmented, {before}");
        settle(&mut cluster);
        let price = fragmented::price(&cluster);
        assert!(price <= bound * 1.02, "seed {seed}: {price}, bound {bound}");
    }
}
