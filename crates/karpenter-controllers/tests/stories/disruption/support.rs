//! Helpers for the scenario tests of disruption.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::Request;
use k8s_openapi::api::core::v1::Node;
use karpenter_api::types::{NodeClaim, NodePool};
use karpenter_apiserver::ApiServer;
use karpenter_runtime::store::{Change, Store, keep_all};
use kube::client::Body;
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tower::{BoxError, Service, service_fn};

use crate::disruption::world::{
    World, has_disrupted_taint, is_deleting, is_initialized, is_of, is_running, label,
};

/// A pod template with anti-affinity: its pods must not share a node.
pub(crate) fn anti_affinity() -> Value {
    json!({"metadata": {"labels": {"side": "by-side"}}, "spec": {"affinity": {"podAntiAffinity":
        {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "kubernetes.io/hostname",
            "labelSelector": {"matchLabels": {"side": "by-side"}}}]}}}})
}

/// Disruption settings of a NodePool: consolidation after 30 seconds, and budgets that do not restrict it.
pub(crate) fn consolidate_soon() -> Value {
    json!({"consolidateAfter": "30s", "consolidationPolicy": "WhenEmptyOrUnderutilized",
        "budgets": [{"nodes": "100%"}]})
}

/// Adds a label to the NodePool's template, which makes its nodes drift.
pub(crate) async fn drift(world: &World) {
    let labels = json!({"spec": {"template": {"metadata": {"labels": {"generation": "second"}}}}});
    world.merge::<NodePool>("general", labels).await;
}

/// The maximum numbers of objects that existed at the same time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Peaks {
    pub(crate) tainted: usize,
    pub(crate) claims: usize,
}

/// Waits until every node has the label of [`drift`] and `pods` pods run. Returns the maximum numbers that existed at
/// the same time.
pub(crate) async fn until_all_replaced(world: &World, nodes: usize, app: &str, pods: usize) -> Peaks {
    let mut most = Peaks::default();
    let began = world.seconds();
    while world.seconds() - began < 1800 {
        let now: Vec<Node> = world.nodes().await;
        let claims = world.claims().await;
        most.tainted = most.tainted.max(now.iter().filter(|node| has_disrupted_taint(node)).count());
        most.claims = most.claims.max(claims.len());
        let running = world.pods().await.iter().filter(|pod| is_of(pod, app) && is_running(pod)).count();
        let is_new = |claim| label(claim, "generation") == "second" && is_initialized(claim);
        let is_done =
            claims.len() == nodes && claims.iter().all(is_new) && now.len() == nodes && running == pods;
        if is_done {
            return most;
        }
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
    panic!("never done: {:#?}", world.decisions());
}

/// Counts the objects that match a predicate after every change, and keeps the maximum.
pub(crate) struct PeakCount<K: 'static> {
    most: Arc<AtomicUsize>,
    _mirror: Store<K>,
}

impl<K> PeakCount<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    pub(crate) async fn begin(world: &World, counts: impl Fn(&K) -> bool + Send + Sync + 'static) -> Self {
        let (store, _) = Store::<K>::watch(&world.client, keep_all, &[]);
        store.synced().await;
        let most = Arc::new(AtomicUsize::new(0));
        let (seen, highest) = (store.clone(), most.clone());
        store.observe(move |_: &Change<K>| {
            let now = seen.list().iter().filter(|object| counts(object)).count();
            highest.fetch_max(now, Ordering::Relaxed);
        });
        Self { most, _mirror: store }
    }

    pub(crate) fn most(&self) -> usize {
        self.most.load(Ordering::Relaxed)
    }
}

/// Creates one large node with a small pod. The node could be replaced by a smaller one, but its NodePool does not
/// allow consolidation yet.
pub(crate) async fn oversized_node(world: &World) {
    world.pool(json!({"consolidateAfter": "Never"}), json!({})).await;
    world.deploy("big", 1, 6000, json!({})).await;
    world.deploy("web", 1, 600, json!({})).await;
    world.until_running("big", 1).await;
    world.until_running("web", 1).await;
    world.until_settled(1).await;
    world.delete_deployment("big").await;
    world.until_running("big", 0).await;
}

pub(crate) async fn annotate(world: &World, annotations: Value) {
    world.merge::<NodePool>("general", json!({"metadata": {"annotations": annotations}})).await;
}

pub(crate) async fn set_disruption(world: &World, disruption: Value) {
    world.merge::<NodePool>("general", json!({"spec": {"disruption": disruption}})).await;
}

/// Whether no command is in progress and no taint, condition or deletion of a command is left.
pub(crate) async fn is_settled(world: &World) -> bool {
    let claims = world.claims().await;
    let unmarked = |claim| {
        !is_deleting(claim)
            && is_initialized(claim)
            && crate::disruption::world::status_of(claim, "DisruptionReason").is_empty()
    };
    let nodes = world.nodes().await;
    claims.iter().all(unmarked)
        && nodes.len() == claims.len()
        && nodes.iter().all(|node| !has_disrupted_taint(node) && node.metadata.deletion_timestamp.is_none())
}

/// A client whose write requests take this long.
pub(crate) fn client_with_slow_writes(server: ApiServer, every_write: Duration) -> Client {
    let service = service_fn(move |request: Request<Body>| {
        let mut server = server.clone();
        async move {
            if crate::clients::is_write_but_event(&request) {
                tokio::time::sleep(every_write).await;
            }
            server.call(request).await.map_err(BoxError::from)
        }
    });
    Client::new(service, "default")
}

/// The number of replacements, and the seconds between the creation of the first and the last one.
pub(crate) fn replacements_created_within(claims: &[NodeClaim]) -> (usize, i64) {
    let is_launched = |claim: &&NodeClaim| {
        claim.metadata.annotations.iter().flatten().any(|(name, _)| name == "karpenter.sh/replaces")
    };
    let times: Vec<i64> = (claims.iter().filter(is_launched))
        .filter_map(|claim| claim.metadata.creation_timestamp.as_ref().map(|time| time.0.as_second()))
        .collect();
    let (first, last) = (times.iter().min().copied(), times.iter().max().copied());
    (times.len(), last.unwrap_or(0) - first.unwrap_or(0))
}
