//! An embedded cluster with all of Karpenter's controllers and kwok's machines, in virtual time.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use crate::embedded::{OnTokio, define_kinds};
use jiff::Timestamp;
use json_patch::merge;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use karpenter_api::types::{KWOKNodeClass, NodeClaim, NodePool};
use karpenter_apiserver::{ApiServer, Config};
use karpenter_cluster::clock::Clock;
use karpenter_cluster::cluster::{self, Cluster};
use karpenter_controllers::operator::{Operator, Options};
use karpenter_kwok::Kwok;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

pub(crate) const EPOCH: &str = "2026-01-01T12:00:00Z";
/// Nothing that is waited for takes longer than this.
const PATIENCE: Duration = Duration::from_secs(2 * 3600);

pub(crate) struct World {
    pub(crate) client: Client,
    pub(crate) clock: Clock,
    pub(crate) kwok: Kwok,
    pub(crate) operator: Operator,
    cluster: Cluster,
    options: Options,
}

/// Options with these gates on.
pub(crate) fn gates(text: &str) -> Options {
    Options { feature_gates: text.parse().expect("gates"), ..Options::default() }
}

impl World {
    pub(crate) async fn start(options: Options) -> Self {
        let clock = Clock::starting_at(EPOCH.parse().expect("a time"));
        let server = ApiServer::new(Config { clock: Arc::new(OnTokio(clock)), ..Config::default() });
        let client = Client::new(server, "default");
        define_kinds(&client).await;
        let cluster =
            Cluster::start(client.clone(), cluster::Options { clock, ..cluster::Options::default() }).await;
        let kwok = Kwok::generic(client.clone(), clock);
        let operator = operator(&client, &kwok, clock, &options).await;
        let world = Self { client, clock, kwok, operator, cluster, options };
        world.create::<KWOKNodeClass>(json!({"metadata": {"name": "default"}})).await;
        world
    }

    /// The controllers end and others start that know nothing but what is written.
    pub(crate) async fn restart(self) -> Self {
        let Self { client, clock, kwok, operator: old, cluster, options } = self;
        old.stop().await;
        let operator = operator(&client, &kwok, clock, &options).await;
        Self { client, clock, kwok, operator, cluster, options }
    }

    pub(crate) async fn stop(self) {
        self.operator.stop().await;
        self.cluster.stop().await;
    }

    pub(crate) fn all<K: Resource<DynamicType = ()>>(&self) -> Api<K> {
        Api::all(self.client.clone())
    }

    pub(crate) fn default_namespace<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    {
        Api::default_namespaced(self.client.clone())
    }

    pub(crate) async fn create<K>(&self, object: Value) -> K
    where
        K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
    {
        let object: K = serde_json::from_value(object).expect("an object of the kind");
        self.all().create(&PostParams::default(), &object).await.expect("created")
    }

    pub(crate) async fn merge<K>(&self, name: &str, patch: Value)
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        self.all::<K>().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.expect("patched");
    }

    /// A pool of small on-demand machines that are left alone unless they are sick; `spec` is merged into it.
    pub(crate) async fn pool(&self, name: &str, spec: Value) -> NodePool {
        let is = |key: &str, values: &[&str]| json!({"key": key, "operator": "In", "values": values});
        let mut object = json!({
            "metadata": {"name": name},
            "spec": {
                "template": {"spec": {
                    "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                    "expireAfter": "Never",
                    "requirements": [
                        is("kubernetes.io/os", &["linux"]),
                        is("kubernetes.io/arch", &["amd64"]),
                        is("karpenter.sh/capacity-type", &["on-demand"]),
                        is("karpenter.kwok.sh/instance-cpu", &["4"]),
                    ],
                }},
                "disruption": {"consolidateAfter": "Never", "budgets": [{"nodes": "100%"}]},
            },
        });
        merge(&mut object["spec"], &spec);
        self.create::<NodePool>(object).await
    }

    /// Pods of which no two share a node; waits until all run.
    pub(crate) async fn spread(&self, name: &str, count: usize, template: Value) {
        let mut object = json!({
            "metadata": {"name": name},
            "spec": {
                "replicas": count,
                "selector": {"matchLabels": {"app": name}},
                "template": {
                    "metadata": {"labels": {"app": name}},
                    "spec": {
                        "terminationGracePeriodSeconds": 0,
                        "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
                        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": name}}},
                        ]}},
                    },
                },
            },
        });
        merge(&mut object["spec"]["template"], &template);
        let deployment: Deployment = serde_json::from_value(object).expect("a deployment");
        let api = self.default_namespace::<Deployment>();
        api.create(&PostParams::default(), &deployment).await.expect("created");
        self.until_running(count).await;
    }

    pub(crate) async fn until_running(&self, count: usize) {
        let running = async || self.pods().await.into_iter().filter(is_running).count();
        self.until("all pods run", running, |running| *running == count).await;
    }

    pub(crate) async fn pods(&self) -> Vec<Pod> {
        self.default_namespace::<Pod>().list(&ListParams::default()).await.expect("pods").items
    }

    pub(crate) async fn pod_on(&self, node: &str) -> Option<Pod> {
        let is_there = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(node);
        self.pods().await.into_iter().find(is_there)
    }

    /// Claims by name.
    pub(crate) async fn claims(&self) -> BTreeMap<String, NodeClaim> {
        let claims = self.all::<NodeClaim>().list(&ListParams::default()).await.expect("claims");
        claims.items.into_iter().map(|claim| (claim.name_any(), claim)).collect()
    }

    pub(crate) async fn claim(&self, name: &str) -> Option<NodeClaim> {
        self.all::<NodeClaim>().get_opt(name).await.expect("an answer")
    }

    pub(crate) async fn node(&self, name: &str) -> Option<Node> {
        self.all::<Node>().get_opt(name).await.expect("an answer")
    }

    pub(crate) async fn node_of(&self, claim: &str) -> String {
        let claim = self.claim(claim).await.expect("the claim");
        claim.status.and_then(|status| status.node_name).expect("its node")
    }

    pub(crate) async fn after(&self, seconds: u64) {
        self.clock.sleep(Duration::from_secs(seconds)).await;
    }

    pub(crate) fn seconds(&self) -> i64 {
        let epoch: Timestamp = EPOCH.parse().expect("a time");
        self.clock.now().duration_since(epoch).as_secs()
    }

    /// Messages of events of the reason, with the name of what they are about.
    pub(crate) async fn events(&self, reason: &str) -> Vec<(String, String)> {
        let events = self.all::<Event>().list(&ListParams::default()).await.expect("events");
        let of_reason = events.items.into_iter().filter(|event| event.reason.as_deref() == Some(reason));
        of_reason
            .map(|event| (event.involved_object.name.unwrap_or_default(), event.message.unwrap_or_default()))
            .collect()
    }

    /// Waits until `is` holds of what `look` sees; time passes as fast as nothing happens.
    pub(crate) async fn until<T: Debug>(
        &self,
        what: &str,
        look: impl AsyncFn() -> T,
        is: impl Fn(&T) -> bool,
    ) -> T {
        let end = self.clock.deadline(PATIENCE);
        let mut last = look().await;
        while tokio::time::Instant::now() < end {
            if is(&last) {
                return last;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
            last = look().await;
        }
        panic!("never came to pass: {what}; last seen {last:#?}");
    }
}

async fn operator(client: &Client, kwok: &Kwok, clock: Clock, options: &Options) -> Operator {
    Operator::check(kwok, options).expect("options that make sense");
    let mut operator = Operator::watch(client.clone(), Arc::new(kwok.clone()), clock, options.clone());
    operator.start().await;
    operator
}

fn is_running(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    phase == Some("Running") && pod.metadata.deletion_timestamp.is_none()
}

pub(crate) fn is_initialized(node: &Node) -> bool {
    node.labels().get("karpenter.sh/initialized").map(String::as_str) == Some("true")
}

pub(crate) fn boot_id(node: &Node) -> String {
    let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
    info.map(|info| info.boot_id.clone()).unwrap_or_default()
}

pub(crate) fn has_taint(node: &Node, key: &str) -> bool {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.into_iter().any(|taint| taint.key == key)
}

/// Status and reason of a condition of a claim.
pub(crate) fn said(claim: &NodeClaim, kind: &str) -> (&'static str, String) {
    let conditions = claim.status.iter().flat_map(|status| &status.conditions);
    let found = conditions.into_iter().find(|condition| condition.type_ == kind);
    found.map_or(("", String::new()), |found| (found.status.as_str(), found.reason.clone()))
}
