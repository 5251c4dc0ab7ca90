//! Reads the input of the planner: pending pods, pods with a reservation, and the cluster. Provisioning, disruption and
//! pod deletion costs use it.

pub(crate) mod disruption;
mod hosts;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use karpenter_api::labels;
use karpenter_api::types::NodePool;
use karpenter_cloud::{CloudError, CloudProvider};
use karpenter_runtime::clock::since;
use karpenter_runtime::object::name_of;
use karpenter_runtime::taints::{taints_of, tolerates_all};
use karpenter_state::node::is_tracked;
use karpenter_state::pod::Pod;
use karpenter_state::pool::is_launching_pool;
use karpenter_state::{ClusterInput, DefaultSpreadInput, PoolInput};

use self::hosts::Hosts;
use crate::buffers::virtual_pods;
use crate::inputs::Reads;
use crate::log_throttle::LogThrottle;
use crate::node_health::NodeHealth;
use crate::nominations::available_capacity::AvailableCapacity;
use crate::pods;
use crate::settings::{FeatureGates, Settings, nomination_ttl};
use crate::state::PodReservation;
use crate::state::launch_backoff::SharedLaunchBackoff;
use crate::stores::{BY_NODE, BY_PROVIDER_ID, Stores, listed};

/// How long a pod keeps a reservation of a command although its node is not marked for deletion. Reservations and marks
/// are not read at the same instant, so one may be seen before the other.
const MOVE_SETTLE: Duration = Duration::from_secs(5);

/// How long a pod keeps its reservation after pods can be bound to its node, because `status.nominatedNodeName` still
/// has the node. Newer kube-schedulers keep a nomination of another process after a failed attempt, and retry the pod
/// only after five minutes. So a nomination that still exists does not mean that the pod was not tried.
const NOMINATED_MAX: Duration = Duration::from_secs(60);

/// The object that reads the input of the planner. Clones share all state.
#[derive(Clone)]
pub struct PlannerReader {
    pub reads: Reads,
    pub cloud: Arc<dyn CloudProvider>,
    pub settings: Arc<Settings>,
    pub gates: FeatureGates,
    /// Back-off of NodePools whose launches fail.
    pub launch_backoff: SharedLaunchBackoff,
    /// Limits how often the same error is logged.
    pub log_throttle: LogThrottle,
    pub node_health: NodeHealth,
}

/// The pods of a pass, by their state.
#[derive(Debug, Default)]
pub(crate) struct ClassifiedPods {
    /// Pods that are bound to a node, including pods on terminating nodes.
    pub(crate) bound: Vec<Arc<Pod>>,
    /// Pods without a node or reservation, which are planned in this pass.
    pub(crate) pending: Vec<Arc<Pod>>,
    /// Pods with a reservation. The name is the host of the reservation.
    pub(crate) expected: Vec<(String, Arc<Pod>)>,
    /// Reservations that this pass removed, because they expired or because their host no longer exists.
    pub(crate) expired_reservations: Vec<PodReservation>,
    /// Hosts on which pods inherited reservations of deleted pods.
    pub(crate) inherited_on: BTreeSet<String>,
    pub(crate) is_any_node_terminating: bool,
    /// Whether the kube-scheduler preempts pods for a pending pod; the preemption may fail.
    pub(crate) is_preempting: bool,
}

/// Classifies all pods and updates the reservations. Removes the reservations of pods that are bound or that the
/// kube-scheduler did not bind in time, and the reservations on hosts that no longer exist.
pub(crate) fn classify_pods(
    reader: &PlannerReader,
    nomination_ttl: Duration,
    now: Timestamp,
) -> ClassifiedPods {
    let stores = &reader.reads.stores;
    let hosts = Hosts::read(reader, nomination_ttl, now);
    let mut classified = ClassifiedPods {
        is_any_node_terminating: !hosts.terminating_nodes.is_empty(),
        ..ClassifiedPods::default()
    };
    for reservation in reader.reads.state.reservations() {
        let pod = stores.pods.get(&reservation.pod.namespace, &reservation.pod.name);
        let pod = pod.filter(|pod| pods::uid_of(pod) == reservation.uid);
        let Some(pod) = pod.filter(|pod| pods::is_active(pod)) else {
            reader.reads.state.release_to_successor(&reservation.uid, now);
            continue;
        };
        // Two kinds of pods keep their reservation for longer: a pod that is still bound to its old node, because it is
        // not evicted yet; and a pod that still has its nomination, because the kube-scheduler drops the nomination
        // when it tries the pod without success.
        let is_named =
            reservation.nominated.is_some() && pods::nominated_node(&pod) == reservation.nominated.as_deref();
        let is_queued = || {
            is_named
                && !hosts.is_overdue_on(&reservation.host, reservation.since, NOMINATED_MAX)
                && !can_never_run_on(stores, reservation.nominated.as_deref(), &pod)
        };
        let is_there = hosts.is_there(&reservation.host, reservation.is_move);
        let is_usable = hosts.is_usable(&reservation.host, reservation.since, reservation.is_move)
            || (is_there && (pods::is_bound(&pod) || is_queued()));
        if !is_usable {
            classified.expired_reservations.extend(reader.reads.state.remove_reservation(&reservation.uid));
        }
    }
    let pod_budgets = PodBudgets::read(stores);
    let mut unbound = BTreeSet::new();
    for pod in stores.pods.list() {
        let uid = pods::uid_of(&pod);
        if let Some(node) = pods::node_name(&pod) {
            let is_on_terminating_node = hosts.terminating_nodes.contains(node);
            match reader.reads.state.reservation_of(uid) {
                // The pod keeps its reservation even if it cannot be evicted now, because its node is terminating.
                Some(reservation) if is_on_terminating_node => {
                    classified.expected.push((reservation.host, pod.clone()))
                }
                Some(reservation)
                    if !reservation.is_move || is_overdue(reservation.since, now, MOVE_SETTLE) =>
                {
                    reader.reads.state.remove_reservation(uid);
                }
                Some(_) => {}
                None if is_on_terminating_node
                    && pods::is_currently_reschedulable(&pod, pod_budgets.of(&pod), now) =>
                {
                    classified.pending.push(pod.clone());
                }
                None => {}
            }
            classified.bound.push(pod);
        } else if pods::is_provisionable(&pod) {
            classify_unbound_pod(reader, &hosts, &mut classified, &pod, now);
            unbound.insert(uid.to_owned());
        }
    }
    reader.reads.state.retain_nomination_records(|uid| unbound.contains(uid));
    add_buffers(reader, &mut classified);
    classified
}

/// Whether the pod can never be bound to the node: the node has a permanent taint that the pod does not tolerate, or
/// the pod does not fit even after all terminating pods of the node are gone.
fn can_never_run_on(stores: &Stores, node: Option<&str>, pod: &Pod) -> bool {
    let Some(node) = node.and_then(|name| stores.nodes.get("", name)) else { return false };
    let tolerations = pod.spec.tolerations.as_deref().unwrap_or_default();
    let is_tolerated =
        |taint: &Taint| tolerates_all(tolerations, std::slice::from_ref(taint), &["NoSchedule", "NoExecute"]);
    let mut permanent =
        taints_of(&node).iter().filter(|taint| !labels::is_ephemeral_taint(&taint.key, &taint.effect));
    let bound_pods = stores.pods.by(BY_NODE, name_of(&*node));
    permanent.any(|taint| !is_tolerated(taint))
        || !AvailableCapacity::after_terminations(&node, &bound_pods).try_reserve(pod)
}

/// Classifies all pods like [`classify_pods`], but does not change reservations.
pub(crate) fn classify_pods_read_only(reader: &PlannerReader, now: Timestamp) -> ClassifiedPods {
    let stores = &reader.reads.stores;
    let hosts = Hosts::read(reader, nomination_ttl(reader.settings.batch_max), now);
    let pod_budgets = PodBudgets::read(stores);
    let mut classified = ClassifiedPods {
        is_any_node_terminating: !hosts.terminating_nodes.is_empty(),
        ..ClassifiedPods::default()
    };
    for pod in stores.pods.list() {
        let reservation = reader.reads.state.reservation_of(pods::uid_of(&pod));
        if let Some(node) = pods::node_name(&pod) {
            if hosts.terminating_nodes.contains(node) {
                let reservation =
                    reservation.filter(|reservation| hosts.is_there(&reservation.host, reservation.is_move));
                match reservation {
                    Some(reservation) => classified.expected.push((reservation.host, pod.clone())),
                    None if pods::is_currently_reschedulable(&pod, pod_budgets.of(&pod), now) => {
                        classified.pending.push(pod.clone());
                    }
                    None => {}
                }
            }
            classified.bound.push(pod);
        } else if pods::is_provisionable(&pod) {
            let nominated = hosts.scheduler_nomination_of(reader, &pod);
            let nominated = nominated.and_then(|node| hosts.host_of_node.get(node).cloned());
            let reservation = reservation.filter(|reservation| {
                hosts.is_usable(&reservation.host, reservation.since, reservation.is_move)
            });
            match reservation.map(|reservation| reservation.host).or(nominated) {
                Some(claim) => classified.expected.push((claim, pod)),
                None => classified.pending.push(pod),
            }
        }
    }
    add_buffers_to_snapshot(reader, &mut classified);
    classified
}

fn classify_unbound_pod(
    reader: &PlannerReader,
    hosts: &Hosts,
    classified: &mut ClassifiedPods,
    pod: &Arc<Pod>,
    now: Timestamp,
) {
    let reservation = reader.reads.state.reservation_of(pods::uid_of(pod));
    if let Some(node) = hosts.scheduler_nomination_of(reader, pod) {
        // The kube-scheduler makes room for this pod on another node, so this host need not reserve capacity for it.
        reader.reads.state.remove_reservation(pods::uid_of(pod));
        classified.is_preempting = true;
        let claim =
            hosts.host_of_node.get(node).filter(|claim| hosts.is_usable(claim, Timestamp::MIN, false));
        classified.expected.extend(claim.map(|claim| (claim.clone(), pod.clone())));
        return;
    }
    let claim = match reservation {
        Some(reservation) => Some(reservation.host),
        None => {
            let taken = inherit_slot(reader, hosts, pod, now);
            classified.inherited_on.extend(taken.clone());
            taken
        }
    };
    match claim {
        Some(claim) => classified.expected.push((claim, pod.clone())),
        None => classified.pending.push(pod.clone()),
    }
}

/// Lets a pod inherit the reservation of a deleted pod of the same controller, if the host still has capacity for it.
/// Reservations whose capacity other pods have used are removed.
fn inherit_slot(reader: &PlannerReader, hosts: &Hosts, pod: &Arc<Pod>, now: Timestamp) -> Option<String> {
    let is_usable = |claim: &str, since, is_move| hosts.is_usable(claim, since, is_move);
    loop {
        let claim = reader.reads.state.inherit_slot(pod, now, is_usable)?;
        if hosts.fits(reader, &claim, pod) {
            return Some(claim);
        }
        reader.reads.state.remove_reservation(pods::uid_of(pod));
    }
}

/// PodDisruptionBudgets by namespace.
struct PodBudgets {
    by_namespace: BTreeMap<String, Vec<Arc<PodDisruptionBudget>>>,
}

impl PodBudgets {
    fn read(stores: &Stores) -> Self {
        let mut by_namespace: BTreeMap<String, Vec<Arc<PodDisruptionBudget>>> = BTreeMap::new();
        for budget in stores.budgets.list() {
            let namespace = budget.metadata.namespace.clone().unwrap_or_default();
            by_namespace.entry(namespace).or_default().push(budget);
        }
        Self { by_namespace }
    }

    fn of(&self, pod: &Pod) -> impl Iterator<Item = &PodDisruptionBudget> {
        self.by_namespace.get(pod.namespace()).into_iter().flatten().map(AsRef::as_ref)
    }
}

/// Whether a planned pod still needs a node. It may have been bound, deleted or finished while the plan was made.
pub(crate) fn still_needs_a_node(stores: &Stores, planned: &Pod) -> bool {
    let current = stores.pods.get(planned.namespace(), &planned.name);
    current.is_some_and(|current| {
        pods::uid_of(&current) == pods::uid_of(planned)
            && pods::node_name(&current) == pods::node_name(planned)
            && !pods::is_terminal(&current)
    })
}

/// Whether this is the name of the claim's node.
pub(crate) fn is_node_of(stores: &Stores, claim: &str, node: &str) -> bool {
    let claim = stores.node_claims.get("", claim);
    let id = claim.as_ref().and_then(|claim| claim.status.as_ref()?.provider_id.as_deref());
    let nodes = id.map(|id| stores.nodes.by(BY_PROVIDER_ID, id)).unwrap_or_default();
    nodes.iter().any(|one| one.metadata.name.as_deref() == Some(node))
}

/// The NodePools that may launch nodes now, with their instance types.
pub(crate) async fn launching_pools(reader: &PlannerReader) -> Vec<PoolInput> {
    let mut pools = Vec::new();
    for pool in reader.reads.stores.node_pools.list() {
        if !is_launching_pool(&pool) || !reader.reads.is_managed(&pool.spec.template.spec.node_class_ref) {
            continue;
        }
        let instance_types = match reader.cloud.instance_types(&pool).await {
            Ok(types) => types,
            Err(CloudError::NotEvaluated { .. }) => continue,
            Err(error) => {
                let name = pool.metadata.name.as_deref().unwrap_or_default();
                tracing::error!(nodepool = name, %error, "skipping, unable to resolve instance types");
                // A NodePool whose instance types cannot be read gets none. So no node is planned for it, and it
                // appears in the reasons of unschedulable pods.
                Arc::default()
            }
        };
        pools.push(PoolInput { pool, instance_types });
    }
    pools
}

/// The input of the planner, from classified pods and the stores.
pub(crate) fn planning_input(
    reader: &PlannerReader,
    classified: ClassifiedPods,
    pools: Vec<PoolInput>,
) -> ClusterInput {
    let stores = &reader.reads.stores;
    let mut node_claims = stores.node_claims.list();
    node_claims.retain(|claim| reader.reads.is_managed(&claim.spec.node_class_ref));
    let mut nodes = stores.nodes.list();
    nodes.retain(|node| is_tracked(node));
    ClusterInput {
        pools,
        well_known: reader.cloud.well_known_labels(),
        nodes,
        node_claims,
        marked_for_deletion: reader.reads.state.marked_for_deletion(),
        bound: classified.bound,
        pending: classified.pending,
        expected: classified.expected,
        daemon_sets: stores.daemon_sets.list(),
        volume_claims: stores.volume_claims.list(),
        volumes: stores.volumes.list(),
        storage_classes: stores.storage_classes.list(),
        csi_nodes: stores.csi_nodes.list(),
        namespaces: stores.namespaces.list(),
        spreading: spreading(reader),
        not_ready_pools: not_ready_pools(reader),
        ..ClusterInput::default()
    }
}

/// NodePools of this provider that would launch nodes if they were ready.
fn not_ready_pools(reader: &PlannerReader) -> Vec<Arc<NodePool>> {
    let mut pools = reader.reads.stores.node_pools.list();
    pools.retain(|pool| {
        pool.spec.replicas.is_none()
            && pool.metadata.deletion_timestamp.is_none()
            && !is_launching_pool(pool)
            && reader.reads.is_managed(&pool.spec.template.spec.node_class_ref)
    });
    pools
}

/// The default spread constraints of the kube-scheduler configuration, and the workloads and Services from which their
/// selectors are derived.
fn spreading(reader: &PlannerReader) -> DefaultSpreadInput {
    let config = reader.settings.scheduler_config.clone();
    if config.is_empty() {
        return DefaultSpreadInput::default();
    }
    let stores = &reader.reads.stores;
    DefaultSpreadInput {
        config,
        services: listed(stores.services.as_ref()),
        replica_sets: listed(stores.replica_sets.as_ref()),
        stateful_sets: listed(stores.stateful_sets.as_ref()),
        replication_controllers: listed(stores.replication_controllers.as_ref()),
    }
}

/// Adds the virtual pods of CapacityBuffers to the pending pods.
fn add_buffers(reader: &PlannerReader, classified: &mut ClassifiedPods) {
    classified.pending.extend(virtual_pods(&reader.reads.stores, &reader.gates));
}

/// Adds each virtual pod of a CapacityBuffer to the node that provisioning last planned it onto, so that disruption
/// counts the capacity as used.
fn add_buffers_to_snapshot(reader: &PlannerReader, classified: &mut ClassifiedPods) {
    let hosts = reader.reads.state.buffer_hosts();
    for pod in virtual_pods(&reader.reads.stores, &reader.gates) {
        let node = hosts.get(pods::uid_of(&pod));
        match node.filter(|node| reader.reads.stores.nodes.get("", node).is_some()) {
            Some(node) => {
                let placed = Pod { node_name: Some(node.as_str().into()), ..(*pod).clone() };
                classified.bound.push(Arc::new(placed));
            }
            None => classified.pending.push(pod),
        }
    }
}

/// Whether at least `limit` has passed since `started`.
pub(crate) fn is_overdue(started: Timestamp, now: Timestamp, limit: Duration) -> bool {
    since(now, started) >= limit
}
