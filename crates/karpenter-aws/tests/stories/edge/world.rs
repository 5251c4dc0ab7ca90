//! An embedded API server, the AWS fake, and the controllers of one scenario test.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::Request;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, Node};
use karpenter_api::types::{NodeClaim, NodePool};
use karpenter_api::{crds, labels};
use karpenter_apiserver::clock::Clock as ServerClock;
use karpenter_apiserver::{ApiServer, Config};
use karpenter_aws::api::ec2::{Ec2Instance, InstanceQuery, InstanceState};
use karpenter_aws::api::iam::InstanceProfile;
use karpenter_aws::api::{AwsApis, AwsError, AwsFuture, TagFilter, Tags};
use karpenter_aws::fake::FakeAws;
use karpenter_aws::garbage_collection::Profiles;
use karpenter_aws::instance_calls::InstanceCalls;
use karpenter_aws::interruption::{Feedback, Handler};
use karpenter_cloud::{CloudError, CloudFuture, CloudProvider, Instance, NodeClassKind};
use karpenter_controllers::Context;
use karpenter_controllers::stores::Stores;
use karpenter_model::instance_type::InstanceType;
use karpenter_runtime::clock::Clock;
use karpenter_runtime::queue::Queue;
use karpenter_runtime::worker::{self, Reconcile, Shutdown};
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

pub(crate) const EPOCH: &str = "2026-01-01T12:00:00Z";
pub(crate) const QUEUE: &str = "interruptions";
pub(crate) const ZONE: &str = "us-west-2a";

struct OnTokio(Clock);

impl ServerClock for OnTokio {
    fn now(&self) -> Timestamp {
        self.0.now()
    }
}

/// What was marked as unavailable, in order.
#[derive(Default)]
pub(crate) struct Closed(Mutex<Vec<String>>);

impl Closed {
    fn push(&self, text: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(text);
    }

    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Feedback for Closed {
    fn mark_spot_unavailable(&self, instance_type: &str, zone: &str) {
        self.push(format!("{instance_type} in {zone}"));
    }

    fn mark_reservation_exhausted(&self, reservation_id: &str) {
        self.push(reservation_id.to_owned());
    }
}

/// Reads the instances of the fake without a cache.
pub(crate) struct Direct(pub(crate) AwsApis);

impl InstanceCalls for Direct {
    fn list(&self) -> AwsFuture<'_, Vec<Ec2Instance>> {
        Box::pin(async move {
            let query = InstanceQuery {
                tags: vec![TagFilter::exists(labels::NODEPOOL)],
                states: InstanceState::ALIVE.to_vec(),
                ..InstanceQuery::default()
            };
            self.0.ec2.describe_instances(&query).await
        })
    }

    fn get<'a>(&'a self, instance_id: &'a str) -> AwsFuture<'a, Ec2Instance> {
        Box::pin(async move {
            let query = InstanceQuery { ids: vec![instance_id.to_owned()], ..InstanceQuery::default() };
            let found = self.0.ec2.describe_instances(&query).await?;
            found
                .into_iter()
                .next()
                .ok_or_else(|| AwsError::new("InvalidInstanceID.NotFound", "no such instance"))
        })
    }

    fn terminate<'a>(&'a self, instance_id: &'a str) -> AwsFuture<'a, ()> {
        Box::pin(async move { self.0.ec2.terminate_instances(&[instance_id.to_owned()]).await.map(drop) })
    }

    fn create_tags<'a>(&'a self, instance_id: &'a str, tags: &'a Tags) -> AwsFuture<'a, ()> {
        Box::pin(async move { self.0.ec2.create_tags(&[instance_id.to_owned()], tags).await })
    }
}

impl Profiles for Direct {
    fn list<'a>(&'a self, path_prefix: &'a str) -> AwsFuture<'a, Vec<InstanceProfile>> {
        self.0.iam.list_instance_profiles(path_prefix)
    }

    fn delete<'a>(&'a self, name: &'a str) -> AwsFuture<'a, ()> {
        self.0.iam.delete_instance_profile(name)
    }

    fn protected(&self) -> BTreeSet<String> {
        BTreeSet::from(["fresh".to_owned()])
    }
}

/// A provider with a node class kind and a configurable list of instances.
pub(crate) struct Cloud(pub(crate) Mutex<Vec<Instance>>);

impl CloudProvider for Cloud {
    fn name(&self) -> &'static str {
        "aws"
    }

    fn node_class_kinds(&self) -> Vec<NodeClassKind> {
        let kind = NodeClassKind {
            group: labels::AWS_GROUP,
            version: "v1",
            kind: "EC2NodeClass",
            plural: "ec2nodeclasses",
        };
        vec![kind]
    }

    fn well_known_labels(&self) -> BTreeSet<Arc<str>> {
        BTreeSet::new()
    }

    fn create<'a>(&'a self, _: &'a NodeClaim) -> CloudFuture<'a, Instance> {
        Box::pin(async { Err(CloudError::Transient { message: "not here".to_owned() }) })
    }

    fn delete<'a>(&'a self, _: &'a NodeClaim) -> CloudFuture<'a, ()> {
        Box::pin(async { Err(CloudError::Transient { message: "not here".to_owned() }) })
    }

    fn get<'a>(&'a self, _: &'a str) -> CloudFuture<'a, Instance> {
        Box::pin(async { Err(CloudError::NotFound { message: "not here".to_owned() }) })
    }

    fn list(&self) -> CloudFuture<'_, Vec<Instance>> {
        Box::pin(async { Ok(self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()) })
    }

    fn instance_types<'a>(&'a self, _: &'a NodePool) -> CloudFuture<'a, Arc<Vec<InstanceType>>> {
        Box::pin(async { Ok(Arc::default()) })
    }

    fn drift_reason<'a>(&'a self, _: &'a NodeClaim) -> CloudFuture<'a, Option<String>> {
        Box::pin(async { Ok(None) })
    }
}

pub(crate) struct World {
    pub(crate) client: Client,
    pub(crate) clock: Clock,
    pub(crate) aws: Arc<FakeAws>,
    pub(crate) cloud: Arc<Cloud>,
    pub(crate) context: Context,
    pub(crate) closed: Arc<Closed>,
    pub(crate) handler: Handler,
    pub(crate) shutdown: Shutdown,
    refused: Arc<Mutex<BTreeSet<String>>>,
}

impl World {
    pub(crate) async fn start() -> Self {
        let clock = Clock::starting_at(EPOCH.parse().expect("a time"));
        let server = ApiServer::new(Config { clock: Arc::new(OnTokio(clock)), ..Config::default() });
        let refused: Arc<Mutex<BTreeSet<String>>> = Arc::default();
        let names = Arc::clone(&refused);
        let service = tower::service_fn(move |request: Request<Body>| {
            let is_read = request.method() == http::Method::GET;
            let name = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
            let names = names.lock().unwrap_or_else(PoisonError::into_inner);
            let (server, is_refused) = (server.clone(), !is_read && names.contains(&name));
            async move {
                if is_refused {
                    return Err("the connection was lost".into());
                }
                Ok::<_, tower::BoxError>(server.handle(request).await)
            }
        });
        let client = Client::new(service, "default");
        define_kinds(&client).await;
        let aws = FakeAws::new(clock, "us-west-2");
        aws.world(|world| world.queues.entry(QUEUE.to_owned()).or_default().clear());
        let cloud = Arc::new(Cloud(Mutex::default()));
        let (stores, _) = Stores::watch(&client, cloud.node_class_kinds());
        stores.synced().await;
        let context = Context::new(client.clone(), stores, cloud.clone(), clock);
        let closed = Arc::new(Closed::default());
        let handler = Handler::new(context.clone(), closed.clone());
        Self { client, clock, aws, cloud, context, closed, handler, shutdown: Shutdown::default(), refused }
    }

    /// Makes all later writes to objects of this name fail.
    pub(crate) fn refuse_writes_of(&self, name: &str) {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned());
    }

    pub(crate) fn machines(&self) -> Arc<Direct> {
        Arc::new(Direct(self.aws.apis()))
    }

    pub(crate) fn spawn<R: Reconcile>(&self, work: R, watch: fn(&R, &Queue), workers: usize) {
        let queue = Queue::default();
        watch(&work, &queue);
        tokio::spawn(worker::run(Arc::new(work), queue, workers, self.clock, self.shutdown.clone()));
    }

    /// Advances the simulated clock and runs all tasks that become due.
    pub(crate) async fn pass(&self, time: Duration) {
        self.clock.sleep(time).await;
    }

    pub(crate) async fn create<K>(&self, object: Value) -> K
    where
        K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
    {
        let object: K = serde_json::from_value(object).expect("an object of the kind");
        let api: Api<K> = Api::all(self.client.clone());
        let created = api.create(&PostParams::default(), &object).await.expect("created");
        let name = created.meta().name.clone().unwrap_or_default();
        // The status needs a request of its own.
        let status = serde_json::to_value(&object).expect("JSON").get("status").cloned();
        match status {
            Some(status) => api
                .patch_status(&name, &PatchParams::default(), &Patch::Merge(json!({ "status": status })))
                .await
                .expect("status"),
            None => created,
        }
    }

    /// Creates a NodeClaim with an instance and a node. A finalizer keeps the NodeClaim when it is deleted.
    pub(crate) async fn claim(&self, name: &str, instance_id: &str, more: Value) -> NodeClaim {
        let provider_id = format!("aws:///{ZONE}/{instance_id}");
        let mut of_claim = json!({
            labels::NODEPOOL: "default", labels::INSTANCE_TYPE: "m5.large", labels::ZONE: ZONE,
            labels::CAPACITY_TYPE: "spot",
        });
        json_patch::merge(&mut of_claim, &more);
        let claim = self
            .create(json!({
                "metadata": {"name": name, "labels": of_claim, "finalizers": ["karpenter.sh/termination"]},
                "spec": {
                    "nodeClassRef": {"group": labels::AWS_GROUP, "kind": "EC2NodeClass", "name": "default"},
                    "requirements": [],
                },
                "status": {"providerID": provider_id, "nodeName": name},
            }))
            .await;
        json_patch::merge(&mut of_claim, &json!({labels::REGISTERED: "true"}));
        self.create::<Node>(json!({
            "metadata": {"name": name, "labels": of_claim}, "spec": {"providerID": provider_id},
        }))
        .await;
        claim
    }

    pub(crate) async fn class(&self, name: &str, status: Value) {
        let kind = GroupVersionKind::gvk(labels::AWS_GROUP, "v1", "EC2NodeClass");
        let resource = ApiResource::from_gvk_with_plural(&kind, "ec2nodeclasses");
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let object: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": name},
            "spec": {
                "role": "r", "amiSelectorTerms": [{"alias": "al2023@latest"}],
                "subnetSelectorTerms": [{"id": "subnet-1"}], "securityGroupSelectorTerms": [{"id": "sg-1"}],
            },
        }))
        .expect("a class");
        api.create(&PostParams::default(), &object).await.expect("created");
        let patch = Patch::Merge(json!({ "status": status }));
        api.patch_status(name, &PatchParams::default(), &patch).await.expect("status");
    }

    pub(crate) async fn get_claim(&self, name: &str) -> Option<NodeClaim> {
        Api::<NodeClaim>::all(self.client.clone()).get_opt(name).await.expect("an answer")
    }

    pub(crate) async fn is_terminating(&self, name: &str) -> bool {
        self.get_claim(name).await.is_none_or(|claim| claim.metadata.deletion_timestamp.is_some())
    }

    /// The kind, name and reason of every event, sorted.
    pub(crate) async fn events(&self) -> Vec<String> {
        let api: Api<Event> = Api::all(self.client.clone());
        let events = api.list(&ListParams::default()).await.expect("events");
        let mut lines: Vec<String> = events
            .items
            .into_iter()
            .map(|event| {
                let about = event.involved_object;
                let [kind, name] = [about.kind, about.name].map(Option::unwrap_or_default);
                format!("{kind} {name} {}", event.reason.unwrap_or_default())
            })
            .collect();
        lines.sort();
        lines
    }

    /// The value of an exported series; 0 if it does not exist.
    pub(crate) fn metric(&self, series: &str) -> f64 {
        let page = self.context.metrics.render();
        let line = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.and_then(|value| value.parse().ok()).unwrap_or_default()
    }

    pub(crate) fn messages_left(&self) -> usize {
        self.aws.world(|world| world.queues.get(QUEUE).map_or(0, Vec::len))
    }
}

async fn define_kinds(client: &Client) {
    let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    for crd in crds::all() {
        let definition: Value = serde_saphyr::from_str(crd.yaml).expect("YAML");
        let parameters = PatchParams::apply("test").force();
        api.patch(crd.name, &parameters, &Patch::Apply(&definition)).await.expect("defined");
    }
}
