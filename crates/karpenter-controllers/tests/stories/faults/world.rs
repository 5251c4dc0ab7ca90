//! An embedded cluster, a simulated cloud, and Karpenter behind a line of its own.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use karpenter_api::types::{KWOKNodeClass, NodeClaim, NodePool};
use karpenter_apiserver::{ApiServer, Config};
use karpenter_cloud::CloudProvider;
use karpenter_cluster::cluster::{Cluster, Options as ClusterOptions};
use karpenter_controllers::operator::{Operator, Options};
use karpenter_kwok::{Kwok, Registration};
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::embedded::{OnTokio, clock, create, define_kinds};
use crate::faults::weather::Line;
use crate::rules::Rules;

/// Nothing takes longer, however bad the weather.
const PATIENCE: Duration = Duration::from_secs(3600);
const LOOK: Duration = Duration::from_secs(1);

pub(crate) struct World {
    client: Client,
    pub(crate) line: Line,
    kwok: Kwok,
    operator: Operator,
    cluster: Cluster,
}

impl World {
    /// A cluster with one pool of nodes of at most eight CPUs, and a deployment of pods of one CPU that has none yet.
    pub(crate) async fn start(seed: u64) -> Self {
        Self::start_under(Rules::of_controllers(), seed).await
    }

    /// The same, with other permissions than those that are shipped.
    pub(crate) async fn start_under(rules: Rules, seed: u64) -> Self {
        let clock = clock();
        let server = ApiServer::new(Config { clock: Arc::new(OnTokio(clock)), ..Config::default() });
        let client = Client::new(server.clone(), "default");
        define_kinds(&client).await;
        let options = ClusterOptions { clock, ..ClusterOptions::default() };
        let cluster = Cluster::start(client.clone(), options).await;
        // The cloud has no part in it: it creates its nodes over a line that works.
        let kwok = Kwok::generic(client.clone(), clock);
        let line = Line::new(server, rules, seed);
        let cloud = Arc::new(kwok.clone());
        let mut operator = Operator::watch(line.client(), cloud, clock, Options::default());
        operator.start().await;
        let world = Self { client, line, kwok, operator, cluster };
        world.furnish().await;
        world
    }

    async fn furnish(&self) {
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

    /// Waits until so many pods run, on nodes that are there.
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

    /// Waits until everything that was launched is gone without a trace.
    pub(crate) async fn until_nothing_is_left(&self) {
        self.until("nothing is left", async || {
            self.list::<NodeClaim>().await.is_empty()
                && self.list::<Node>().await.is_empty()
                && self.kwok.list().await.expect("listed").is_empty()
        })
        .await;
    }

    /// Waits until every machine has its claim and its initialised node, and none of them is on its way out.
    pub(crate) async fn until_settled(&self) {
        self.until("machines, claims and nodes agree", async || {
            let claims = self.list::<NodeClaim>().await;
            let nodes = self.list::<Node>().await;
            let machines = self.kwok.list().await.expect("listed");
            let is_leaving = |deleted: &Option<_>| deleted.is_some();
            let are_leaving = claims.iter().any(|claim| is_leaving(&claim.metadata.deletion_timestamp))
                || nodes.iter().any(|node| is_leaving(&node.metadata.deletion_timestamp));
            let is_open = |node: &Node| {
                let labels = node.metadata.labels.as_ref();
                let is_tainted = node.spec.as_ref().and_then(|spec| spec.taints.as_ref()).is_some();
                labels.is_some_and(|labels| labels.contains_key("karpenter.sh/initialized")) && !is_tainted
            };
            !are_leaving
                && claims.len() == nodes.len()
                && claims.len() == machines.len()
                && nodes.iter().all(is_open)
        })
        .await;
    }

    /// Ends a machine behind everybody's back, and starts one that is nobody's. The id of the latter.
    pub(crate) async fn lose_one_and_leak_one(&self) -> String {
        let claim = self.list::<NodeClaim>().await.remove(0);
        let id = claim.status.as_ref().and_then(|status| status.provider_id.clone()).expect("a machine");
        self.kwok.vanish(&id).await.expect("ended");
        self.kwok.change_faults(|faults| faults.registration = Registration::Never);
        let mut stranger = claim;
        stranger.metadata.name = Some("stranger".to_owned());
        stranger.metadata.uid = Some("uid-of-a-stranger".to_owned());
        // A launch of its own: with a provider id the provider would resume the launch of the other claim.
        stranger.status = None;
        let machine = self.kwok.create(&stranger).await.expect("launched");
        self.kwok.change_faults(|faults| faults.registration = Registration::Normal);
        machine.provider_id
    }

    pub(crate) async fn until_ended(&self, id: &str) {
        self.until("the machine is ended", async || {
            let machines = self.kwok.list().await.expect("listed");
            machines.iter().all(|machine| machine.provider_id != id)
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
            if begin.elapsed() > PATIENCE {
                let claims = self.list::<NodeClaim>().await;
                let pods = self.list::<Pod>().await;
                let waiting =
                    pods.iter().filter(|pod| pod.spec.as_ref().is_some_and(|s| s.node_name.is_none()));
                let tally = self.line.tally();
                panic!("never: {what}; {} claims, {} pods waiting, {tally:?}", claims.len(), waiting.count());
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}
