//! Everything a round looks at, read from the mirrors: which pods wait, which have a place already, and the cluster
//! they are to be planned into.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use karpenter_api::labels;
use karpenter_api::types::{ConditionStatus, NodeClaim, NodePool};
use karpenter_cloud::CloudError;
use karpenter_state::{Live, LivePool};

use super::is_overdue;
use crate::context::Context;
use crate::mirrors::{BY_PROVIDER_ID, Mirrors};
use crate::pods;
use crate::state::Place;

/// All pods that matter to a round, by what they are to it.
#[derive(Debug, Default)]
pub(super) struct SortedPods {
    /// On a node, those that have to leave it included.
    pub(super) bound: Vec<Arc<Pod>>,
    /// In need of a place.
    pub(super) pending: Vec<Arc<Pod>>,
    /// With a place on a claim that is still coming up.
    pub(super) expected: Vec<(String, Arc<Pod>)>,
    /// Places that are no longer the pods'.
    pub(super) given_up: Vec<Place>,
    pub(super) is_anything_leaving: bool,
}

/// Sorts all pods, and brings the remembered plan up to date: places of bound pods are given back, places on claims
/// that will not come are given up, and so are those of pods that the scheduler did not bind in time.
pub(super) fn sort_pods(context: &Context, patience: Duration, now: Timestamp) -> SortedPods {
    let mirrors = &context.mirrors;
    let claims = Claims::read(context, patience, now);
    let mut sorted =
        SortedPods { is_anything_leaving: !claims.leaving_nodes.is_empty(), ..SortedPods::default() };
    for place in context.state.places() {
        let pod = mirrors.pods.get(&place.pod.namespace, &place.pod.name);
        let pod = pod.filter(|pod| pods::uid_of(pod) == place.uid);
        let is_back = pod.as_ref().is_some_and(|pod| !pods::is_active(pod));
        if pod.is_none() || is_back {
            context.state.vacate(&place.uid);
        } else if !claims.usable.contains(&place.claim) {
            sorted.given_up.extend(context.state.forget_pod(&place.uid));
        }
    }
    let budgets = Budgets::read(mirrors);
    for pod in mirrors.pods.list() {
        let uid = pods::uid_of(&pod);
        if let Some(node) = pods::node_name(&pod) {
            let must_move = claims.leaving_nodes.contains(node)
                && pods::is_currently_reschedulable(&pod, budgets.of(&pod), now);
            if must_move {
                place_or_queue(context, &claims, &mut sorted, &pod);
            } else {
                context.state.forget_pod(uid);
            }
            sorted.bound.push(pod);
        } else if pods::is_waiting(&pod) {
            place_or_queue(context, &claims, &mut sorted, &pod);
        }
    }
    sorted
}

fn place_or_queue(context: &Context, claims: &Claims, sorted: &mut SortedPods, pod: &Arc<Pod>) {
    let place = context.state.place_of(pods::uid_of(pod));
    let is_ours = |node: &str| {
        let named = place.as_ref().and_then(|place| place.nominated.as_deref());
        let given_up = sorted.given_up.iter().find(|place| place.uid == pods::uid_of(pod));
        named == Some(node) || given_up.and_then(|place| place.nominated.as_deref()) == Some(node)
    };
    if let Some(node) = pods::nominated_node(pod).filter(|node| !is_ours(node)) {
        // The scheduler is making room for it there, and nobody else should count on that room.
        context.state.forget_pod(pods::uid_of(pod));
        let claim = claims.of_node.get(node).filter(|claim| claims.usable.contains(*claim));
        sorted.expected.extend(claim.map(|claim| (claim.clone(), pod.clone())));
        return;
    }
    let claim = match place {
        Some(place) => Some(place.claim),
        None => context.state.take_vacancy(pod, |claim| claims.usable.contains(claim)),
    };
    match claim {
        Some(claim) => sorted.expected.push((claim, pod.clone())),
        None => sorted.pending.push(pod.clone()),
    }
}

/// The claims of this provider, as far as pods depend on them.
struct Claims {
    /// Alive, and their pods are not overdue.
    usable: BTreeSet<String>,
    of_node: BTreeMap<String, String>,
    leaving_nodes: BTreeSet<String>,
}

impl Claims {
    fn read(context: &Context, patience: Duration, now: Timestamp) -> Self {
        let mirrors = &context.mirrors;
        let mut claims =
            Self { usable: BTreeSet::new(), of_node: BTreeMap::new(), leaving_nodes: BTreeSet::new() };
        for claim in mirrors.node_claims.list() {
            if !context.is_managed(&claim.spec.node_class_ref) {
                continue;
            }
            let name = claim.metadata.name.as_deref().unwrap_or_default();
            let provider_id = claim.status.as_ref().and_then(|status| status.provider_id.as_deref());
            let nodes = provider_id
                .filter(|id| !id.is_empty())
                .map(|id| mirrors.nodes.by(BY_PROVIDER_ID, id))
                .unwrap_or_default();
            let names = nodes.iter().filter_map(|node| node.metadata.name.clone());
            claims.of_node.extend(names.clone().map(|node| (node, name.to_owned())));
            if is_leaving(&claim) || context.state.is_leaving(name) {
                claims.leaving_nodes.extend(names);
                continue;
            }
            let is_open = nodes.iter().any(|node| {
                let labels = node.metadata.labels.as_ref();
                labels.and_then(|labels| labels.get(labels::INITIALIZED)).is_some_and(|value| value == "true")
            });
            if !is_open || !is_overdue(context.state.opened(name, now), now, patience) {
                claims.usable.insert(name.to_owned());
            }
        }
        context.state.retain_claims(|claim| mirrors.node_claims.get("", claim).is_some());
        for node in mirrors.nodes.list() {
            let name = node.metadata.name.clone().unwrap_or_default();
            if node.metadata.deletion_timestamp.is_some() && !claims.of_node.contains_key(&name) {
                claims.leaving_nodes.insert(name);
            }
        }
        claims
    }
}

/// Says itself that it is on its way out.
fn is_leaving(claim: &NodeClaim) -> bool {
    let conditions = claim.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let is_terminating = |one: &karpenter_api::types::Condition| {
        one.type_ == "InstanceTerminating" && one.status == ConditionStatus::True
    };
    claim.metadata.deletion_timestamp.is_some() || conditions.iter().any(is_terminating)
}

/// Budgets by namespace.
struct Budgets {
    by_namespace: BTreeMap<String, Vec<Arc<PodDisruptionBudget>>>,
}

impl Budgets {
    fn read(mirrors: &Mirrors) -> Self {
        let mut by_namespace: BTreeMap<String, Vec<Arc<PodDisruptionBudget>>> = BTreeMap::new();
        for budget in mirrors.budgets.list() {
            let namespace = budget.metadata.namespace.clone().unwrap_or_default();
            by_namespace.entry(namespace).or_default().push(budget);
        }
        Self { by_namespace }
    }

    fn of(&self, pod: &Pod) -> impl Iterator<Item = &PodDisruptionBudget> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        self.by_namespace.get(namespace).into_iter().flatten().map(AsRef::as_ref)
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
pub(super) fn still_needs_a_node(mirrors: &Mirrors, planned: &Pod) -> bool {
    let key = karpenter_cluster::mirror::ObjectKey::of(&planned.metadata);
    let current = mirrors.pods.get(&key.namespace, &key.name);
    current.is_some_and(|current| {
        pods::uid_of(&current) == pods::uid_of(planned)
            && pods::node_name(&current) == pods::node_name(planned)
            && !pods::is_terminal(&current)
    })
}

/// Whether the node of a claim has this name.
pub(super) fn is_node_of(mirrors: &Mirrors, claim: &str, node: &str) -> bool {
    let claim = mirrors.node_claims.get("", claim);
    let id = claim.as_ref().and_then(|claim| claim.status.as_ref()?.provider_id.as_deref());
    let nodes = id.map(|id| mirrors.nodes.by(BY_PROVIDER_ID, id)).unwrap_or_default();
    nodes.iter().any(|one| one.metadata.name.as_deref() == Some(node))
}

/// The newest version of anything that a round looks at.
pub(super) fn revision(mirrors: &Mirrors) -> u64 {
    let pods = mirrors.pods.revision().max(mirrors.nodes.revision());
    pods.max(mirrors.node_claims.revision()).max(mirrors.node_pools.revision())
}

/// The cluster that the pods are to be planned into.
pub(super) async fn gather(context: &Context, sorted: SortedPods) -> Live {
    let mirrors = &context.mirrors;
    let mut pools = Vec::new();
    for pool in mirrors.node_pools.list() {
        if !is_launching_pool(&pool) || !context.is_managed(&pool.spec.template.spec.node_class_ref) {
            continue;
        }
        let instance_types = match context.cloud.instance_types(&pool).await {
            Ok(types) => types,
            Err(CloudError::NotEvaluated { .. }) => continue,
            Err(error) => {
                let name = pool.metadata.name.as_deref().unwrap_or_default();
                tracing::error!(nodepool = name, %error, "instance types of the nodepool are not known");
                // The pool stays, so that its pods hear that it has nothing to offer.
                Arc::default()
            }
        };
        pools.push(LivePool { pool, instance_types });
    }
    let mut node_claims = mirrors.node_claims.list();
    node_claims.retain(|claim| context.is_managed(&claim.spec.node_class_ref));
    Live {
        pools,
        well_known: context.cloud.well_known_labels(),
        nodes: mirrors.nodes.list(),
        node_claims,
        leaving: context.state.leaving(),
        bound: sorted.bound,
        pending: sorted.pending,
        expected: sorted.expected,
        daemon_sets: mirrors.daemon_sets.list(),
        volume_claims: mirrors.volume_claims.list(),
        volumes: mirrors.volumes.list(),
        storage_classes: mirrors.storage_classes.list(),
        csi_nodes: mirrors.csi_nodes.list(),
        namespaces: mirrors.namespaces.list(),
        ..Live::default()
    }
}
