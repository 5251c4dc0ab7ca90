//! An embedded cluster with all controllers, the kwok provider and the options of a test.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use karpenter_api::types::{Condition, KWOKNodeClass, NodeClaim, NodePool};
use karpenter_apiserver::{ApiServer, Config};
use karpenter_controllers::Context;
use karpenter_controllers::operator::legacy_api;
use karpenter_controllers::operator::{Operator, Options};
use karpenter_embedded::control_plane::{Cluster, Options as ClusterOptions};
use karpenter_kwok::Kwok;
use kube::api::{Api, ListParams};
use kube::{Client, Resource};
use serde_json::{Value, json};

pub(crate) use crate::embedded::create;
use crate::embedded::{TokioClock, clock, define, define_kinds};

pub(crate) struct World {
    pub(crate) client: Client,
    operator: Operator,
    _cluster: Cluster,
}

/// Options of the operator with these feature gates.
pub(crate) fn with_gates(gates: &str) -> Options {
    Options { feature_gates: gates.parse().expect("gates"), ..Options::default() }
}

impl World {
    /// A cluster with one NodePool of on-demand nodes, whose empty nodes are deleted after ten seconds.
    pub(crate) async fn start(options: Options) -> Self {
        let clock = clock();
        let server = ApiServer::new(Config { clock: Arc::new(TokioClock(clock)), ..Config::default() });
        let client = Client::new(server, "default");
        define_kinds(&client).await;
        let cluster =
            Cluster::start(client.clone(), ClusterOptions { clock, ..ClusterOptions::default() }).await;
        let kwok = Kwok::generic(client.clone(), clock);
        let mut operator = Operator::watch(client.clone(), Arc::new(kwok), clock, options);
        operator.start().await;
        let world = Self { client, operator, _cluster: cluster };
        world.create_nodepool().await;
        world
    }

    async fn create_nodepool(&self) {
        create(&self.all::<KWOKNodeClass>(), json!({"metadata": {"name": "default"}, "spec": {}})).await;
        let requirements = json!([
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
            {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
            {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
        ]);
        let reference = json!({"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"});
        let template = json!({"spec": {"requirements": requirements, "nodeClassRef": reference}});
        let disruption = json!({"consolidationPolicy": "WhenEmpty", "consolidateAfter": "10s",
            "budgets": [{"nodes": "100%"}]});
        let pool = json!({"metadata": {"name": "default"}, "spec": {"template": template, "disruption": disruption}});
        create(&self.all::<NodePool>(), typed("karpenter.sh/v1", "NodePool", pool)).await;
    }

    /// Installs the CRDs of the v1alpha5 API and starts its controllers.
    pub(crate) async fn serve_legacy(&mut self) {
        define(&self.client, karpenter_api::crds::legacy()).await;
        legacy_api::serve(&mut self.operator, karpenter_legacy::Options::default()).await;
    }

    pub(crate) fn context(&self) -> &Context {
        self.operator.context()
    }

    /// The body of `/metrics`.
    pub(crate) fn scrape(&self) -> String {
        String::from_utf8((self.operator.metrics_pages())("/metrics", "").body).expect("text")
    }

    pub(crate) fn all<K: Resource<DynamicType = ()>>(&self) -> Api<K> {
        Api::all(self.client.clone())
    }

    pub(crate) fn namespaced<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::default_namespaced(self.client.clone())
    }

    pub(crate) async fn sleep(&self, seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }

    pub(crate) async fn claims(&self) -> Vec<NodeClaim> {
        self.all::<NodeClaim>().list(&ListParams::default()).await.expect("listed").items
    }

    /// Creates a pod with these resource requests.
    pub(crate) async fn pod(&self, name: &str, requests: Value) -> Pod {
        let containers = json!([{"name": "c", "image": "i", "resources": {"requests": requests, "limits": extended(&requests)}}]);
        create(
            &self.namespaced::<Pod>(),
            json!({"metadata": {"name": name}, "spec": {"containers": containers}}),
        )
        .await
    }

    /// Creates a Deployment of pods that request one CPU.
    pub(crate) async fn deployment(&self, name: &str, replicas: usize) {
        let template = json!({"metadata": {"labels": {"app": name}}, "spec": pod_spec()});
        let deployment = json!({"metadata": {"name": name}, "spec": {"replicas": replicas,
            "selector": {"matchLabels": {"app": name}}, "template": template}});
        create(&self.namespaced::<Deployment>(), deployment).await;
    }

    /// The number of plans that the provisioner has made so far.
    pub(crate) fn plans(&self) -> u64 {
        let metrics = &self.context().metrics;
        metrics.scheduling_duration.with_label_values(&["provisioner"]).get_sample_count()
    }

    /// Number of nodes with pods, and number of bound pods.
    pub(crate) async fn running(&self) -> (usize, usize) {
        let pods = self.namespaced::<Pod>().list(&ListParams::default()).await.expect("listed").items;
        let mut nodes: Vec<String> =
            pods.into_iter().filter_map(|pod| pod.spec.and_then(|spec| spec.node_name)).collect();
        let count = nodes.len();
        nodes.sort();
        nodes.dedup();
        (nodes.len(), count)
    }
}

/// The limits of a pod with these requests: extended resources need limits that are equal to the requests.
fn extended(requests: &Value) -> Value {
    let all = requests.as_object().into_iter().flatten();
    let of_others = all.filter(|(name, _)| name.contains('/'));
    of_others.map(|(name, amount)| (name.clone(), amount.clone())).collect::<serde_json::Map<_, _>>().into()
}

pub(crate) fn pod_spec() -> Value {
    json!({"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]})
}

pub(crate) fn typed(api_version: &str, kind: &str, mut object: Value) -> Value {
    object["apiVersion"] = json!(api_version);
    object["kind"] = json!(kind);
    object
}

/// Status and reason of a condition.
pub(crate) fn condition(conditions: &[Condition], kind: &str) -> Option<(String, String)> {
    let found = conditions.iter().find(|condition| condition.type_ == kind)?;
    Some((format!("{:?}", found.status), found.reason.clone()))
}

pub(crate) fn status_and_reason(status: &str, reason: &str) -> Option<(String, String)> {
    Some((status.to_owned(), reason.to_owned()))
}
