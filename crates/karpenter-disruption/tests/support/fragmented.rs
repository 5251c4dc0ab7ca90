//! Fragmented clusters: pods of forty sizes are packed in upstream's order on AWS on-demand instance types of 4 to 32
//! vCPU; then about 40 % of the pods are deleted, nearly all pods of some nodes and few of others.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use karpenter_catalog::aws::{self, AwsNodeClass};
use karpenter_disruption::apply;
use karpenter_disruption::cluster::Cluster;
use karpenter_disruption::command::Candidate;
use karpenter_model::instance_type::InstanceType;
use karpenter_model::labels;
use karpenter_model::pod::{PodAffinityTerm, PodSpec, TopologySpread};
use karpenter_model::problem::{EFFORT_DEFAULT, Mode, NodePool, PodGroup, PodNames, Problem};
use karpenter_model::requirements::{Operator, Requirement};
use karpenter_model::resources::{CPU, MEMORY, PODS, ResourceList};
use karpenter_model::selector::{LabelSelector, Labels};

static AWS_TYPES: LazyLock<Arc<Vec<InstanceType>>> = LazyLock::new(|| {
    let mut types = aws::catalog().resolve(&AwsNodeClass::default());
    types.retain(|one| [4_000, 8_000, 16_000, 32_000].contains(&one.capacity.get(CPU)));
    Arc::new(types)
});

pub(crate) struct Draws(u64);

impl Draws {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub(crate) fn choose<T: Copy>(&mut self, items: &[T]) -> T {
        items[(self.next() % items.len() as u64) as usize]
    }
}

pub(crate) fn pod(cpu_millis: i64, memory_mib: i64) -> PodSpec {
    let mut requests = ResourceList::new();
    requests.set(CPU, cpu_millis);
    requests.set(MEMORY, memory_mib << 20);
    requests.set(PODS, 1);
    PodSpec { namespace: "default".into(), requests, ..PodSpec::default() }
}

/// Pods of forty kinds with typical sizes of services; a few kinds are much more frequent than the others.
pub(crate) fn forty_shapes(count: u32, seed: u64) -> Vec<PodGroup> {
    const CPU_MILLIS: [i64; 17] =
        [50, 100, 200, 250, 300, 500, 500, 750, 1000, 1000, 1500, 2000, 2000, 3000, 4000, 6000, 8000];
    const HALF_GIB_PER_CORE: [i64; 13] = [1, 2, 2, 4, 4, 6, 8, 8, 12, 16, 16, 24, 32];
    let mut draws = Draws::new(100 + seed);
    let mut shapes = BTreeSet::new();
    while shapes.len() < 40 {
        let cpu = draws.choose(&CPU_MILLIS);
        let memory = cpu * draws.choose(&HALF_GIB_PER_CORE) * 512 / 1000;
        shapes.insert((cpu, (memory / 32 * 32).max(64)));
    }
    let weights: Vec<f64> = shapes.iter().map(|_| (1.0 - draws.unit()).powf(-1.0 / 1.1)).collect();
    let total: f64 = weights.iter().sum();
    let mut counts = vec![0_u32; shapes.len()];
    for _ in 0..count {
        let mut rest = draws.unit() * total;
        let chosen = weights.iter().position(|weight| {
            rest -= weight;
            rest < 0.0
        });
        counts[chosen.unwrap_or(0)] += 1;
    }
    let shapes = shapes.into_iter().zip(counts).filter(|(_, count)| *count > 0);
    shapes
        .map(|((cpu, memory), count)| PodGroup {
            spec: Arc::new(pod(cpu, memory)),
            names: PodNames::Numbered { prefix: format!("svc-{cpu}m-{memory}mi").into(), count },
            created_at_secs: 0,
        })
        .collect()
}

pub(crate) fn problem(pods: Vec<PodGroup>) -> Problem {
    let values = |key: &str, values: &[&str]| Requirement::in_values(key, values.iter().copied());
    let metal: BTreeSet<Arc<str>> = AWS_TYPES
        .iter()
        .filter_map(|one| one.requirements.get(aws::labels::INSTANCE_SIZE)?.single_value().cloned())
        .filter(|size| size.starts_with("metal"))
        .collect();
    let name: Arc<str> = "default".into();
    let pool = NodePool {
        labels: [(labels::NODEPOOL.into(), name.clone())].into(),
        name,
        weight: 0,
        requirements: [
            values(labels::CAPACITY_TYPE, &[labels::CAPACITY_TYPE_ON_DEMAND]),
            values(labels::ARCH, &["amd64"]),
            values(labels::OS, &["linux"]),
            values(aws::labels::INSTANCE_CATEGORY, &["c", "m", "r"]),
            Requirement::new(aws::labels::INSTANCE_GENERATION, Operator::Gt, ["2"]),
            Requirement::new(aws::labels::INSTANCE_SIZE, Operator::NotIn, metal),
        ]
        .into_iter()
        .collect(),
        taints: Vec::new(),
        startup_taints: Vec::new(),
        limits: ResourceList::new(),
        usage: ResourceList::new(),
        catalog: 0,
        hostname_spread_share: None,
    };
    let well_known = labels::WELL_KNOWN.iter().chain(&aws::labels::WELL_KNOWN);
    let mut problem = Problem {
        catalogs: vec![AWS_TYPES.clone()],
        pools: vec![pool],
        pods,
        well_known: well_known.map(|key| Arc::from(*key)).collect(),
        ..Problem::default()
    };
    problem.options.mode = Mode::Compat;
    problem
}

/// Deletes a random share of the pods of every node, between none and four fifths.
pub(crate) fn thin(cluster: &mut Cluster, seed: u64) {
    let mut draws = Draws::new(1_000 + seed);
    for state_node in &mut cluster.state_nodes {
        let share = draws.unit() * 0.8;
        let Some(at) = state_node.at else { continue };
        let keeps: Vec<bool> = state_node.pods.iter().map(|_| draws.unit() >= share).collect();
        let mut keep = keeps.iter();
        state_node.pods.retain(|_| *keep.next().unwrap_or(&true));
        let mut keep = keeps.iter();
        cluster.problem.nodes[at].pods.retain(|_| *keep.next().unwrap_or(&true));
    }
}

pub(crate) fn fragmented(pods: u32, seed: u64) -> Cluster {
    packed_and_thinned(problem(forty_shapes(pods, seed)), seed)
}

/// A fragmented cluster in which every second Deployment is spread over zones, at most one of its pods per node.
pub(crate) fn constrained(pods: u32, seed: u64) -> Cluster {
    let mut groups = Vec::new();
    for shape in forty_shapes(pods, seed) {
        let mut left = shape.count();
        while left > 0 {
            let name: Arc<str> = format!("app-{:03}", groups.len()).into();
            let own: Labels = [(Arc::from("app"), name.clone())].into();
            let selector = Some(LabelSelector::from_match_labels(&own));
            let mut spec = PodSpec { labels: own, ..(*shape.spec).clone() };
            if groups.len() % 2 == 1 {
                spec.spread = vec![TopologySpread {
                    key: labels::ZONE.into(),
                    max_skew: 1,
                    min_domains: None,
                    hard: true,
                    selector: selector.clone(),
                    honor_affinity: true,
                    honor_taints: false,
                }];
                let namespaces = [spec.namespace.clone()].into();
                spec.anti_affinity =
                    vec![PodAffinityTerm { key: labels::HOSTNAME.into(), selector, namespaces }];
            }
            let count = left.min(12);
            left -= count;
            groups.push(PodGroup {
                spec: Arc::new(spec),
                names: PodNames::Numbered { prefix: name, count },
                created_at_secs: 0,
            });
        }
    }
    packed_and_thinned(problem(groups), seed)
}

fn packed_and_thinned(problem: Problem, seed: u64) -> Cluster {
    let plan = karpenter_scheduling::schedule(&problem);
    let mut cluster = apply::cluster_of_plan(&problem, &plan);
    thin(&mut cluster, seed);
    cluster
}

/// Every node as a candidate.
pub(crate) fn candidates(cluster: &Cluster) -> Vec<Candidate> {
    let state_nodes = cluster.state_nodes.iter().enumerate();
    state_nodes
        .map(|(index, state_node)| {
            let pods = state_node.pods.iter().filter(|one| one.is_reschedulable);
            let cost: f64 = pods.map(|one| one.eviction_cost.max(0.0)).sum();
            Candidate {
                state_node: index,
                claim: state_node.claim.clone(),
                uid: state_node.uid.clone(),
                node: state_node.node.clone().unwrap_or_default(),
                pool: state_node.pool.clone().unwrap_or_default(),
                price_per_hour: state_node.price_per_hour,
                reschedule_cost: 1.0 + cost,
                is_empty: cost == 0.0,
            }
        })
        .collect()
}

pub(crate) fn price(cluster: &Cluster) -> f64 {
    cluster.state_nodes.iter().map(|state_node| state_node.price_per_hour).sum()
}

/// The lower bound of the cluster's price.
pub(crate) fn lower_bound(cluster: &Cluster) -> f64 {
    let mut counts: std::collections::BTreeMap<Arc<PodSpec>, u32> = Default::default();
    for pod in cluster.problem.nodes.iter().flat_map(|node| &node.pods) {
        *counts.entry(pod.spec.clone()).or_default() += 1;
    }
    let pods = counts
        .into_iter()
        .enumerate()
        .map(|(number, (spec, count))| PodGroup {
            spec,
            names: PodNames::Numbered { prefix: format!("g{number}").into(), count },
            created_at_secs: 0,
        })
        .collect();
    let mut problem = problem(pods);
    problem.options.mode = Mode::Cost;
    problem.options.effort = 10 * EFFORT_DEFAULT;
    karpenter_scheduling::schedule(&problem).lower_bound_per_hour
}
