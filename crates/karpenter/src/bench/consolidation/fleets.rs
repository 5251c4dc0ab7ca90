//! The clusters of workload W7: 40 pod sizes, packed in upstream's order on AWS instance types of 4 to 32 vCPUs. Each
//! node then loses between 0 and 80 % of its pods, 40 % in total.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use karpenter_disruption::apply;
use karpenter_disruption::cluster::{Cluster, NodePod, Reason};
use karpenter_model::labels::{HOSTNAME, ZONE};
use karpenter_model::pod::PodSpec;
use karpenter_model::problem::{EFFORT_DEFAULT, Mode, PodGroup, PodNames, Problem};
use karpenter_model::requirements::Requirement;

use crate::bench::build::{group, hard_spread, hostname_anti_affinity, labels, pod};
use crate::bench::catalogs::{AwsPool, aws_problem, kwok_problem};
use crate::bench::rng::SplitMix64;
use crate::bench::workloads::shaped_pods;

const REPLICAS: u32 = 40;
const POOLS: usize = 10;
const POOL_LABEL: &str = "team";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Variant {
    Plain,
    /// Every second Deployment of 40 pods is spread over zones, with at most one pod per node.
    Constrained,
    /// Ten NodePools, each with its own Deployments.
    Pools,
    /// Two Deployments on kwok's instance types, planned in cost mode. They lost 30 % of their pods, and the budget
    /// allows to disrupt 10 % of the nodes. The comparison with upstream runs this case on a real control plane.
    ScaledIn,
    /// Like `ScaledIn`, but the small pods have a hostname spread, so that a node has about one of them.
    ScaledInSpread,
}

pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) seed: u64,
    /// Approximate number of nodes before pods are removed.
    nodes: u32,
    variant: Variant,
}

/// The cases of W7 with at most this number of pods.
pub(crate) fn cases(seeds: u64, pods_max: Option<u32>) -> Vec<Case> {
    let mut cases = Vec::new();
    for (variant, label, sizes) in [
        (Variant::Plain, "", &[200, 500, 1_000, 5_000][..]),
        (Variant::Constrained, " spread", &[200, 1_000]),
        (Variant::Pools, " ten pools", &[200, 1_000]),
    ] {
        for nodes in sizes {
            for seed in 0..seeds {
                let name = format!("fragmented {nodes}{label}");
                cases.push(Case { name, seed, nodes: *nodes, variant });
            }
        }
    }
    for (variant, label, nodes, pods) in [
        (Variant::ScaledIn, "", 75, 1_000),
        (Variant::ScaledIn, "", 750, 10_000),
        (Variant::ScaledInSpread, " spread", 556, 1_000),
    ] {
        for seed in 0..seeds {
            cases.push(Case { name: format!("scaled in {pods}{label}"), seed, nodes, variant });
        }
    }
    // A case with n nodes has about 10·n pods.
    cases.retain(|case| pods_max.is_none_or(|most| case.nodes * 10 <= most));
    cases
}

impl Case {
    pub(crate) fn cluster(&self) -> Cluster {
        if self.is_scaled_in() {
            return self.scaled_in();
        }
        // The number of pods that fill a node depends on the seed: measure with a few pods, then scale.
        let trial = 2_000;
        let nodes = karpenter_scheduling::schedule(&self.problem(trial)).new_nodes.len().max(1) as u32;
        let problem = self.problem((trial * self.nodes).div_ceil(nodes));
        let plan = karpenter_scheduling::schedule(&problem);
        let mut cluster = apply::cluster_of_plan(&problem, &plan);
        thin(&mut cluster, self.seed);
        cluster
    }

    fn is_scaled_in(&self) -> bool {
        matches!(self.variant, Variant::ScaledIn | Variant::ScaledInSpread)
    }

    /// Sets the numbers of nodes that budgets allow to be disrupted in the next pass.
    pub(crate) fn allow(&self, cluster: &mut Cluster) {
        if !self.is_scaled_in() {
            return;
        }
        let most = cluster.state_nodes.len().div_ceil(10) as u32;
        for pool in cluster.pools.values_mut() {
            pool.allowed.insert(Reason::Underutilized, most);
        }
    }

    fn scaled_in(&self) -> Cluster {
        let each = match self.variant {
            // Nearly every small pod has a node of its own.
            Variant::ScaledInSpread => 500,
            _ => self.nodes * 1_000 / 75 / 2,
        };
        let mut small = pod(900, 3_100);
        if self.variant == Variant::ScaledInSpread {
            small.labels = labels("app", "small");
            small.spread = vec![hard_spread(HOSTNAME, &small.labels)];
        }
        let groups = vec![group("small", small, each), group("large", pod(3_500, 28 * 1_024), each)];
        let mut problem = kwok_problem(groups);
        problem.options.mode = Mode::Cost;
        let plan = karpenter_scheduling::schedule(&problem);
        let mut cluster = apply::cluster_of_plan(&problem, &plan);
        let mut rng = SplitMix64::new(1_000 + self.seed);
        for prefix in ["default/small", "default/large"] {
            // The pods are selected at random, but their number is exact.
            let mut order: Vec<(u64, String)> =
                (0..each).map(|number| (rng.next(), format!("{prefix}-{number}"))).collect();
            order.sort_unstable();
            let gone: BTreeSet<String> =
                order.into_iter().take(each as usize * 3 / 10).map(|(_, name)| name).collect();
            retain(&mut cluster, |node_pod| !gone.contains(&*node_pod.name));
        }
        cluster
    }

    fn problem(&self, pods: u32) -> Problem {
        let shapes = shaped_pods(pods, 40, self.seed);
        let groups = match self.variant {
            Variant::Plain | Variant::ScaledIn | Variant::ScaledInSpread => shapes,
            Variant::Constrained => deployments(&shapes)
                .map(|(number, name, spec, count)| {
                    let own = labels("app", &name);
                    let mut spec = PodSpec { labels: own.clone(), ..spec };
                    if number % 2 == 1 {
                        spec.spread = vec![hard_spread(ZONE, &own)];
                        spec.anti_affinity = hostname_anti_affinity(&own);
                    }
                    group(name, spec, count)
                })
                .collect(),
            Variant::Pools => deployments(&shapes)
                .map(|(number, name, mut spec, count)| {
                    let team = (number % POOLS).to_string();
                    spec.node_selector.add(Requirement::in_values(POOL_LABEL, [team.as_str()]));
                    group(name, spec, count)
                })
                .collect(),
        };
        let mut problem = aws_problem(AwsPool::Capped, groups);
        if self.variant == Variant::Pools {
            let template = problem.pools[0].clone();
            problem.pools = (0..POOLS)
                .map(|number| {
                    let mut pool = template.clone();
                    pool.name = format!("pool-{number}").into();
                    pool.labels.insert(karpenter_model::labels::NODEPOOL.into(), pool.name.clone());
                    pool.labels.insert(POOL_LABEL.into(), number.to_string().into());
                    pool
                })
                .collect();
        }
        problem.options.mode = Mode::Compat;
        problem
    }
}

/// Deployments of 40 pods each for every pod size: number, name, pod and replicas.
fn deployments(shapes: &[PodGroup]) -> impl Iterator<Item = (usize, String, PodSpec, u32)> {
    let cut = shapes.iter().flat_map(|shape| {
        let count = shape.count();
        (0..count.div_ceil(REPLICAS)).map(move |part| (shape, REPLICAS.min(count - part * REPLICAS)))
    });
    cut.enumerate()
        .map(|(number, (shape, count))| (number, format!("app-{number:04}"), (*shape.spec).clone(), count))
}

fn thin(cluster: &mut Cluster, seed: u64) {
    let mut rng = SplitMix64::new(1_000 + seed);
    for state_node in 0..cluster.state_nodes.len() {
        let share = rng.unit() * 0.8;
        retain_on(cluster, state_node, |_| rng.unit() >= share);
    }
}

fn retain(cluster: &mut Cluster, mut stays: impl FnMut(&NodePod) -> bool) {
    for state_node in 0..cluster.state_nodes.len() {
        retain_on(cluster, state_node, &mut stays);
    }
}

/// Removes all pods from a node except those for which `stays` returns true.
fn retain_on(cluster: &mut Cluster, state_node: usize, stays: impl FnMut(&NodePod) -> bool) {
    let state_node = &mut cluster.state_nodes[state_node];
    let Some(at) = state_node.at else { return };
    let stays: Vec<bool> = state_node.pods.iter().map(stays).collect();
    let mut next = stays.iter();
    state_node.pods.retain(|_| next.next().copied().unwrap_or(true));
    let mut next = stays.iter();
    cluster.problem.nodes[at].pods.retain(|_| next.next().copied().unwrap_or(true));
}

/// The lower bound of the price of a cluster for the pods that it still has.
pub(crate) fn lower_bound(cluster: &Cluster) -> f64 {
    let mut counts: BTreeMap<Arc<PodSpec>, u32> = BTreeMap::new();
    for pod in cluster.problem.nodes.iter().flat_map(|node| &node.pods) {
        *counts.entry(pod.spec.clone()).or_default() += 1;
    }
    let pods = counts.into_iter().enumerate().map(|(number, (spec, count))| PodGroup {
        spec,
        names: PodNames::Numbered { prefix: format!("left-{number}").into(), count },
        created_at_secs: 0,
    });
    let mut problem = Problem { nodes: Vec::new(), pods: pods.collect(), ..cluster.problem.clone() };
    problem.options.mode = Mode::Cost;
    // At this effort, the bound is as tight as the planner can prove.
    problem.options.effort = 10 * EFFORT_DEFAULT;
    karpenter_scheduling::schedule(&problem).lower_bound_per_hour
}
