//! An embedded cluster with a toy provider, whose instances are entries in a map.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt;
use jiff::SignedDuration;
use json_patch::merge;
use k8s_openapi::api::core::v1::{Node, Pod};
use karpenter_api::types::{NodeClaim, NodePool};
use karpenter_apiserver::{ApiServer, Config};
use karpenter_cloud::{CloudError, CloudFuture, CloudProvider, Instance, NodeClassKind};
use karpenter_controllers::Context;
use karpenter_controllers::evictions::EvictionQueue;
use karpenter_controllers::node::{Evictions, NodeHydration, NodeTermination};
use karpenter_controllers::nodepool::{NodePoolConditions, NodePoolCounter, NodePoolHash};
use karpenter_controllers::registration_health::RegistrationHealth;
use karpenter_controllers::stores::Stores;
use karpenter_embedded::control_plane::{Cluster, Options};
use karpenter_model::instance_type::InstanceType;
use karpenter_runtime::queue::Queue;
use karpenter_runtime::worker::{self, Reconcile, Shutdown};
use kube::api::{Patch, PatchParams};
use kube::{Client, Resource};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

pub(crate) use crate::embedded::condition_of;
use crate::embedded::{ClusterView, TokioClock, clock, define_kinds, epoch};

/// The instances by provider id. The value is the number of delete calls after which the instance is terminated.
#[derive(Clone, Default)]
pub(crate) struct ToyCloud {
    instances: Arc<Mutex<BTreeMap<String, u32>>>,
    failures: Arc<AtomicU32>,
}

impl ToyCloud {
    pub(crate) fn add(&self, id: &str, asks: u32) {
        self.instances.lock().unwrap_or_else(PoisonError::into_inner).insert(id.to_owned(), asks);
    }

    pub(crate) fn remove(&self, id: &str) {
        self.instances.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }

    pub(crate) fn has(&self, id: &str) -> bool {
        self.instances.lock().unwrap_or_else(PoisonError::into_inner).contains_key(id)
    }

    /// Makes the next calls of the provider fail.
    pub(crate) fn fail_next(&self, calls: u32) {
        self.failures.store(calls, Ordering::SeqCst);
    }

    pub(crate) fn failures_left(&self) -> u32 {
        self.failures.load(Ordering::SeqCst)
    }

    fn fails(&self) -> Result<(), CloudError> {
        let failed =
            self.failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        failed.map_or(Ok(()), |_| Err(CloudError::Throttled { message: "slow down".to_owned() }))
    }

    fn terminate(&self, id: &str) -> Result<(), CloudError> {
        self.fails()?;
        let mut instances = self.instances.lock().unwrap_or_else(PoisonError::into_inner);
        match instances.get_mut(id) {
            Some(asks) if *asks > 1 => *asks -= 1,
            Some(_) => drop(instances.remove(id)),
            None => return Err(not_found()),
        }
        Ok(())
    }
}

fn not_found() -> CloudError {
    CloudError::NotFound { message: "instance not found".to_owned() }
}

impl CloudProvider for ToyCloud {
    fn name(&self) -> &'static str {
        "toy"
    }

    fn node_class_kinds(&self) -> Vec<NodeClassKind> {
        vec![NodeClassKind {
            group: "karpenter.kwok.sh",
            version: "v1alpha1",
            kind: "KWOKNodeClass",
            plural: "kwoknodeclasses",
        }]
    }

    fn well_known_labels(&self) -> BTreeSet<Arc<str>> {
        BTreeSet::new()
    }

    fn create<'a>(&'a self, claim: &'a NodeClaim) -> CloudFuture<'a, Instance> {
        let provider_id = format!("toy://{}", claim.metadata.name.as_deref().unwrap_or_default());
        async move { Ok(Instance { provider_id, ..Instance::default() }) }.boxed()
    }

    fn delete<'a>(&'a self, claim: &'a NodeClaim) -> CloudFuture<'a, ()> {
        let id = claim.status.as_ref().and_then(|status| status.provider_id.clone()).unwrap_or_default();
        async move { self.terminate(&id) }.boxed()
    }

    fn get<'a>(&'a self, provider_id: &'a str) -> CloudFuture<'a, Instance> {
        let answer = self.fails().and_then(|()| match self.has(provider_id) {
            true => Ok(Instance { provider_id: provider_id.to_owned(), ..Instance::default() }),
            false => Err(not_found()),
        });
        std::future::ready(answer).boxed()
    }

    fn list(&self) -> CloudFuture<'_, Vec<Instance>> {
        async { Ok(Vec::new()) }.boxed()
    }

    fn instance_types<'a>(&'a self, _: &'a NodePool) -> CloudFuture<'a, Arc<Vec<InstanceType>>> {
        async { Ok(Arc::default()) }.boxed()
    }

    fn drift_reason<'a>(&'a self, _: &'a NodeClaim) -> CloudFuture<'a, Option<String>> {
        async { Ok(None) }.boxed()
    }
}

pub(crate) struct World {
    view: ClusterView,
    pub(crate) cloud: ToyCloud,
    pub(crate) context: Context,
    shutdown: Shutdown,
    tasks: Mutex<Vec<JoinHandle<()>>>,
    cluster: Option<Cluster>,
}

impl Deref for World {
    type Target = ClusterView;

    fn deref(&self) -> &ClusterView {
        &self.view
    }
}

impl World {
    pub(crate) async fn start() -> Self {
        let clock = clock();
        let server = ApiServer::new(Config { clock: Arc::new(TokioClock(clock)), ..Config::default() });
        let client = Client::new(server, "default");
        define_kinds(&client).await;
        let cluster = Cluster::start(client.clone(), Options { clock, ..Options::default() }).await;
        let cloud = ToyCloud::default();
        let (stores, _) = Stores::watch(&client, cloud.node_class_kinds());
        stores.synced().await;
        let context = Context::new(client.clone(), stores, Arc::new(cloud.clone()), clock);
        let world = Self {
            view: ClusterView::new(client, clock),
            cloud,
            context,
            shutdown: Shutdown::default(),
            tasks: Mutex::default(),
            cluster: Some(cluster),
        };
        world.start_controllers();
        world
    }

    fn start_controllers(&self) {
        let context = || self.context.clone();
        let evictions = EvictionQueue::default();
        let termination = NodeTermination {
            reads: context().reads(),
            writes: context().writes(),
            cloud: context().cloud.clone(),
            evictions: evictions.clone(),
        };
        self.spawn(termination, NodeTermination::watch);
        self.spawn(
            Evictions { reads: context().reads(), writes: context().writes(), queue: evictions },
            Evictions::watch,
        );
        self.spawn(
            NodeHydration { reads: context().reads(), writes: context().writes() },
            NodeHydration::watch,
        );
        let health = RegistrationHealth::default();
        self.spawn(
            NodePoolConditions { reads: context().reads(), writes: context().writes(), health },
            NodePoolConditions::watch,
        );
        self.spawn(
            NodePoolCounter { reads: context().reads(), writes: context().writes() },
            NodePoolCounter::watch,
        );
        self.spawn(
            NodePoolHash { reads: context().reads(), writes: context().writes() },
            NodePoolHash::watch,
        );
    }

    pub(crate) fn spawn<R: Reconcile>(&self, work: R, watch: fn(&R, &Queue)) {
        let queue = Queue::default();
        watch(&work, &queue);
        let task = tokio::spawn(worker::run(Arc::new(work), queue, 8, self.clock, self.shutdown.clone()));
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).push(task);
    }

    /// Aborts the controllers and starts new ones that have no state in memory.
    pub(crate) async fn restart_controllers(&mut self) {
        for task in self.tasks.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            task.abort();
        }
        let (stores, _) = Stores::watch(&self.client, self.cloud.node_class_kinds());
        stores.synced().await;
        let cloud = Arc::new(self.cloud.clone());
        self.context = Context::new(self.client.clone(), stores, cloud, self.clock);
        self.start_controllers();
    }

    pub(crate) async fn stop(mut self) {
        self.shutdown.request();
        if let Some(cluster) = self.cluster.take() {
            cluster.stop().await;
        }
    }

    /// Creates an initialized claim of the NodePool `general`, with its node.
    pub(crate) async fn initialized_node(&self, name: &str, node: Value) -> NodeClaim {
        let id = format!("toy://{name}");
        self.cloud.add(&id, 1);
        let labels = json!({"karpenter.sh/nodepool": "general",
            "karpenter.kwok.sh/kwoknodeclass": "default"});
        let claim: NodeClaim = self
            .create(json!({
                "metadata": {"name": name, "labels": labels, "finalizers": ["karpenter.sh/termination"]},
                "spec": {"requirements": [], "nodeClassRef":
                    {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}},
            }))
            .await;
        let is = |kind: &str| {
            json!({"type": kind, "status": "True", "reason": kind, "message": "",
                "lastTransitionTime": self.clock.time(), "observedGeneration": claim.metadata.generation})
        };
        let conditions = ["Launched", "Registered", "Initialized", "Ready"].map(is);
        let status = json!({"status": {"providerID": id, "nodeName": name, "conditions": conditions,
            "capacity": {"cpu": "8", "memory": "32Gi", "pods": "110"}}});
        let claims = self.all::<NodeClaim>();
        let patch = Patch::Merge(status);
        let claim = claims.patch_status(name, &PatchParams::default(), &patch).await.expect("patched");
        let mut object = json!({
            "metadata": {"name": name, "annotations": {"kwok.x-k8s.io/node": "fake"},
                "finalizers": ["karpenter.sh/termination"],
                "labels": {"kubernetes.io/hostname": name, "karpenter.sh/nodepool": "general",
                    "karpenter.kwok.sh/kwoknodeclass": "default", "karpenter.sh/registered": "true",
                    "karpenter.sh/initialized": "true"}},
            "spec": {"providerID": id},
            "status": {"capacity": {"cpu": "8", "memory": "32Gi", "pods": "110"},
                "allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"}},
        });
        merge(&mut object, &node);
        self.create::<Node>(object).await;
        let never_ready = node.pointer("/metadata/annotations/fake-kubelet~1never-ready").is_some();
        if !never_ready {
            self.until(
                "the node is ready",
                async || self.node(name).await,
                |node| node.as_ref().is_some_and(is_ready),
            )
            .await;
        }
        claim
    }

    /// Creates a running pod on the node.
    pub(crate) async fn pod(&self, name: &str, node: &str, patch: Value) -> Pod {
        let mut object = json!({
            "metadata": {"name": name, "labels": {"app": name}},
            "spec": {"nodeName": node, "terminationGracePeriodSeconds": 30,
                "containers": [{"name": "c", "image": "i"}]},
        });
        merge(&mut object, &patch);
        self.create_in_default::<Pod>(object).await;
        let running = |pod: &Option<Pod>| {
            let status = pod.as_ref().and_then(|pod| pod.status.as_ref());
            status.is_some_and(|status| status.phase.as_deref() == Some("Running"))
        };
        self.until("the pod runs", async || self.find_pod(name).await, running).await.expect("a pod")
    }

    pub(crate) async fn find_pod(&self, name: &str) -> Option<Pod> {
        self.api::<Pod>().get_opt(name).await.expect("an answer")
    }

    pub(crate) async fn until_node_gone(&self, name: &str) {
        self.until(&format!("{name} is gone"), async || self.node(name).await, Option::is_none).await;
    }

    pub(crate) fn time_at(&self, second: i64) -> String {
        (epoch() + SignedDuration::from_secs(second)).to_string()
    }
}

pub(crate) fn is_ready(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

pub(crate) fn is_terminating<K: Resource>(object: &Option<K>) -> bool {
    object.as_ref().is_none_or(|object| object.meta().deletion_timestamp.is_some())
}
