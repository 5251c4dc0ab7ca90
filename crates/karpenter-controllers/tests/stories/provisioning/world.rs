//! An embedded cluster with the provisioner and no other controller of Karpenter.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::Request;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::events::v1::Event;
use karpenter_api::types::{NodeClaim, NodePool};
use karpenter_apiserver::{ApiServer, Config};
use karpenter_cloud::CloudProvider;
use karpenter_controllers::Context;
use karpenter_controllers::nomination::NominationController;
use karpenter_controllers::provisioning::{Provisioner, Settings};
use karpenter_controllers::stores::Stores;
use karpenter_embedded::control_plane::{Cluster, Options};
use karpenter_runtime::queue::Queue;
use karpenter_runtime::worker::{self, Shutdown};
use karpenter_scheduling::validated::{DefaultPlanner, Planner};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::client::Body;
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::embedded::{TokioClock, clock, create, define_kinds};
use crate::provisioning::cloud::Shop;
use json_patch::merge;

pub(crate) struct World {
    pub(crate) client: Client,
    pub(crate) context: Context,
    shutdown: Shutdown,
    planner: Arc<dyn Planner + Send>,
    _cluster: Cluster,
}

impl World {
    pub(crate) async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    pub(crate) async fn start_with(change: impl FnOnce(&mut Context)) -> Self {
        Self::start_failing(0, change).await
    }

    /// Replaces the planner.
    pub(crate) async fn with_planner(mut self, planner: impl Planner + Send + 'static) -> Self {
        self.planner = Arc::new(planner);
        self.restart().await;
        self
    }

    /// Starts an environment in which the first `failures` requests to create a NodeClaim fail.
    pub(crate) async fn start_failing(failures: usize, change: impl FnOnce(&mut Context)) -> Self {
        let clock = clock();
        let server = ApiServer::new(Config { clock: Arc::new(TokioClock(clock)), ..Config::default() });
        let left = AtomicUsize::new(failures);
        let service = tower::service_fn(move |request: Request<Body>| {
            let is_create =
                request.method() == http::Method::POST && request.uri().path().ends_with("/nodeclaims");
            let is_lost = is_create
                && left
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
                    .is_ok();
            let server = server.clone();
            async move {
                if is_lost {
                    return Err("the connection was lost".into());
                }
                Ok::<_, tower::BoxError>(server.handle(request).await)
            }
        });
        let client = Client::new(service, "default");
        define_kinds(&client).await;
        let cluster = Cluster::start(client.clone(), Options { clock, ..Options::default() }).await;
        let shop = Arc::new(Shop::default());
        let (stores, _) = Stores::watch(&client, shop.node_class_kinds());
        stores.synced().await;
        let mut context = Context::new(client.clone(), stores, shop, clock);
        change(&mut context);
        let mut world = Self {
            client,
            context,
            shutdown: Shutdown::default(),
            planner: Arc::new(DefaultPlanner),
            _cluster: cluster,
        };
        world.provision();
        world
    }

    fn provision(&mut self) {
        self.shutdown = Shutdown::default();
        let provisioner = Provisioner::new(self.context.provisioning_inputs(), Settings::default());
        let provisioner = provisioner.with_planner(self.planner.clone());
        let queue = Queue::default();
        provisioner.watch(&queue);
        let running = worker::run(Arc::new(provisioner), queue, 1, self.context.clock, self.shutdown.clone());
        tokio::spawn(running);
        let (renomination, queue) = (NominationController::new(self.context.nominator()), Queue::default());
        renomination.watch(&queue);
        let running =
            worker::run(Arc::new(renomination), queue, 4, self.context.clock, self.shutdown.clone());
        tokio::spawn(running);
    }

    /// Ends the provisioner and starts another one without state.
    pub(crate) async fn restart(&mut self) {
        self.shutdown.request();
        let (stores, _) = Stores::watch(&self.client, self.context.cloud.node_class_kinds());
        stores.synced().await;
        let Context { client, cloud, clock, .. } = self.context.clone();
        self.context = Context::new(client, stores, cloud, clock);
        self.provision();
    }

    pub(crate) fn all<K: Resource<DynamicType = ()>>(&self) -> Api<K> {
        Api::all(self.client.clone())
    }

    pub(crate) fn pods_api(&self) -> Api<Pod> {
        Api::default_namespaced(self.client.clone())
    }

    /// Creates a ready NodePool of on-demand nodes, patched with `spec`.
    pub(crate) async fn pool(&self, name: &str, spec: Value) -> NodePool {
        let requirement =
            json!({"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]});
        let class = json!({"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"});
        let mut pool = json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name},
            "spec": {"template": {"spec": {"requirements": [requirement], "nodeClassRef": class}}},
        });
        merge(&mut pool["spec"], &spec);
        let pool = create(&self.all::<NodePool>(), pool).await;
        self.set_ready(&pool, "True").await;
        pool
    }

    pub(crate) async fn set_ready(&self, pool: &NodePool, status: &str) {
        let condition = json!({"type": "Ready", "status": status, "reason": "Test", "message": "",
            "lastTransitionTime": "2026-01-01T12:00:00Z", "observedGeneration": pool.metadata.generation});
        let name = pool.metadata.name.as_deref().expect("a name");
        patch_status(&self.all::<NodePool>(), name, json!({"conditions": [condition]})).await;
    }

    /// Creates a pod with one CPU, patched with `patch`.
    pub(crate) async fn pod(&self, name: &str, patch: Value) -> Pod {
        let resources = json!({"requests": {"cpu": "1", "memory": "1Gi"}});
        let mut pod = json!({
            "metadata": {"name": name, "labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]},
        });
        merge(&mut pod, &patch);
        create(&self.pods_api(), pod).await
    }

    pub(crate) async fn pods(&self, count: usize) {
        for number in 0..count {
            self.pod(&format!("p{number}"), json!({})).await;
        }
    }

    pub(crate) async fn claims(&self) -> Vec<NodeClaim> {
        self.all::<NodeClaim>().list(&ListParams::default()).await.expect("listed").items
    }

    /// Events with this reason as `object: message`, sorted.
    pub(crate) async fn events(&self, reason: &str) -> Vec<String> {
        let events = self.all::<Event>().list(&ListParams::default()).await.expect("listed");
        let of_reason = events.items.into_iter().filter(|event| event.reason.as_deref() == Some(reason));
        let mut lines: Vec<String> = of_reason
            .filter(|event| event.reporting_controller.as_deref() == Some("karpenter"))
            .map(|event| {
                let about = event.regarding.and_then(|about| about.name).unwrap_or_default();
                format!("{about}: {}", event.note.unwrap_or_default())
            })
            .collect();
        lines.sort();
        lines
    }

    pub(crate) async fn pass(&self, seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }

    /// Launches a NodeClaim as the provider and the lifecycle controller would. The node has the first instance type of
    /// the NodeClaim and the unregistered taint.
    pub(crate) async fn launch(&self, claim: &NodeClaim) -> Node {
        let name = claim.metadata.name.clone().expect("a name");
        let chosen = &instance_types(claim)[0];
        let types = karpenter_catalog::kwok::generic();
        let instance_type =
            types.iter().find(|one| &*one.name == chosen.as_str()).expect("a known instance type");
        let amounts = |list: &karpenter_model::resources::ResourceList| -> Value {
            list.iter()
                .map(|(name, amount)| {
                    let quantity = karpenter_model::resources::ResourceList::quantity(name, amount);
                    (name.to_string(), json!(quantity.to_string()))
                })
                .collect::<serde_json::Map<_, _>>()
                .into()
        };
        let (capacity, allocatable) =
            (amounts(&instance_type.capacity), amounts(&instance_type.allocatable()));
        let id = format!("test://{name}");
        let status = json!({"providerID": id, "capacity": capacity, "allocatable": allocatable});
        patch_status(&self.all::<NodeClaim>(), &name, status).await;
        let mut labels = claim.metadata.labels.clone().unwrap_or_default();
        labels.insert("kubernetes.io/hostname".to_owned(), name.clone());
        labels.insert("node.kubernetes.io/instance-type".to_owned(), chosen.clone());
        let node = json!({
            "metadata": {"name": name, "labels": labels, "annotations": {"kwok.x-k8s.io/node": "fake"}},
            "spec": {"providerID": id, "taints": [{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}]},
            "status": {"capacity": capacity, "allocatable": allocatable},
        });
        create(&self.all::<Node>(), node).await
    }

    /// Removes the taints that keep pods from the node.
    pub(crate) async fn open(&self, name: &str) {
        let node = self.all::<Node>().get(name).await.expect("a node");
        let mut taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
        taints.retain(|taint| taint.key != "karpenter.sh/unregistered");
        let labels = json!({"karpenter.sh/registered": "true", "karpenter.sh/initialized": "true"});
        let patch = Patch::Merge(json!({"metadata": {"labels": labels}, "spec": {"taints": taints}}));
        self.all::<Node>().patch(name, &PatchParams::default(), &patch).await.expect("patched");
    }

    /// Creates a Deployment of pods with one CPU.
    pub(crate) async fn deployment(&self, name: &str, replicas: usize) {
        let resources = json!({"requests": {"cpu": "1", "memory": "1Gi"}});
        let template = json!({"metadata": {"labels": {"app": name}},
            "spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]}});
        let deployment = json!({"metadata": {"name": name}, "spec": {"replicas": replicas,
            "selector": {"matchLabels": {"app": name}}, "template": template}});
        create(&Api::<Deployment>::default_namespaced(self.client.clone()), deployment).await;
    }

    pub(crate) async fn pods_on(&self, node: &str) -> Vec<Pod> {
        let of_node = ListParams::default().fields(&format!("spec.nodeName={node}"));
        self.all::<Pod>().list(&of_node).await.expect("listed").items
    }

    pub(crate) async fn delete_pod(&self, name: &str) {
        self.pods_api().delete(name, &DeleteParams::default()).await.expect("deleted");
    }

    pub(crate) async fn taint(&self, node: &str, taint: Value) {
        let found = self.all::<Node>().get(node).await.expect("a node");
        let taints = found.spec.and_then(|spec| spec.taints).unwrap_or_default();
        let mut taints: Vec<Value> = taints.iter().map(|taint| json!(taint)).collect();
        taints.push(taint);
        let patch = Patch::Merge(json!({"spec": {"taints": taints}}));
        self.all::<Node>().patch(node, &PatchParams::default(), &patch).await.expect("patched");
    }

    /// Deletes a NodeClaim that has a finalizer.
    pub(crate) async fn start_deleting_claim(&self, name: &str) {
        let patch = Patch::Merge(json!({"metadata": {"finalizers": ["karpenter.sh/termination"]}}));
        self.all::<NodeClaim>().patch(name, &PatchParams::default(), &patch).await.expect("patched");
        self.delete_claim(name).await;
    }

    pub(crate) async fn delete_claim(&self, name: &str) {
        self.all::<NodeClaim>().delete(name, &DeleteParams::default()).await.expect("deleted");
    }
}

pub(crate) fn values_of<'a>(claim: &'a NodeClaim, key: &str) -> &'a [String] {
    let requirement = claim.spec.requirements.iter().find(|one| one.key == key);
    requirement.map_or(&[], |requirement| &requirement.values)
}

pub(crate) fn instance_types(claim: &NodeClaim) -> &[String] {
    values_of(claim, "node.kubernetes.io/instance-type")
}

async fn patch_status<K>(api: &Api<K>, name: &str, status: Value)
where
    K: Resource + Clone + Debug + DeserializeOwned,
{
    let patch = Patch::Merge(json!({"status": status}));
    api.patch_status(name, &PatchParams::default(), &patch).await.expect("patched");
}
