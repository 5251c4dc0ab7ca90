//! Small clusters for tests: NodePools, nodes and pods in one line each.

#![allow(dead_code)]

use std::collections::BTreeMap;
use std::sync::Arc;

use karpenter_disruption::cluster::{
    Cluster, NodePod, NodePoolView, PodBudget, ProposedCommand, Reason, Repair, StateNode,
};
use karpenter_disruption::command::{Command, Method};
use karpenter_disruption::evaluate::Evaluation;
use karpenter_disruption::settings::{Mode, Settings};
use karpenter_disruption::verdict::Verdict;
use karpenter_model::instance_type::{InstanceType, Offering};
use karpenter_model::labels;
use karpenter_model::pod::PodSpec;
use karpenter_model::problem::{BoundPod, Mobility, Node, NodePool};
use karpenter_model::requirements::{Requirement, Requirements};
use karpenter_model::resources::ResourceList;
use karpenter_model::selector::Labels;

pub(crate) const GIB: i64 = 1 << 30;
pub(crate) const NOW_SECS: i64 = 1_000_000;
pub(crate) const ZONES: [&str; 2] = ["zone-a", "zone-b"];

pub(crate) fn resources(pairs: &[(&str, i64)]) -> ResourceList {
    pairs.iter().map(|(name, amount)| (Arc::from(*name), *amount)).collect()
}

pub(crate) fn label_map(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().map(|(key, value)| (Arc::from(*key), Arc::from(*value))).collect()
}

pub(crate) fn wants(key: &str, values: &[&str]) -> Requirement {
    Requirement::in_values(key, values.iter().copied())
}

pub(crate) fn offering(zone: &str, capacity_type: &str, price_per_hour: f64) -> Offering {
    Offering {
        requirements: [wants(labels::ZONE, &[zone]), wants(labels::CAPACITY_TYPE, &[capacity_type])]
            .into_iter()
            .collect(),
        price_per_hour,
        available: true,
        ..Offering::default()
    }
}

pub(crate) fn reserved(zone: &str, id: &str, room: u32) -> Offering {
    let mut offering = offering(zone, labels::CAPACITY_TYPE_RESERVED, 0.001);
    offering.requirements.add(wants(labels::AWS_CAPACITY_RESERVATION_ID, &[id]));
    offering.reservation_capacity = Some(room);
    offering.reservation_id_label = Some(labels::AWS_CAPACITY_RESERVATION_ID.into());
    offering
}

/// An instance type with this number of CPUs and four times as many GiB, offered on-demand in two zones and as spot at
/// 40 % of the price; 100m are reserved.
pub(crate) fn instance_type(name: &str, cpus: i64, price_per_hour: f64) -> InstanceType {
    let kinds = [
        (labels::CAPACITY_TYPE_ON_DEMAND, price_per_hour),
        (labels::CAPACITY_TYPE_SPOT, price_per_hour * 0.4),
    ];
    InstanceType {
        name: name.into(),
        requirements: [
            wants(labels::INSTANCE_TYPE, &[name]),
            wants(labels::ARCH, &["amd64"]),
            wants(labels::OS, &["linux"]),
            wants(labels::ZONE, &ZONES),
            wants(labels::CAPACITY_TYPE, &[labels::CAPACITY_TYPE_ON_DEMAND, labels::CAPACITY_TYPE_SPOT]),
        ]
        .into_iter()
        .collect(),
        offerings: ZONES
            .iter()
            .flat_map(|zone| kinds.iter().map(|(kind, price)| offering(zone, kind, *price)))
            .collect(),
        capacity: resources(&[("cpu", cpus * 1000), ("memory", cpus * 4 * GIB), ("pods", 110)]),
        overhead: resources(&[("cpu", 100), ("memory", GIB / 4)]),
        volume_attachment_limits: BTreeMap::new(),
    }
}

/// A cluster without nodes. Instance types: small (2 CPUs, 0.1 $/h), medium (4 CPUs, 0.2 $/h), large (8 CPUs, 0.4 $/h).
/// The on-demand NodePool `general` has no budgets.
pub(crate) fn cluster() -> Cluster {
    let mut cluster = Cluster { now_secs: NOW_SECS, ..Cluster::default() };
    cluster.problem.well_known = labels::WELL_KNOWN
        .iter()
        .chain(&[labels::AWS_CAPACITY_RESERVATION_ID])
        .map(|key| Arc::from(*key))
        .collect();
    cluster.problem.catalogs.push(Arc::new(vec![
        instance_type("small", 2, 0.1),
        instance_type("medium", 4, 0.2),
        instance_type("large", 8, 0.4),
    ]));
    add_pool(&mut cluster, "general", &[labels::CAPACITY_TYPE_ON_DEMAND]);
    cluster
}

/// A NodePool with the first catalog and without budgets.
pub(crate) fn add_pool(cluster: &mut Cluster, name: &str, capacity_types: &[&str]) {
    cluster.problem.pools.push(NodePool {
        name: name.into(),
        weight: 0,
        requirements: [wants(labels::CAPACITY_TYPE, capacity_types)].into_iter().collect(),
        labels: label_map(&[(labels::NODEPOOL, name)]),
        taints: vec![],
        startup_taints: vec![],
        limits: ResourceList::new(),
        usage: ResourceList::new(),
        catalog: 0,
        hostname_spread_share: None,
    });
    let pool = NodePoolView {
        name: name.into(),
        launches_as: Some(cluster.problem.pools.len() - 1),
        is_ready: true,
        consolidate_after_secs: Some(0),
        allowed: Reason::ALL.into_iter().map(|reason| (reason, 1000)).collect(),
        ..NodePoolView::default()
    };
    cluster.pools.insert(name.into(), pool);
}

pub(crate) fn add_static_pool(cluster: &mut Cluster, name: &str, replicas: u32, nodes_left: Option<u32>) {
    let pool = NodePoolView {
        name: name.into(),
        replicas: Some(replicas),
        nodes_left,
        is_ready: true,
        consolidate_after_secs: Some(0),
        allowed: Reason::ALL.into_iter().map(|reason| (reason, 1000)).collect(),
        ..NodePoolView::default()
    };
    cluster.pools.insert(name.into(), pool);
}

pub(crate) fn pool<'f>(cluster: &'f mut Cluster, name: &str) -> &'f mut NodePoolView {
    cluster.pools.get_mut(name).expect("the pool was added")
}

pub(crate) fn allow(cluster: &mut Cluster, name: &str, reason: Reason, count: u32) {
    pool(cluster, name).allowed.insert(reason, count);
}

/// A pod that requests this CPU, and 1 GiB per CPU.
pub(crate) fn pod(app: &str, cpu_millis: i64) -> PodSpec {
    PodSpec {
        namespace: "default".into(),
        labels: label_map(&[("app", app)]),
        requests: resources(&[("cpu", cpu_millis), ("memory", cpu_millis * GIB / 1000), ("pods", 1)]),
        ..PodSpec::default()
    }
}

/// An initialized on-demand node of NodePool `general` in the first zone, with pods that can be rescheduled.
pub(crate) fn add(cluster: &mut Cluster, name: &str, type_name: &str, pods: &[PodSpec]) -> usize {
    add_to(cluster, name, "general", type_name, labels::CAPACITY_TYPE_ON_DEMAND, pods)
}

pub(crate) fn add_to(
    cluster: &mut Cluster,
    name: &str,
    pool: &str,
    type_name: &str,
    capacity_type: &str,
    pods: &[PodSpec],
) -> usize {
    let catalog = cluster.problem.catalogs[0].clone();
    let instance_type = catalog.iter().find(|one| &*one.name == type_name).expect("a type of the catalog");
    let price = instance_type
        .offerings
        .iter()
        .find(|one| one.capacity_type().is_some_and(|kind| &**kind == capacity_type))
        .map_or(0.0, |one| one.price_per_hour);
    cluster.problem.nodes.push(Node {
        name: name.into(),
        labels: label_map(&[
            (labels::HOSTNAME, name),
            (labels::NODEPOOL, pool),
            (labels::INSTANCE_TYPE, type_name),
            (labels::ZONE, ZONES[0]),
            (labels::ARCH, "amd64"),
            (labels::OS, "linux"),
            (labels::CAPACITY_TYPE, capacity_type),
        ]),
        taints: vec![],
        initialized: true,
        pool: Some(pool.into()),
        allocatable: instance_type.allocatable(),
        pods: vec![],
        volume_limits: BTreeMap::new(),
        price_per_hour: Some(price),
        is_settling: false,
    });
    cluster.state_nodes.push(StateNode {
        claim: name.into(),
        uid: format!("uid-{name}").into(),
        node: Some(name.into()),
        pool: Some(pool.into()),
        at: Some(cluster.problem.nodes.len() - 1),
        is_registered: true,
        is_initialized: true,
        is_ready: true,
        last_pod_event_secs: Some(0),
        instance_type: Some(type_name.into()),
        zone: Some(ZONES[0].into()),
        capacity_type: Some(capacity_type.into()),
        price_per_hour: price,
        ..StateNode::default()
    });
    let state_node = cluster.state_nodes.len() - 1;
    for spec in pods {
        bind(cluster, state_node, spec.clone());
    }
    state_node
}

/// Binds one more pod to a node.
pub(crate) fn bind(cluster: &mut Cluster, state_node: usize, spec: PodSpec) -> &mut NodePod {
    let at = cluster.state_nodes[state_node].at.expect("the machine has a node");
    let number = cluster.state_nodes[state_node].pods.len();
    let name: Arc<str> = format!("default/{}-{number}", cluster.state_nodes[state_node].claim).into();
    cluster.problem.nodes[at].pods.push(BoundPod {
        spec: Arc::new(spec),
        is_daemon: false,
        is_terminating: false,
        mobility: Mobility::Moves,
    });
    cluster.state_nodes[state_node].pods.push(NodePod {
        uid: name.clone(),
        name,
        is_active: true,
        is_reschedulable: true,
        is_evictable: true,
        eviction_cost: 1.0,
        ..NodePod::default()
    });
    cluster.state_nodes[state_node].pods.last_mut().expect("just pushed")
}

/// Binds a DaemonSet pod to a node: a drain evicts it, but it is not rescheduled.
pub(crate) fn bind_daemon(cluster: &mut Cluster, state_node: usize, spec: PodSpec) -> &mut NodePod {
    bind(cluster, state_node, spec).is_reschedulable = false;
    let at = cluster.state_nodes[state_node].at.expect("the machine has a node");
    let pod = cluster.problem.nodes[at].pods.last_mut().expect("just pushed");
    pod.is_daemon = true;
    pod.mobility = Mobility::Stays;
    cluster.state_nodes[state_node].pods.last_mut().expect("just pushed")
}

/// Adds a PodDisruptionBudget that selects these pods of a node.
pub(crate) fn guard(cluster: &mut Cluster, name: &str, allowed: u32, of: &[(usize, usize)]) -> usize {
    let budget = PodBudget { name: name.into(), disruptions_allowed: allowed, ..PodBudget::default() };
    cluster.pod_budgets.push(budget);
    let index = cluster.pod_budgets.len() - 1;
    for (state_node, node_pod) in of {
        cluster.state_nodes[*state_node].pods[*node_pod].budgets.push(index as u32);
    }
    index
}

pub(crate) fn wait(cluster: &mut Cluster, method: Method, claims: &[&str]) {
    let claims = claims.iter().map(|claim| Arc::from(*claim)).collect();
    cluster.proposed_commands.push(ProposedCommand { method, claims, awaits_budget: false });
}

pub(crate) fn sick(score: f64) -> Option<Repair> {
    Some(Repair {
        condition: "Ready/KubeletDown".into(),
        is_reboot: false,
        termination_grace_period_secs: None,
        score,
        is_vetoed: false,
    })
}

pub(crate) fn compat() -> Settings {
    Settings { mode: Mode::Compat, ..Settings::default() }
}

pub(crate) fn cost() -> Settings {
    Settings { mode: Mode::Cost, ..Settings::default() }
}

/// The names of the candidates' NodeClaims, by command.
pub(crate) fn claims(commands: &[Command]) -> Vec<Vec<&str>> {
    commands.iter().map(claims_of).collect()
}

pub(crate) fn claims_of(command: &Command) -> Vec<&str> {
    command.candidates.iter().map(|candidate| &*candidate.claim).collect()
}

pub(crate) fn verdict<'p>(evaluation: &'p Evaluation, claim: &str) -> &'p Verdict {
    let node_verdict = evaluation.verdicts.iter().find(|node_verdict| &*node_verdict.claim == claim);
    &node_verdict.expect("every machine has a standing").verdict
}

/// The names of the instance type options of a replacement.
pub(crate) fn types_of(cluster: &Cluster, command: &Command, replacement: usize) -> Vec<String> {
    let node = &command.replacements[replacement];
    let catalog = &cluster.problem.catalogs[cluster.problem.pools[node.pool].catalog];
    node.instance_type_options.iter().map(|option| catalog[*option].name.to_string()).collect()
}

pub(crate) fn requirement_of<'c>(command: &'c Command, key: &str) -> Option<&'c Requirement> {
    command.replacements[0].requirements.get(key)
}

pub(crate) fn no_requirements() -> Requirements {
    Requirements::new()
}
