//! A test environment with an embedded cluster, the AWS fake with instances that boot, and Karpenter as in the binary.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use karpenter_api::types::{NodeClaim, NodePool};
use karpenter_api::{crds, labels};
use karpenter_apiserver::clock::Clock as ServerClock;
use karpenter_apiserver::{ApiServer, Config};
use karpenter_aws::api::ec2::InstanceState;
use karpenter_aws::assembly::{Assembly, AssemblyInputs, StartError};
use karpenter_aws::call_metrics::CallMetrics;
use karpenter_aws::fake::FakeAws;
use karpenter_aws::instance_calls::provider_id;
use karpenter_aws::options::AwsOptions;
use karpenter_controllers::Context;
use karpenter_controllers::FeatureGates;
use karpenter_controllers::operator::legacy_api;
use karpenter_controllers::operator::{Operator, Options};
use karpenter_embedded::control_plane::{Cluster, Options as ClusterOptions};
use karpenter_runtime::clock::Clock;
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

const EPOCH: &str = "2026-01-01T12:00:00Z";
pub(crate) const QUEUE: &str = "cluster";

struct OnTokio(Clock);

impl ServerClock for OnTokio {
    fn now(&self) -> Timestamp {
        self.0.now()
    }
}

pub(crate) struct World {
    pub(crate) client: Client,
    pub(crate) clock: Clock,
    pub(crate) aws: Arc<FakeAws>,
    /// The metrics of AWS calls, which the SDK client would record.
    pub(crate) calls: CallMetrics,
    operator: Option<Operator>,
    _cluster: Cluster,
}

impl World {
    pub(crate) async fn start() -> Self {
        let clock = Clock::starting_at(EPOCH.parse().expect("a time"));
        let server = ApiServer::new(Config { clock: Arc::new(OnTokio(clock)), ..Config::default() });
        let client = Client::new(server, "default");
        define_kinds(&client).await;
        let cluster =
            Cluster::start(client.clone(), ClusterOptions { clock, ..ClusterOptions::default() }).await;
        let aws = FakeAws::new(clock, "us-west-2");
        aws.world(|world| {
            for minor in 26..=37 {
                world.add_al2023_images(&format!("1.{minor}"));
            }
            world.queues.entry(QUEUE.to_owned()).or_default();
        });
        let calls = CallMetrics::default();
        let mut world = Self { client, clock, aws, calls, operator: None, _cluster: cluster };
        world.start_karpenter().await;
        world
    }

    pub(crate) async fn assemble(&self) -> Result<Assembly, StartError> {
        self.assemble_with(AwsOptions::default()).await
    }

    /// `options` are the options of the provider, except those that depend on this cluster.
    pub(crate) async fn assemble_with(&self, options: AwsOptions) -> Result<Assembly, StartError> {
        let options = AwsOptions {
            cluster_name: "cluster".to_owned(),
            interruption_queue: QUEUE.to_owned(),
            ..options
        };
        let inputs = AssemblyInputs {
            apis: self.aws.apis(),
            region: "us-west-2".to_owned(),
            client: self.client.clone(),
            clock: self.clock,
            options,
            gates: FeatureGates::default(),
            min_values_are_strict: true,
            own_ca_bundle: Some("Y2E=".to_owned()),
            calls: self.calls.clone(),
        };
        Assembly::build(inputs).await
    }

    /// Starts the controllers as `karpenter controller --provider aws` does.
    pub(crate) async fn start_karpenter(&mut self) {
        self.start_karpenter_with(Options::default()).await;
    }

    pub(crate) async fn start_karpenter_with(&mut self, options: Options) {
        let assembly = self.assemble().await.expect("everything is there");
        self.start_assembled(assembly, options).await;
    }

    pub(crate) async fn start_assembled(&mut self, assembly: Assembly, options: Options) {
        let cloud = Arc::new(assembly.provider());
        let mut operator = Operator::watch(self.client.clone(), cloud, self.clock, options);
        assembly.attach(operator.context());
        operator.start().await;
        assembly.start(&mut operator);
        self.operator = Some(operator);
    }

    /// Serves the v1alpha5 API as well; its CustomResourceDefinitions must be installed.
    pub(crate) async fn serve_legacy(&mut self) {
        let options = karpenter_legacy::Options {
            default_instance_profile: Some("nodes".to_owned()),
            ..karpenter_legacy::Options::default()
        };
        if let Some(operator) = &mut self.operator {
            legacy_api::serve(operator, options).await;
        }
    }

    pub(crate) async fn stop_karpenter(&mut self) {
        if let Some(operator) = self.operator.take() {
            operator.stop().await;
        }
    }

    pub(crate) fn context(&self) -> &Context {
        self.operator.as_ref().expect("it runs").context()
    }

    /// The exported metrics.
    pub(crate) fn page(&self) -> String {
        let pages = self.operator.as_ref().expect("it runs").metrics_pages();
        String::from_utf8(pages("/metrics", "").body).expect("text")
    }

    /// Creates the node class and the NodePool of the getting-started guide.
    pub(crate) async fn introduce(&self) {
        self.introduce_with(json!({})).await;
    }

    /// Like `introduce`, but `spec` is merged into the spec of the node class.
    pub(crate) async fn introduce_with(&self, spec: Value) {
        let kind = GroupVersionKind::gvk(labels::AWS_GROUP, "v1", "EC2NodeClass");
        let classes: Api<DynamicObject> =
            Api::all_with(self.client.clone(), &ApiResource::from_gvk_with_plural(&kind, "ec2nodeclasses"));
        let discovery = json!([{"tags": {"karpenter.sh/discovery": "cluster"}}]);
        let mut class = json!({
            "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "default"},
            "spec": {
                "role": "KarpenterNodeRole-cluster", "amiSelectorTerms": [{"alias": "al2023@latest"}],
                "subnetSelectorTerms": discovery, "securityGroupSelectorTerms": discovery,
            },
        });
        json_patch::merge(&mut class["spec"], &spec);
        let class = serde_json::from_value(class).expect("a class");
        classes.create(&PostParams::default(), &class).await.expect("created");
        let requirement =
            |key: &str, values: &[&str]| json!({"key": key, "operator": "In", "values": values});
        let pool: NodePool = serde_json::from_value(json!({
            "metadata": {"name": "default"},
            "spec": {
                "template": {"spec": {
                    "requirements": [
                        requirement(labels::ARCH, &["amd64"]), requirement(labels::OS, &["linux"]),
                        requirement(labels::CAPACITY_TYPE, &["spot"]),
                        requirement("karpenter.k8s.aws/instance-category", &["c", "m", "r"]),
                    ],
                    "nodeClassRef": {"group": labels::AWS_GROUP, "kind": "EC2NodeClass", "name": "default"},
                    "expireAfter": "720h",
                }},
                "limits": {"cpu": 1000},
                "disruption": {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "1m"},
            },
        }))
        .expect("a pool");
        Api::all(self.client.clone()).create(&PostParams::default(), &pool).await.expect("created");
    }

    pub(crate) async fn inflate(&self, replicas: i32) {
        let api: Api<Deployment> = Api::namespaced(self.client.clone(), "default");
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "inflate"},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": {"app": "inflate"}},
                "template": {
                    "metadata": {"labels": {"app": "inflate"}},
                    "spec": {
                        "terminationGracePeriodSeconds": 0,
                        "containers": [{
                            "name": "inflate", "image": "pause", "resources": {"requests": {"cpu": "1"}},
                        }],
                    },
                },
            },
        });
        let patch = Patch::Apply(&deployment);
        api.patch("inflate", &PatchParams::apply("test").force(), &patch).await.expect("applied");
    }

    /// Advances the simulated clock. Running instances boot; when they terminate, their nodes are deleted.
    pub(crate) async fn pass(&self, time: Duration) {
        let end = self.clock.now().checked_add(time).expect("a time");
        while self.clock.now() < end {
            self.clock.sleep(Duration::from_secs(1)).await;
            self.boot().await;
        }
    }

    async fn boot(&self) {
        let claims: Api<NodeClaim> = Api::all(self.client.clone());
        let nodes: Api<Node> = Api::all(self.client.clone());
        let there: BTreeSet<String> = nodes
            .list(&ListParams::default())
            .await
            .expect("nodes")
            .items
            .into_iter()
            .filter_map(|node| node.spec?.provider_id)
            .collect();
        let claims = claims.list(&ListParams::default()).await.expect("claims").items;
        let running: Vec<String> = self.aws.world(|world| {
            let running = |id: &&String| world.instances[*id].instance.state == InstanceState::Running;
            world
                .instances
                .keys()
                .filter(running)
                .map(|id| provider_id(&world.instances[id].instance))
                .collect()
        });
        for id in running.into_iter().filter(|id| !there.contains(id)) {
            let has_id = |claim: &&NodeClaim| {
                claim.status.as_ref().and_then(|status| status.provider_id.as_deref()) == Some(id.as_str())
            };
            let Some(claim) = claims.iter().find(has_id) else { continue };
            let status = claim.status.clone().unwrap_or_default();
            let name = format!("ip-{}", id.rsplit('/').next().unwrap_or_default());
            let node: Node = serde_json::from_value(json!({
                "metadata": {
                    "name": name, "annotations": {"kwok.x-k8s.io/node": "fake"},
                    "labels": {"kubernetes.io/hostname": name, "karpenter.sh/do-not-sync-taints": "true"},
                },
                "spec": {
                    "providerID": id,
                    "taints": [{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}],
                },
                "status": {"capacity": status.capacity, "allocatable": status.allocatable},
            }))
            .expect("a node");
            let created = nodes.create(&PostParams::default(), &node).await.expect("created");
            let patch = Patch::Merge(json!({ "status": node.status }));
            let name = created.metadata.name.unwrap_or_default();
            nodes.patch_status(&name, &PatchParams::default(), &patch).await.expect("status");
        }
    }

    pub(crate) async fn running_pods(&self) -> usize {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), "default");
        let pods = pods.list(&ListParams::default()).await.expect("pods").items;
        let is_running = |pod: &&Pod| {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            phase == Some("Running") && pod.metadata.deletion_timestamp.is_none()
        };
        pods.iter().filter(is_running).count()
    }

    pub(crate) async fn nodes(&self) -> Vec<Node> {
        let api: Api<Node> = Api::all(self.client.clone());
        api.list(&ListParams::default()).await.expect("nodes").items
    }

    pub(crate) async fn claims(&self) -> Vec<NodeClaim> {
        let api: Api<NodeClaim> = Api::all(self.client.clone());
        api.list(&ListParams::default()).await.expect("claims").items
    }

    /// The ids of instances that are not terminating.
    pub(crate) fn machines(&self) -> Vec<String> {
        self.aws.world(|world| {
            let alive = |id: &&String| !world.instances[*id].instance.state.is_terminating();
            world.instances.keys().filter(alive).cloned().collect()
        })
    }

    pub(crate) async fn class(&self) -> Value {
        let kind = GroupVersionKind::gvk(labels::AWS_GROUP, "v1", "EC2NodeClass");
        let classes: Api<DynamicObject> =
            Api::all_with(self.client.clone(), &ApiResource::from_gvk_with_plural(&kind, "ec2nodeclasses"));
        classes.get("default").await.expect("there").data
    }
}

async fn define_kinds(client: &Client) {
    define(client, crds::all()).await;
}

pub(crate) async fn define(client: &Client, definitions: &[crds::Crd]) {
    let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    for crd in definitions {
        let definition: Value = serde_saphyr::from_str(crd.yaml).expect("YAML");
        let parameters = PatchParams::apply("test").force();
        api.patch(crd.name, &parameters, &Patch::Apply(&definition)).await.expect("defined");
    }
}
