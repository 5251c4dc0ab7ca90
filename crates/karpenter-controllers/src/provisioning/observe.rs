//! Everything a round looks at, read from the stores: which pods wait, which have a place already, and the cluster
//! they are to be planned into.

mod hosts;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use karpenter_api::labels;
use karpenter_api::types::{ConditionStatus, NodePool};
use karpenter_cloud::CloudError;
use karpenter_cluster::controllers::context::name_of;
use karpenter_cluster::controllers::placement::{taints_of, tolerates_all};
use karpenter_state::pod::Pod;
use karpenter_state::{ClusterInput, DefaultSpreadInput, PoolInput};

use self::hosts::Hosts;
use super::{buffers, is_overdue, nomination_ttl};
use crate::context::Context;
use crate::node::is_tracked;
use crate::nomination::AvailableCapacity;
use crate::pods;
use crate::state::PodReservation;
use crate::stores::{BY_NODE, BY_PROVIDER_ID, Stores, listed};

/// How long the mark of a command's nodes and the places of their pods may be seen one without the other.
const MOVE_SETTLE: Duration = Duration::from_secs(5);

/// How long after its node opened a pod may keep its place because the scheduler still knows the name of the node. Newer
/// schedulers keep a name that others wrote although they tried in vain, and try again after five minutes.
const NOMINATED_MAX: Duration = Duration::from_secs(60);

/// All pods that matter to a round, by what they are to it.
#[derive(Debug, Default)]
pub(crate) struct ClassifiedPods {
    /// On a node, those that have to leave it included.
    pub(crate) bound: Vec<Arc<Pod>>,
    /// In need of a reservation.
    pub(super) pending: Vec<Arc<Pod>>,
    /// With a place on a claim that is still coming up.
    pub(super) expected: Vec<(String, Arc<Pod>)>,
    /// Places that are no longer the pods'.
    pub(super) expired_reservations: Vec<PodReservation>,
    /// Hosts on which pods have just taken the places of others.
    pub(super) inherited_on: BTreeSet<String>,
    pub(super) is_any_node_terminating: bool,
    /// The scheduler is making room for some pod, which may come to nothing.
    pub(super) is_preempting: bool,
}

/// Sorts all pods, and brings the remembered plan up to date: places of bound pods are given back, places on claims
/// that will not come are given up, and so are those of pods that the scheduler did not bind in time.
pub(super) fn classify_pods(context: &Context, patience: Duration, now: Timestamp) -> ClassifiedPods {
    let stores = &context.stores;
    let claims = Hosts::read(context, patience, now);
    let mut sorted = ClassifiedPods {
        is_any_node_terminating: !claims.leaving_nodes.is_empty(),
        ..ClassifiedPods::default()
    };
    for reservation in context.state.reservations() {
        let pod = stores.pods.get(&reservation.pod.namespace, &reservation.pod.name);
        let pod = pod.filter(|pod| pods::uid_of(pod) == reservation.uid);
        let Some(pod) = pod.filter(|pod| pods::is_active(pod)) else {
            context.state.release_to_successor(&reservation.uid, now);
            continue;
        };
        // A pod that is still where it was is not late: it has not been sent on its way yet.
        // Nor is one that the scheduler has not got round to: it drops the name when it has tried.
        let is_named =
            reservation.nominated.is_some() && pods::nominated_node(&pod) == reservation.nominated.as_deref();
        let is_queued = || {
            is_named
                && !claims.is_late(&reservation.host, reservation.since, NOMINATED_MAX)
                && !can_never_run_on(stores, reservation.nominated.as_deref(), &pod)
        };
        let is_there = claims.is_there(&reservation.host, reservation.is_move);
        let is_usable = claims.is_usable(&reservation.host, reservation.since, reservation.is_move)
            || (is_there && (pods::is_bound(&pod) || is_queued()));
        if !is_usable {
            sorted.expired_reservations.extend(context.state.remove_reservation(&reservation.uid));
        }
    }
    let budgets = Budgets::read(stores);
    let mut waiting = BTreeSet::new();
    for pod in stores.pods.list() {
        let uid = pods::uid_of(&pod);
        if let Some(node) = pods::node_name(&pod) {
            let is_leaving = claims.leaving_nodes.contains(node);
            match context.state.reservation_of(uid) {
                // Whether it may be evicted just now or not: the room is kept for it.
                Some(reservation) if is_leaving => sorted.expected.push((reservation.host, pod.clone())),
                Some(reservation)
                    if !reservation.is_move || is_overdue(reservation.since, now, MOVE_SETTLE) =>
                {
                    context.state.remove_reservation(uid);
                }
                Some(_) => {}
                None if is_leaving && pods::is_currently_reschedulable(&pod, budgets.of(&pod), now) => {
                    sorted.pending.push(pod.clone());
                }
                None => {}
            }
            sorted.bound.push(pod);
        } else if pods::is_provisionable(&pod) {
            classify_unbound_pod(context, &claims, &mut sorted, &pod, now);
            waiting.insert(uid.to_owned());
        }
    }
    context.state.retain_nomination_records(|uid| waiting.contains(uid));
    buffers::add_pending(context, &mut sorted);
    sorted
}

/// Whether the node that the pod was told of bears a taint that keeps the pod away for good, or is full of others that
/// stay: the scheduler may not try the pod there before something changes, and nothing will.
fn can_never_run_on(stores: &Stores, node: Option<&str>, pod: &Pod) -> bool {
    let Some(node) = node.and_then(|name| stores.nodes.get("", name)) else { return false };
    let tolerations = pod.spec.tolerations.as_deref().unwrap_or_default();
    let is_tolerated =
        |taint: &Taint| tolerates_all(tolerations, std::slice::from_ref(taint), &["NoSchedule", "NoExecute"]);
    let mut lasting =
        taints_of(&node).iter().filter(|taint| !labels::is_ephemeral_taint(&taint.key, &taint.effect));
    let on_it = stores.pods.by(BY_NODE, name_of(&*node));
    lasting.any(|taint| !is_tolerated(taint))
        || !AvailableCapacity::after_terminations(&node, &on_it).try_reserve(pod)
}

/// The same without touching anything: what is known is taken as it is.
pub(crate) fn classify_pods_read_only(context: &Context, now: Timestamp) -> ClassifiedPods {
    let stores = &context.stores;
    let claims = Hosts::read(context, nomination_ttl(context.settings.batch_max), now);
    let budgets = Budgets::read(stores);
    let mut sorted = ClassifiedPods {
        is_any_node_terminating: !claims.leaving_nodes.is_empty(),
        ..ClassifiedPods::default()
    };
    for pod in stores.pods.list() {
        let reservation = context.state.reservation_of(pods::uid_of(&pod));
        if let Some(node) = pods::node_name(&pod) {
            if claims.leaving_nodes.contains(node) {
                let reservation =
                    reservation.filter(|reservation| claims.is_there(&reservation.host, reservation.is_move));
                match reservation {
                    Some(reservation) => sorted.expected.push((reservation.host, pod.clone())),
                    None if pods::is_currently_reschedulable(&pod, budgets.of(&pod), now) => {
                        sorted.pending.push(pod.clone());
                    }
                    None => {}
                }
            }
            sorted.bound.push(pod);
        } else if pods::is_provisionable(&pod) {
            let named = claims.scheduler_nomination_of(context, &pod);
            let named = named.and_then(|node| claims.of_node.get(node).cloned());
            let reservation = reservation.filter(|reservation| {
                claims.is_usable(&reservation.host, reservation.since, reservation.is_move)
            });
            match reservation.map(|reservation| reservation.host).or(named) {
                Some(claim) => sorted.expected.push((claim, pod)),
                None => sorted.pending.push(pod),
            }
        }
    }
    buffers::add_to_snapshot(context, &mut sorted);
    sorted
}

fn classify_unbound_pod(
    context: &Context,
    claims: &Hosts,
    sorted: &mut ClassifiedPods,
    pod: &Arc<Pod>,
    now: Timestamp,
) {
    let reservation = context.state.reservation_of(pods::uid_of(pod));
    if let Some(node) = claims.scheduler_nomination_of(context, pod) {
        // Nobody else should count on that room.
        context.state.remove_reservation(pods::uid_of(pod));
        sorted.is_preempting = true;
        let claim = claims.of_node.get(node).filter(|claim| claims.is_usable(claim, Timestamp::MIN, false));
        sorted.expected.extend(claim.map(|claim| (claim.clone(), pod.clone())));
        return;
    }
    let claim = match reservation {
        Some(reservation) => Some(reservation.host),
        None => {
            let taken = inherit_slot(context, claims, pod, now);
            sorted.inherited_on.extend(taken.clone());
            taken
        }
    };
    match claim {
        Some(claim) => sorted.expected.push((claim, pod.clone())),
        None => sorted.pending.push(pod.clone()),
    }
}

/// Gives a pod the place of a predecessor, if there is one with room. On an open node others may have come first, and a
/// pod that is sent there waits in vain for as long as it counts on it; such places are forgotten.
fn inherit_slot(context: &Context, claims: &Hosts, pod: &Arc<Pod>, now: Timestamp) -> Option<String> {
    let is_usable = |claim: &str, since, is_move| claims.is_usable(claim, since, is_move);
    loop {
        let claim = context.state.inherit_slot(pod, now, is_usable)?;
        if claims.fits(context, &claim, pod) {
            return Some(claim);
        }
        context.state.remove_reservation(pods::uid_of(pod));
    }
}

/// Budgets by namespace.
struct Budgets {
    by_namespace: BTreeMap<String, Vec<Arc<PodDisruptionBudget>>>,
}

impl Budgets {
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

/// Whether a pool may launch nodes for pods: it decides its own size, is there to stay, and is ready as it is now.
pub fn is_launching_pool(pool: &NodePool) -> bool {
    let conditions = pool.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready");
    let is_ready = ready.is_some_and(|ready| {
        ready.status == ConditionStatus::True && ready.observed_generation == pool.metadata.generation
    });
    is_ready && pool.spec.replicas.is_none() && pool.metadata.deletion_timestamp.is_none()
}

/// Whether a pod that a node was planned for still needs one: the plan took its time, and the world went on.
pub(super) fn still_needs_a_node(stores: &Stores, planned: &Pod) -> bool {
    let current = stores.pods.get(planned.namespace(), &planned.name);
    current.is_some_and(|current| {
        pods::uid_of(&current) == pods::uid_of(planned)
            && pods::node_name(&current) == pods::node_name(planned)
            && !pods::is_terminal(&current)
    })
}

/// Whether the node of a claim has this name.
pub(super) fn is_node_of(stores: &Stores, claim: &str, node: &str) -> bool {
    let claim = stores.node_claims.get("", claim);
    let id = claim.as_ref().and_then(|claim| claim.status.as_ref()?.provider_id.as_deref());
    let nodes = id.map(|id| stores.nodes.by(BY_PROVIDER_ID, id)).unwrap_or_default();
    nodes.iter().any(|one| one.metadata.name.as_deref() == Some(node))
}

/// The newest version of anything that a round looks at.
pub(crate) fn revision(stores: &Stores) -> u64 {
    let pods = stores.pods.revision().max(stores.nodes.revision());
    pods.max(stores.node_claims.revision()).max(stores.node_pools.revision())
}

/// The pools that may launch, each with what it could buy.
pub(super) async fn launching_pools(context: &Context) -> Vec<PoolInput> {
    let mut pools = Vec::new();
    for pool in context.stores.node_pools.list() {
        if !is_launching_pool(&pool) || !context.is_managed(&pool.spec.template.spec.node_class_ref) {
            continue;
        }
        let instance_types = match context.cloud.instance_types(&pool).await {
            Ok(types) => types,
            Err(CloudError::NotEvaluated { .. }) => continue,
            Err(error) => {
                let name = pool.metadata.name.as_deref().unwrap_or_default();
                tracing::error!(nodepool = name, %error, "skipping, unable to resolve instance types");
                // The pool stays, so that its pods hear that it has nothing to offer.
                Arc::default()
            }
        };
        pools.push(PoolInput { pool, instance_types });
    }
    pools
}

/// The cluster that the pods are to be planned into.
pub(crate) fn planning_input(
    context: &Context,
    sorted: ClassifiedPods,
    pools: Vec<PoolInput>,
) -> ClusterInput {
    let stores = &context.stores;
    let mut node_claims = stores.node_claims.list();
    node_claims.retain(|claim| context.is_managed(&claim.spec.node_class_ref));
    let mut nodes = stores.nodes.list();
    nodes.retain(|node| is_tracked(node));
    ClusterInput {
        pools,
        well_known: context.cloud.well_known_labels(),
        nodes,
        node_claims,
        leaving: context.state.marked_for_deletion(),
        bound: sorted.bound,
        pending: sorted.pending,
        expected: sorted.expected,
        daemon_sets: stores.daemon_sets.list(),
        volume_claims: stores.volume_claims.list(),
        volumes: stores.volumes.list(),
        storage_classes: stores.storage_classes.list(),
        csi_nodes: stores.csi_nodes.list(),
        namespaces: stores.namespaces.list(),
        spreading: spreading(context),
        ..ClusterInput::default()
    }
}

/// What pods without spread constraints get, and by what.
fn spreading(context: &Context) -> DefaultSpreadInput {
    let config = context.settings.scheduler_config.clone();
    if config.is_empty() {
        return DefaultSpreadInput::default();
    }
    let stores = &context.stores;
    DefaultSpreadInput {
        config,
        services: listed(stores.services.as_ref()),
        replica_sets: listed(stores.replica_sets.as_ref()),
        stateful_sets: listed(stores.stateful_sets.as_ref()),
        replication_controllers: listed(stores.replication_controllers.as_ref()),
    }
}
