//! Measures how long a burst of interruption messages takes, from sending the messages to the queue until the last
//! NodeClaim is deleted. Queue and API server run in the same process. There is one NodeClaim and one node per message;
//! one third of the messages each are spot interruptions, state changes and health events.
//!
//!     cargo run --release -p karpenter-aws --features fake --example interruption_flood [MESSAGES]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::StreamExt;
use futures::stream;
use k8s_openapi::api::core::v1::Node;
use karpenter_api::types::{NodeClaim, NodePool};
use karpenter_api::{crds, labels};
use karpenter_apiserver::{ApiServer, Config};
use karpenter_aws::fake::FakeAws;
use karpenter_aws::interruption::queue::{InterruptionQueue, RECEIVERS};
use karpenter_aws::interruption::{Feedback, Handler};
use karpenter_cloud::{CloudError, CloudFuture, CloudProvider, Instance, NodeClassKind};
use karpenter_controllers::Context;
use karpenter_controllers::stores::Stores;
use karpenter_model::instance_type::InstanceType;
use karpenter_runtime::clock::Clock;
use karpenter_runtime::queue::Queue;
use karpenter_runtime::worker::{self, Shutdown};
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

const QUEUE: &str = "flood";
const AT_ONCE: usize = 64;

struct NoFeedback;

impl Feedback for NoFeedback {
    fn mark_spot_unavailable(&self, _: &str, _: &str) {}

    fn mark_reservation_exhausted(&self, _: &str) {}
}

/// A cloud provider that has a node class kind and no other functions.
struct Cloud;

fn nothing<'a, T: Send + 'a>() -> CloudFuture<'a, T> {
    Box::pin(std::future::ready(Err(CloudError::Transient { message: "nothing here".to_owned() })))
}

impl CloudProvider for Cloud {
    fn name(&self) -> &'static str {
        "aws"
    }

    fn node_class_kinds(&self) -> Vec<NodeClassKind> {
        let [version, kind, plural] = ["v1", "EC2NodeClass", "ec2nodeclasses"];
        vec![NodeClassKind { group: labels::AWS_GROUP, version, kind, plural }]
    }

    fn well_known_labels(&self) -> BTreeSet<Arc<str>> {
        BTreeSet::new()
    }

    fn create<'a>(&'a self, _: &'a NodeClaim) -> CloudFuture<'a, Instance> {
        nothing()
    }

    fn delete<'a>(&'a self, _: &'a NodeClaim) -> CloudFuture<'a, ()> {
        nothing()
    }

    fn get<'a>(&'a self, _: &'a str) -> CloudFuture<'a, Instance> {
        nothing()
    }

    fn list(&self) -> CloudFuture<'_, Vec<Instance>> {
        nothing()
    }

    fn instance_types<'a>(&'a self, _: &'a NodePool) -> CloudFuture<'a, Arc<Vec<InstanceType>>> {
        nothing()
    }

    fn drift_reason<'a>(&'a self, _: &'a NodeClaim) -> CloudFuture<'a, Option<String>> {
        nothing()
    }
}

fn body(number: usize) -> String {
    let id = format!("i-{number:017x}");
    let (source, detail_type, detail) = match number % 3 {
        0 => ("aws.ec2", "EC2 Spot Instance Interruption Warning", json!({"instance-id": id})),
        1 => (
            "aws.ec2",
            "EC2 Instance State-change Notification",
            json!({"instance-id": id, "state": "shutting-down"}),
        ),
        _ => (
            "aws.health",
            "AWS Health Event",
            json!({"service": "EC2", "eventTypeCategory": "scheduledChange", "affectedEntities": [{"entityValue": id}]}),
        ),
    };
    let time = jiff::Timestamp::now();
    json!({"version": "0", "source": source, "detail-type": detail_type, "detail": detail, "time": time})
        .to_string()
}

async fn machine(client: &Client, number: usize) -> Result<()> {
    let name = format!("machine-{number}");
    let provider_id = format!("aws:///us-west-2a/i-{number:017x}");
    let of_both =
        json!({labels::NODEPOOL: "default", labels::INSTANCE_TYPE: "m5.large", labels::ZONE: "us-west-2a"});
    let claim: NodeClaim = serde_json::from_value(json!({
        "metadata": {"name": name, "labels": of_both, "finalizers": ["karpenter.sh/termination"]},
        "spec": {
            "nodeClassRef": {"group": labels::AWS_GROUP, "kind": "EC2NodeClass", "name": "default"},
            "requirements": [],
        },
    }))?;
    let claims: Api<NodeClaim> = Api::all(client.clone());
    claims.create(&PostParams::default(), &claim).await?;
    let status = Patch::Merge(json!({"status": {"providerID": provider_id}}));
    claims.patch_status(&name, &PatchParams::default(), &status).await?;
    let node: Node = serde_json::from_value(
        json!({"metadata": {"name": name, "labels": of_both}, "spec": {"providerID": provider_id}}),
    )?;
    Api::<Node>::all(client.clone()).create(&PostParams::default(), &node).await?;
    Ok(())
}

async fn define_kinds(client: &Client) -> Result<()> {
    let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    for crd in crds::all() {
        let definition: Value = serde_saphyr::from_str(crd.yaml)?;
        api.patch(crd.name, &PatchParams::apply("flood").force(), &Patch::Apply(&definition)).await?;
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    let messages: usize = match std::env::args().nth(1) {
        None => 15_000,
        Some(text) => text.parse().context("the number of messages is not a number")?,
    };
    let clock = Clock::system();
    let client = Client::new(ApiServer::new(Config::default()), "default");
    define_kinds(&client).await?;
    let (stores, _watches) = Stores::watch(&client, Cloud.node_class_kinds());
    stores.synced().await;
    let makings: Vec<Result<()>> = stream::iter((0..messages).map(|number| machine(&client, number)))
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    makings.into_iter().collect::<Result<()>>()?;
    while stores.node_claims.len() < messages || stores.nodes.len() < messages {
        clock.sleep(Duration::from_millis(10)).await;
    }
    let aws = FakeAws::new(clock, "us-west-2");
    (0..messages).for_each(|number| aws.send_message(QUEUE, body(number)));

    let context = Context::new(client.clone(), stores.clone(), Arc::new(Cloud), clock);
    let shutdown = Shutdown::default();
    let handler = Handler::new(context, Arc::new(NoFeedback));
    let receivers = InterruptionQueue::new(handler, aws.apis().sqs, QUEUE, shutdown.clone());
    let keys = Queue::default();
    receivers.watch(&keys);
    let started = std::time::Instant::now();
    let running = tokio::spawn(worker::run(Arc::new(receivers), keys, RECEIVERS, clock, shutdown.clone()));
    let left = || aws.world(|world| world.queues.get(QUEUE).map_or(0, Vec::len));
    while left() > 0 {
        clock.sleep(Duration::from_millis(5)).await;
    }
    let took = started.elapsed();
    let ending =
        stores.node_claims.list().iter().filter(|claim| claim.metadata.deletion_timestamp.is_some()).count();
    let per_second = messages as f64 / took.as_secs_f64();
    println!(
        "{messages} messages, {ending} claims ending: {:.2} s, {per_second:.0} messages/s",
        took.as_secs_f64()
    );
    shutdown.request();
    running.await.context("the receivers did not end")?;
    Ok(())
}
