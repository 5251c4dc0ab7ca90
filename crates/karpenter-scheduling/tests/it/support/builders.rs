//! Builders for small problems, which create instance types, NodePools, nodes and pods in one line each, and for
//! handwritten plans.
//!
//! The builders do not check whether plans are valid.

#![allow(dead_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use karpenter_model::instance_type::{InstanceType, Offering};
use karpenter_model::labels;
use karpenter_model::plan::{ExistingPlacement, Plan, PlannedNode, PodRun};
use karpenter_model::pod::{HostPort, PodAffinityTerm, PodSpec, TopologySpread};
use karpenter_model::problem::{BoundPod, Daemon, Node, NodePool, PodGroup, PodNames, Problem};
use karpenter_model::requirements::{Requirement, Requirements};
use karpenter_model::resources::ResourceList;
use karpenter_model::selector::{LabelSelector, Labels};
use karpenter_model::taints::{Effect, Taint, Toleration, TolerationOperator};

pub(crate) const GIB: i64 = 1 << 30;
pub(crate) const ZONES: [&str; 3] = ["zone-a", "zone-b", "zone-c"];

pub(crate) fn resources(pairs: &[(&str, i64)]) -> ResourceList {
    pairs.iter().map(|(name, amount)| (Arc::from(*name), *amount)).collect()
}

pub(crate) fn label_map(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().map(|(key, value)| (Arc::from(*key), Arc::from(*value))).collect()
}

pub(crate) fn wants(key: &str, values: &[&str]) -> Requirement {
    Requirement::in_values(key, values.iter().copied())
}

pub(crate) fn all_of(requirements: impl IntoIterator<Item = Requirement>) -> Requirements {
    requirements.into_iter().collect()
}

pub(crate) fn offering(zone: &str, capacity_type: &str, price_per_hour: f64) -> Offering {
    Offering {
        requirements: all_of([wants(labels::ZONE, &[zone]), wants(labels::CAPACITY_TYPE, &[capacity_type])]),
        price_per_hour,
        available: true,
        ..Offering::default()
    }
}

/// An instance type with `cpus` CPUs and four times as many GiB, offered in every zone on-demand and as spot at 40 % of
/// the price; 100m of cpu are overhead.
pub(crate) fn instance_type(name: &str, cpus: i64, zones: &[&str], price_per_hour: f64) -> InstanceType {
    let offerings = zones
        .iter()
        .flat_map(|zone| {
            [
                offering(zone, labels::CAPACITY_TYPE_ON_DEMAND, price_per_hour),
                offering(zone, labels::CAPACITY_TYPE_SPOT, price_per_hour * 0.4),
            ]
        })
        .collect();
    InstanceType {
        name: name.into(),
        requirements: all_of([
            wants(labels::INSTANCE_TYPE, &[name]),
            wants(labels::ARCH, &["amd64"]),
            wants(labels::OS, &["linux"]),
            wants(labels::ZONE, zones),
            wants(labels::CAPACITY_TYPE, &[labels::CAPACITY_TYPE_ON_DEMAND, labels::CAPACITY_TYPE_SPOT]),
        ]),
        offerings,
        capacity: resources(&[("cpu", cpus * 1000), ("memory", cpus * 4 * GIB), ("pods", 110)]),
        overhead: resources(&[("cpu", 100), ("memory", GIB / 4)]),
        volume_attachment_limits: BTreeMap::new(),
    }
}

pub(crate) fn pool(name: &str) -> NodePool {
    NodePool {
        name: name.into(),
        weight: 0,
        requirements: Requirements::new(),
        labels: label_map(&[(labels::NODEPOOL, name)]),
        taints: vec![],
        startup_taints: vec![],
        limits: ResourceList::new(),
        usage: ResourceList::new(),
        catalog: 0,
        hostname_spread_share: None,
    }
}

/// An initialized node with the labels that a planned node would have.
pub(crate) fn node(name: &str, zone: &str, cpus: i64) -> Node {
    Node {
        name: name.into(),
        labels: label_map(&[
            (labels::HOSTNAME, name),
            (labels::ZONE, zone),
            (labels::ARCH, "amd64"),
            (labels::OS, "linux"),
            (labels::CAPACITY_TYPE, labels::CAPACITY_TYPE_ON_DEMAND),
        ]),
        taints: vec![],
        initialized: true,
        pool: None,
        allocatable: resources(&[("cpu", cpus * 1000), ("memory", cpus * 4 * GIB), ("pods", 110)]),
        pods: vec![],
        volume_limits: BTreeMap::new(),
        price_per_hour: None,
        is_settling: false,
    }
}

/// A pod of an application in namespace `default`.
pub(crate) fn pod(app: &str, cpu_millis: i64) -> PodSpec {
    PodSpec {
        namespace: "default".into(),
        labels: label_map(&[("app", app)]),
        requests: resources(&[("cpu", cpu_millis), ("memory", cpu_millis * GIB / 1000), ("pods", 1)]),
        ..PodSpec::default()
    }
}

pub(crate) fn group(prefix: &str, spec: PodSpec, count: u32) -> PodGroup {
    PodGroup {
        spec: Arc::new(spec),
        names: PodNames::Numbered { prefix: prefix.into(), count },
        created_at_secs: 0,
    }
}

pub(crate) fn bound(spec: PodSpec) -> BoundPod {
    BoundPod { spec: Arc::new(spec), is_daemon: false, is_terminating: false, mobility: Default::default() }
}

pub(crate) fn daemon(name: &str, cpu_millis: i64) -> Daemon {
    Daemon { name: name.into(), spec: Arc::new(pod(name, cpu_millis)) }
}

pub(crate) fn selects(app: &str) -> LabelSelector {
    LabelSelector::from_match_labels(&label_map(&[("app", app)]))
}

pub(crate) fn spread(key: &str, app: &str, max_skew: u32) -> TopologySpread {
    TopologySpread {
        key: key.into(),
        max_skew,
        min_domains: None,
        hard: true,
        selector: Some(selects(app)),
        honor_affinity: true,
        honor_taints: false,
    }
}

pub(crate) fn near(key: &str, app: &str) -> PodAffinityTerm {
    PodAffinityTerm {
        key: key.into(),
        selector: Some(selects(app)),
        namespaces: BTreeSet::from(["default".into()]),
    }
}

pub(crate) fn port(number: u16) -> HostPort {
    HostPort { address: "".into(), port: number, protocol: "TCP".into() }
}

pub(crate) fn taint(key: &str, effect: Effect) -> Taint {
    Taint { key: key.into(), value: "".into(), effect }
}

pub(crate) fn tolerates(key: &str) -> Toleration {
    Toleration { key: key.into(), operator: TolerationOperator::Exists, effect: None }
}

/// A problem with instance types of three sizes in three zones, one on-demand NodePool without further requirements,
/// and no pods.
pub(crate) fn world() -> Problem {
    let mut general = pool("general");
    general.requirements = all_of([wants(labels::CAPACITY_TYPE, &[labels::CAPACITY_TYPE_ON_DEMAND])]);
    Problem {
        catalogs: vec![Arc::new(vec![
            instance_type("small", 2, &ZONES, 0.1),
            instance_type("medium", 4, &ZONES, 0.2),
            instance_type("large", 8, &ZONES, 0.4),
        ])],
        pools: vec![general],
        well_known: labels::WELL_KNOWN.iter().map(|key| Arc::from(*key)).collect(),
        ..Problem::default()
    }
}

pub(crate) fn run(group: u32, start: u32, count: u32) -> PodRun {
    PodRun { group, start, count }
}

pub(crate) const SMALL: usize = 0;
pub(crate) const MEDIUM: usize = 1;
pub(crate) const LARGE: usize = 2;

/// A planned node of the first NodePool in one zone, with its prices and requests computed. DaemonSet pods are assumed
/// to run on every instance type.
pub(crate) fn launch(problem: &Problem, zone: &str, options: &[usize], pods: &[PodRun]) -> PlannedNode {
    let pool = &problem.pools[0];
    let catalog = &problem.catalogs[pool.catalog];
    let mut requirements = pool.requirements.clone();
    requirements.extend(&Requirements::from_labels(&pool.labels));
    requirements.add(wants(labels::ZONE, &[zone]));
    let chosen = &catalog[options[0]];
    let offering = chosen
        .offerings
        .iter()
        .position(|offering| {
            offering.zone().is_some_and(|of| &**of == zone) && requirements.intersects(&offering.requirements)
        })
        .expect("the type is offered in the zone");
    let mut requests = ResourceList::new();
    for run in pods {
        requests.add(&problem.pods[run.group as usize].spec.requests.scaled(i64::from(run.count)));
    }
    for daemon in &problem.daemons {
        requests.add(&daemon.spec.requests);
    }
    PlannedNode {
        pool: 0,
        instance_type: options[0],
        offering,
        price_per_hour: chosen.offerings[offering].price_per_hour,
        instance_type_options: options.to_vec(),
        requirements,
        requests,
        pods: pods.to_vec(),
        min_values_relaxed: false,
    }
}

/// A plan of these nodes, with its totals computed.
pub(crate) fn plan(new_nodes: Vec<PlannedNode>) -> Plan {
    let price: f64 = new_nodes.iter().map(|node| node.price_per_hour).sum();
    Plan { new_nodes, price_per_hour: price, compat_price_per_hour: price, ..Plan::default() }
}

pub(crate) fn onto_existing(plan: &mut Plan, node: usize, pods: &[PodRun]) {
    plan.existing.push(ExistingPlacement { node, pods: pods.to_vec() });
}
