//! An embedded cluster for one test, and helpers to read it.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use karpenter_apiserver::clock::Clock as ServerClock;
use karpenter_apiserver::{ApiServer, Config};
use karpenter_embedded::control_plane::{Cluster, Options};
use karpenter_runtime::clock::Clock;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::core::NamespaceResourceScope;
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

pub(crate) struct World {
    pub(crate) client: Client,
    pub(crate) clock: Clock,
    cluster: Option<Cluster>,
}

struct OnTokio(Clock);

impl ServerClock for OnTokio {
    fn now(&self) -> Timestamp {
        self.0.now()
    }
}

impl World {
    pub(crate) async fn start() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut Options)) -> Self {
        let clock = Clock::starting_at("2026-01-01T12:00:00Z".parse().expect("a time"));
        let server = ApiServer::new(Config { clock: Arc::new(OnTokio(clock)), ..Config::default() });
        let client = Client::new(server, "default");
        let mut options = Options { clock, ..Options::default() };
        change(&mut options);
        let cluster = Cluster::start(client.clone(), options).await;
        Self { client, clock, cluster: Some(cluster) }
    }

    pub(crate) async fn stop(mut self) {
        if let Some(cluster) = self.cluster.take() {
            cluster.stop().await;
        }
    }

    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::default_namespaced(self.client.clone())
    }

    pub(crate) fn all<K: Resource<DynamicType = ()>>(&self) -> Api<K> {
        Api::all(self.client.clone())
    }

    pub(crate) async fn create<K>(&self, object: Value) -> K
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + Serialize
            + DeserializeOwned,
    {
        let object: K = serde_json::from_value(object).expect("an object of the kind");
        let namespace = object.meta().namespace.clone().unwrap_or_else(|| "default".into());
        let api = Api::namespaced(self.client.clone(), &namespace);
        api.create(&PostParams::default(), &object).await.expect("created")
    }

    /// A node with 8 CPUs and kwok's annotation, changed by `patch`.
    pub(crate) async fn node(&self, name: &str, patch: Value) -> Node {
        let mut object = json!({
            "metadata": {"name": name, "annotations": {"kwok.x-k8s.io/node": "fake"},
                "labels": {"kubernetes.io/hostname": name}},
            "status": {"capacity": {"cpu": "8", "memory": "32Gi", "pods": "110"},
                "allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"}},
        });
        merge(&mut object, &patch);
        let node: Node = serde_json::from_value(object).expect("a node");
        self.all::<Node>().create(&PostParams::default(), &node).await.expect("created")
    }

    pub(crate) async fn merge<K>(&self, name: &str, patch: Value)
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
    {
        let patch = Patch::Merge(patch);
        self.api::<K>().patch(name, &PatchParams::default(), &patch).await.expect("patched");
    }

    pub(crate) async fn pods(&self, labels: &str) -> Vec<Pod> {
        let pods = self.all::<Pod>().list(&ListParams::default().labels(labels)).await.expect("listed");
        pods.items
    }

    /// Calls `look` repeatedly until `is` returns true for its result. The paused clock advances while all tasks are
    /// idle.
    pub(crate) async fn until<T: Debug>(
        &self,
        what: &str,
        look: impl AsyncFn() -> T,
        is: impl Fn(&T) -> bool,
    ) -> T {
        let mut last = look().await;
        for _ in 0..6000 {
            if is(&last) {
                return last;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
            last = look().await;
        }
        panic!("timed out: {what}; last value {last:#?}");
    }
}

fn merge(target: &mut Value, patch: &Value) {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => {
            for (key, value) in patch {
                merge(target.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (target, patch) => *target = patch.clone(),
    }
}
