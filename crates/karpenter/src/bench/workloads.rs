//! The six workloads: pods, instance types, size and seed of each case. A case is generated only when it runs.

use karpenter_model::labels::{HOSTNAME, ZONE};
use karpenter_model::pod::PodSpec;
use karpenter_model::problem::{PodGroup, PreferencePolicy, Problem};
use karpenter_model::requirements::{Requirement, Requirements};

use super::build::{affinity_term, group, grouped, hard_spread, hostname_anti_affinity, labels, pod};
use super::catalogs::{AwsPool, aws_problem, fake_problem};
use super::reference::{self, Reference};
use super::rng::SplitMix64;

pub(crate) struct Case {
    pub(crate) workload: u8,
    /// Cases with the same name differ only in their seed and share a table row.
    pub(crate) name: String,
    pub(crate) seed: u64,
    pub(crate) pods: u32,
    pub(crate) reference: Option<Reference>,
    build: Box<dyn Fn() -> Problem>,
}

impl Case {
    pub(crate) fn problem(&self) -> Problem {
        (self.build)()
    }
}

const CPU_MILLIS: [i64; 5] = [100, 250, 500, 1000, 1500];
const MEMORY_MIB: [i64; 6] = [100, 256, 512, 1024, 2048, 4096];
const LETTERS: [&str; 7] = ["a", "b", "c", "d", "e", "f", "g"];
/// The number of pods of the cases with many shapes, before rounding.
const MANY_SHAPES_PODS: u32 = 20_000;
/// Upstream's benchmark has one fixed seed.
const UPSTREAM_SEED: u64 = 42;

/// All cases, ordered by workload and size.
pub(crate) fn cases(seeds: u64) -> Vec<Case> {
    let mut cases = Vec::new();
    upstream_mix_cases(&mut cases);
    for seed in 0..seeds {
        quality_cases(seed, &mut cases);
    }
    inflate_cases(&mut cases);
    cases.sort_by(|a, b| (a.workload, a.pods, &a.name, a.seed).cmp(&(b.workload, b.pods, &b.name, b.seed)));
    cases
}

fn case(
    workload: u8,
    name: impl Into<String>,
    seed: u64,
    pods: u32,
    reference: Option<Reference>,
    build: impl Fn() -> Problem + 'static,
) -> Case {
    let name = name.into();
    Case { workload, name, seed, pods, reference, build: Box::new(build) }
}

fn upstream_mix_cases(cases: &mut Vec<Case>) {
    for pods in [1, 50, 100, 500, 1000, 2000, 5000, 10_000, 20_000] {
        // Upstream's rate was measured between 500 and 10,000 pods.
        let reference = (500..=10_000).contains(&pods).then_some(reference::UPSTREAM_MIX);
        let build = move || fake_problem(diverse_pods(pods, UPSTREAM_SEED));
        cases.push(case(1, format!("mix {pods}"), UPSTREAM_SEED, pods, reference, build));
    }
    for (name, policy, reference) in [
        ("preferences respected", PreferencePolicy::Respect, reference::PREFERENCES_RESPECTED),
        ("preferences ignored", PreferencePolicy::Ignore, reference::PREFERENCES_IGNORED),
    ] {
        cases.push(case(1, name, UPSTREAM_SEED, 4000, Some(reference), move || {
            let mut problem = fake_problem(preference_pods(4000, UPSTREAM_SEED));
            problem.options.preference_policy = policy;
            problem
        }));
    }
}

fn quality_cases(seed: u64, cases: &mut Vec<Case>) {
    let pools = [(AwsPool::Capped, "4-32 vCPU"), (AwsPool::Default, "c/m/r")];
    for (pool, label) in pools {
        let capped = pool == AwsPool::Capped;
        let grid_reference = if capped { reference::GRID_CAPPED } else { reference::GRID_DEFAULT };
        cases.push(case(2, format!("grid {label}"), seed, 2000, Some(grid_reference), move || {
            aws_problem(pool, grid_pods(2000, seed))
        }));
        let forty_reference = if capped { reference::FORTY_CAPPED } else { reference::FORTY_DEFAULT };
        cases.push(case(3, format!("forty shapes {label}"), seed, 2000, Some(forty_reference), move || {
            aws_problem(pool, shaped_pods(2000, 40, seed))
        }));
        let spread_reference =
            if capped { reference::CONSTRAINED_CAPPED } else { reference::CONSTRAINED_DEFAULT };
        cases.push(case(6, format!("20x50 spread {label}"), seed, 1000, Some(spread_reference), move || {
            aws_problem(pool, constrained_pods(20, 50, seed))
        }));
        cases.push(case(6, format!("200x50 spread {label}"), seed, 10_000, None, move || {
            aws_problem(pool, constrained_pods(200, 50, seed))
        }));
    }
    cases.push(case(4, "400 GPUs + forty", seed, 1400, Some(reference::GPUS), move || {
        aws_problem(AwsPool::Everything, gpu_pods(400, 1000, seed))
    }));
}

fn inflate_cases(cases: &mut Vec<Case>) {
    for pods in [1_000, 10_000, 100_000, 1_000_000] {
        cases.push(case(5, format!("one shape {pods}"), 0, pods, None, move || {
            aws_problem(AwsPool::Default, vec![group("inflate", pod(1000, 1536), pods)])
        }));
    }
    for shapes in [125, 250, 500, 1_000] {
        cases.push(case(5, format!("{shapes} shapes"), 0, MANY_SHAPES_PODS, None, move || {
            aws_problem(AwsPool::Default, many_shapes(MANY_SHAPES_PODS, shapes, 0))
        }));
    }
    for pods in [100_000, 1_000_000] {
        cases.push(case(5, format!("forty shapes {pods}"), 0, pods, None, move || {
            aws_problem(AwsPool::Default, shaped_pods(pods, 40, 0))
        }));
    }
}

fn grid_pod(rng: &mut SplitMix64) -> PodSpec {
    let cpu_millis = rng.choose(&CPU_MILLIS);
    pod(cpu_millis, rng.choose(&MEMORY_MIB))
}

/// Upstream's mix: 20 % each of plain pods, zonal spread, hostname spread, zonal self-affinity and pods with mutual
/// anti-affinity by hostname. The label that a spread pod selects is drawn independently of its own label.
fn diverse_pods(count: u32, seed: u64) -> Vec<PodGroup> {
    let mut rng = SplitMix64::new(seed);
    let fifth = count / 5;
    let mut specs: Vec<PodSpec> = Vec::with_capacity(count as usize);
    let letter = |rng: &mut SplitMix64| labels("my-label", rng.choose(&LETTERS));
    for _ in 0..count - 4 * fifth {
        specs.push(PodSpec { labels: letter(&mut rng), ..grid_pod(&mut rng) });
    }
    for key in [ZONE, HOSTNAME] {
        for _ in 0..fifth {
            let own = letter(&mut rng);
            let spread = vec![hard_spread(key, &letter(&mut rng))];
            specs.push(PodSpec { labels: own, spread, ..grid_pod(&mut rng) });
        }
    }
    for _ in 0..fifth {
        let own = labels("my-affinity", rng.choose(&LETTERS));
        let affinity = vec![affinity_term(ZONE, &own)];
        specs.push(PodSpec { labels: own, affinity, ..grid_pod(&mut rng) });
    }
    for _ in 0..fifth {
        let own = labels("app", "nginx");
        let anti_affinity = hostname_anti_affinity(&own);
        specs.push(PodSpec { labels: own, anti_affinity, ..grid_pod(&mut rng) });
    }
    grouped("mix", specs)
}

/// Pods with one preference that can be satisfied (a zone) and two that soon cannot (anti-affinity by zone and by
/// hostname).
fn preference_pods(count: u32, seed: u64) -> Vec<PodGroup> {
    let mut rng = SplitMix64::new(seed);
    let own = labels("app", "nginx");
    let in_zone: Requirements = [Requirement::in_values(ZONE, ["test-zone-1"])].into_iter().collect();
    let specs = (0..count).map(|_| PodSpec {
        labels: own.clone(),
        preferred_terms: vec![(1, in_zone.clone())],
        preferred_anti_affinity: vec![(10, affinity_term(ZONE, &own)), (1, affinity_term(HOSTNAME, &own))],
        ..grid_pod(&mut rng)
    });
    let specs: Vec<PodSpec> = specs.collect();
    grouped("preference", specs)
}

fn grid_pods(count: u32, seed: u64) -> Vec<PodGroup> {
    let mut rng = SplitMix64::new(seed);
    grouped("grid", (0..count).map(|_| grid_pod(&mut rng)).collect::<Vec<_>>())
}

/// Services with typical manual sizes: round CPU numbers, 0.5 to 16 GiB per core, a few much larger than most.
pub(crate) fn shaped_pods(count: u32, shapes: usize, seed: u64) -> Vec<PodGroup> {
    const CPU: [i64; 17] =
        [50, 100, 200, 250, 300, 500, 500, 750, 1000, 1000, 1500, 2000, 2000, 3000, 4000, 6000, 8000];
    const HALF_GIB_PER_CORE: [i64; 13] = [1, 2, 2, 4, 4, 6, 8, 8, 12, 16, 16, 24, 32];
    let mut rng = SplitMix64::new(100 + seed);
    let mut drawn = std::collections::BTreeSet::new();
    while drawn.len() < shapes {
        let cpu_millis = rng.choose(&CPU);
        let memory_mib = cpu_millis * rng.choose(&HALF_GIB_PER_CORE) * 512 / 1000;
        drawn.insert((cpu_millis, (memory_mib / 32 * 32).max(64)));
    }
    let weights: Vec<f64> = drawn.iter().map(|_| rng.pareto(1.1)).collect();
    let total: f64 = weights.iter().sum();
    let mut counts = vec![0_u32; shapes];
    for _ in 0..count {
        let mut rest = rng.unit() * total;
        let chosen = weights.iter().position(|weight| {
            rest -= weight;
            rest < 0.0
        });
        counts[chosen.unwrap_or(shapes - 1)] += 1;
    }
    drawn
        .into_iter()
        .zip(counts)
        .filter(|(_, count)| *count > 0)
        .map(|((cpu, memory), count)| group(format!("svc-{cpu}m-{memory}mi"), pod(cpu, memory), count))
        .collect()
}

/// Pods with requests that are not round numbers: 20m to 16 cores, half to twelve GiB per core.
fn many_shapes(count: u32, shapes: usize, seed: u64) -> Vec<PodGroup> {
    let mut rng = SplitMix64::new(200 + seed);
    let mut drawn = std::collections::BTreeSet::new();
    while drawn.len() < shapes {
        // The size is a product of three uniform random numbers: many small pods and a few large ones.
        let share = rng.unit() * rng.unit() * rng.unit();
        let cpu_millis = 20 + (share * 1_598.0) as i64 * 10;
        let gib_per_core = 0.5 + 11.5 * rng.unit() * rng.unit();
        let memory_mib = (cpu_millis as f64 * gib_per_core * 1.024) as i64;
        drawn.insert((cpu_millis, (memory_mib / 32 * 32).max(64)));
    }
    let weights: Vec<f64> = drawn.iter().map(|_| rng.pareto(1.1)).collect();
    let total: f64 = weights.iter().sum();
    let of_share = |weight: &f64| ((f64::from(count) * weight / total) as u32).max(1);
    let sizes = drawn.into_iter().zip(&weights);
    sizes
        .map(|((cpu, memory), weight)| {
            group(format!("svc-{cpu}m-{memory}mi"), pod(cpu, memory), of_share(weight))
        })
        .collect()
}

fn gpu_pods(gpus: u32, others: u32, seed: u64) -> Vec<PodGroup> {
    let mut spec = pod(4000, 16_384);
    spec.requests.set(karpenter_catalog::aws::NVIDIA_GPU, 1);
    let mut groups = vec![group("gpu", spec, gpus)];
    groups.extend(shaped_pods(others, 40, seed));
    groups
}

/// Deployments spread over zones, every second one also with at most one pod per node.
fn constrained_pods(deployments: u32, replicas: u32, seed: u64) -> Vec<PodGroup> {
    let mut rng = SplitMix64::new(seed);
    (0..deployments)
        .map(|number| {
            let name = format!("spread-{number:03}");
            let own = labels("app", &name);
            let cpu_millis = rng.choose(&CPU_MILLIS);
            let memory_mib = rng.choose(&MEMORY_MIB);
            let spread = vec![hard_spread(ZONE, &own)];
            let anti_affinity = if number % 2 == 1 { hostname_anti_affinity(&own) } else { Vec::new() };
            let spec = PodSpec { labels: own, spread, anti_affinity, ..pod(cpu_millis, memory_mib) };
            group(name, spec, replicas)
        })
        .collect()
}
