//! What several stories of disruption begin with.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::Request;
use k8s_openapi::api::core::v1::Node;
use karpenter_api::types::{NodeClaim, NodePool};
use karpenter_apiserver::ApiServer;
use karpenter_cluster::mirror::{Change, Mirror, keep_all};
use kube::client::Body;
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tower::{BoxError, Service, service_fn};

use crate::disruption::world::{World, is_closed, is_ending, is_initialized, is_of, is_running, label};

/// Pods of which no two share a node.
pub(crate) fn apart() -> Value {
    json!({"metadata": {"labels": {"side": "by-side"}}, "spec": {"affinity": {"podAntiAffinity":
        {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "kubernetes.io/hostname",
            "labelSelector": {"matchLabels": {"side": "by-side"}}}]}}}})
}

/// Consolidated soon, as many at once as can be.
pub(crate) fn quick() -> Value {
    json!({"consolidateAfter": "30s", "consolidationPolicy": "WhenEmptyOrUnderutilized",
        "budgets": [{"nodes": "100%"}]})
}

/// From now on the pool's nodes are to bear a label that they do not.
pub(crate) async fn drift(world: &World) {
    let labels = json!({"spec": {"template": {"metadata": {"labels": {"generation": "second"}}}}});
    world.merge::<NodePool>("general", labels).await;
}

/// The most of everything that was there at the same time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Most {
    pub(crate) closed: usize,
    pub(crate) claims: usize,
}

/// Waits until every node is of the second generation and so many pods run; says the most that was seen at once.
pub(crate) async fn follow(world: &World, nodes: usize, app: &str, pods: usize) -> Most {
    let mut most = Most::default();
    let began = world.seconds();
    while world.seconds() - began < 1800 {
        let now: Vec<Node> = world.nodes().await;
        let claims = world.claims().await;
        most.closed = most.closed.max(now.iter().filter(|node| is_closed(node)).count());
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

/// How many objects of a kind are such, counted with every change; the most there ever were.
pub(crate) struct Watched<K: 'static> {
    most: Arc<AtomicUsize>,
    _mirror: Mirror<K>,
}

impl<K> Watched<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    pub(crate) async fn begin(world: &World, counts: impl Fn(&K) -> bool + Send + Sync + 'static) -> Self {
        let (mirror, _) = Mirror::<K>::watch(&world.client, keep_all, &[]);
        mirror.synced().await;
        let most = Arc::new(AtomicUsize::new(0));
        let (seen, highest) = (mirror.clone(), most.clone());
        mirror.observe(move |_: &Change<K>| {
            let now = seen.list().iter().filter(|object| counts(object)).count();
            highest.fetch_max(now, Ordering::Relaxed);
        });
        Self { most, _mirror: mirror }
    }

    pub(crate) fn most(&self) -> usize {
        self.most.load(Ordering::Relaxed)
    }
}

/// One large node that is left with a small pod: everything is ready for it to be replaced, but its pool forbids it.
pub(crate) async fn too_large(world: &World) {
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

pub(crate) async fn allow(world: &World, disruption: Value) {
    world.merge::<NodePool>("general", json!({"spec": {"disruption": disruption}})).await;
}

/// Nothing bears a command's marks any more, and nothing is on its way out.
pub(crate) async fn is_at_rest(world: &World) -> bool {
    let claims = world.claims().await;
    let unmarked = |claim| {
        !is_ending(claim)
            && is_initialized(claim)
            && crate::disruption::world::status_of(claim, "DisruptionReason").is_empty()
    };
    let nodes = world.nodes().await;
    claims.iter().all(unmarked)
        && nodes.len() == claims.len()
        && nodes.iter().all(|node| !is_closed(node) && node.metadata.deletion_timestamp.is_none())
}

/// A way to the server on which every write takes so long.
pub(crate) fn slow(server: ApiServer, every_write: Duration) -> Client {
    let service = service_fn(move |request: Request<Body>| {
        let mut server = server.clone();
        async move {
            if crate::lines::is_write_but_event(&request) {
                tokio::time::sleep(every_write).await;
            }
            server.call(request).await.map_err(BoxError::from)
        }
    });
    Client::new(service, "default")
}

/// Seconds between the first and the last of the claims that commands launched.
pub(crate) fn launched_within(claims: &[NodeClaim]) -> (usize, i64) {
    let is_launched = |claim: &&NodeClaim| {
        claim.metadata.annotations.iter().flatten().any(|(name, _)| name == "karpenter.sh/replaces")
    };
    let times: Vec<i64> = (claims.iter().filter(is_launched))
        .filter_map(|claim| claim.metadata.creation_timestamp.as_ref().map(|time| time.0.as_second()))
        .collect();
    let (first, last) = (times.iter().min().copied(), times.iter().max().copied());
    (times.len(), last.unwrap_or(0) - first.unwrap_or(0))
}
