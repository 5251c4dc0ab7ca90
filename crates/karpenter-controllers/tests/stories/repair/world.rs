//! An embedded cluster with all controllers and the kwok provider, on simulated time.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use json_patch::merge;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use karpenter_api::types::{KWOKNodeClass, NodeClaim, NodePool};
use karpenter_apiserver::{ApiServer, Config};
use karpenter_controllers::operator::{Operator, Options};
use karpenter_embedded::control_plane::{self, Cluster};
use karpenter_kwok::Kwok;
use karpenter_runtime::clock::Clock;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

pub(crate) use crate::embedded::condition_of;
use crate::embedded::{ClusterView, TokioClock, clock, define_kinds, is_running};
use crate::faults::fault_injection::FaultyConnection;
use crate::rules::Rules;

pub(crate) struct World {
    view: ClusterView,
    pub(crate) kwok: Kwok,
    pub(crate) operator: Operator,
    /// The controllers' connection to the API server; rejects requests that their RBAC rules do not allow.
    connection: FaultyConnection,
    cluster: Cluster,
    options: Options,
}

/// Options with these feature gates.
pub(crate) fn gates(text: &str) -> Options {
    Options { feature_gates: text.parse().expect("gates"), ..Options::default() }
}

impl Deref for World {
    type Target = ClusterView;

    fn deref(&self) -> &ClusterView {
        &self.view
    }
}

impl World {
    pub(crate) async fn start(options: Options) -> Self {
        let clock = clock();
        let server = ApiServer::new(Config { clock: Arc::new(TokioClock(clock)), ..Config::default() });
        let client = Client::new(server.clone(), "default");
        define_kinds(&client).await;
        let cluster = Cluster::start(
            client.clone(),
            control_plane::Options { clock, ..control_plane::Options::default() },
        )
        .await;
        let kwok = Kwok::generic(client.clone(), clock);
        let connection = FaultyConnection::new(server, Rules::of_controllers(), 1);
        let operator = operator(&connection, &kwok, clock, &options).await;
        let world =
            Self { view: ClusterView::new(client, clock), kwok, operator, connection, cluster, options };
        world.create::<KWOKNodeClass>(json!({"metadata": {"name": "default"}})).await;
        world
    }

    /// Restarts the controllers.
    pub(crate) async fn restart(self) -> Self {
        let Self { view, kwok, operator: old, connection, cluster, options } = self;
        old.stop().await;
        let operator = operator(&connection, &kwok, view.clock, &options).await;
        Self { view, kwok, operator, connection, cluster, options }
    }

    pub(crate) async fn stop(self) {
        assert_eq!(self.connection.forbidden(), [""; 0], "deploy/rbac.yaml allows every request");
        self.operator.stop().await;
        self.cluster.stop().await;
    }

    /// A NodePool of small on-demand instances without consolidation; `spec` is merged into its spec.
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

    /// A Deployment with one pod per node; waits until all pods run.
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
        self.create_in_default::<Deployment>(object).await;
        self.until_running(count).await;
    }

    pub(crate) async fn until_running(&self, count: usize) {
        let running = async || self.pods().await.into_iter().filter(is_running).count();
        self.until("all pods run", running, |running| *running == count).await;
    }

    pub(crate) async fn pod_on(&self, node: &str) -> Option<Pod> {
        let is_there = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(node);
        self.pods().await.into_iter().find(is_there)
    }

    /// NodeClaims by name.
    pub(crate) async fn claims(&self) -> BTreeMap<String, NodeClaim> {
        let claims: Vec<NodeClaim> = self.list().await;
        claims.into_iter().map(|claim| (claim.name_any(), claim)).collect()
    }

    pub(crate) async fn node_of(&self, claim: &str) -> String {
        let claim = self.claim(claim).await.expect("the claim");
        claim.status.and_then(|status| status.node_name).expect("its node")
    }

    pub(crate) async fn after(&self, seconds: u64) {
        self.clock.sleep(Duration::from_secs(seconds)).await;
    }
}

async fn operator(connection: &FaultyConnection, kwok: &Kwok, clock: Clock, options: &Options) -> Operator {
    Operator::check(kwok, options).expect("valid options");
    let mut operator = Operator::watch(connection.client(), Arc::new(kwok.clone()), clock, options.clone());
    operator.start().await;
    operator
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
