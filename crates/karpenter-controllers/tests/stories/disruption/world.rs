//! An embedded cluster with all controllers and the kwok provider, with a simulated clock.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use json_patch::merge;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use karpenter_api::types::{KWOKNodeClass, NodeClaim, NodePool};
use karpenter_apiserver::{ApiServer, Config};
use karpenter_controllers::operator::options::PlannerMode;
use karpenter_controllers::operator::{Operator, Options};
use karpenter_embedded::control_plane::{Cluster, Options as ClusterOptions};
use karpenter_kwok::Kwok;
use karpenter_runtime::clock::Clock;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Client, Resource};
use serde_json::{Value, json};

pub(crate) use crate::embedded::is_running;
use crate::embedded::{ClusterView, TokioClock, clock, condition_of, define_kinds};

pub(crate) struct World {
    view: ClusterView,
    pub(crate) server: ApiServer,
    pub(crate) cloud: Kwok,
    pub(crate) operator: Operator,
    options: Options,
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
        Self::start_with(|_| {}).await
    }

    /// A world whose planner runs in mode `compat`.
    pub(crate) async fn compat() -> Self {
        Self::start_with(|options| options.planner_mode = PlannerMode::Compat).await
    }

    pub(crate) async fn start_with(change: impl FnOnce(&mut Options)) -> Self {
        let clock = clock();
        let server = ApiServer::new(Config { clock: Arc::new(TokioClock(clock)), ..Config::default() });
        let client = Client::new(server.clone(), "default");
        define_kinds(&client).await;
        let mut nodes = ClusterOptions { clock, ..ClusterOptions::default() };
        // Most requests in an idle hour are lease renewals of kubelets. So kubelets renew at the longest interval at
        // which their nodes still count as alive.
        nodes.kubelet.lease_renewal = Duration::from_secs(40);
        let cluster = Cluster::start(client.clone(), nodes).await;
        let mut options = Options::default();
        change(&mut options);
        let (cloud, operator) = start_operator(client.clone(), clock, &options).await;
        let view = ClusterView {
            journal: Some(operator.context().journal.clone()),
            ..ClusterView::new(client, clock)
        };
        let world = Self { view, server, cloud, operator, options, cluster: Some(cluster) };
        let class = json!({"metadata": {"name": "default"}, "spec": {"nodeRegistrationDelay": "5s"}});
        world.create::<KWOKNodeClass>(class).await;
        world
    }

    /// Starts another process in place of the current one. The current process is returned without being stopped.
    pub(crate) async fn take_over(&mut self, client: Client) -> Operator {
        let (cloud, operator) = start_operator(client, self.clock, &self.options).await;
        self.cloud = cloud;
        self.view.journal = Some(operator.context().journal.clone());
        std::mem::replace(&mut self.operator, operator)
    }

    pub(crate) async fn stop(mut self) {
        self.operator.stop().await;
        if let Some(cluster) = self.cluster.take() {
            cluster.stop().await;
        }
    }

    /// A NodePool of small on-demand Linux instances: one to eight CPUs, 4 GiB each.
    pub(crate) async fn pool(&self, disruption: Value, template: Value) -> NodePool {
        self.pool_of(json!({"disruption": disruption, "template": template})).await
    }

    /// Like [`Self::pool`], with `spec` merged into the spec.
    pub(crate) async fn pool_of(&self, spec: Value) -> NodePool {
        self.pool_named("general", spec).await
    }

    pub(crate) async fn pool_named(&self, name: &str, spec: Value) -> NodePool {
        let requirement = |key: &str, operator: &str, values: &[&str]| json!({"key": key, "operator": operator, "values": values});
        let mut pool = json!({
            "metadata": {"name": name},
            "spec": {
                "template": {"metadata": {"labels": {}, "annotations": {}}, "spec": {
                    "expireAfter": "Never",
                    "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                    "requirements": [
                        requirement("karpenter.sh/capacity-type", "In", &["on-demand"]),
                        requirement("kubernetes.io/os", "In", &["linux"]),
                        requirement("kubernetes.io/arch", "In", &["amd64"]),
                        requirement("karpenter.kwok.sh/instance-family", "In", &["s"]),
                        requirement("karpenter.kwok.sh/instance-cpu", "Lt", &["9"]),
                    ],
                }},
            },
        });
        merge(&mut pool["spec"], &spec);
        self.create(pool).await
    }

    /// A Deployment of pods with this CPU request; `patch` is merged into the pod template.
    pub(crate) async fn deploy(&self, name: &str, replicas: usize, millis: u32, patch: Value) {
        let mut template = json!({
            "metadata": {"labels": {"app": name}},
            "spec": {"terminationGracePeriodSeconds": 1, "containers": [{"name": "c", "image": "i",
                "resources": {"requests": {"cpu": format!("{millis}m"), "memory": "128Mi"}}}]},
        });
        merge(&mut template, &patch);
        let deployment: Deployment = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template},
        }))
        .expect("a deployment");
        self.api().create(&PostParams::default(), &deployment).await.expect("created");
    }

    pub(crate) async fn scale(&self, name: &str, replicas: usize) {
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        self.api::<Deployment>().patch(name, &PatchParams::default(), &patch).await.expect("scaled");
    }

    pub(crate) async fn delete_deployment(&self, name: &str) {
        self.api::<Deployment>().delete(name, &DeleteParams::background()).await.expect("deleted");
    }

    pub(crate) async fn pod_budget(&self, name: &str, spec: Value) {
        let mut spec = spec;
        spec["selector"] = json!({"matchLabels": {"app": name}});
        let budget: PodDisruptionBudget =
            serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).expect("a budget");
        self.api().create(&PostParams::default(), &budget).await.expect("created");
    }

    pub(crate) async fn claims(&self) -> Vec<NodeClaim> {
        self.list().await
    }

    pub(crate) async fn nodes(&self) -> Vec<Node> {
        self.list().await
    }

    /// Names of the NodeClaims that are not deleted.
    pub(crate) async fn claim_names(&self) -> BTreeSet<String> {
        let claims = self.claims().await;
        let staying = claims.into_iter().filter(|claim| claim.metadata.deletion_timestamp.is_none());
        staying.filter_map(|claim| claim.metadata.name).collect()
    }

    /// Waits until exactly `count` pods of the app run.
    pub(crate) async fn until_running(&self, app: &str, count: usize) -> Vec<Pod> {
        let look = async || {
            let pods = self.pods().await;
            pods.into_iter().filter(|pod| is_of(pod, app) && is_running(pod)).collect::<Vec<_>>()
        };
        self.until(&format!("{count} pods of {app} run"), look, |pods| pods.len() == count).await
    }

    /// Waits until there are exactly this many NodeClaims, all initialized and none deleted, and as many nodes.
    pub(crate) async fn until_settled(&self, claims: usize) {
        let look = async || {
            let claims = self.claims().await;
            let nodes = self.nodes().await.len();
            let ready = claims.iter().filter(|claim| is_initialized(claim) && !is_deleting(claim)).count();
            (claims.len(), ready, nodes)
        };
        self.until(&format!("{claims} nodes are left"), look, |seen| *seen == (claims, claims, claims)).await;
    }

    /// The decisions of disruption in the journal, without failed validations.
    pub(crate) fn decisions(&self) -> Vec<String> {
        let mut decisions = self.decisions_of("disruption");
        decisions.retain(|what| !is_failed_validation(what));
        decisions
    }

    /// The failed validations of disruption in the journal.
    pub(crate) fn failed_validations(&self) -> Vec<String> {
        let mut decisions = self.decisions_of("disruption");
        decisions.retain(|what| is_failed_validation(what));
        decisions
    }

    pub(crate) fn metric(&self, line: &str) -> Option<f64> {
        let text = self.operator.context().metrics.render();
        let found = text.lines().find_map(|one| one.strip_prefix(line))?;
        found.trim().parse().ok()
    }
}

async fn start_operator(client: Client, clock: Clock, options: &Options) -> (Kwok, Operator) {
    let cloud = Kwok::generic(client.clone(), clock);
    let mut operator = Operator::watch(client, Arc::new(cloud.clone()), clock, options.clone());
    operator.start().await;
    let resumed = cloud.clone();
    tokio::spawn(async move { resumed.resume().await });
    (cloud, operator)
}

fn is_failed_validation(what: &str) -> bool {
    what.starts_with("do not disrupt ")
}

pub(crate) fn is_of(pod: &Pod, app: &str) -> bool {
    pod.metadata.labels.as_ref().and_then(|labels| labels.get("app")).is_some_and(|value| value == app)
}

pub(crate) fn node_of(pod: &Pod) -> String {
    pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default()
}

pub(crate) fn node_names<'a>(nodes: impl Iterator<Item = &'a Node>) -> BTreeSet<String> {
    nodes.filter_map(|node| node.metadata.name.clone()).collect()
}

pub(crate) fn has_disrupted_taint(node: &Node) -> bool {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.into_iter().any(|taint| taint.key == "karpenter.sh/disrupted")
}

pub(crate) fn is_deleting(claim: &NodeClaim) -> bool {
    claim.metadata.deletion_timestamp.is_some()
}

pub(crate) fn is_initialized(claim: &NodeClaim) -> bool {
    status_of(claim, "Initialized") == "True"
}

pub(crate) fn status_of(claim: &NodeClaim, kind: &str) -> &'static str {
    condition_of(claim, kind).0
}

pub(crate) fn label<'a, K: Resource>(object: &'a K, key: &str) -> &'a str {
    object.meta().labels.as_ref().and_then(|labels| labels.get(key)).map_or("", String::as_str)
}
