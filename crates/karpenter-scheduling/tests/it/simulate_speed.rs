//! Measures how long one simulation takes on a large fragmented fleet. The test prints figures, so it is ignored by
//! default. To run it: `cargo test -p karpenter-scheduling --test it simulate_speed:: -- --ignored --nocapture`.

use crate::support::builders;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use builders::{all_of, near, pool, spread, wants};
use karpenter_catalog::aws::{self, AwsNodeClass};
use karpenter_model::labels::{self, HOSTNAME, ZONE};
use karpenter_model::pod::PodSpec;
use karpenter_model::problem::{Mobility, Mode, NodePool, PodGroup, Problem, ReservedMode};
use karpenter_model::requirements::{Operator, Requirement};
use karpenter_scheduling::simulate::{SimulationRequest, Simulator, dual_prices};

const MIB: i64 = 1024 * 1024;

struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn choose<T: Copy>(&mut self, items: &[T]) -> T {
        items[(self.next() % items.len() as u64) as usize]
    }
}

fn capped_pool(name: &str) -> NodePool {
    let mut pool = pool(name);
    pool.requirements = all_of([
        wants(labels::CAPACITY_TYPE, &[labels::CAPACITY_TYPE_ON_DEMAND]),
        wants(labels::ARCH, &["amd64"]),
        wants(labels::OS, &["linux"]),
        wants(aws::labels::INSTANCE_CATEGORY, &["c", "m", "r"]),
        Requirement::new(aws::labels::INSTANCE_GENERATION, Operator::Gt, ["2"]),
        wants(aws::labels::INSTANCE_CPU, &["4", "8", "16", "32"]),
    ]);
    pool
}

/// Pods of forty shapes. With `constrained`, each shape spreads over zones, and every third has anti-affinity between
/// its own pods on the same node. With several NodePools, each shape requires one of them.
fn pods(count: u32, pools: usize, constrained: bool) -> Vec<PodGroup> {
    const CPU: [i64; 15] = [50, 100, 200, 250, 300, 500, 500, 750, 1000, 1000, 1500, 2000, 2000, 3000, 4000];
    const HALF_GIB_PER_CORE: [i64; 13] = [1, 2, 2, 4, 4, 6, 8, 8, 12, 16, 16, 24, 32];
    let mut rng = Rng(7);
    let mut drawn = BTreeSet::new();
    while drawn.len() < 40 {
        let cpu_millis = rng.choose(&CPU);
        let memory_mib = cpu_millis * rng.choose(&HALF_GIB_PER_CORE) * 512 / 1000;
        drawn.insert((cpu_millis, (memory_mib / 32 * 32).max(64)));
    }
    let shapes = drawn.into_iter().enumerate();
    shapes
        .map(|(number, (cpu_millis, memory_mib))| {
            let name = format!("svc-{number}");
            let mut spec: PodSpec = builders::pod(&name, cpu_millis);
            spec.requests.set("memory", memory_mib * MIB);
            if pools > 1 {
                spec.node_selector =
                    all_of([wants(labels::NODEPOOL, &[&format!("pool-{}", number % pools)])]);
            }
            if constrained {
                spec.spread = vec![spread(ZONE, &name, 1)];
                if number % 3 == 0 {
                    spec.anti_affinity = vec![near(HOSTNAME, &name)];
                }
            }
            builders::group(&name, spec, count / 40)
        })
        .collect()
}

/// A fleet packed by compat mode, from which two fifths of the pods are then deleted, unevenly over the nodes. With
/// `is_full`, no pods are deleted, so nearly every simulation needs new nodes.
fn fleet(pod_count: u32, pools: usize, constrained: bool, is_full: bool) -> Problem {
    let types = Arc::new(aws::catalog().resolve(&AwsNodeClass::default()));
    let empty = Problem {
        catalogs: vec![types],
        pools: (0..pools).map(|number| capped_pool(&format!("pool-{number}"))).collect(),
        pods: pods(if is_full { pod_count } else { pod_count * 5 / 3 }, pools, constrained),
        well_known: labels::WELL_KNOWN
            .iter()
            .chain(aws::labels::WELL_KNOWN.iter())
            .map(|key| Arc::from(*key))
            .collect(),
        ..Problem::default()
    };
    let mut simulator = Simulator::new(&empty);
    let nothing = BTreeMap::new();
    let all = request(&[], Mode::Compat, &nothing);
    let outcome = simulator.simulate(&all);
    simulator.commit(&all, &outcome);
    let mut rng = Rng(11);
    let mut nodes: Vec<_> =
        (0..simulator.node_count()).filter_map(|node| simulator.node(node).cloned()).collect();
    for node in &mut nodes {
        let kept_percent = [10, 40, 60, 80, 100][(rng.next() % 5) as usize];
        node.pods.retain(|_| is_full || rng.next() % 100 < kept_percent);
        node.pods.iter_mut().for_each(|pod| pod.mobility = Mobility::Moves);
        node.initialized = true;
    }
    Problem { nodes, pods: Vec::new(), ..empty }
}

fn request<'a>(
    removed_nodes: &'a [usize],
    mode: Mode,
    reservation_credits: &'a BTreeMap<Arc<str>, u32>,
) -> SimulationRequest<'a> {
    SimulationRequest {
        removed_nodes,
        moves_blocked_pods: false,
        mode,
        effort: 100,
        prefers_vacated_domains: false,
        reserved_mode: ReservedMode::Fallback,
        reservation_credits,
    }
}

fn resident_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kib.unwrap_or(0) / 1024
}

#[test]
#[ignore = "prints figures"]
#[expect(clippy::disallowed_methods, reason = "a stopwatch is the point")]
fn one_simulation_per_node() {
    let sizes = std::env::var("SIZES").unwrap_or_else(|_| "2000,10000,50000".into());
    let nothing = BTreeMap::new();
    for pod_count in sizes.split(',').filter_map(|size| size.parse::<u32>().ok()) {
        for (pools, constrained, is_full) in [
            (1, false, false),
            (10, false, false),
            (1, true, false),
            (10, true, false),
            (1, false, true),
            (1, true, true),
            (10, false, true),
        ] {
            let problem = fleet(pod_count, pools, constrained, is_full);
            let bound: usize = problem.nodes.iter().map(|node| node.pods.len()).sum();
            let before_mib = resident_mib();
            let start = Instant::now();
            let simulator = Simulator::new(&problem);
            let compiled = start.elapsed();
            let (mut placed, mut fresh, mut stranded) = (0, 0, 0);
            let mut times = Vec::new();
            for node in 0..problem.nodes.len() {
                let start = Instant::now();
                let outcome = simulator.simulate(&request(&[node], Mode::Compat, &nothing));
                times.push(start.elapsed());
                placed += usize::from(outcome.plan.new_nodes.is_empty());
                fresh += outcome.plan.new_nodes.len();
                stranded += outcome.unschedulable_movers(0);
            }
            times.sort_unstable();
            let mean = times.iter().sum::<std::time::Duration>() / times.len() as u32;
            let after_mib = resident_mib();
            let mut cost_times = Vec::new();
            for node in (0..problem.nodes.len()).step_by(problem.nodes.len() / 20) {
                let start = Instant::now();
                simulator.simulate(&request(&[node], Mode::Cost, &nothing));
                cost_times.push(start.elapsed());
            }
            let cost_mean = cost_times.iter().sum::<std::time::Duration>() / cost_times.len() as u32;
            let mut moving = simulator.fork();
            let start = Instant::now();
            for node in 0..50 {
                let removed_nodes = [node];
                let simulated = request(&removed_nodes, Mode::Compat, &nothing);
                let outcome = moving.simulate(&simulated);
                moving.commit(&simulated, &outcome);
            }
            let commit_mean = start.elapsed() / 50;
            let mut specs: BTreeMap<Arc<PodSpec>, u32> = BTreeMap::new();
            for pod in problem.nodes.iter().flat_map(|node| &node.pods) {
                *specs.entry(pod.spec.clone()).or_insert(0) += 1;
            }
            let specs: Vec<_> = specs.into_iter().collect();
            let start = Instant::now();
            let value = dual_prices(&problem, &specs, 1_000);
            let worth_took = start.elapsed();
            let price: f64 = problem.nodes.iter().filter_map(|node| node.price_per_hour).sum();
            println!(
                "{} nodes {bound} pods {pools} pools constrained {constrained} full {is_full}: compile {compiled:?}, \
                 request mean {mean:?} median {:?} p99 {:?} max {:?}, {placed} without new nodes, {fresh} new, \
                 {stranded} stranded; cost request {cost_mean:?}; ask and commit {commit_mean:?}; \
                 memory +{} MiB; worth {:.1} of {price:.1} in {worth_took:?}",
                problem.nodes.len(),
                times[times.len() / 2],
                times[times.len() * 99 / 100],
                times[times.len() - 1],
                after_mib.saturating_sub(before_mib),
                value.lower_bound_per_hour,
            );
        }
    }
}
