//! A test environment with an embedded API server, the AWS fake, the nodeclass controllers and a simulated clock.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event;
use karpenter_api::crds;
use karpenter_api::types::{EC2NodeClass, NodeClaim, NodePool};
use karpenter_apiserver::clock::Clock as ServerClock;
use karpenter_apiserver::{ApiServer, Config};
use karpenter_aws::fake::FakeAws;
use karpenter_aws::node_class::{
    ClassParts, ClassSettings, NodeClassHash, NodeClassStatus, NodeClasses, Sources,
};
use karpenter_aws::options::AwsFeatureGates;
use karpenter_aws::profiles::Profiles;
use karpenter_aws::provider::{AwsProvider, WatchedObjects};
use karpenter_aws::security_groups::SecurityGroups;
use karpenter_aws::subnets::Subnets;
use karpenter_cloud::{CloudError, CloudFuture, CloudProvider, Instance, NodeClassKind};
use karpenter_controllers::Context;
use karpenter_controllers::stores::Stores;
use karpenter_model::instance_type::InstanceType;
use karpenter_runtime::clock::Clock;
use karpenter_runtime::queue::Queue;
use karpenter_runtime::worker::{self, Shutdown};
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use super::assembly::assemble;
use super::sources::Plain;

pub(crate) const ROLE: &str = "KarpenterNodeRole-cluster";

struct OnTokio(Clock);

impl ServerClock for OnTokio {
    fn now(&self) -> Timestamp {
        self.0.now()
    }
}

/// A cloud provider for tests that launch nothing.
struct NoCloud;

impl CloudProvider for NoCloud {
    fn name(&self) -> &'static str {
        "aws"
    }

    fn node_class_kinds(&self) -> Vec<NodeClassKind> {
        let (group, version) = ("karpenter.k8s.aws", "v1");
        vec![NodeClassKind { group, version, kind: "EC2NodeClass", plural: "ec2nodeclasses" }]
    }

    fn well_known_labels(&self) -> BTreeSet<Arc<str>> {
        BTreeSet::new()
    }

    fn create<'a>(&'a self, _: &'a NodeClaim) -> CloudFuture<'a, Instance> {
        refused()
    }

    fn delete<'a>(&'a self, _: &'a NodeClaim) -> CloudFuture<'a, ()> {
        refused()
    }

    fn get<'a>(&'a self, _: &'a str) -> CloudFuture<'a, Instance> {
        refused()
    }

    fn list(&self) -> CloudFuture<'_, Vec<Instance>> {
        refused()
    }

    fn instance_types<'a>(&'a self, _: &'a NodePool) -> CloudFuture<'a, Arc<Vec<InstanceType>>> {
        refused()
    }

    fn drift_reason<'a>(&'a self, _: &'a NodeClaim) -> CloudFuture<'a, Option<String>> {
        refused()
    }
}

fn refused<'a, T: Send + 'a>() -> CloudFuture<'a, T> {
    Box::pin(std::future::ready(Err(CloudError::Transient { message: "no cloud".to_owned() })))
}

type Prepare<'a> = Box<dyn FnOnce(&FakeAws) + 'a>;

/// The completely built provider, and the function that prepares the fake for it.
struct Live<'a> {
    gates: AwsFeatureGates,
    provider: Option<AwsProvider>,
    prepare: Option<Prepare<'a>>,
}

pub(crate) struct World {
    pub(crate) client: Client,
    pub(crate) aws: Arc<FakeAws>,
    pub(crate) sources: Arc<Plain>,
    pub(crate) profiles: Arc<Profiles>,
    shutdown: Shutdown,
}

impl Drop for World {
    fn drop(&mut self) {
        self.shutdown.request();
    }
}

impl World {
    pub(crate) async fn start() -> Self {
        Self::start_with(|_, _| {}).await
    }

    /// Starts a test environment; `change` modifies the default settings.
    pub(crate) async fn start_with(change: impl FnOnce(&mut Context, &mut ClassSettings)) -> Self {
        Self::start_on(change, None).await
    }

    /// Like [`Self::start_with`], but with the completely built provider; `prepare` sets up the AWS fake first.
    pub(crate) async fn start_live(
        gates: AwsFeatureGates,
        prepare: impl FnOnce(&FakeAws),
    ) -> (Self, AwsProvider) {
        let mut wanted = Live { gates, provider: None, prepare: Some(Box::new(prepare)) };
        let world = Self::start_on(|_, _| {}, Some(&mut wanted)).await;
        (world, wanted.provider.expect("put together"))
    }

    async fn start_on(
        change: impl FnOnce(&mut Context, &mut ClassSettings),
        live: Option<&mut Live<'_>>,
    ) -> Self {
        let clock = Clock::starting_at("2026-01-01T12:00:00Z".parse().expect("a time"));
        let server = ApiServer::new(Config { clock: Arc::new(OnTokio(clock)), ..Config::default() });
        let client = Client::new(server, "default");
        define_kinds(&client).await;
        let cloud: Arc<dyn CloudProvider> = Arc::new(NoCloud);
        let (stores, _) = Stores::watch(&client, cloud.node_class_kinds());
        stores.synced().await;
        let mut context = Context::new(client.clone(), stores, cloud, clock);
        let aws = FakeAws::new(clock, "us-west-2");
        let apis = aws.apis();
        let plain = Arc::new(Plain::new(apis.clone()));
        let subnets = Arc::new(Subnets::new(apis.ec2.clone(), clock, Duration::from_secs(60)));
        let profiles = Arc::new(Profiles::new(apis.iam.clone(), clock, "cluster", "us-west-2"));
        let classes = NodeClasses::of(&context.stores).expect("the kind is watched");
        let mut sources: Arc<dyn Sources> = plain.clone();
        if let Some(live) = live {
            if let Some(prepare) = live.prepare.take() {
                prepare(&aws);
            }
            let objects = Arc::new(WatchedObjects {
                classes: classes.clone(),
                pools: context.stores.node_pools.clone(),
            });
            let (whole, provider) = assemble(&apis, clock, live.gates, subnets.clone(), objects).await;
            sources = Arc::new(whole);
            live.provider = Some(provider);
        }
        let parts = ClassParts {
            classes: classes.clone(),
            sources,
            ec2: apis.ec2.clone(),
            subnets,
            security_groups: Arc::new(SecurityGroups::new(apis.ec2, clock)),
            profiles: profiles.clone(),
        };
        let mut settings = ClassSettings { cluster_name: "cluster".to_owned(), ..ClassSettings::default() };
        change(&mut context, &mut settings);
        let shutdown = Shutdown::default();
        let status = Arc::new(NodeClassStatus::new(context.clone(), parts, settings));
        let queue = Queue::default();
        status.watch(&queue);
        tokio::spawn(worker::run(status, queue, 10, clock, shutdown.clone()));
        let hash = Arc::new(NodeClassHash::new(context, classes, Some("Q0E=".to_owned())));
        let queue = Queue::default();
        hash.watch(&queue);
        tokio::spawn(worker::run(hash, queue, 10, clock, shutdown.clone()));
        Self { client, aws, sources: plain, profiles, shutdown }
    }

    /// Creates a node class with a role; `changes` are merged into its spec.
    pub(crate) async fn create_class(&self, name: &str, changes: Value) {
        self.create_class_with(json!({"name": name}), changes).await;
    }

    pub(crate) async fn create_class_with(&self, metadata: Value, changes: Value) {
        let discovery = json!([{"tags": {"karpenter.sh/discovery": "cluster"}}]);
        let mut spec = json!({
            "role": ROLE,
            "amiSelectorTerms": [{"alias": "al2023@latest"}],
            "subnetSelectorTerms": discovery,
            "securityGroupSelectorTerms": discovery,
        });
        for (key, value) in changes.as_object().into_iter().flatten() {
            match value {
                Value::Null => drop(spec.as_object_mut().and_then(|spec| spec.remove(key))),
                value => spec[key] = value.clone(),
            }
        }
        let object = json!({
            "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": metadata, "spec": spec,
        });
        let object: DynamicObject = serde_json::from_value(object).expect("an object");
        self.classes().create(&PostParams::default(), &object).await.expect("created");
    }

    pub(crate) async fn patch_class(&self, name: &str, patch: Value) {
        self.classes().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.expect("patched");
    }

    pub(crate) async fn delete_class(&self, name: &str) {
        self.classes().delete(name, &DeleteParams::default()).await.expect("deleted");
    }

    fn classes(&self) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("karpenter.k8s.aws", "v1", "EC2NodeClass");
        Api::all_with(self.client.clone(), &ApiResource::from_gvk_with_plural(&kind, "ec2nodeclasses"))
    }

    pub(crate) async fn create_claim(&self, name: &str, class: &str, annotations: Value, conditions: Value) {
        let claims: Api<NodeClaim> = Api::all(self.client.clone());
        let reference = json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": class});
        let requirements = json!([{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}]);
        let claim = json!({
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"requirements": requirements, "nodeClassRef": reference},
        });
        let claim = serde_json::from_value(claim).expect("a claim");
        claims.create(&PostParams::default(), &claim).await.expect("created");
        let status = json!({"status": {"conditions": conditions}});
        claims.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.expect("a status");
    }

    pub(crate) async fn claim(&self, name: &str) -> NodeClaim {
        Api::all(self.client.clone()).get(name).await.expect("a claim")
    }

    pub(crate) async fn delete_claim(&self, name: &str) {
        let claims: Api<NodeClaim> = Api::all(self.client.clone());
        claims.delete(name, &DeleteParams::default()).await.expect("deleted");
    }

    /// Advances the simulated clock.
    pub(crate) async fn pass(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }

    pub(crate) async fn object(&self, name: &str) -> Option<DynamicObject> {
        self.classes().get_opt(name).await.expect("an answer")
    }

    /// The stored class.
    pub(crate) async fn class(&self, name: &str) -> EC2NodeClass {
        let object = self.object(name).await.expect("a class");
        karpenter_aws::node_class::read(&object).expect("a class that can be read")
    }

    /// Waits until a condition of the node class has the given status; returns the condition.
    pub(crate) async fn until(&self, name: &str, condition: &str, status: &str) -> Said {
        let mut last = None;
        for _ in 0..600 {
            let found = self.said(name, condition).await;
            if found.as_ref().is_some_and(|found| found.status == status) {
                return found.expect("it was there");
            }
            last = found;
            self.pass(Duration::from_millis(500)).await;
        }
        panic!("{condition} of {name} did not become {status}: {last:?}");
    }

    /// A condition of the node class.
    pub(crate) async fn said(&self, name: &str, condition: &str) -> Option<Said> {
        let object = self.object(name).await?;
        let conditions = object.data.pointer("/status/conditions")?.as_array()?.clone();
        let found = conditions.into_iter().find(|one| one["type"] == condition)?;
        let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
        Some(Said { status: text("status"), reason: text("reason"), message: text("message") })
    }

    /// The events about the node class: reason and message, sorted.
    pub(crate) async fn events(&self, name: &str) -> Vec<(String, String)> {
        let events: Api<Event> = Api::all(self.client.clone());
        let list = events.list(&ListParams::default()).await.expect("events");
        let about = |event: &Event| {
            event.regarding.as_ref().is_some_and(|object| object.name.as_deref() == Some(name))
        };
        let mut found: Vec<(String, String)> = list
            .items
            .iter()
            .filter(|event| about(event))
            .map(|event| (event.reason.clone().unwrap_or_default(), event.note.clone().unwrap_or_default()))
            .collect();
        found.sort();
        found
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) status: String,
    pub(crate) reason: String,
    pub(crate) message: String,
}

async fn define_kinds(client: &Client) {
    let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let definitions: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    for crd in crds::all() {
        let definition: DynamicObject = serde_saphyr::from_str(crd.yaml).expect("a definition");
        definitions.create(&PostParams::default(), &definition).await.expect("created");
    }
}
