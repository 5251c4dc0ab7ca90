//! NodePools and instance types of the workloads: the 400 fake types of upstream's benchmark, and the built-in AWS
//! catalog with typical NodePools.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

use karpenter_catalog::aws::{self, AwsNodeClass};
use karpenter_catalog::kwok;
use karpenter_model::instance_type::{InstanceType, Offering};
use karpenter_model::labels;
use karpenter_model::problem::{NodePool, PodGroup, Problem};
use karpenter_model::requirements::{Operator, Requirement, Requirements};
use karpenter_model::resources::{CPU, MEMORY, PODS, ResourceList};

use super::build::MIB;

const FAKE_TYPES: i64 = 400;

/// A NodePool over the AWS catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AwsPool {
    /// Categories c, m and r, generation above 2, amd64, on-demand: a typical first NodePool.
    Default,
    /// The instance types of `Default` with 4, 8, 16 or 32 vCPUs.
    Capped,
    /// All amd64 types, on-demand.
    Everything,
}

/// Instance types of the AWS catalog. A provider keeps its instance types between plans, so they are resolved once and
/// the time is not measured.
static AWS_TYPES: LazyLock<Arc<Vec<InstanceType>>> =
    LazyLock::new(|| Arc::new(aws::catalog().resolve(&AwsNodeClass::default())));

pub(crate) fn aws_problem(pool: AwsPool, pods: Vec<PodGroup>) -> Problem {
    let types = AWS_TYPES.clone();
    let values = |key: &str, values: &[&str]| Requirement::in_values(key, values.iter().copied());
    let mut requirements: Requirements = [
        values(labels::CAPACITY_TYPE, &[labels::CAPACITY_TYPE_ON_DEMAND]),
        values(labels::ARCH, &["amd64"]),
        values(labels::OS, &["linux"]),
        // Upstream's scheduler was measured without bare metal instance types, so they are excluded here too.
        Requirement::new(aws::labels::INSTANCE_SIZE, Operator::NotIn, metal_sizes(&types)),
    ]
    .into_iter()
    .collect();
    if pool != AwsPool::Everything {
        requirements.add(values(aws::labels::INSTANCE_CATEGORY, &["c", "m", "r"]));
        requirements.add(Requirement::new(aws::labels::INSTANCE_GENERATION, Operator::Gt, ["2"]));
    }
    if pool == AwsPool::Capped {
        requirements.add(values(aws::labels::INSTANCE_CPU, &["4", "8", "16", "32"]));
    }
    problem(types, requirements, &aws::labels::WELL_KNOWN, pods)
}

fn metal_sizes(types: &[InstanceType]) -> BTreeSet<Arc<str>> {
    types
        .iter()
        .filter_map(|instance_type| {
            instance_type.requirements.get(aws::labels::INSTANCE_SIZE)?.single_value()
        })
        .filter(|size| size.starts_with("metal"))
        .cloned()
        .collect()
}

/// kwok's instance types with at most 32 vCPUs: amd64, Linux, on-demand.
pub(crate) fn kwok_problem(pods: Vec<PodGroup>) -> Problem {
    let types = Arc::new(kwok::generic());
    let values = |key: &str, values: &[&str]| Requirement::in_values(key, values.iter().copied());
    let requirements: Requirements = [
        values(labels::CAPACITY_TYPE, &[labels::CAPACITY_TYPE_ON_DEMAND]),
        values(labels::ARCH, &["amd64"]),
        values(labels::OS, &["linux"]),
        values(kwok::INSTANCE_CPU, &["1", "2", "4", "8", "16", "32"]),
    ]
    .into_iter()
    .collect();
    let well_known = [kwok::INSTANCE_SIZE, kwok::INSTANCE_FAMILY, kwok::INSTANCE_CPU, kwok::INSTANCE_MEMORY];
    problem(types, requirements, &well_known, pods)
}

/// Type i of upstream's benchmark has i CPUs, 2·i GiB and 10·i pods; all have the same price.
pub(crate) fn fake_problem(pods: Vec<PodGroup>) -> Problem {
    let types = Arc::new((1..=FAKE_TYPES).map(fake_type).collect());
    problem(types, Requirements::new(), &["size", "special", "integer"], pods)
}

fn fake_type(cpus: i64) -> InstanceType {
    let name: Arc<str> = format!("fake-it-{}", cpus - 1).into();
    let memory_bytes = 2 * cpus * 1024 * MIB;
    let price_per_hour = 0.1 * cpus as f64 + 0.1 * memory_bytes as f64 / 1e9;
    let single = |key: &str, value: &str| Requirement::in_values(key, [value]);
    let offerings = [
        (labels::CAPACITY_TYPE_SPOT, "test-zone-1"),
        (labels::CAPACITY_TYPE_SPOT, "test-zone-2"),
        (labels::CAPACITY_TYPE_ON_DEMAND, "test-zone-1"),
        (labels::CAPACITY_TYPE_ON_DEMAND, "test-zone-2"),
        (labels::CAPACITY_TYPE_ON_DEMAND, "test-zone-3"),
    ]
    .map(|(capacity_type, zone)| Offering {
        requirements: [single(labels::CAPACITY_TYPE, capacity_type), single(labels::ZONE, zone)]
            .into_iter()
            .collect(),
        price_per_hour,
        available: true,
        ..Offering::default()
    });
    let large = cpus > 4 && memory_bytes > 8 * 1024 * MIB;
    let requirements = [
        Requirement::in_values(labels::INSTANCE_TYPE, [name.clone()]),
        single(labels::ARCH, "amd64"),
        Requirement::in_values(labels::OS, ["linux", "windows", "darwin"]),
        Requirement::in_values(labels::ZONE, ["test-zone-1", "test-zone-2", "test-zone-3"]),
        Requirement::in_values(
            labels::CAPACITY_TYPE,
            [labels::CAPACITY_TYPE_SPOT, labels::CAPACITY_TYPE_ON_DEMAND],
        ),
        single("size", if large { "large" } else { "small" }),
        Requirement::does_not_exist("special"),
        Requirement::in_values("integer", [cpus.to_string()]),
    ];
    InstanceType {
        name,
        requirements: requirements.into_iter().collect(),
        offerings: offerings.into(),
        capacity: amounts(&[(CPU, cpus * 1000), (MEMORY, memory_bytes), (PODS, cpus * 10)]),
        overhead: amounts(&[(CPU, 100), (MEMORY, 10 * MIB)]),
        volume_attachment_limits: BTreeMap::new(),
    }
}

fn amounts(pairs: &[(&str, i64)]) -> ResourceList {
    pairs.iter().map(|(name, amount)| (Arc::from(*name), *amount)).collect()
}

fn problem(
    types: Arc<Vec<InstanceType>>,
    requirements: Requirements,
    well_known: &[&str],
    pods: Vec<PodGroup>,
) -> Problem {
    let name: Arc<str> = "default".into();
    let pool = NodePool {
        labels: [(labels::NODEPOOL.into(), name.clone())].into(),
        name,
        weight: 0,
        requirements,
        taints: Vec::new(),
        startup_taints: Vec::new(),
        limits: ResourceList::new(),
        usage: ResourceList::new(),
        catalog: 0,
        hostname_spread_share: None,
    };
    Problem {
        catalogs: vec![types],
        pools: vec![pool],
        pods,
        well_known: labels::WELL_KNOWN.iter().chain(well_known).map(|key| Arc::from(*key)).collect(),
        ..Problem::default()
    }
}
