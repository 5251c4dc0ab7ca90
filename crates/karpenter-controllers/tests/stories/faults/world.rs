//! An embedded cluster, a simulated cloud, and all controllers, which use a connection that injects faults.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use karpenter_api::types::{KWOKNodeClass, NodeClaim, NodePool};
use karpenter_apiserver::{ApiServer, Config};
use karpenter_cloud::CloudProvider;
use karpenter_controllers::operator::{Operator, Options};
use karpenter_embedded::control_plane::{Cluster, Options as ClusterOptions};
use karpenter_kwok::{Kwok, Registration};
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::embedded::{TokioClock, clock, create, define_kinds};
use crate::faults::fault_injection::FaultyConnection;
use crate::rules::Rules;

/// The maximum time that a test waits for a condition.
const WAIT_MAX: Duration = Duration::from_secs(3600);
const POLL: Duration = Duration::from_secs(1);

pub(crate) struct World {
    client: Client,
    pub(crate) connection: FaultyConnection,
    kwok: Kwok,
    operator: Operator,
    cluster: Cluster,
}

impl World {
    /// A cluster with one NodePool of nodes with at most eight CPUs, and a Deployment without replicas whose pods
    /// request one CPU.
    pub(crate) async fn start(seed: u64) -> Self {
        Self::start_under(Rules::of_controllers(), seed).await
    }

    /// Like [`Self::start`], but with these RBAC rules instead of the shipped ones.
    pub(crate) async fn start_under(rules: Rules, seed: u64) -> Self {
        let clock = clock();
        let server = ApiServer::new(Config { clock: Arc::new(TokioClock(clock)), ..Config::default() });
        let client = Client::new(server.clone(), "default");
        define_kinds(&client).await;
        let options = ClusterOptions { clock, ..ClusterOptions::default() };
        let cluster = Cluster::start(client.clone(), options).await;
        // The cloud provider creates Node objects through another connection, which has no faults.
        let kwok = Kwok::generic(client.clone(), clock);
        let connection = FaultyConnection::new(server, rules, seed);
        let cloud = Arc::new(kwok.clone());
        let mut operator = Operator::watch(connection.client(), cloud, clock, Options::default());
        operator.start().await;
        let world = Self { client, connection, kwok, operator, cluster };
        world.create_objects().await;
        world
    }

    async fn create_objects(&self) {
        let class = json!({"metadata": {"name": "default"}, "spec": {}});
        create(&Api::<KWOKNodeClass>::all(self.client.clone()), class).await;
        let requirements = json!([
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
            {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
            {"key": "karpenter.kwok.sh/instance-cpu", "operator": "Lt", "values": ["9"]},
        ]);
        let reference = json!({"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"});
        let template = json!({"spec": {"requirements": requirements, "nodeClassRef": reference}});
        let disruption = json!({"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "10s",
            "budgets": [{"nodes": "100%"}]});
        let pool = json!({"metadata": {"name": "default"},
            "spec": {"template": template, "disruption": disruption}});
        create(&Api::<NodePool>::all(self.client.clone()), pool).await;
        let resources = json!({"requests": {"cpu": "1", "memory": "1Gi"}});
        let template = json!({"metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]}});
        let deployment = json!({"metadata": {"name": "web"}, "spec": {"replicas": 0,
            "selector": {"matchLabels": {"app": "web"}}, "template": template}});
        create(&Api::<Deployment>::default_namespaced(self.client.clone()), deployment).await;
    }

    pub(crate) async fn scale(&self, replicas: usize) {
        let api: Api<Deployment> = Api::default_namespaced(self.client.clone());
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        api.patch("web", &PatchParams::default(), &patch).await.expect("scaled");
    }

    pub(crate) async fn pass(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }

    /// Waits until exactly this number of pods exists and runs.
    pub(crate) async fn until_running(&self, count: usize) {
        self.until(&format!("{count} pods run"), async || {
            let pods = self.list::<Pod>().await;
            let is_running = |pod: &&Pod| {
                let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
                phase == Some("Running") && pod.metadata.deletion_timestamp.is_none()
            };
            pods.len() == count && pods.iter().filter(is_running).count() == count
        })
        .await;
    }

    /// Waits until all NodeClaims, nodes and instances are gone.
    pub(crate) async fn until_everything_is_removed(&self) {
        self.until("everything is removed", async || {
            self.list::<NodeClaim>().await.is_empty()
                && self.list::<Node>().await.is_empty()
                && self.kwok.list().await.expect("listed").is_empty()
        })
        .await;
    }

    /// Waits until every instance has a NodeClaim and an initialized node, and none is terminating.
    pub(crate) async fn until_consistent(&self) {
        self.until("instances, claims and nodes match", async || {
            let claims = self.list::<NodeClaim>().await;
            let nodes = self.list::<Node>().await;
            let instances = self.kwok.list().await.expect("listed");
            let is_terminating = |deleted: &Option<_>| deleted.is_some();
            let is_any_terminating =
                claims.iter().any(|claim| is_terminating(&claim.metadata.deletion_timestamp))
                    || nodes.iter().any(|node| is_terminating(&node.metadata.deletion_timestamp));
            let is_open = |node: &Node| {
                let labels = node.metadata.labels.as_ref();
                let is_tainted = node.spec.as_ref().and_then(|spec| spec.taints.as_ref()).is_some();
                labels.is_some_and(|labels| labels.contains_key("karpenter.sh/initialized")) && !is_tainted
            };
            !is_any_terminating
                && claims.len() == nodes.len()
                && claims.len() == instances.len()
                && nodes.iter().all(is_open)
        })
        .await;
    }

    /// Terminates an instance outside of Karpenter, and launches one without a NodeClaim. Returns the provider ID of
    /// the latter.
    pub(crate) async fn lose_one_instance_and_leak_one(&self) -> String {
        let claim = self.list::<NodeClaim>().await.remove(0);
        let id = claim.status.as_ref().and_then(|status| status.provider_id.clone()).expect("an instance");
        self.kwok.terminate_externally(&id).await.expect("ended");
        self.kwok.change_faults(|faults| faults.registration = Registration::Never);
        let mut unknown = claim;
        unknown.metadata.name = Some("unknown".to_owned());
        unknown.metadata.uid = Some("uid-of-unknown".to_owned());
        // The copy has no provider ID, because with it the provider would continue the launch of the original
        // NodeClaim.
        unknown.status = None;
        let instance = self.kwok.create(&unknown).await.expect("launched");
        self.kwok.change_faults(|faults| faults.registration = Registration::Normal);
        instance.provider_id
    }

    pub(crate) async fn until_terminated(&self, id: &str) {
        self.until("the instance is terminated", async || {
            let instances = self.kwok.list().await.expect("listed");
            instances.iter().all(|instance| instance.provider_id != id)
        })
        .await;
    }

    pub(crate) async fn claims(&self) -> usize {
        self.list::<NodeClaim>().await.len()
    }

    pub(crate) async fn stop(self) {
        self.operator.stop().await;
        self.cluster.stop().await;
    }

    async fn list<K>(&self) -> Vec<K>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        Api::<K>::all(self.client.clone()).list(&ListParams::default()).await.expect("listed").items
    }

    async fn until(&self, what: &str, holds: impl AsyncFn() -> bool) {
        let begin = tokio::time::Instant::now();
        while !holds().await {
            if begin.elapsed() > WAIT_MAX {
                let claims = self.list::<NodeClaim>().await;
                let pods = self.list::<Pod>().await;
                let pending =
                    pods.iter().filter(|pod| pod.spec.as_ref().is_some_and(|s| s.node_name.is_none()));
                let counts = self.connection.counts();
                panic!(
                    "timed out waiting until {what}; {} claims, {} pods pending, {counts:?}",
                    claims.len(),
                    pending.count()
                );
            }
            tokio::time::sleep(POLL).await;
        }
    }
}
